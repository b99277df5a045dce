"""Lists that ship: no call asks for them, every machine has the same, and a run stays with what it began with."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from camel import ChatModel, InputError, Run
from camel.generation.config import GenerateConfig, read_config
from camel.generation.opening import open_run
from camel.generation.plan import make_plan
from camel.generation.reuse import look
from camel.jobs.status import read_status
from camel.models.simulator import LogNormal, SimulatorProcess, SimulatorSettings
from camel.models.spec import ModelSpec
from camel.scenarios import load
from tests.support.endpoints import serve
from tests.support.jobs import generation

MATH = {"topic": 2, "subtopic": 2, "problem": 3}
SOCIETY = {"assistant_role": 2, "user_role": 2, "task": 1}


@pytest.fixture
def endpoint() -> Iterator[SimulatorProcess]:
    with serve(SimulatorSettings(length=LogNormal(median=4, p99=6))) as process:
        yield process


def config(out: Path | str, scenario: str = "math", **fields: object) -> GenerateConfig:
    return GenerateConfig(scenario, ModelSpec("simulated"), out=str(out), **fields)  # type: ignore[arg-type]


def generate(settings: GenerateConfig, endpoint: SimulatorProcess) -> int:
    """Generate it, and return how often the endpoint was asked."""
    before = endpoint.ledger().requests

    async def work() -> None:
        async with ChatModel("simulated", base_url=endpoint.base_url, api_key="") as model:
            assert (await generation(settings, model).run()).complete

    asyncio.run(work())
    return endpoint.ledger().requests - before


def inputs(out: Path) -> list[tuple[str, dict[str, str]]]:
    return [(one.id, one.inputs) for one in Run(str(out))]


def test_shipped_lists_are_not_asked_for(endpoint: SimulatorProcess, tmp_path: Path):
    settings = config(tmp_path / "run", counts=MATH)
    # A list of problems for each of four subtopics, and twelve answers.
    assert generate(settings, endpoint) == 4 + 12
    assert [stage.name for stage in read_status(settings.out).stages] == ["problem", "answers"]
    assert [stage.name for stage in make_plan(settings).stages] == ["problem", "answers"]
    topics = [one["topic"] for _, one in inputs(tmp_path / "run")]
    assert list(dict.fromkeys(topics)) == list(load("math").level("topic").items[:2])


def test_asked_lists_are_asked_for(endpoint: SimulatorProcess, tmp_path: Path):
    settings = config(tmp_path / "run", counts=MATH, lists="asked")
    stages = ["topic", "subtopic", "problem", "answers"]
    assert generate(settings, endpoint) == 1 + 2 + 4 + 12
    assert [stage.name for stage in read_status(settings.out).stages] == stages
    assert [stage.name for stage in make_plan(settings).stages] == stages
    topics = {one["topic"] for _, one in inputs(tmp_path / "run")}
    assert topics.isdisjoint(load("math").level("topic").items)


def test_every_machine_has_the_same_items(endpoint: SimulatorProcess, tmp_path: Path):
    made: list[tuple[str, list[tuple[str, dict[str, str]]]]] = []
    for machine in ("one", "two"):
        settings = config(tmp_path / machine, "ai_society", counts=SOCIETY)
        generate(settings, endpoint)
        run = Run(settings.out)
        items = [(id, {**facts, "task": ""}) for id, facts in inputs(tmp_path / machine)]
        made.append((run.settings.fingerprint, items))
    assert made[0] == made[1]
    assert [id for id, _ in made[0][1]] == ["001_001_001", "001_002_001", "002_001_001", "002_002_001"]


def test_fixed_tasks_ask_for_no_list(endpoint: SimulatorProcess, tmp_path: Path):
    settings = config(tmp_path / "run", "table1_ai_society", counts={"assistant_role": 2})
    calls = generate(settings, endpoint)
    run = Run(settings.out)
    assert [stage.name for stage in read_status(settings.out).stages] == ["conversations"]
    assert calls == sum(len(one.messages) for one in run)
    scenario = settings.loaded_scenario()
    expected = [scenario.facts(index, lambda level, number: ())["task"] for index in range(4)]
    # As they are: no specifier came between.
    assert [(one.task.original, one.task.specified) for one in run] == [(task, "") for task in expected]


@pytest.mark.parametrize(("before", "after"), [("shipped", "asked"), ("asked", "shipped")])
def test_a_run_keeps_its_lists(endpoint: SimulatorProcess, tmp_path: Path, before: str, after: str):
    settings = config(tmp_path / "run", counts=MATH, lists=before)
    generate(settings, endpoint)
    other = replace(settings, lists=after)
    with pytest.raises(InputError) as refused:
        open_run(other, other.loaded_scenario())
    lines = str(refused.value).splitlines()
    assert lines[1:-1] == [f"  lists: '{before}' → '{after}'"]
    # A fork asks for what depends on other lists again.
    forked = look(replace(other, out=str(tmp_path / "new")), settings.out)
    assert forked.kept == []
    assert generate(settings, endpoint) == 0


def test_a_run_from_before_lists_shipped_continues_as_asked(tmp_path: Path):
    settings = config(tmp_path / "run", lists="asked")
    assert "lists" not in settings.decisive(settings.loaded_scenario())
    assert replace(settings, lists="shipped").decisive(load("math"))["lists"] == "shipped"


def test_more_than_ship_are_asked_for(tmp_path: Path):
    plan = make_plan(config(tmp_path / "run", counts={"topic": 26}))
    assert [(stage.name, stage.items) for stage in plan.stages[:-1]] == [
        ("topic", 1),
        ("subtopic", 26),
        ("problem", 26 * 25),
    ]
    plan = make_plan(config(tmp_path / "run", "ai_society"), counts={"user_role": 3_000})
    assert [stage.name for stage in plan.stages] == ["user_role", "task", "conversations"]


def test_the_setting_is_read_from_the_file(tmp_path: Path):
    file = tmp_path / "c.toml"
    file.write_text('scenario = "code"\nlists = "asked"\n[model]\nname = "m"\n')
    assert len(read_config(file).loaded_scenario().asked) == 3
    file.write_text('scenario = "code"\nlists = "bought"\n[model]\nname = "m"\n')
    with pytest.raises(InputError, match="lists"):
        read_config(file)
