"""The simulated endpoint on a thread of the test process: as seen from outside, without the start of a process.

All endpoints of a process share one event loop, because connections of the simulator share one buffer.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager

from camel.models.simulator import Simulator, SimulatorProcess, SimulatorSettings


class _Thread:
    """An event loop on a thread that runs while a test uses it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread

    @contextmanager
    def used(self) -> Generator[asyncio.AbstractEventLoop]:
        with self._lock:
            if not self._users:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="endpoints")
                self._thread.start()
            self._users += 1
        try:
            yield self._loop
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._loop.call_soon_threadsafe(self._loop.stop)
                    self._thread.join()
                    self._loop.close()


_THREAD = _Thread()


@contextmanager
def serve(settings: SimulatorSettings | None = None) -> Generator[SimulatorProcess]:
    """Like `camel.models.simulator.spawn`; use that one where the process itself is the subject."""
    with _THREAD.used() as loop:
        simulator = Simulator(settings)
        asyncio.run_coroutine_threadsafe(simulator.__aenter__(), loop).result()
        try:
            yield SimulatorProcess(simulator.url, simulator.base_url, os.getpid())
        finally:
            asyncio.run_coroutine_threadsafe(simulator.__aexit__(None, None, None), loop).result()
