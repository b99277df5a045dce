"""A simulated endpoint with a gate: requests wait for their answer until the test opens it.

With it a test stops or kills a process in the middle of its work on a machine of any speed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from camel.models.simulator import Simulator, SimulatorProcess, SimulatorSettings
from tests.support.endpoints import _THREAD
from tests.support.forks import wait_until

_HELD = 1e9
"""The delay of a reply that waits for the gate."""


class GatedEndpoint(SimulatorProcess):
    """An endpoint on a thread of this process, seen from outside."""

    def __init__(self, simulator: Any, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(simulator.url, simulator.base_url, os.getpid())
        self._simulator, self._loop = simulator, loop
        self._limit: float = float("inf")
        planner = simulator._planner
        serve = planner._serve

        def gated(*args: Any) -> Any:
            plan = serve(*args)
            return plan._replace(delay=_HELD) if planner.ledger.counters.requests > self._limit else plan

        planner._serve = gated

    def hold_after(self, more: int) -> None:
        """Answer so many further requests; those after them wait until `release`."""
        self._limit = self.ledger().requests + more

    @property
    def is_holding(self) -> bool:
        """Whether a request has come that the gate holds."""
        return self.ledger().requests > self._limit

    def wait_until_held(self) -> None:
        """Wait for the first request that the gate holds."""
        wait_until(lambda: self.is_holding, "a request at the gate")

    def release(self) -> None:
        """Open the gate and answer what waits there."""
        self._limit = float("inf")
        self.answer_held()

    def answer_held(self) -> None:
        """Answer what waits at the gate, which stays closed."""
        asyncio.run_coroutine_threadsafe(self._answer(), self._loop).result()

    async def _answer(self) -> None:
        for connection in tuple(self._simulator._connections):
            if connection._plan is not None and connection._plan.delay == _HELD:
                connection._timer.cancel()
                connection._resume()


@contextmanager
def serve_gated(settings: SimulatorSettings | None = None) -> Generator[GatedEndpoint]:
    """An endpoint whose gate is open."""
    with _THREAD.used() as loop:
        simulator = Simulator(settings)
        asyncio.run_coroutine_threadsafe(simulator.__aenter__(), loop).result()
        try:
            yield GatedEndpoint(simulator, loop)
        finally:
            asyncio.run_coroutine_threadsafe(simulator.__aexit__(None, None, None), loop).result()
