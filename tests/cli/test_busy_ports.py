"""A server whose port is in use prints one line with the port and the option that changes it."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import camel
from tests.support.contests import a_run

PAIRS = Path(__file__).parents[2] / "examples" / "pairs.jsonl"
SERVERS = {
    "explore": ("explore", "run"),
    "agents": ("agents", "--model", "m", "--base-url", "http://127.0.0.1:9/v1"),
    "vote": ("vote", "pairs.jsonl"),
}


@pytest.fixture
def port() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield str(taken.getsockname()[1])


@pytest.mark.parametrize("name", SERVERS)
def test_commands(name: str, port: str, tmp_path: Path):
    a_run(tmp_path / "run", numbers=range(2))
    (tmp_path / "pairs.jsonl").write_bytes(PAIRS.read_bytes())
    done = camel(*SERVERS[name], "--port", port, "--no-open", cwd=tmp_path)
    assert done.status == 2
    assert done.stderr.count("\n") == 1
    assert f"port {port}: Address already in use" in done.stderr
    assert "--port" in done.stderr


def test_the_simulator(port: str):
    words = [sys.executable, "-m", "camel.models.simulator", "--port", port]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"port {port}: Address already in use" in done.stderr
    assert "--port" in done.stderr
