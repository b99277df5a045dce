"""Criticised conversations by the hundred: declared, paid for once, resumed, stored, exported. The witness is the ledger."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from camel import ChatModel, InputError, Run, Sampling, Transcript
from camel.core.errors import RequestRejected
from camel.core.judge import ModelJudge
from camel.core.message import Deliberation, Message, Proposal, Usage
from camel.core.model import Model, Reply, Request
from camel.core.role_playing import RolePlaying
from camel.core.search import Beam, BestFirst
from camel.core.stops import paper_rules
from camel.core.task import Task
from camel.engine.halt import Halt
from camel.formats.exporters import FORMATS
from camel.generation.config import Assumptions, GenerateConfig, RunSection, read_config
from camel.generation.plan import make_plan
from camel.jobs.runner import Outcome
from camel.models.simulator import Constant, SimulatorProcess, SimulatorSettings
from camel.models.spec import ModelSpec
from camel.runs.run import RunFolder
from camel.scenarios import check, load
from camel.scenarios.critics import CriticSettings
from tests.support.endpoints import serve
from tests.support.jobs import generation
from tests.support.killed import run_until_killed

pytest.importorskip("pyarrow")

CRITICS = {
    "choose": CriticSettings(),
    "score": CriticSettings(mode="score", seats=("assistant",)),
    "feedback": CriticSettings(mode="feedback", revisions=2),
    "beam": CriticSettings(search="beam", depth=1, calls=9),
    "best_first": CriticSettings(search="best_first", depth=3, calls=8, seats=("user",)),
}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[SimulatorProcess]:
    with serve(SimulatorSettings(length=Constant(5), words=20)) as process:
        yield process


@pytest.fixture(scope="module")
def endless() -> Iterator[SimulatorProcess]:
    """Long conversations, so that looking further always has something to find."""
    with serve(SimulatorSettings(length=None, words=20)) as process:
        yield process


def config_for(folder: Path, critic: CriticSettings | None, tasks: int = 2, **more: Any) -> GenerateConfig:
    return GenerateConfig(
        scenario="ai_society",
        model=ModelSpec("simulated"),
        out=str(folder),
        counts={"assistant_role": 1, "user_role": 1, "task": tasks},
        critic=critic,
        run=RunSection(concurrency=3),
        **more,
    )


class Stopping(Model):
    """A model that halts its run at the given request."""

    context_tokens = None

    def __init__(self, model: ChatModel, halt: Halt, after: int | None) -> None:
        self._model, self._halt, self._left = model, halt, after

    async def reply(self, request: Request) -> Reply:
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                self._halt.set("enough for now")
        return await self._model.reply(request)


def generate(config: GenerateConfig, endpoint: SimulatorProcess, *, stop_after: int | None = None) -> bool:
    """Run it, or stop it at the given request; says whether it is complete."""
    halt = Halt()

    async def run() -> bool:
        async with ChatModel("simulated", base_url=endpoint.base_url, api_key="") as model:
            return (await generation(config, Stopping(model, halt, stop_after), halt=halt).run()).complete

    return asyncio.run(run())


def paid(folder: Path) -> int:
    """Calls as the records have them, lists included."""
    run = RunFolder(folder)
    markers = (marker for stage in run.stages() for marker in run.markers(stage, run.committed(stage)))
    return sum(int(marker.totals["calls"]) for marker in markers)


@pytest.mark.parametrize("kind", CRITICS)
def test_a_run_is_paid_for_once_and_recorded_as_it_was(kind: str, endpoint: SimulatorProcess, tmp_path: Path):
    endpoint.reset()
    config = config_for(tmp_path / "run", CRITICS[kind])
    assert generate(config, endpoint)
    ledger = endpoint.ledger()
    records = list(Run(tmp_path / "run"))
    assert ledger.billed == ledger.requests == paid(tmp_path / "run")
    assert len(records) == 2
    for record in records:
        assert record.stop
        assert record.stop.reason == "done"
        for message in record.messages:
            found = message.deliberation
            assert (found is not None) == (message.speaker in CRITICS[kind].seats)
            if found:
                assert found.proposals[found.choice].content == message.content
                assert message.usage.calls <= (CRITICS[kind].calls or 6)
        assert Transcript.from_json(record.to_json()) == record
    # A complete run makes no calls, and a run that is stopped and resumed twice pays for nothing twice.
    assert generate(config, endpoint)
    assert endpoint.ledger().requests == ledger.requests
    halved = config_for(tmp_path / "halved", CRITICS[kind])
    endpoint.reset()
    for _ in range(2):
        assert not generate(halved, endpoint, stop_after=ledger.requests // 3)
    assert generate(halved, endpoint)
    assert endpoint.ledger().billed == ledger.billed == paid(tmp_path / "halved")
    assert [timeless(record) for record in Run(tmp_path / "halved")] == [
        timeless(record) for record in records
    ]


def timeless(record: Transcript) -> Transcript:
    messages = [msgspec.structs.replace(message, latency=0.0) for message in record.messages]
    return msgspec.structs.replace(record, messages=messages)


def test_an_endpoint_that_takes_several_choices_continues_after_one_that_refuses_them(
    endpoint: SimulatorProcess, tmp_path: Path
):
    """The other way the first went must come again: what it was refused is remembered."""
    config, halt = config_for(tmp_path / "run", CriticSettings(), tasks=4), Halt()
    heard: list[Request] = []

    class One(Model):
        context_tokens = None

        def __init__(self, model: ChatModel, refuses: bool) -> None:
            self._model, self._refuses = model, refuses

        async def reply(self, request: Request) -> Reply:
            if self._refuses and request.sampling.n > 1:
                raise RequestRejected("one choice at a time")
            heard.append(request)
            if self._refuses and len(heard) >= 25:
                halt.set("enough for now")
            return await self._model.reply(request)

    async def run(refuses: bool) -> Outcome:
        async with ChatModel("simulated", base_url=endpoint.base_url, api_key="") as model:
            return await generation(config, One(model, refuses), halt=halt if refuses else Halt()).run()

    endpoint.reset()
    assert asyncio.run(run(refuses=True)).reason == "enough for now"
    assert asyncio.run(run(refuses=False)).complete
    assert any(request.sampling.n > 1 for request in heard[25:]), "where nothing was refused yet"
    assert endpoint.ledger().billed == paid(tmp_path / "run")


@pytest.mark.slow
def test_killed_in_the_middle_of_a_search(tmp_path: Path):
    """Repeats are at most what was in flight: three conversations, each with at most the four calls of a wave."""
    with serve(SimulatorSettings(length=Constant(5), words=20, latency=Constant(0.02))) as slow:
        critic = CriticSettings(search="beam", width=2, depth=2, calls=14)
        config = config_for(tmp_path / "run", critic, tasks=4)
        config = msgspec.structs.replace(config, model=ModelSpec("simulated", base_url=slow.base_url))
        run_until_killed(config, 70)
        assert generate(config, slow)
        assert slow.ledger().billed - paid(tmp_path / "run") <= 3 * 4
    assert all(m.usage.calls <= 14 for record in Run(tmp_path / "run") for m in record.messages)


@pytest.mark.parametrize("calls", [2, 3, 7, 12, 13])
def test_a_search_costs_what_its_budget_allows_by_the_ledger(
    calls: int, endpoint: SimulatorProcess, endless: SimulatorProcess
):
    async def talk(kind: type[Beam] | type[BestFirst]) -> Transcript:
        async with ChatModel("simulated", base_url=endpoint.base_url, api_key="") as model:
            settings: dict[str, Any] = {"width": 100} if kind is Beam else {}
            critic = kind(judge=ModelJudge(model, "score"), depth=50, calls=calls, **settings)
            return await RolePlaying(
                assistant="Programmer",
                user="Trader",
                task="Build a bot",
                model=model,
                critic=critic,
                specifier=None,
                rules=paper_rules(max_messages=2),
            ).finish()

    # The conversation is at its limit after the message that is searched for, so the search ends where it began.
    endpoint.reset()
    ended = asyncio.run(talk(Beam))
    assert ended.usage.calls == endpoint.ledger().billed == 1 + 2

    async def search(kind: type[Beam] | type[BestFirst]) -> None:
        endless.reset()
        async with ChatModel("simulated", base_url=endless.base_url, api_key="") as model:
            settings: dict[str, Any] = {"width": 100} if kind is Beam else {}
            critic = kind(judge=ModelJudge(model, "score"), depth=50, calls=calls, **settings)
            role_playing = RolePlaying(
                assistant="Programmer",
                user="Trader",
                task="Build a bot",
                model=model,
                critic=critic,
                specifier=None,
                sampling=Sampling(temperature=0.2, seed=5),
            )
            async for message in role_playing:
                if message.speaker == "assistant":
                    break
            assert role_playing.transcript.messages[1].usage.calls == calls
            assert endless.ledger().billed == endless.ledger().requests == calls + 1

    asyncio.run(search(BestFirst))
    asyncio.run(search(Beam))


# --- declared ---------------------------------------------------------------------------------------------------


def a_scenario(folder: Path, critic: str) -> Path:
    folder.mkdir()
    (folder / "scenario.toml").write_text(
        'title = "T"\n[[levels]]\nname = "task"\nitems = ["Paint", "Sing"]\n'
        f'[role_play]\nassistant = "A"\nuser = "B"\ntask = "<TASK>"\nspecify = false\n{critic}'
    )
    return folder


def test_a_scenario_declares_its_critic(endpoint: SimulatorProcess, tmp_path: Path):
    folder = a_scenario(
        tmp_path / "s",
        '[critic]\nmode = "score"\nseats = ["assistant"]\nproposals = 2\ncriteria = ["Is it kind?"]\n',
    )
    assert check(folder) == []
    config = GenerateConfig(scenario=str(folder), model=ModelSpec("simulated"), out=str(tmp_path / "run"))
    assert generate(config, endpoint)
    found = [m.deliberation for record in Run(tmp_path / "run") for m in record.messages if m.deliberation]
    assert found
    assert all(len(one.proposals) == 2 and None not in [p.score for p in one.proposals] for one in found)


@pytest.mark.parametrize(
    ("table", "word"),
    [
        ("[critic]\nmood = 3\n", "mode"),
        ("[critic]\nproposals = 0\n", "proposals"),
        ('[critic]\nmode = "guess"\n', "mode"),
        ("[critic]\ndepth = 2\n", "search"),
        ('[critic]\nsearch = "beam"\nmode = "feedback"\n', "critic.mode"),
        ('[critic]\nsearch = "best_first"\nwidth = 3\n', "beam"),
        ("[critic]\nseats = []\n", "seats"),
    ],
)
def test_what_is_wrong_with_a_declaration_is_said(table: str, word: str, tmp_path: Path):
    problems = check(a_scenario(tmp_path / "s", table))
    assert any(word in problem.message for problem in problems), problems
    config = tmp_path / "config.toml"
    config.write_text(f'scenario = "ai_society"\n[model]\nname = "m"\n{table}')
    with pytest.raises(InputError, match=word):
        read_config(config)


def test_a_critic_needs_a_role_play(tmp_path: Path):
    with pytest.raises(InputError, match="role play"):
        msgspec.structs.replace(
            config_for(tmp_path, CRITICS["choose"]), scenario="math", counts={}
        ).loaded_scenario()
    folder = a_scenario(tmp_path / "s", "[critic]\n")
    text = (folder / "scenario.toml").read_text()
    (folder / "p.txt").write_text("<TASK>?")
    (folder / "scenario.toml").write_text(
        text[: text.index("[role_play]")] + '[question]\nprompt = "p.txt"\n[critic]\n'
    )
    assert any("[role_play]" in problem.message for problem in check(folder))


def test_runs_without_a_critic_are_what_they_were():
    """A scenario without a critic has the same fingerprint in every version."""
    scenario = load("ai_society", "asked")
    assert scenario.fingerprint() == "669e65acfdfb3c48a94e6854a93333c0c662cd14f9bdf08f6c29daa8f8b3a651"
    assert "critic" not in config_for(Path("x"), None).decisive(scenario)
    assert config_for(Path("x"), CRITICS["beam"]).decisive(scenario)["critic"] == {
        "search": "beam",
        "depth": 1,
        "calls": 9,
    }


def test_the_plan_counts_the_critics_calls(endpoint: SimulatorProcess, tmp_path: Path):
    known = Assumptions(messages=5.0, spread=0.0, message_tokens=40.0)
    for kind, critic in CRITICS.items():
        plan = make_plan(config_for(tmp_path / kind, critic, plan=known))
        need = plan.stages[-1].need
        endpoint.reset()
        assert generate(config_for(tmp_path / kind, critic), endpoint)
        calls = sum(record.usage.calls for record in Run(tmp_path / kind))
        assert need.low.calls * 0.85 <= calls <= need.high.calls
        assert need.likely.calls == pytest.approx(calls, rel=0.35)
        assert need.likely.prompt == pytest.approx(
            sum(record.usage.prompt for record in Run(tmp_path / kind)), rel=0.6
        )


# --- exported ---------------------------------------------------------------------------------------------------


def test_preferences(tmp_path: Path):
    proposals = (
        Proposal("Solution: a", score=5.0),
        Proposal("Solution: b", score=7.0),
        Proposal("Solution: b", score=6.0),
        Proposal("Solution: c", score=7.0),
        Proposal("Instruction: x", speaker="user", parent=1, score=2.0),
        Proposal("Solution: d", parent=4, score=1.0),
        Proposal("Solution: e", parent=1, revises=True, score=9.0),
    )
    asked = Message(0, "user", "U", "Instruction: go")
    record = Transcript(
        "1",
        Task("t"),
        messages=[
            asked,
            Message(1, "assistant", "A", "Solution: e", usage=Usage(1, 1, 0, 1), deliberation=Deliberation("m", proposals, 6)),
            Message(2, "user", "U", "Instruction: on", deliberation=Deliberation("m", (Proposal("Instruction: on"), Proposal("Instruction: off")), 0, fallback="first: x")),
        ],
    )  # fmt: skip
    written = FORMATS["preferences"].write([record], tmp_path / "p.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert written.rows == len(rows) == 3
    assert [row["rejected"][0]["content"] for row in rows] == ["Solution: a", "Solution: b", "Solution: c"]
    assert all(row["chosen"] == [{"role": "assistant", "content": "Solution: e"}] for row in rows)
    assert all(row["prompt"] == [{"role": "user", "content": "Instruction: go"}] for row in rows)
    with pytest.raises(InputError, match="critic"):
        FORMATS["preferences"].write([Transcript("2", Task("t"), messages=[asked])], tmp_path / "q.jsonl")
