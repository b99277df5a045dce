"""What the control files of a job, and of the jobs within it, do while it is worked on."""

from __future__ import annotations

import asyncio
from pathlib import Path

from camel.engine.controlled import EVERY, STOPPED, controlled
from camel.engine.halt import Halt
from camel.runs.control import read_wish, wish
from camel.runs.run import RunFolder
from camel.runs.settings import Settings
from tests.support.virtual_time import virtual_time


def folder(root: Path) -> RunFolder:
    made = RunFolder(root)
    made.create(Settings("f", {}, "0"))
    return made


async def look() -> None:
    """Wait until the control files have been looked at again."""
    await asyncio.sleep(2 * EVERY)


@virtual_time
async def test_a_pause_of_any_folder_pauses_and_all_must_continue(tmp_path: Path):
    outer, inner = folder(tmp_path / "outer"), folder(tmp_path / "inner")
    folders, halt = [outer], Halt()
    wish(outer, "pause")
    async with controlled(folders, halt):
        assert halt.paused, "looked at before anything is done"
        folders.append(inner)
        wish(inner, "pause")
        wish(outer, "go")
        await look()
        assert halt.paused
        folders.remove(inner)
        await look()
        assert not halt.paused, "a job that has ended pauses nobody"
    assert not halt.reason


@virtual_time
async def test_a_stop_is_for_this_start_only(tmp_path: Path):
    outer, inner = folder(tmp_path / "outer"), folder(tmp_path / "inner")
    halt = Halt()
    async with controlled([outer, inner], halt):
        wish(inner, "stop")
        await look()
    assert halt.reason == STOPPED
    assert read_wish(inner) == "go"


@virtual_time
async def test_another_limit_stops_as_well_and_nothing_is_looked_at_afterwards(tmp_path: Path):
    one, halt, over = folder(tmp_path / "run"), Halt(), ""
    async with controlled([one], halt, lambda: over):
        await look()
        assert not halt.reason
        over = "the budget of 2 hours is used up"
        await look()
        assert halt.reason == over
    wish(one, "stop")
    await look()
    assert read_wish(one) == "stop", "it is for the next process"
