"""A comparison of methods that is killed three times: its figures are those of the endpoint's ledger."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from camel.evaluation.cooperation.methods import METHODS
from camel.models.simulator import Constant, SimulatorSettings, spawn
from tests.support.gsm8k import FOLDER
from tests.support.solvers import AUTHOR
from tests.support.waiting import wait_for

DUO = """
task = "Solve this problem. <PROBLEM>"
title = "duo"
[[members]]
name = "Ada"
[[members]]
name = "Ben"
[stop]
max_rounds = 1
"""
LONG = (pytest.mark.thorough, pytest.mark.timeout(3600))
ALL = [name for name in METHODS if name != "single"]


@pytest.mark.parametrize(
    ("problems", "calls"),
    [
        pytest.param(f"{FOLDER / 'problems.jsonl'}[:20]", 800, marks=pytest.mark.slow),
        pytest.param("gsm8k[:200]", 6_000, marks=LONG),
        pytest.param("humaneval+", 6_000, marks=LONG),
    ],
)
def test_a_comparison_that_is_killed_pays_for_nothing_twice(problems: str, calls: int, tmp_path: Path):
    (tmp_path / "duo.toml").write_text(DUO)
    with spawn(SimulatorSettings(author=AUTHOR, latency=Constant(0.01), prefix_cache=100_000)) as endpoint:
        command = [sys.executable, "-m", "camel", "evaluate", "cooperation", problems, *ALL, "duo.toml"]
        command += ["--base-url", endpoint.base_url, "--tokens", "4000", "--out", "out", "--concurrency", "8"]
        environment = {**os.environ, "OPENAI_API_KEY": "none"}

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                command, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
            )

        for kill in range(1, 4):
            with start() as running:
                wait_for(lambda at=kill * calls // 4: endpoint.ledger().billed >= at, 600)
                assert running.poll() is None, "it ended before it could be killed"
                running.kill()
        with start() as running:
            _, said = running.communicate(timeout=3600)
        assert running.returncode == 0, said.decode()[-2000:]
        ledger = endpoint.ledger()
    made = json.loads((tmp_path / "out" / "cooperation.json").read_bytes())
    used = [one["usage"] for one in made["methods"]]
    assert len(used) == 8
    paid = sum(one["calls"] for one in used)
    # What was in flight at the three kills may be repeated, and nothing else.
    assert 0 <= ledger.billed - paid == ledger.billed_repeats <= 3 * 8
    prompt, cached = (sum(one.get(name, 0) for one in used) for name in ("prompt", "cached"))
    if not ledger.billed_repeats:
        assert (prompt, cached) == (ledger.prompt_tokens, ledger.cached_tokens)
    assert 0 < cached < prompt
    assert all(0.7 < one["solved"]["rate"] < 1 for one in made["methods"]), "each method answers"
    totals = [one["prompt"] + one["completion"] for one in used[1:]]
    spread = (max(totals) - min(totals)) * len(totals) / sum(totals)
    print(f"{paid} calls, ledger {ledger.billed} with {ledger.billed_repeats} repeats; spread {spread:.2%}")
    print(f"{prompt} prompt tokens, {prompt - cached} of them not cached")
    assert spread <= 0.02
