"""A served society: on a thread of the test process, or as a process of its own that can be killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from camel import Ending, Member, Society
from camel.engine import controlled
from camel.engine.journaled import journaled
from camel.library.serving import serve
from camel.models.simulator import SimulatorProcess
from camel.runs.control import wish
from camel.runs.run import RunFolder
from tests.support.waiting import wait_for

CALLS = 4
"""The calls of each conversation."""
SOCIETY = Society(
    members=(Member("Ada", "mathematician"), Member("Bob", "teacher")), stop=Ending(max_messages=CALLS)
)
TOML = """
members = [{ name = "Ada", role = "mathematician" }, { name = "Bob", role = "teacher" }]

[stop]
max_messages = 4
"""
_open = build_opener(ProxyHandler({})).open


class Answer(NamedTuple):
    """A response of the endpoint."""

    status: int
    body: Any
    headers: dict[str, str]

    @property
    def text(self) -> str:
        return self.body["choices"][0]["message"]["content"]


def chat(*texts: str, **fields: Any) -> dict[str, Any]:
    """The body of a request whose last message is the task."""
    roles = ["system"] * (len(texts) - 1) + ["user"]
    return {
        "messages": [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)],
        **fields,
    }


def ask(url: str, body: Any, timeout: float = 120, **headers: str) -> Answer:
    """Send a request and read its response."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {
        "Content-Type": "application/json",
        **{name.replace("_", "-"): text for name, text in headers.items()},
    }
    try:
        with _open(Request(f"{url}/chat/completions", data, sent), timeout=timeout) as found:
            raw = found.read()
            return Answer(
                found.status,
                raw if found.headers["Content-Type"] == "text/event-stream" else json.loads(raw),
                dict(found.headers),
            )
    except HTTPError as error:
        with error:
            return Answer(error.code, json.loads(error.read()), dict(error.headers))


def ask_until_answered(url: str, body: Any, **headers: str) -> Answer:
    """Like a client that retries after lost connections and after status 503."""
    end = time.monotonic() + 240
    while time.monotonic() < end:
        try:
            found = ask(url, body, **headers)
        except (OSError, HTTPException):
            found = None
        if found and found.status != 503:
            return found
        time.sleep(0.1)
    raise AssertionError("no reply")


def ask_all(url: str, bodies: list[Any], clients: int = 16) -> list[Answer]:
    with ThreadPoolExecutor(clients) as pool:
        return list(pool.map(lambda body: ask_until_answered(url, body), bodies))


@contextmanager
def serving(out: Path, simulator: SimulatorProcess, what: Any = SOCIETY, **options: Any) -> Generator[str]:
    """Serve on a thread. The value is the base URL."""
    found: list[Any] = []
    reached = threading.Event()

    def ready(url: str, name: str) -> None:
        found.append(url)
        reached.set()

    def run() -> None:
        try:
            serve(what, out=out, ready=ready, **{"model": f"simulated@{simulator.base_url}", **options})
        except BaseException as error:
            found.append(error)
        finally:
            reached.set()

    thread = threading.Thread(target=run)
    patch = pytest.MonkeyPatch()
    patch.setattr(controlled, "EVERY", 0.05)  # seconds until it sees that it must stop
    thread.start()
    try:
        assert reached.wait(120)
        if isinstance(found[0], BaseException):
            raise found[0]
        yield found[0]
    finally:
        if not isinstance(found[-1], BaseException):
            wait_for(lambda: (out / "log.jsonl").exists())
            time.sleep(0.1)
            while thread.is_alive():  # a wish of before the start does not count
                wish(RunFolder(out), "stop")
                thread.join(0.2)
        patch.undo()
    assert not isinstance(found[-1], BaseException), found[-1]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as door:
        return door.getsockname()[1]


class ServedProcess:
    """`camel serve` in a process that can be killed and started again."""

    def __init__(self, folder: Path, simulator: SimulatorProcess, port: int = 0) -> None:
        self.out, self.port, self._simulator, self._folder = (
            folder / "run",
            port or free_port(),
            simulator,
            folder,
        )
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.lost = 0
        """The calls that were in flight when the process was killed: they are paid for again."""
        (folder / "society.toml").write_text(TOML)
        self._child = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        options = [
            "--model",
            f"simulated@{self._simulator.base_url}",
            "--port",
            str(self.port),
            "--out",
            str(self.out),
        ]
        command = [sys.executable, "-m", "camel", "serve", str(self._folder / "society.toml"), *options]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with (self._folder / "output.txt").open("ab") as output:
            self._child = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        return self._child

    def recorded_calls(self) -> int:
        """The calls whose replies are in the run: in its journals and in its records."""
        folder = RunFolder(self.out)
        committed = sum(
            int(one.totals["calls"])
            for one in folder.markers("conversations", folder.committed("conversations"))
        )
        return committed + sum(
            used.calls for _, used, _ in journaled(folder, "conversations", lambda damage: None)
        )

    def kill(self) -> None:
        """Kill it, and count the calls that are lost: those that the endpoint got and whose replies are not recorded."""
        os.kill(self._child.pid, signal.SIGSTOP)
        time.sleep(0.5)  # what was sent arrives
        self.lost = self._simulator.ledger().requests - self.recorded_calls()
        self._child.kill()
        self._child.wait()

    def stop(self) -> int:
        """Stop it as Ctrl-C does, and return its exit status."""
        self._child.send_signal(signal.SIGINT)
        return self._child.wait(60)
