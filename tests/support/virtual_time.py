"""An event loop with a clock of its own, for tests of deadlines, leases, pauses and retries.

The clock does not move while anything happens, however slow the machine is. When every task waits, it jumps to the next
timer. Threads that work for the loop are real, and so are sockets: client and server must run in the same loop, because what
other processes do takes no virtual time. A test in which every task waits and no timer is set fails at once.

    @virtual_time
    async def test_a_lease_runs_out(): ...
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from camel.models.pool import Pool

T = TypeVar("T")
START = 1_000.0


class Stuck(AssertionError):
    """Every task waits, and nothing is left that could wake one."""


class _Clock:
    seconds = START


_CLOCK = _Clock()


def now() -> float:
    """The virtual time, also for threads: replaces the clock of what is tested."""
    return _CLOCK.seconds


class _Selector(selectors.DefaultSelector):
    """Waits by moving the clock."""

    threads = 0
    """Calls in other threads that have not returned; the clock does not move meanwhile."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if self.threads:
            return super().select(None)
        sockets = len(self.get_map()) > 1  # one is the loop's own
        if timeout is None:
            if not sockets:
                raise Stuck("every task waits, and no timer is set")
            return super().select(None)
        if sockets:
            # The kernel delivers over loopback at once. The short real wait is for the rare case that it does not.
            ready = super().select(min(0.25, 0.002 + timeout / 50))
        if not ready:
            _CLOCK.seconds += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Jumps to the next timer when all tasks wait."""

    def __init__(self) -> None:
        self._waits = _Selector()
        super().__init__(self._waits)

    def time(self) -> float:
        return _CLOCK.seconds

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future: asyncio.Future[Any] = super().run_in_executor(executor, func, *args)  # type: ignore[arg-type]
        self._waits.threads += 1
        future.add_done_callback(self._returned)
        return future

    def _returned(self, _: object) -> None:
        self._waits.threads -= 1

    async def shutdown_default_executor(self, *_: object) -> None:
        """Wait for a thread of its own that the count above does not know."""
        self._waits.threads += 1
        try:
            await super().shutdown_default_executor()
        finally:
            self._waits.threads -= 1


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Like `asyncio.run`, in virtual time; pools of endpoints read the same clock."""
    _CLOCK.seconds = START
    with asyncio.Runner(loop_factory=VirtualLoop) as runner, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pool.__init__, "__kwdefaults__", {"clock": now})
        return runner.run(main)


def virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test in virtual time, which begins at 1,000 s."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        run_virtual(test(*args, **kwargs))

    return run
