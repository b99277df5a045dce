"""`camel run pause`, `resume` and `stop` of a run in another process; the endpoint's ledger is the witness."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from camel.models.simulator import Constant, SimulatorSettings
from tests.support.command import camel
from tests.support.forks import Program, wait_until
from tests.support.gates import GatedEndpoint, serve_gated


def begin(folder: Path, endpoint: GatedEndpoint) -> Program:
    (folder / "config.toml").write_text(
        'scenario = "ai_society"\nout = "run"\ncounts = { assistant_role = 2, user_role = 2, task = 2 }\n'
        f'[model]\nname = "simulated"\nbase_url = "{endpoint.base_url}"\n[run]\nconcurrency = 2\n'
    )
    return Program("generate", "config.toml", cwd=folder)


def status(folder: Path) -> dict[str, Any]:
    return json.loads(camel("run", "status", "run", "--json", cwd=folder).stdout)


def quiet(endpoint: GatedEndpoint) -> int:
    """The calls so far, once none is in flight and none follows; too short a look would only let an error pass."""
    wait_until(lambda: endpoint.ledger().in_flight == 0, "the end of the calls in flight")
    time.sleep(0.2)
    return endpoint.ledger().requests


@pytest.mark.slow
def test_a_paused_run_makes_no_calls_until_it_is_resumed_and_a_stopped_one_drains(tmp_path: Path):
    with serve_gated(SimulatorSettings(length=Constant(9))) as endpoint:
        endpoint.hold_after(12)
        with begin(tmp_path, endpoint) as running:
            endpoint.wait_until_held()
            assert "camel run resume run" in camel("run", "pause", "run", cwd=tmp_path).stdout
            wait_until(lambda: "paused: " in running.out, "the pause")
            held = endpoint.ledger().requests
            endpoint.release()
            assert quiet(endpoint) == held <= 12 + 2
            wait_until(lambda: status(tmp_path).get("workers") == 1, "figures of the run")
            told = status(tmp_path)
            assert (told["state"], told["paused"]) == ("working", True)
            assert "camel run resume run" in camel("run", "status", "run", cwd=tmp_path).stdout
            endpoint.hold_after(8)
            assert camel("run", "resume", "run", cwd=tmp_path).status == 0
            endpoint.wait_until_held()
            # Like Ctrl-C: calls in flight end and are kept, and the process prints how to resume.
            assert camel("run", "stop", "run", cwd=tmp_path).status == 0
            wait_until(lambda: not (tmp_path / "run" / "control.json").exists(), "the stop")
            assert running.poll() is None
            endpoint.release()
            assert running.wait() == 130
            assert "camel run stop" in running.out
            assert "resume  camel generate" in running.out
            assert running.out.count("paused: ") == 1
        stopped = endpoint.ledger()
        assert stopped.in_flight == 0
        assert stopped.requests <= held + 8 + 2
        assert camel("run", "stop", "run", cwd=tmp_path).status == 2  # no process is working on it
        # A pause is for the next start, too: whatever restarts it does not begin to pay.
        assert camel("run", "pause", "run", cwd=tmp_path).status == 0
        with begin(tmp_path, endpoint) as running:
            wait_until(lambda: "paused: " in running.out, "the pause")
            assert endpoint.ledger().requests == stopped.requests
            assert camel("run", "resume", "run", cwd=tmp_path).status == 0
            assert running.wait() == 0
        assert endpoint.ledger().billed_repeats == 0
