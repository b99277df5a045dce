"""Natural dialogue in bulk: the shipped scenarios, from their own lists and from tables, with the endpoint's ledger."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

import camel
from camel import ChatModel, Dialogue, InputError, Run, Transcript
from camel.formats.exporters import FORMATS
from camel.generation.config import GenerateConfig, RunSection, read_config
from camel.generation.plan import make_plan
from camel.generation.seats import Candidate, Seat
from camel.models.simulator import Constant, SimulatorSettings
from camel.models.spec import ModelSpec
from camel.scenarios import check, load
from tests.support.endpoints import serve
from tests.support.jobs import generation
from tests.support.killed import run_until_killed

NAMES = ("customer_support", "socratic_tutor", "persona_interview")
OF_ROLE_PLAYS = {"user_no_instruction", "assistant_instructs", "done", "error"}
SCENARIO = """title = "Shops"
[[levels]]
name = "item"
items = ["a chair", "a lamp", "a book"]
[[levels]]
name = "mood"
items = ["calm", "cross"]
[dialogue]
task = "A sale of <ITEM>"
begins = "seller"
opening = "Hello! About <ITEM>?"
max_messages = 9
[[dialogue.seats]]
name = "buyer"
prompt = "buyer.txt"
[[dialogue.seats]]
name = "seller"
private = "You are <mood>."
sampling = { temperature = 0.1 }
[dialogue.stops]
done = ["buyer"]
[dialogue.stops.goal]
text = "The buyer has bought <ITEM>."
"""


def shops(folder: Path, text: str = SCENARIO) -> Path:
    shop = folder / "shops"
    shop.mkdir(exist_ok=True)
    (shop / "scenario.toml").write_text(text)
    (shop / "buyer.txt").write_text("You buy <ITEM>.")
    return shop


def config(folder: Path, base_url: str, run: str = "run", **more: object) -> GenerateConfig:
    return GenerateConfig(
        scenario=str(shops(folder)),
        model=ModelSpec("simulated", base_url=base_url),
        out=str(folder / run),
        shard_size=2,
        seed=5,
        run=RunSection(concurrency=4),
        **more,  # type: ignore[arg-type]
    )


async def generate(settings: GenerateConfig, url: str) -> list[Transcript]:
    async with ChatModel("simulated", base_url=url, api_key="") as model:
        outcome = await generation(settings, model).run()
    assert outcome.complete, outcome
    return list(Run(Path(settings.out)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [60, pytest.param(1_000, marks=pytest.mark.thorough)])
def test_shipped_dialogues_are_natural(name: str, count: int, tmp_path: Path):
    """With a table in place of the levels: one row per conversation, and the placeholders are its columns."""
    scenario = load(name)
    assert isinstance(scenario.end, Dialogue)
    facts = [scenario.facts(index % scenario.count, lambda level, number: ()) for index in range(count)]
    rows = [{**one, "id": f"{number:04}"} for number, one in enumerate(facts)]
    with serve(SimulatorSettings(words=25)) as endpoint:
        model = ModelSpec("simulated", base_url=endpoint.base_url)
        run = camel.generate(scenario.end, inputs=rows, model=model, out=tmp_path / "run", progress=False)
        ledger = endpoint.ledger()
    records = list(run)
    assert len(records) == count
    reasons = Counter(record.stop.reason for record in records if record.stop)
    assert reasons.keys() <= {"goal", "goodbye", "max_messages", "message_loop", "token_limit"}
    assert reasons.keys().isdisjoint(OF_ROLE_PLAYS)
    assert reasons["message_loop"] == 0, "the simulated endpoint does not repeat itself"
    assert sum(record.usage.calls for record in records) == ledger.served
    assert min(len(record.messages) for record in records) >= 1
    FORMATS["messages"].write(records, tmp_path / "m.jsonl")
    chats = [
        msgspec.json.decode(line)["messages"] for line in (tmp_path / "m.jsonl").read_bytes().splitlines()
    ]
    assert len(chats) == sum(len(record.messages) > 1 for record in records)
    for chat in chats:
        roles = [entry["role"] for entry in chat]
        assert roles[:3] == ["system", "user", "assistant"]
        assert all(one != other for one, other in pairwise(roles))
        assert roles[-1] == "assistant"
    for record, row in zip(sorted(records, key=lambda one: one.id), rows, strict=True):
        assert "<" not in "".join(speaker.system for speaker in record.speakers)
        other, assistant = record.speakers
        private = [value for key, value in row.items() if key in ("knowledge", "answer", "background")]
        assert private[0] in assistant.system
        assert private[0] not in other.system


async def test_the_goal_rules_calls_are_counted_exactly(tmp_path: Path):
    with serve(SimulatorSettings(words=20)) as endpoint:
        settings = config(tmp_path, endpoint.base_url)
        records = await generate(settings, endpoint.base_url)
        ledger = endpoint.ledger()
        assert sum(record.usage.calls for record in records) == ledger.served
        assert sum(record.usage.prompt for record in records) == ledger.prompt_tokens
        assert sum(record.usage.completion for record in records) == ledger.completion_tokens
        await generate(settings, endpoint.base_url)
        assert endpoint.ledger().served == ledger.served, "what is complete is not asked for again"
    assert [record.id for record in records] == [f"{n:03}_{m:03}" for n in (1, 2, 3) for m in (1, 2)]
    for record in records:
        opening, *replies = record.messages
        assert (opening.speaker, opening.content) == ("seller", f"Hello! About {record.inputs['item']}?")
        assert opening.usage.calls == 0
        assert {message.usage.calls for message in replies} == {2}, (
            "one call for the message, one for the goal"
        )
        buyer, seller = record.speakers
        assert buyer.system.startswith(f"You buy {record.inputs['item']}.")
        assert seller.sampling.temperature == 0.1
        assert f"You are {record.inputs['mood']}." in seller.system
    stops = {record.stop.reason: record.stop.detail for record in records if record.stop}
    assert stops.keys() == {"goal", "max_messages"}
    assert "YES" in stops["goal"]
    assert len({record.speakers[0].sampling.seed for record in records}) == 6


async def test_seats_have_their_own_models(tmp_path: Path):
    url = "http://127.0.0.1:9/v1"
    with serve(SimulatorSettings(words=20)) as endpoint:
        seat = {
            name: Seat((Candidate(ModelSpec(f"the-{name}", endpoint.base_url)),))
            for name in ("buyer", "goal")
        }
        settings = config(tmp_path, endpoint.base_url, models=seat)
        outcome = await generation(settings).run()
        assert outcome.complete, outcome
    records = list(Run(Path(settings.out)))
    models = {speaker.name: speaker.model for record in records for speaker in record.speakers}
    assert models == {"buyer": "the-buyer", "seller": "simulated"}
    wrong = config(tmp_path, url, models={"byer": seat["buyer"]})
    with pytest.raises(InputError, match="buyer"):
        wrong.loaded_scenario()
    (tmp_path / "c.toml").write_text(
        f'scenario = "{shops(tmp_path)}"\n[model]\nname = "m"\n[models.goal]\nname = "small"\n[models.seller]\nprompt = "Sell."\n'
    )
    read = read_config(tmp_path / "c.toml")
    assert set(read.models) == {"goal", "seller"}
    read.loaded_scenario()


async def test_a_plan_counts_the_goal_rules_calls(tmp_path: Path):
    (talks,) = make_plan(config(tmp_path, "http://127.0.0.1:9/v1")).stages
    assert talks.items == 6
    assert talks.need.high.calls == 6 * 9 * 2
    with serve(SimulatorSettings(words=110)) as endpoint:
        records = await generate(config(tmp_path, endpoint.base_url), endpoint.base_url)
    prompt = sum(record.usage.prompt for record in records)
    assert talks.need.low.prompt < prompt < talks.need.high.prompt


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ('begins = "seller"', 'begins = "nobody"', "scenario.toml"),
        ("max_messages = 9", 'model = "m"', "scenario.toml"),
        ('name = "buyer"', 'name = "judge"', "scenario.toml"),
        ('prompt = "buyer.txt"', 'prompt = "absent.txt"', "scenario.toml"),
        ('done = ["buyer"]', 'rules = ["nobodys"]', "dialogue.stops.rules"),
        ('done = ["buyer"]', "dnoe = true", "scenario.toml"),
        ('private = "You are <mood>."', 'private = "You are <mod>."', "dialogue.seller.private"),
    ],
)
def test_mistakes_in_a_declaration_are_reported(old: str, new: str, where: str, tmp_path: Path, snapshot):  # type: ignore[no-untyped-def]
    assert check(shops(tmp_path)) == []
    problems = check(shops(tmp_path, SCENARIO.replace(old, new)))
    assert where in {problem.where for problem in problems}
    snapshot("errors", "\n".join(map(str, problems)).replace(str(tmp_path), "FOLDER"))


def test_a_dialogue_needs_no_levels(tmp_path: Path):
    """Its items come from the table in the configuration, whose columns nobody knows here."""
    text = SCENARIO[: SCENARIO.index("[[levels]]")] + SCENARIO[SCENARIO.index("[dialogue]") :]
    scenario = load(shops(tmp_path, text))
    assert (scenario.count, scenario.id(0), scenario.shape) == (1, "001", "1 conversation")
    assert isinstance(scenario.end, Dialogue)
    assert scenario.end.placeholders == {"item", "mood"}


@pytest.mark.slow
def test_kill_and_resume_repeats_no_call_of_the_goal_rule(tmp_path: Path):
    with serve(SimulatorSettings(words=20)) as endpoint:
        whole = asyncio.run(generate(config(tmp_path, endpoint.base_url, "whole"), endpoint.base_url))
    with serve(SimulatorSettings(words=20, latency=Constant(0.05))) as endpoint:
        settings = config(tmp_path, endpoint.base_url)
        run_until_killed(settings, 21)
        records = asyncio.run(generate(settings, endpoint.base_url))
        ledger = endpoint.ledger()
        assert ledger.billed - ledger.billed_repeats == sum(record.usage.calls for record in records)
        assert ledger.billed_repeats <= 4, "at most the calls in flight at the kill"
    for one, other in zip(records, whole, strict=True):
        assert one.stop == other.stop
        assert [m.content for m in one.messages] == [m.content for m in other.messages]
        assert [m.usage for m in one.messages] == [m.usage for m in other.messages]
