"""HumanEval with the real small model: it is asked, what it writes is run, and the figures add up. Few of its programs pass."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real_model


def test_the_small_model_is_evaluated(tmp_path: Path):
    command = [
        sys.executable,
        "-m",
        "camel",
        "evaluate",
        "humaneval",
        "--local",
        "-n",
        "2",
        "-k",
        "1",
        "-k",
        "2",
    ]
    command += ["--problems", "4", "--answer-tokens", "120", "--seed", "1", "--out", "kept"]
    done = subprocess.run(
        command, cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads((tmp_path / "kept/humaneval.json").read_text())
    assert (figures["n"], figures["problems"], figures["usage"]["calls"]) == (2, 4, 8)
    assert sum(figures["outcomes"].values()) == 8
    assert [one["k"] for one in figures["plus"]] == [1, 2]
    assert figures["config"]["model"] == "smollm2-135m"
    assert figures["money"] == 0
    assert (tmp_path / "kept/humaneval.html").read_text().startswith("<!doctype html>")
