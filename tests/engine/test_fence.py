"""A new driver waits for the workers of a dead one, and for nobody else."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from camel.core.errors import InputError
from camel.engine.fence import MARGIN, Fence
from camel.runs.run import DRIVER, RunFolder

TTL = 1_000.0
SLACK = 100.0
"""Seconds that a slow machine may take between two lines of a test."""


def test_who_said_goodbye_is_not_waited_for(tmp_path: Path):
    fence = Fence(RunFolder(tmp_path), TTL)
    assert fence.left() == 0.0
    fence.renew()
    assert Fence(RunFolder(tmp_path)).left() == pytest.approx(TTL + MARGIN, abs=SLACK)
    fence.lift()
    assert Fence(RunFolder(tmp_path)).left() == 0.0
    fence.lift()


def test_who_did_not_is_waited_for_as_long_as_its_leases_hold(tmp_path: Path):
    Fence(RunFolder(tmp_path), TTL).renew()
    path = tmp_path / DRIVER
    then = time.time() - 800
    os.utime(path, (then, then))
    assert Fence(RunFolder(tmp_path)).left() == pytest.approx(TTL + MARGIN - 800, abs=SLACK)
    then -= 600
    os.utime(path, (then, then))
    assert Fence(RunFolder(tmp_path)).left() == 0.0


def test_a_clock_that_jumped_makes_nobody_wait_for_hours(tmp_path: Path):
    Fence(RunFolder(tmp_path), 10.0).renew()
    then = time.time() + 7200
    os.utime(tmp_path / DRIVER, (then, then))
    assert Fence(RunFolder(tmp_path)).left() <= 10.0 + MARGIN


@pytest.mark.parametrize("text", ["", "what", "-"])
def test_a_torn_word_is_no_word(tmp_path: Path, text: str):
    (tmp_path / DRIVER).write_text(text)
    assert Fence(RunFolder(tmp_path)).left() <= MARGIN


def test_a_word_that_cannot_be_written_leaves_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fence = Fence(RunFolder(tmp_path), TTL)
    fence.renew()

    def full(path: Path, text: str) -> None:
        path.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        fence.renew()
    monkeypatch.undo()
    assert Fence(RunFolder(tmp_path)).left() > TTL - SLACK


@pytest.mark.slow  # importing Ray takes seconds
def test_the_client_of_others_is_refused_with_a_word_why():
    pytest.importorskip("ray")
    from camel.engine.ray.connect import connected

    with pytest.raises(InputError, match="host:port"), connected("ray://head:10001"):
        pass
