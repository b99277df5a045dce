"""`camel pause`, `resume` and `stop` of a run in another process; the endpoint's ledger is the witness."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from camel.models.simulator import Constant, SimulatorProcess, SimulatorSettings, spawn

COMMAND = [sys.executable, "-m", "camel"]
CALLS = 2 + 8 * 9
"""Two lists of tasks … and eight conversations of nine messages: at least."""


@pytest.fixture
def endpoint() -> Iterator[SimulatorProcess]:
    with spawn(SimulatorSettings(length=Constant(9), latency=Constant(0.15))) as process:
        yield process


def camel(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *args], cwd=cwd, capture_output=True, text=True, timeout=300)


def wait(until: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def begun(folder: Path, endpoint: SimulatorProcess) -> subprocess.Popen[str]:
    (folder / "config.toml").write_text(
        'scenario = "ai_society"\nout = "run"\ncounts = { assistant_role = 2, user_role = 2, task = 2 }\n'
        f'[model]\nname = "simulated"\nbase_url = "{endpoint.base_url}"\n[run]\nconcurrency = 2\n'
    )
    return subprocess.Popen(
        [*COMMAND, "generate", "config.toml"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def calls(endpoint: SimulatorProcess) -> int:
    return endpoint.ledger().requests


def quiet(endpoint: SimulatorProcess, seconds: float = 1.0) -> int:
    """The calls so far, once there was none for a while."""
    before, since = calls(endpoint), time.monotonic()
    while time.monotonic() - since < seconds:
        time.sleep(0.05)
        if (now := calls(endpoint)) != before:
            before, since = now, time.monotonic()
    return before


@pytest.mark.slow
def test_a_paused_run_makes_no_calls_until_it_goes_on_and_a_stopped_one_drains(
    tmp_path: Path, endpoint: SimulatorProcess
):
    running = begun(tmp_path, endpoint)
    try:
        wait(lambda: calls(endpoint) > 12)
        assert "no new calls until camel resume run" in camel("pause", "run", cwd=tmp_path).stdout
        seen = quiet(endpoint, 2.5)
        assert seen < CALLS
        time.sleep(2.0)
        assert calls(endpoint) == seen
        told = json.loads(camel("status", "run", "--json", cwd=tmp_path).stdout)
        assert (told["state"], told["paused"], told["workers"]) == ("working", True, 1)
        assert "paused  camel resume run" in camel("status", "run", cwd=tmp_path).stdout
        assert camel("resume", "run", cwd=tmp_path).returncode == 0
        wait(lambda: calls(endpoint) > seen + 4)
        # As Ctrl-C once: calls in flight end and are kept, and the process says how to go on.
        assert "stops once the calls in flight" in camel("stop", "run", cwd=tmp_path).stdout
        out, _ = running.communicate(timeout=60)
        assert running.returncode == 130
        assert "stopped by camel stop" in out
        assert "resume  camel generate" in out
        assert out.index("paused: no new calls until camel resume run") < out.index("goes on after a pause")
    finally:
        running.kill()
        running.wait()
    stopped = calls(endpoint)
    assert not (tmp_path / "run" / "control.json").exists()
    assert camel("stop", "run", cwd=tmp_path).returncode == 2  # nobody is working on it
    # A pause is for the next start, too: whatever restarts it does not begin to pay.
    assert "for the next start" in camel("pause", "run", cwd=tmp_path).stdout
    running = begun(tmp_path, endpoint)
    try:
        wait(lambda: json.loads(camel("status", "run", "--json", cwd=tmp_path).stdout)["paused"])
        time.sleep(1.5)
        assert calls(endpoint) == stopped
        assert camel("resume", "run", cwd=tmp_path).returncode == 0
        running.communicate(timeout=300)
        assert running.returncode == 0
    finally:
        running.kill()
        running.wait()
    assert endpoint.ledger().billed_repeats == 0
