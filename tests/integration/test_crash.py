"""A short form of `python -m benchmarks.crash`: real processes, killed for real."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
def test_a_run_that_is_killed_over_and_over_loses_nothing():
    pytest.importorskip("pyarrow")
    command = [
        sys.executable,
        "-m",
        "benchmarks.crash",
        "--conversations",
        "60",
        "--kills",
        "8",
        "--full",
        "4",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_seed_is_replayed_by_the_command():
    command = [sys.executable, "-m", "benchmarks.crash", "--simulate", "2", "--seed", "7"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 seeds from 7" in done.stdout
