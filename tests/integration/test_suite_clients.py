"""The requests that lm-eval 0.4.13 and inspect-ai 0.3.285 send, against a served society. `benchmarks.suites` runs the suites."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from camel import Run
from camel.models.simulator import SimulatorSettings
from tests.support.endpoints import serve as simulated
from tests.support.gsm8k import AUTHOR, FOLDER, problems
from tests.support.served import CALLS, ask, serving

REQUESTS = [json.loads(line) for line in (FOLDER / "requests.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("client", ["lm-eval", "inspect-ai"])
def test_the_requests_of_a_suite_are_answered(tmp_path: Path, client: str) -> None:
    requests: list[dict[str, Any]] = [one for one in REQUESTS if one["client"] == client]
    with simulated(SimulatorSettings(author=AUTHOR)) as simulator:
        with serving(tmp_path / "run", simulator) as url:
            answers = [ask(url, one["body"], **one["headers"]) for one in requests]
        assert simulator.ledger().requests == 5 * CALLS
    known = dict(problems())
    for one, answer in zip(requests, answers, strict=True):
        question = one["body"]["messages"][-1]["content"]
        assert answer.text.endswith(f"#### {known[question]}")
    assert [one.task.text for one in Run(tmp_path / "run")] == [
        one["body"]["messages"][-1]["content"] for one in requests
    ]
