"""An event loop on a virtual clock: a timer fires as soon as nothing else can happen, however slow the machine is.

Threads are real. While one works for the loop, the clock does not advance. A test in which every task waits and no
timer is set fails at once.

    @on_virtual_clock
    async def test_a_lease_runs_out(): ...
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec

P = ParamSpec("P")


class Stuck(AssertionError):
    """Every task waits, and nothing is left that could wake one."""


class _Clock:
    seconds = 0.0


_CLOCK = _Clock()


def now() -> float:
    """The virtual time, also for threads: what replaces `camel.engine.worker.clock`."""
    return _CLOCK.seconds


class _Selector(selectors.SelectSelector):
    """Waits by moving the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.threads = 0
        """Calls in threads that the loop waits for."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or timeout == 0:
            return events
        if self.threads:
            return super().select(None)
        if timeout is None:
            raise Stuck("every task waits and nothing will happen")
        _CLOCK.seconds += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on the virtual clock."""

    def __init__(self) -> None:
        self._waits = _Selector()
        super().__init__(self._waits)

    def time(self) -> float:
        return _CLOCK.seconds

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future: asyncio.Future[Any] = super().run_in_executor(executor, func, *args)  # type: ignore[arg-type]
        self._waits.threads += 1

        def done(_: object) -> None:
            self._waits.threads -= 1

        future.add_done_callback(done)
        return future

    async def shutdown_default_executor(self, *_: object) -> None:
        """Wait for a thread of its own that the count above does not know."""
        self._waits.threads += 1
        try:
            await super().shutdown_default_executor()
        finally:
            self._waits.threads -= 1


def on_virtual_clock(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run a test's coroutine on a virtual clock that begins at 1,000 s."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def call() -> None:
            await test(*args, **kwargs)

        _CLOCK.seconds = 1_000.0
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(call())

    return run
