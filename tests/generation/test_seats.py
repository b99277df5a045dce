"""A model for each seat: what a seat inherits, who is drawn, and what each model was paid, also after kills."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from camel.core.errors import InputError
from camel.core.message import Sampling, Usage
from camel.generation.config import GenerateConfig, read_config
from camel.generation.plan import make_plan
from camel.generation.seats import Candidate, Seat, read_seats
from camel.jobs.budget import Budget
from camel.jobs.status import read_status
from camel.library.run import Run
from camel.models.prices import ModelPrice
from camel.models.simulator import SimulatorSettings
from camel.models.simulator.ledger import read_rows
from camel.models.spec import ModelSpec
from tests.support.endpoints import serve
from tests.support.in_process import camel
from tests.support.jobs import generation

DEFAULT = {
    "name": "big",
    "base_url": "http://one/v1",
    "key_variable": "ONE_KEY",
    "price": {"input": 1.0, "output": 2.0},
    "context_tokens": 1000,
    "rpm": 60,
}


def seat(**table: Any) -> dict[str, Any]:
    return read_seats({"user": table}, DEFAULT)["user"]


def test_a_seat_has_from_the_default_what_fits_its_model_and_endpoint():
    assert seat(sampling={"temperature": 1})["candidates"][0]["model"] == DEFAULT
    other = seat(name="small")["candidates"][0]["model"]
    assert other == {"name": "small", "base_url": "http://one/v1", "key_variable": "ONE_KEY", "rpm": 60}
    for name, spec in (
        ("small@http://two/v1", ModelSpec("small", "http://two/v1")),
        ("ollama:x", ModelSpec("ollama:x")),
    ):
        assert ModelSpec(**seat(model=name)["candidates"][0]["model"]) == spec
    drawn = seat(choose=[{"model": "a", "weight": 3}, {"model": "b", "prompt": "You are <USER_ROLE>."}])
    assert [one["model"]["name"] for one in drawn["candidates"]] == ["a", "b"]
    assert drawn["candidates"][1]["prompt"]


@pytest.mark.parametrize(
    ("tables", "names"),
    [
        ({"user": {"nam": "x"}}, ["models.user", "nam", "name"]),
        ({"user": {"choose": [{"modle": "x"}]}}, ["models.user.choose", "modle"]),
        ({"user": {"name": "x", "choose": [{"model": "y"}]}}, ["models.user"]),
        ({"user": "x"}, ["models.user"]),
    ],
)
def test_mistakes_are_named(tables: dict[str, Any], names: list[str]):
    with pytest.raises(InputError) as caught:
        read_seats(tables, DEFAULT)
    assert all(name in str(caught.value) for name in names)


def test_weights_decide_how_often_a_model_is_drawn():
    one = Seat(
        tuple(Candidate(ModelSpec(name), weight=weight) for name, weight in (("a", 3), ("b", 1), ("c", 0)))
    )
    drawn = Counter(one.drawn("assistant", f"{number:06}") for number in range(4000))
    assert drawn[2] == 0
    expected = {0: 3000, 1: 1000}
    chi_square = sum((drawn[place] - count) ** 2 / count for place, count in expected.items())
    assert chi_square < 10.83, "one in a thousand would be further off"
    assert [one.drawn("user", str(n)) for n in range(50)] != [
        one.drawn("assistant", str(n)) for n in range(50)
    ]
    with pytest.raises(InputError):
        Seat((Candidate(ModelSpec("a"), weight=0),))


# ---------------------------------------------------------------- a run

PRICES = {
    "big": ModelPrice(1.0, 3.0),
    "small": ModelPrice(0.2, 0.4),
    "other": ModelPrice(0.7, 0.9),
    "judge": ModelPrice(5.0, 15.0),
}
SCENARIO = """
title = "Kitchen"
[[levels]]
name = "cook"
items = ["Baker", "Chef", "Grocer", "Brewer", "Farmer"]
[[levels]]
name = "dish"
items = ["Soup", "Cake", "Bread"]
[role_play]
assistant = "<COOK>"
user = "Guest"
task = "Prepare <DISH>"
max_messages = 4
[critic]
proposals = 2
seats = ["assistant"]
"""
CONFIG = """
scenario = "kitchen"
out = "run"
shard_size = 4
[model]
name = "big"
base_url = "{big}"
price = {{ input = 1.0, output = 3.0 }}
[models.user]
model = "small@{small}"
price = {{ input = 0.2, output = 0.4 }}
sampling = {{ temperature = 0.9 }}
[models.assistant]
choose = [
  {{ model = "big", weight = 2 }},
  {{ model = "other@{other}", weight = 1, price = {{ input = 0.7, output = 0.9 }}, prompt = "You are a frugal <ASSISTANT_ROLE>. <TASK>" }},
]
[models.critic]
model = "judge@{judge}"
price = {{ input = 5.0, output = 15.0 }}
[run]
concurrency = 3
"""
KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from camel.generation.config import read_config
from camel.jobs.budget import MeteredModel
from tests.support.jobs import generation

left, send = int(sys.argv[1]), MeteredModel._send

async def killing(self, request):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    return await send(self, request)

MeteredModel._send = killing
asyncio.run(generation(read_config(Path("camel.toml"))).run())
"""


def kitchen(folder: Path, stack: ExitStack) -> dict[str, Path]:
    """Write the files; the ledgers of the four servers, by model."""
    (folder / "kitchen").mkdir()
    (folder / "kitchen" / "scenario.toml").write_text(SCENARIO)
    ledgers = {name: folder / f"{name}.jsonl" for name in PRICES}
    urls = {
        name: stack.enter_context(serve(SimulatorSettings(model=name, ledger_path=str(path)))).base_url
        for name, path in ledgers.items()
    }
    (folder / "camel.toml").write_text(CONFIG.format(**urls))
    return ledgers


def billed(path: Path, price: ModelPrice) -> Usage:
    """What a server has billed for, each request once: those in flight at a kill are sent again."""
    rows = {row.hash: row for row in read_rows(path) if row.billed}
    total = Usage()
    for row in rows.values():
        usage = Usage(row.prompt_tokens, row.completion_tokens, row.cached_tokens, 1)
        total += msgspec.structs.replace(usage, usd=price.cost(usage))
    return total


@pytest.mark.slow
def test_four_models_are_paid_what_their_servers_say_through_five_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    root = Path(__file__).parents[2]
    with ExitStack() as stack:
        ledgers = kitchen(tmp_path, stack)
        for kill in (9, 14, 6, 17, 11):
            command = [sys.executable, "-c", KILLED, str(kill)]
            environment = {
                "PYTHONPATH": f"{root / 'src'}:{root}",
                "PATH": "/usr/bin:/bin",
                "HOME": str(tmp_path),
            }
            ended = subprocess.run(command, cwd=tmp_path, env=environment, timeout=600, check=False)
            assert ended.returncode == -signal.SIGKILL, "it ended before it could be killed"
        done = camel("generate", "camel.toml", folder=tmp_path)
        assert done.status == 0, done.stderr
        status = read_status(tmp_path / "run")
    config = read_config(tmp_path / "camel.toml")
    assert status.models.keys() == PRICES.keys()
    for name, path in ledgers.items():
        found, expected = status.models[name], billed(path, PRICES[name])
        assert (found.calls, found.prompt, found.completion) == (
            expected.calls,
            expected.prompt,
            expected.completion,
        )
        assert found.usd == pytest.approx(expected.usd, abs=1e-9), "to the micro-dollar"
    assert status.money == pytest.approx(sum(one.usd for one in status.models.values()), abs=1e-9)
    drawn = config.models["assistant"]
    models = [one.model.name for one in drawn.candidates]
    for conversation in Run(tmp_path / "run"):
        expected = models[drawn.drawn("assistant", conversation.id)]
        speakers = {one.name: one for one in conversation.speakers}
        assert speakers["assistant"].model == expected
        assert ("frugal" in speakers["assistant"].system) is (expected == "other")
        assert (speakers["user"].model, speakers["user"].sampling) == ("small", Sampling(temperature=0.9))
        assert {one.deliberation.critic for one in conversation.messages if one.deliberation} == {"judge"}


async def test_the_budget_of_a_seat_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:
        kitchen(tmp_path, stack)
        config = read_config(tmp_path / "camel.toml")
        poor = msgspec.structs.replace(config.models["critic"], budget=Budget(calls=5))
        limited = msgspec.structs.replace(config, models={**config.models, "critic": poor})
        runner = generation(limited)
        outcome = await runner.run()
        assert outcome.exit_status == 3
        assert "models.critic" in outcome.reason
        assert 5 <= runner.meter.models["judge"].usage.calls <= 5 + config.run.concurrency
        again = generation(limited)
        assert "models.critic" in (await again.run()).reason
        assert again.meter.models["judge"].usage.calls == 0, "what was used before counts"
        assert (await generation(config).run()).exit_status == 0


def test_another_model_in_a_seat_is_another_run_unless_it_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:
        kitchen(tmp_path, stack)
        assert camel("generate", "camel.toml", "--budget-calls", "9", folder=tmp_path).status == 3
        text = (tmp_path / "camel.toml").read_text()
        for before, after in (("temperature = 0.9", "temperature = 0.1"), ("small@", "smaller@")):
            (tmp_path / "camel.toml").write_text(text.replace(before, after))
            refused = camel("generate", "camel.toml", folder=tmp_path)
            assert refused.status == 2
            assert "models.user" in refused.stderr
        accepted = camel("generate", "camel.toml", "--accept-change", "models.user.name", folder=tmp_path)
        assert accepted.status == 0, accepted.stderr
        names = {
            one.model for talk in Run(tmp_path / "run") for one in talk.messages if one.speaker == "user"
        }
        assert names == {"small", "smaller"}


def test_options_name_the_models_of_seats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    config = GenerateConfig("ai_society", ModelSpec("big", "http://one/v1"))
    seats = config.adjusted(seats={"user": "small@http://two/v1", "assistant": "", "critic": ""}).models
    assert list(seats) == ["user"]
    assert seats["user"].candidates[0].model == ModelSpec("small", "http://two/v1")


def test_options_name_the_model_and_the_endpoint():
    model = ModelSpec("big", "http://one/v1", key_variable="ONE", price=ModelPrice(1.0, 2.0), deadline=9.0)
    config = GenerateConfig("ai_society", model)
    changed = config.adjusted(model="small").model
    assert changed == ModelSpec("small", "http://one/v1", key_variable="ONE", deadline=9.0)
    moved = config.adjusted(base_url="http://two/v1").model
    assert moved == ModelSpec("big", "http://two/v1", price=ModelPrice(1.0, 2.0), deadline=9.0)
    assert config.adjusted(model="small@http://two/v1").model == ModelSpec(
        "small", "http://two/v1", deadline=9.0
    )
    assert config.adjusted().model == model


@pytest.mark.parametrize("command", ["plan", "generate"])
def test_the_environment_does_not_replace_the_configured_model(command: str, tmp_path: Path):
    (tmp_path / "camel.toml").write_text(
        'scenario = "ai_society"\ncounts = { assistant_role = 1, user_role = 1, task = 1 }\n[model]\nname = "gpt-4.1"\n'
    )
    more = ["--dry-run"] if command == "generate" else []
    environment = {"CAMEL_MODEL": "unknown", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}

    def cost(*words: str) -> object:
        done = camel(command, "camel.toml", *more, "--json", *words, folder=tmp_path, environment=environment)
        assert done.status == 0, done.stderr
        return json.loads(done.stdout)["money"]

    assert cost() is not None
    assert cost("--model", "unknown") is None


def test_a_seat_that_the_scenario_does_not_have_is_refused():
    config = GenerateConfig(
        "ai_society", ModelSpec("big"), models={"critic": Seat((Candidate(ModelSpec("x")),))}
    )
    with pytest.raises(InputError, match=r"models\.critic"):
        config.loaded_scenario()


def test_who_makes_lists_has_its_prompt_from_the_scenario():
    seat = Seat((Candidate(ModelSpec("x"), prompt="List <COUNT>."),))
    with pytest.raises(InputError, match=r"models\.lists"):
        GenerateConfig("ai_society", ModelSpec("big"), models={"lists": seat}).loaded_scenario()


def test_one_name_has_one_price():
    dear = ModelSpec("big", price=ModelPrice(9.0, 9.0))
    with pytest.raises(InputError, match="big"):
        GenerateConfig("ai_society", ModelSpec("big"), models={"user": Seat((Candidate(dear),))})


def test_a_plan_counts_what_each_seat_costs():
    cheap, dear = ModelSpec("a", price=ModelPrice(1.0, 1.0)), ModelSpec("b", price=ModelPrice(3.0, 3.0))

    def cost(**seats: ModelSpec) -> float:
        models = {name: Seat((Candidate(spec),)) for name, spec in seats.items()}
        money = make_plan(GenerateConfig("ai_society", cheap, models=models)).money
        assert money is not None
        return money.likely

    assert cost(user=cheap) == pytest.approx(cost())
    assert 1.9 < cost(user=dear) / cost() < 2.1
    assert 2.8 < cost(user=dear, assistant=dear) / cost() <= 3.0
    unknown = GenerateConfig("ai_society", cheap, models={"user": Seat((Candidate(ModelSpec("c")),))})
    assert make_plan(unknown).money is None
