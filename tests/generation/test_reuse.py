"""What a fork takes over, and what it says of the rest."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from msgspec import json, structs

import camel.scenarios as scenarios
from camel.generation.config import GenerateConfig
from camel.generation.opening import open_run
from camel.generation.plan import committed_in, make_plan
from camel.generation.reuse import Reused, committed_with_lists, look, reuse_lists
from camel.models.spec import ModelSpec
from camel.runs.markers import Marker
from camel.runs.run import RunFolder, open_folder

ROLES = ["assistant_role", "user_role"]
LEVELS = [*ROLES, "task"]


@pytest.fixture
def config(tmp_path: Path) -> GenerateConfig:
    """A run of a scenario of one's own whose lists are all there."""
    shutil.copytree(Path(scenarios.__file__).parent / "ai_society", tmp_path / "mine")
    made = GenerateConfig(
        str(tmp_path / "mine"),
        ModelSpec("m"),
        out=str(tmp_path / "old"),
        counts=dict.fromkeys(LEVELS, 2),
        lists="asked",
    )
    folder = open_run(made, made.loaded_scenario())
    for level in LEVELS:
        path = folder.data_path(level, 0, "a", ".txt")
        path.write_text("1. One\n2. Two\n")
        rows = made.loaded_scenario().lists(level)
        file = str(path.relative_to(folder.root))
        folder.commit(Marker(level, 0, file, rows, "", "f", {"calls": 3.0, "prompt": 90.0}))
    return made


def forked(config: GenerateConfig) -> tuple[Reused, RunFolder]:
    new = structs.replace(config, out=f"{config.out}-new")
    return look(new, config.out), reuse_lists(new, config.out)


def edit(config: GenerateConfig, prompt: str) -> None:
    (found,) = Path(config.scenario).rglob(prompt)
    found.write_text(found.read_text() + "\nBe brief.\n")


def test_a_changed_prompt_costs_its_own_lists_and_no_others(config: GenerateConfig):
    edit(config, "tasks.txt")
    (kept, why), folder = forked(config)
    assert kept == ROLES
    assert list(why) == ["task"]
    assert {level for level in LEVELS if folder.committed(level)} == set(ROLES)


def test_a_change_of_the_conversations_costs_no_list(config: GenerateConfig):
    declared = Path(config.scenario) / "scenario.toml"
    declared.write_text(declared.read_text().replace("[role_play]", "[role_play]\nmax_messages = 12"))
    (kept, why), _ = forked(config)
    assert (kept, why) == (LEVELS, {})


def test_what_a_list_depends_on_is_part_of_it(config: GenerateConfig):
    edit(config, "user_roles.txt")
    assert forked(config)[0].kept == ["assistant_role"]


def test_another_model_asks_for_everything_and_says_why(config: GenerateConfig):
    other = structs.replace(config, model=ModelSpec("another"))
    kept, why = forked(other)[0]
    assert not kept
    assert set(why.values()) == {"model.name changed"}


def test_a_run_from_before_the_hashes_is_compared_by_its_scenario(config: GenerateConfig):
    path = Path(config.out) / "run.json"
    path.write_bytes(
        json.encode({name: part for name, part in json.decode(path.read_bytes()).items() if name != "lists"})
    )
    assert forked(structs.replace(config, counts={**config.counts, "task": 3}))[0].kept == ROLES
    shutil.rmtree(f"{config.out}-new")
    edit(config, "tasks.txt")
    assert not forked(config)[0].kept


def test_the_plan_of_a_fork_counts_what_it_has_to_ask(config: GenerateConfig):
    edit(config, "tasks.txt")
    _, folder = forked(config)
    new = structs.replace(config, out=f"{config.out}-new")
    calls = {
        stage.name: stage.need.likely.calls
        for stage in make_plan(new, committed=committed_in(folder, new)).stages
    }
    assert [calls[level] for level in ROLES] == [0, 0]
    assert calls["task"] > 0


def test_a_look_at_a_fork_says_what_the_fork_does_and_makes_nothing(config: GenerateConfig):
    edit(config, "tasks.txt")
    new = structs.replace(config, out=f"{config.out}-new")
    seen = look(new, config.out)
    before = make_plan(new, committed=committed_with_lists(new, config.out, seen))
    assert not Path(new.out).exists()
    assert forked(config)[0] == seen
    assert make_plan(new, committed=committed_in(open_folder(new.where), new)) == before


def test_a_fork_goes_by_what_its_parent_took_until_it_knows_better(config: GenerateConfig):
    old = RunFolder(Path(config.out))
    took = {"calls": 40.0, "prompt": 8_000.0, "completion": 400.0, "money": 1.0}
    old.commit(Marker("conversations", 0, "data/x", 4, "", "f", took))
    edit(config, "tasks.txt")
    _, folder = forked(config)
    new = structs.replace(config, out=f"{config.out}-new")
    talks = make_plan(new, committed=committed_in(folder, new)).stages[-1]
    assert (talks.done, talks.measured, talks.elsewhere) == (0, 4, config.out)
    assert talks.need.likely.calls == talks.items * 10
    assert talks.need.low.calls < talks.need.likely.calls < talks.need.high.calls
    folder.commit(Marker("conversations", 0, "data/y", 1, "", "f", {**took, "calls": 20.0}))
    plan = make_plan(new, committed=committed_in(folder, new))
    assert (plan.stages[-1].done, plan.stages[-1].elsewhere) == (1, "")
    assert plan.stages[-1].need.likely.calls == talks.items * 20
    # With the parent gone it is planned all the same.
    shutil.rmtree(config.out)
    assert make_plan(new, committed=committed_in(folder, new)).stages[-1] == plan.stages[-1]


def test_a_run_with_other_settings_is_no_work_done(config: GenerateConfig):
    edit(config, "tasks.txt")
    stages = make_plan(config, committed=committed_in(open_folder(config.where), config)).stages
    assert {stage.done for stage in stages} == {0}
    assert [stage.measured for stage in stages] == [1, 1, 4, 0]
    longer = structs.replace(config, counts={**config.counts, "task": 3})
    stages = make_plan(longer, committed=committed_in(open_folder(longer.where), longer)).stages
    assert [stage.measured for stage in stages] == [1, 1, 0, 0], "a list of another length says nothing"
