"""Runs the functions of tools outside of the event loop of the conversations.

A plain function runs on one of a few threads of its tool, an async function on one event loop that all tools share. So a
tool that blocks or hangs delays no conversation except the one that waits for it. The one decision to know: threads are
daemons, so a function that never returns does not keep the process alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any

_Job = tuple[asyncio.Future[Any], Callable[[], Any]]


class Threads:
    """A few threads that run functions. They are started when they are needed."""

    def __init__(self, most: int) -> None:
        self._most, self._started, self._idle = most, 0, 0
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._lock = threading.Lock()

    async def run(self, function: Callable[[], Any]) -> Any:
        """Run a function on a thread and return its result. If the caller is cancelled first, the function is not started."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        with self._lock:
            start = self._idle <= self._jobs.qsize() and self._started < self._most
            self._started += start
        self._jobs.put((future, function))
        if start:
            threading.Thread(target=self._work, name="camel-tool", daemon=True).start()
        return await future

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            future, function = self._jobs.get()
            with self._lock:
                self._idle -= 1
            if future.cancelled():
                continue
            found, error = None, None
            try:
                found = function()
            except BaseException as raised:  # a tool must not end the thread; a future refuses StopIteration
                is_plain = isinstance(raised, Exception) and not isinstance(raised, StopIteration)
                error = raised if is_plain else RuntimeError(repr(raised))
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                future.get_loop().call_soon_threadsafe(_deliver, future, found, error)


def _deliver(future: asyncio.Future[Any], found: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(found)
    else:
        future.set_exception(error)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="camel-tools", daemon=True).start()
    return loop


async def run_on_tool_loop(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine on the event loop that async tools share, and return its result."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, _loop()))


def wait_on_tool_loop(work: Coroutine[Any, Any, Any], seconds: float) -> Any:
    """Run a coroutine on the event loop that async tools share, and wait for its result. Raise `TimeoutError` if it is late."""
    return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, seconds), _loop()).result(seconds + 10)
