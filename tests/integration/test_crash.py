"""A short form of `python -m benchmarks.crash`: real processes, killed for real."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_run_that_is_killed_over_and_over_loses_nothing(tmp_path: Path):
    pytest.importorskip("pyarrow")
    from benchmarks import crash

    assert crash.crash(tmp_path, conversations=24, kills=4, full=2, seed=0) == 0


def test_a_seed_is_replayed_by_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from benchmarks import crash

    monkeypatch.setattr(sys, "argv", ["crash", "--simulate", "2", "--seed", "7"])
    assert crash.main() == 0
    assert "2 seeds from 7" in capsys.readouterr().out
