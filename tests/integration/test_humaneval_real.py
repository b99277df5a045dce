"""HumanEval with the real small model: it is asked, what it writes is run, and the figures add up. Few of its programs pass."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import camel

pytestmark = pytest.mark.real_model


def test_the_small_model_is_evaluated(tmp_path: Path):
    options = ["-n", "2", "-k", "1", "-k", "2", "--problems", "2", "--max-tokens", "40", "--seed", "1"]
    done = camel("evaluate", "humaneval", "--local", *options, "--out", "kept", cwd=tmp_path)
    assert done.status == 0, done.stdout + done.stderr
    figures = json.loads((tmp_path / "kept/humaneval.json").read_text())
    assert (figures["n"], figures["problems"], figures["usage"]["calls"]) == (2, 2, 4)
    assert sum(figures["outcomes"].values()) == 4
    assert [one["k"] for one in figures["plus"]] == [1, 2]
    assert figures["config"]["model"] == "smollm2-135m"
    assert figures["money"] == 0
    assert (tmp_path / "kept/humaneval.html").read_text().startswith("<!doctype html>")
