"""The control file of a run, on a disk and in an object store."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from camel.cli.run import pause, resume
from camel.runs.control import CONTROL, read_wish, wish
from camel.runs.run import RunFolder, open_folder
from camel.runs.settings import Settings


def test_a_wish_is_read_where_it_was_written(place):
    folder: RunFolder = place("run")
    folder.create(Settings("f", {}, "0"))
    assert read_wish(folder) == "go"
    for what in ("pause", "stop", "pause"):
        wish(folder, what)
        assert read_wish(open_folder(folder.address)) == what
    if folder.on_disk:
        assert [path.name for path in folder.root.iterdir() if "control" in path.name] == [CONTROL]
    wish(folder, "go")
    wish(folder, "go")
    assert read_wish(folder) == "go"
    assert not folder.store.exists(CONTROL)


def test_a_wish_lasts_through_a_power_cut(tmp_path: Path, synced: list[str]):
    folder = open_folder(tmp_path / "run")
    folder.create(Settings("f", {}, "0"))
    synced.clear()
    wish(folder, "pause")
    assert CONTROL in synced[0]  # its words before its name
    assert synced[-1] == "run"


def test_a_wish_that_cannot_be_understood_is_none(tmp_path: Path):
    folder = open_folder(tmp_path / "run")
    folder.create(Settings("f", {}, "0"))
    for data in (b"", b"{", b"[]", b'{"wish": "dance"}', b"[" * 100_000, os.urandom(64)):
        (tmp_path / "run" / CONTROL).write_bytes(data)
        assert read_wish(folder) == "go"


def test_pause_and_resume_print_what_happens_next(
    place, capsys: pytest.CaptureFixture[str], snapshot: Callable[..., None]
):
    folder: RunFolder = place("run")
    folder.create(Settings("f", {"scenario": "ai_society"}, "0"))
    pause(folder.address)
    said = capsys.readouterr().out
    snapshot("status", said.replace(folder.address, "RUN"), "pause")
    assert (" 5 s" in said) != folder.on_disk
    with folder.locked():
        resume(folder.address)
    snapshot("status", capsys.readouterr().out, "resume")
