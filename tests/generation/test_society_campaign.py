"""Societies in bulk: generated, committed, killed, resumed, planned, with the endpoint's ledger as the witness."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from camel import ChatModel, InputError, Run, Transcript
from camel.formats.exporters import FORMATS
from camel.generation.config import GenerateConfig, RunSection
from camel.generation.plan import make_plan
from camel.models.simulator import Constant, SimulatorSettings
from camel.models.spec import ModelSpec
from tests.support.endpoints import serve
from tests.support.jobs import generation
from tests.support.killed import run_until_killed

SCENARIO = """title = "Councils"
[[levels]]
name = "trade"
items = ["Baker", "Cook"]
[[levels]]
name = "task"
count = 3
prompt = "tasks.txt"
[society]
task = "<TASK>"
"""
SOCIETY = """
[turns]
policy = "rounds"
groups = [["Ada", "Bob"], ["Chair"]]
[stop]
max_rounds = 3
done = "Chair"
[planner]
steps = 3
[[members]]
name = "Chair"
[[members]]
name = "Ada"
role = "<TRADE>"
[[members]]
name = "Bob"
brief = "You watch the <TRADE>."
"""
MESSAGES, FIRST = 9, 1


def config(folder: Path, base_url: str, *, run: str = "run", more: str = "") -> GenerateConfig:
    councils = folder / "councils"
    if not councils.exists():
        councils.mkdir()
        (councils / "scenario.toml").write_text(SCENARIO)
        (councils / "society.toml").write_text(SOCIETY + more)
        (councils / "tasks.txt").write_text("List <COUNT> tasks for a <TRADE>.")
    return GenerateConfig(
        scenario=str(councils),
        model=ModelSpec("simulated", base_url=base_url),
        out=str(folder / run),
        shard_size=2,
        seed=5,
        run=RunSection(concurrency=4),
    )


async def generate(settings: GenerateConfig, url: str) -> list[Transcript]:
    async with ChatModel("simulated", base_url=url, api_key="") as model:
        campaign = generation(settings, model)
        outcome = await campaign.run()
    assert outcome.complete, outcome
    return list(Run(Path(settings.out)))


def unhurried(transcript: Transcript) -> Transcript:
    """The record without what depends on the clock."""
    messages = [msgspec.structs.replace(message, latency=0.0, attempts=1) for message in transcript.messages]
    return msgspec.structs.replace(transcript, messages=messages)


async def test_societies_are_generated_and_recorded(tmp_path: Path):
    with serve(SimulatorSettings(words=20)) as endpoint:
        settings = config(tmp_path, endpoint.base_url)
        records = await generate(settings, endpoint.base_url)
        ledger = endpoint.ledger()
        assert ledger.served == 2 + 6 * (FIRST + MESSAGES) == 2 + sum(r.usage.calls for r in records)
        await generate(settings, endpoint.base_url)
        assert endpoint.ledger().served == ledger.served, "what is complete is not asked for again"
    assert [record.id for record in records] == [
        "001_001",
        "001_002",
        "001_003",
        "002_001",
        "002_002",
        "002_003",
    ]
    for record in records:
        assert [speaker.name for speaker in record.speakers] == ["Chair", "Ada", "Bob"]
        assert [message.speaker for message in record.messages] == ["Ada", "Bob", "Chair"] * 3
        assert record.speakers[1].role == record.inputs["trade"]
        assert record.stop
        assert record.stop.reason == "max_rounds"
        assert "The plan:" in record.task.specified
        assert all(speaker.sampling.seed is not None for speaker in record.speakers)
    assert len({record.speakers[0].sampling.seed for record in records}) == 6
    FORMATS["dataset"].write(records, tmp_path / "dataset")
    with pytest.raises(InputError, match="3 speakers"):
        FORMATS["chat"].write(records, tmp_path / "chat.jsonl")


async def test_a_plan_counts_what_a_society_says(tmp_path: Path):
    plan = make_plan(config(tmp_path, "http://127.0.0.1:9/v1"))
    lists, talks = plan.stages
    assert (lists.items, talks.items, talks.name) == (2, 6, "conversations")
    assert talks.need.high.calls == 6 * (FIRST + MESSAGES)
    assert talks.need.low.calls < talks.need.likely.calls < talks.need.high.calls
    with serve(SimulatorSettings(words=110)) as endpoint:
        records = await generate(config(tmp_path, endpoint.base_url), endpoint.base_url)
    prompt = sum(record.usage.prompt for record in records)
    assert talks.need.low.prompt < prompt < talks.need.high.prompt


async def test_roles_that_nobody_proposes_become_the_record_of_a_failure(tmp_path: Path):
    with serve(SimulatorSettings(words=20)) as endpoint:
        # The simulated endpoint writes a list only where it is asked to list some.
        more = '[roles]\ncount = 2\nprompt = "Who should do <TASK>? <COUNT> of them."\n'
        records = await generate(config(tmp_path, endpoint.base_url, more=more), endpoint.base_url)
        assert endpoint.ledger().served == 2 + 6 * (1 + 3), "each is asked for three times, and never again"
    assert {(r.stop.reason, r.stop.speaker) for r in records if r.stop} == {("error", "casting")}


@pytest.mark.slow
def test_kill_and_resume_in_the_middle_of_rounds(tmp_path: Path):
    with serve(SimulatorSettings(words=20)) as endpoint:
        undisturbed = asyncio.run(
            generate(config(tmp_path, endpoint.base_url, run="whole"), endpoint.base_url)
        )
    with serve(SimulatorSettings(words=20, latency=Constant(0.05))) as endpoint:
        settings = config(tmp_path, endpoint.base_url)
        run_until_killed(settings, 28)
        records = asyncio.run(generate(settings, endpoint.base_url))
        ledger = endpoint.ledger()
        calls = 2 + 6 * (FIRST + MESSAGES)
        assert ledger.billed - ledger.billed_repeats == calls
        assert ledger.billed_repeats <= 4 * 2, "at most the calls in flight at the kill"
    same = [unhurried(record) for record in records], [unhurried(record) for record in undisturbed]
    for one, other in zip(*same, strict=True):
        assert one.messages == other.messages
        assert (one.task, one.stop, one.speakers) == (other.task, other.stop, other.speakers)
