"""Validation during generation: bounded attempts in one item, rejected records, and a ledger that agrees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import camel
from camel import InputError, RolePlaying, Run, ScriptedModel, Transcript
from camel.core.errors import ContentRejected
from camel.core.expressions import ExpressionError
from camel.core.message import Message, Usage
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import RejectedAttempt
from camel.generation.config import GenerateConfig, RunSection
from camel.generation.generate import Generation
from camel.generation.validation import Validation, ValidationJudge, Validator
from camel.jobs.ledger import spent_on
from camel.models.simulator import Constant, SimulatorSettings
from camel.models.simulator.ledger import Counters
from camel.models.spec import ModelSpec
from camel.record.arrow import rows, to_table
from camel.runs.run import RunFolder
from tests.support.endpoints import serve
from tests.support.jobs import generation
from tests.support.killed import run_until_killed

PLAY = RolePlaying("Tell <name> the time", assistant="Clerk", user="<name>")
ROWS = [{"id": f"r{n}", "name": f"Visitor {n}"} for n in range(6)]


def same(run: Run, ledger: Counters) -> None:
    """The ledger of the endpoint, the records and the markers agree."""
    lists = spent_on(run.folder, set(run.folder.stages()) - {"conversations"})
    prompt, completion = ledger.prompt_tokens - lists.prompt, ledger.completion_tokens - lists.completion
    told = prompt, completion, ledger.billed - lists.calls
    used = sum((one.usage for one in run), Usage())
    assert (used.prompt, used.completion, used.calls) == told
    spent = spent_on(run.folder, ["conversations"])
    assert (spent.prompt, spent.completion, spent.calls) == told
    columns = run.to_arrow(["prompt_tokens", "completion_tokens", "calls"])
    assert tuple(sum(columns[name].to_pylist()) for name in columns.schema.names) == told


def test_attempts_are_bounded_and_their_usage_counts(tmp_path: Path):
    wanted = {"r0": 0, "r1": 1, "r2": 2, "r3": 3, "r4": 0, "r5": 9}

    def enough(transcript: Transcript) -> tuple[bool, str]:
        return len(transcript.rejected) >= wanted[transcript.id], "too early"

    with camel.simulated_endpoint(length=3, words=20) as endpoint:
        given: dict[str, Any] = {"inputs": ROWS, "model": "m", "out": tmp_path / "run", "progress": False}
        run = camel.generate(PLAY, validate=enough, attempts=3, **given)
        ledger = endpoint.ledger()
        camel.generate(PLAY, validate=enough, attempts=3, **given)
        assert endpoint.ledger().requests == ledger.requests
        with pytest.raises(InputError, match="validate"):
            camel.generate(PLAY, validate=enough, attempts=4, **given)
    found = {one.id: one for one in run}
    assert {id: len(one.rejected) for id, one in found.items()} == {
        "r0": 0,
        "r1": 1,
        "r2": 2,
        "r3": 2,
        "r4": 0,
        "r5": 2,
    }
    ends = {id: one.stop.reason for id, one in found.items() if one.stop}
    assert ends == {
        "r0": "done",
        "r1": "done",
        "r2": "done",
        "r3": "rejected",
        "r4": "done",
        "r5": "rejected",
    }
    one = found["r5"]
    assert "too early" in one.stop.detail if one.stop else False
    assert [attempt.why for attempt in one.rejected] == ["too early"] * 2
    texts = {tuple(message.content for message in part.messages) for part in (one, *one.rejected)}
    assert len(texts) == 3, "each attempt has a seed of its own"
    assert one.excluded
    assert not one.failed
    same(run, ledger)
    assert run.export("messages", tmp_path / "out.jsonl").conversations == 4
    assert run.status().stops == {"done": 4, "rejected": 2}


def a_config(folder: Path, url: str, validate: Validation, **more: Any) -> GenerateConfig:
    return GenerateConfig(
        "ai_society",
        ModelSpec("simulated", base_url=url),
        out=str(folder / "run"),
        counts={"assistant_role": 2, "user_role": 2, "task": 2},
        validate=validate,
        run=RunSection(concurrency=1),
        **more,
    )


@pytest.mark.parametrize("at", [4, 17, 30])
def test_a_killed_run_replays_its_attempts(tmp_path: Path, at: int):
    judge = ValidationJudge("Is it good?", "0-10")
    with serve(SimulatorSettings(length=Constant(3), words=12)) as endpoint:
        config = a_config(tmp_path, endpoint.base_url, Validation("score.judge >= 6", 2, judge))
        run_until_killed(config, at)
        camel.run_job(Generation(config), progress=False)
        run, ledger = Run(tmp_path / "run"), endpoint.ledger()
    assert ledger.requests == ledger.billed
    same(run, ledger)
    ends = [one.stop.reason for one in run if one.stop]
    assert {"done", "rejected"} == set(ends)
    for one in run:
        score = one.scores["judge"].value
        assert score is not None
        assert (score >= 6) == (one.stop is not None and one.stop.reason == "done")
        assert all(attempt.usage.calls == 5 for attempt in one.rejected), "with specifier and judge"


async def test_a_condition_on_findings_and_lengths(tmp_path: Path):
    with serve(SimulatorSettings(length=Constant(5), words=12)) as endpoint:
        config = a_config(tmp_path, endpoint.base_url, Validation('messages >= 7 or finding = "refusal"', 2))
        assert (await generation(config).run()).complete
        assert {one.stop.reason for one in Run(tmp_path / "run") if one.stop} == {"rejected"}
        assert {len(one.rejected) for one in Run(tmp_path / "run")} == {1}
        other = msgspec.structs.replace(config, validate=Validation("messages >= 3", 2))
        with pytest.raises(InputError, match="validate"):
            await generation(other).run()
        passing = msgspec.structs.replace(other, out=str(tmp_path / "other"))
        assert (await generation(passing).run()).complete
        assert not any(one.rejected for one in Run(tmp_path / "other"))


def test_a_wrong_condition_is_reported_before_anything_is_paid(tmp_path: Path):
    for text in ("mesages > 3", "messages >", "score.judge > 3", "score.other > 3", 'messages = "x"'):
        with pytest.raises(ExpressionError, match="character"):
            Validation(text)
    with pytest.raises(InputError, match="attempts"):
        Validation("messages > 3", 0)
    with pytest.raises(InputError, match="scale"):
        Validation("messages > 3", judge=ValidationJudge("x", "much"))
    with pytest.raises(InputError, match="function"):
        Validator(3)  # pyright: ignore[reportArgumentType]
    with camel.simulated_endpoint(length=3) as endpoint:
        with pytest.raises(InputError, match=r"input\.nam.*input\.name"):
            camel.generate(
                PLAY, inputs=ROWS, model="m", out=tmp_path / "r", validate='input.nam = "x"', progress=False
            )
        assert endpoint.ledger().requests == 0


def test_a_failed_attempt_keeps_the_rejected_ones(tmp_path: Path):
    said = iter(
        [
            "Tell him the time.",
            "Instruction: Go.\nInput: None",
            "Solution: Yes.\nNext request.",
            "<CAMEL_TASK_DONE>",
        ]
    )
    model = ScriptedModel(lambda request: next(said, ContentRejected("no")))
    run = camel.generate(
        PLAY, inputs=ROWS[:1], model=model, out=tmp_path / "run", validate="messages > 50", progress=False
    )
    (one,) = run
    assert one.failed
    assert (one.id, len(one.rejected), len(one.messages)) == ("r0", 1, 0)
    assert one.rejected[0].usage.calls == 4
    assert spent_on(RunFolder(tmp_path / "run"), ["conversations"]).calls == one.usage.calls == 4


def test_rejected_attempts_are_stored_and_read():
    attempt = RejectedAttempt("done", "short", [Message(0, "user", "r", "Hi.")], Usage(3, 4, calls=1))
    one = Transcript("1", Task("t"), stop=Stop("rejected", "x"), rejected=[attempt])
    other = Transcript("2", Task("t"))
    table = to_table([one, other])
    assert list(rows(table)) == [one, other]
    assert table["prompt_tokens"].to_pylist() == [3, 0]
    old = table.drop_columns(["rejected"])
    assert [record.rejected for record in rows(old)] == [[], []]
    assert Transcript.from_json(one.to_json()) == one


def test_a_function_that_raises_stops_the_run_and_costs_nothing_twice(tmp_path: Path):
    broken = True

    async def check(transcript: Transcript) -> bool:
        if broken:
            raise KeyError("x")
        return True

    with camel.simulated_endpoint(length=3) as endpoint:
        given: dict[str, Any] = {"inputs": ROWS[:1], "model": "m", "out": tmp_path / "run", "progress": False}
        with pytest.raises(InputError, match=r"KeyError.*r0"):
            camel.generate(PLAY, validate=check, **given)
        paid, broken = endpoint.ledger().requests, False
        assert len(camel.generate(PLAY, validate=check, **given)) == 1
        assert endpoint.ledger().requests == paid
