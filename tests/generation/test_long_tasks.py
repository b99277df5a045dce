"""Tasks that do not fit the model's window: one is a record, and a window in which none fits stops the run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from camel import InputError, Run, ScriptedModel
from camel.core.message import Sampling
from camel.generation.config import GenerateConfig
from camel.models.spec import ModelSpec
from camel.scenarios import load
from tests.support.jobs import generation

SCENARIO = """
title = "Two tasks"

[[levels]]
name = "task"
items = ["Count to ten.", "{long}"]

[role_play]
assistant = "Clerk"
user = "Teacher"
task = "<TASK>"
specify = false
"""


def config_of(folder: Path, max_tokens: int = 64) -> GenerateConfig:
    (folder / "two").mkdir()
    (folder / "two" / "scenario.toml").write_text(SCENARIO.format(long="数" * 3_900))
    load(str(folder / "two"))
    return GenerateConfig(
        str(folder / "two"),
        ModelSpec("m"),
        out=str(folder / "run"),
        sampling=Sampling(max_tokens=max_tokens),
    )


class Small(ScriptedModel):
    context_tokens = 4_096


def test_one_task_that_is_too_long_stops_nobody_else(tmp_path: Path):
    model = Small(lambda request: "<CAMEL_TASK_DONE>")
    assert asyncio.run(generation(config_of(tmp_path), model).run()).complete
    first, second = Run(tmp_path / "run")
    assert first.stop is not None
    assert first.stop.reason == "done"
    assert second.stop is not None
    assert (second.stop.reason, second.messages) == ("token_limit", [])
    assert "shorten the task" in second.stop.detail
    assert second.task.original.startswith("数数")


def test_where_no_task_fits_the_settings_are_wrong(tmp_path: Path):
    model = Small(lambda request: "<CAMEL_TASK_DONE>")
    with pytest.raises(InputError, match="lower max_tokens"):
        asyncio.run(generation(config_of(tmp_path, max_tokens=4_000), model).run())
