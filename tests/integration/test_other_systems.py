"""macOS and Windows, as far as a Linux machine can show it: without the calls and modules that they lack."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from camel.models.simulator import Constant, SimulatorSettings, spawn

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def endpoint():
    with spawn(SimulatorSettings(length=Constant(5))) as process:
        yield process


def run(system: str, *arguments: str, folder: Path, url: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.support.other_system", system, *arguments]
    env = os.environ | {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


def test_macos_makes_a_run_and_resumes_it(tmp_path: Path, endpoint):
    trial = str(ROOT / "configs" / "trial.toml")
    done = run("macos", "generate", trial, "--budget-calls", "20", folder=tmp_path, url=endpoint.base_url)
    assert done.returncode == 3, done.stderr
    done = run("macos", "generate", trial, folder=tmp_path, url=endpoint.base_url)
    assert done.returncode == 0, done.stderr
    shown = run("macos", "run", "verify", "runs/trial", folder=tmp_path, url=endpoint.base_url)
    assert shown.returncode == 0, shown.stderr


def test_windows_holds_conversations(tmp_path: Path, endpoint):
    saved = tmp_path / "oasis.json"
    play = ("play", "--task", "Oasis", "--max-messages", "2", "--save", str(saved))
    done = run("windows", *play, folder=tmp_path, url=endpoint.base_url)
    assert done.returncode == 0, done.stderr
    assert saved.exists()


@pytest.mark.parametrize(
    "command", [("generate", str(ROOT / "configs" / "trial.toml")), ("show", "runs/trial"), ("doctor",)]
)
def test_windows_says_what_to_do_where_a_run_is_needed(command: tuple[str, ...], tmp_path: Path, endpoint):
    done = run("windows", *command, folder=tmp_path, url=endpoint.base_url)
    assert done.returncode == 2
    assert "WSL" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()
