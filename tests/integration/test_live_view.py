"""The live view of a real run, through restarts of the server and of the run, compared with the endpoint's ledger."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from camel.models.simulator import Constant, SimulatorProcess, SimulatorSettings, spawn
from tests.support.waiting import wait_for

pytest.importorskip("fastapi")
from tests.support.thread_server import ThreadServer

pytestmark = pytest.mark.slow
COMMAND = [sys.executable, "-m", "camel"]
LATENCY = 0.1
MESSAGES = 6
CONVERSATIONS = 24
"""As many as a page shows at once."""


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[SimulatorProcess]:
    settings = SimulatorSettings(
        length=Constant(MESSAGES), latency=Constant(LATENCY), ledger_path=str(tmp_path / "ledger.jsonl")
    )
    with spawn(settings) as process:
        yield process


class Server:
    """`camel explore`, always on the same port."""

    def __init__(self, run: Path) -> None:
        self.run, self.port = run, 0
        self.start()

    def start(self) -> None:
        self._serving = ThreadServer("explore", self.run, port=self.port)
        self.port = int(self._serving.url.rpartition(":")[2])

    def stop(self) -> None:
        self._serving.stop()


@contextlib.contextmanager
def held(endpoint: SimulatorProcess) -> Iterator[None]:
    """Keep the endpoint from answering, and with it the run from saying more."""
    os.kill(endpoint.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(endpoint.pid, signal.SIGCONT)


class Viewer(threading.Thread):
    """A browser that comes back when it is cut off, and takes note of every reply that it was shown."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self.server, self.ended = server, False
        self.last = ""
        self.connections = 0
        self.told: set[tuple[str, int]] = set()
        """Conversations and numbers of replies."""
        self.calls = 0
        self.state = self.workers = ""

    def run(self) -> None:
        while not self.ended:
            try:
                self._listen()
            except (OSError, http.client.HTTPException):
                time.sleep(0.2)

    def _listen(self) -> None:
        line = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        headers = {"last-event-id": self.last} if self.last else {}
        with contextlib.closing(line):
            line.request("GET", "/watch/run/events", headers=headers)
            with line.getresponse() as answer:
                assert answer.status == 200
                self.connections += 1
                event = ""
                while not self.ended and (text := answer.fp.readline().decode()):
                    name, _, value = text.rstrip("\n").partition(": ")
                    if name == "event":
                        event = value
                    elif name == "id":
                        self.last = value
                    elif name == "data":
                        self._heard(event, json.loads(value))

    def _heard(self, event: str, data: Any) -> None:
        lanes = data["lanes"] if event == "state" else [data] if event == "said" else []
        for lane in lanes:
            self.told |= {(lane["id"], reply) for reply in range(lane["replies"])}
        totals = data["totals"] if event == "state" else data if event == "totals" else None
        if totals:
            self.calls = int(dict(totals["figures"])["calls"].replace(",", ""))
            self.state = totals["state"]
            self.workers = dict(totals["figures"]).get("workers", "")


def test_a_run_is_seen_as_it_talks_and_nothing_is_missed(tmp_path: Path, endpoint: SimulatorProcess):
    (tmp_path / "config.toml").write_text(
        # One shard: nothing is committed, and leaves the page, while the server is away.
        f'scenario = "ai_society"\nout = "run"\nlists = "asked"\nshard_size = {CONVERSATIONS}\n'
        "counts = { assistant_role = 4, user_role = 2, task = 3 }\n"
        f'[model]\nname = "simulated"\nbase_url = "{endpoint.base_url}"\n[run]\nconcurrency = 4\n'
    )
    generate = [*COMMAND, "generate", "config.toml"]

    def begun() -> subprocess.Popen[bytes]:
        return subprocess.Popen(generate, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def sent(share: float) -> bool:
        return endpoint.ledger().requests > share * CONVERSATIONS * MESSAGES

    running = begun()
    wait_for((tmp_path / "run" / "run.json").exists)
    with held(endpoint):
        server = Server(tmp_path / "run")
        viewer = Viewer(server)
        viewer.start()
        wait_for(lambda: viewer.connections)
    try:
        wait_for(lambda: viewer.workers == "1")
        wait_for(lambda: sent(0.3))
        # The server stops, and comes back while the run goes on.
        server.stop()
        wait_for(lambda: sent(0.4))
        with held(endpoint):
            connected = viewer.connections
            server.start()
            wait_for(lambda: viewer.connections > connected)
        # The run is stopped, and goes on while it is watched.
        wait_for(lambda: sent(0.6))
        running.send_signal(signal.SIGINT)
        running.wait(120)
        wait_for(lambda: viewer.state == "stopped")
        known, asked = len(viewer.told), endpoint.ledger().requests
        running = begun()
        wait_for(
            lambda: endpoint.ledger().requests >= asked + 8
        )  # four at once: the first of them are answered
        with held(endpoint):
            wait_for(lambda: len(viewer.told) > known)
        assert running.wait(300) == 0
        wait_for(lambda: viewer.state == "complete" and viewer.calls == endpoint.ledger().billed)
    finally:
        viewer.ended = True
        running.kill()
        running.wait()
        server.stop()
        viewer.join(120)
    assert endpoint.ledger().billed_repeats == 0
    endpoint.flush()
    lines = (tmp_path / "ledger.jsonl").read_bytes().splitlines()
    rows = [msgspec.json.decode(line) for line in lines]
    said = Counter(row["session"] for row in rows if row["session"].count("_") == 2)  # the others are lists
    assert len(said) == CONVERSATIONS
    told = {(id, reply) for id, reply in viewer.told if id in said}
    assert told == {(id, number) for id, count in said.items() for number in range(count)}
