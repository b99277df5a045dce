"""The simulator in its own process, so that it shares no event loop with the client.

The one decision to know: the child stops when its standard input closes. The parent holds the other end, so the child ends
with the parent in any case.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.request import ProxyHandler, Request, build_opener

import msgspec

from camel.models.simulator.ledger import Counters
from camel.models.simulator.settings import SimulatorSettings

_PATIENCE = 10.0


@dataclass(eq=False)
class SimulatorProcess:
    """A running simulator process. It prints these fields as a line of JSON when it is ready."""

    url: str
    base_url: str
    pid: int

    def ledger(self) -> Counters:
        """Return the current counters."""
        return msgspec.json.decode(self._call("GET", "/ledger"), type=Counters)

    def flush(self) -> None:
        """Write every finished row to the ledger's file."""
        self._call("POST", "/ledger/flush")

    def reset(self) -> None:
        """Reset the ledger."""
        self._call("POST", "/reset")

    def _call(self, method: str, path: str) -> bytes:
        request = Request(self.url + path, method=method)  # noqa: S310 - our own http URL
        # Loopback must not go through a proxy that the environment names.
        with build_opener(ProxyHandler({})).open(request, timeout=_PATIENCE) as response:
            return response.read()


@contextmanager
def spawn(settings: SimulatorSettings | None = None, *, port: int = 0) -> Generator[SimulatorProcess]:
    """Run a simulator as a child process for the duration of a `with` block."""
    encoded = msgspec.json.encode(settings or SimulatorSettings()).decode()
    command = [sys.executable, "-m", "camel.models.simulator", "--port", str(port), "--settings", encoded]
    # Pass the parent's path, so that the child finds the same camel, and authors in test files.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    # In its own session, Ctrl-C does not reach it, so the parent can still read its ledger.
    with subprocess.Popen(  # noqa: S603 - our own interpreter and module
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            line = child.stdout.readline()
            if not line:
                raise RuntimeError(f"the simulator did not start (exit status {child.wait()})")
            yield msgspec.json.decode(line, type=SimulatorProcess)
        finally:
            child.stdin.close()
            try:
                child.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                child.kill()
