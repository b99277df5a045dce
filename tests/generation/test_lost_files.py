"""A run that has lost a file is reported as damaged before anything is paid."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from camel.core.errors import Damaged
from camel.generation.config import GenerateConfig, RunSection
from camel.library.run import Run
from camel.models.scripted import ScriptedModel
from camel.models.spec import ModelSpec
from tests.support.jobs import generation

SCENARIO = """title = "Conversations"
[[levels]]
name = "trade"
items = ["Baker", "Cook", "Nomad", "Poet"]
[society]
task = "Discuss the <TRADE>'s work."
"""
SOCIETY = """
[[members]]
name = "Ada"
[[members]]
name = "Bob"
[turns]
policy = "rounds"
[stop]
max_rounds = 1
"""


async def test_a_lost_file_is_noticed_and_made_again_once_its_marker_is_gone_too(tmp_path: Path):
    scenario = tmp_path / "conversations"
    scenario.mkdir()
    (scenario / "scenario.toml").write_text(SCENARIO)
    (scenario / "society.toml").write_text(SOCIETY)
    settings = GenerateConfig(
        scenario=str(scenario),
        model=ModelSpec("scripted"),
        out=str(tmp_path / "run"),
        shard_size=2,
        run=RunSection(concurrency=2),
    )
    asked = 0

    def said(request: object) -> str:
        nonlocal asked
        asked += 1
        return f"so it is, {asked}"

    assert (await generation(settings, ScriptedModel(said)).run()).complete
    paid, before = asked, [one.id for one in Run(tmp_path / "run")]
    marker = next((tmp_path / "run" / "committed").glob("*/000001.json"))
    lost = next((tmp_path / "run" / "data").glob("*/000001-*"))
    lost.unlink()
    with pytest.raises(Damaged, match=rf"{lost.name}.*camel run verify"):
        await generation(settings, ScriptedModel(said)).run()
    assert asked == paid
    marker.unlink()
    assert (await generation(settings, ScriptedModel(said)).run()).complete
    assert paid < asked <= 2 * paid
    assert [one.id for one in Run(tmp_path / "run")] == before
