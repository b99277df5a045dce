"""An event loop with a clock of its own, for tests of deadlines, pauses and retries.

The clock does not move while anything happens, however slow the machine is. When every task waits, it jumps to the
next timer. Client and server must run in the same loop: what other processes and threads do takes no time.
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


class _Selector(selectors.DefaultSelector):
    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None:
            return super().select(None)
        if self.loop.threads:
            return super().select(0.02)
        # The kernel delivers over loopback at once. The short real wait is for the rare case that it does not.
        ready = super().select(min(0.25, 0.002 + timeout / 50))
        if not ready:
            self.loop.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Jumps to the next timer when all tasks wait."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.threads = 0
        """Calls in other threads that have not returned; the clock does not move meanwhile."""
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        future = super().run_in_executor(executor, func, *args)
        self.threads += 1
        future.add_done_callback(self._returned)
        return future

    def _returned(self, _: object) -> None:
        self.threads -= 1


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Like `asyncio.run`, in virtual time; pools of endpoints read the same clock."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pool.__init__, "__kwdefaults__", {"clock": runner.get_loop().time})
        return runner.run(main)


def virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test in virtual time."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        run_virtual(test(*args, **kwargs))

    return run
