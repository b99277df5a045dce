"""Follows the control files of a job while it runs.

The one decision to know: only the driver reads them. Workers get a pause with the reply to their next heartbeat, so only
one process polls a file in an object store.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence

from camel.core.errors import CamelError
from camel.engine.halt import Halt
from camel.runs.control import read_wish, wish
from camel.runs.run import RunFolder

EVERY, EVERY_REMOTE = 1.0, 5.0
"""Seconds between two checks, on a disk and in an object store."""
STOPPED = "stopped by `camel run stop` or the explorer"


@contextlib.asynccontextmanager
async def controlled(
    folders: Sequence[RunFolder], halt: Halt, limit: Callable[[], str] = str
) -> AsyncGenerator[None]:
    """Pause, continue and stop according to the control files in `folders`, while the context is active. The list may change
    meanwhile, because a nested job has its own folder. `limit` returns a further reason to stop, or an empty string.
    """
    await look(folders, halt)
    following = asyncio.ensure_future(_follow(folders, halt, limit))
    try:
        yield
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following


async def _follow(folders: Sequence[RunFolder], halt: Halt, limit: Callable[[], str]) -> None:
    while not halt.reason:
        await asyncio.sleep(EVERY if all(one.on_disk for one in folders) else EVERY_REMOTE)
        await look(folders, halt)
        if reason := limit():
            halt.set(reason)


async def look(folders: Sequence[RunFolder], halt: Halt) -> None:
    """Read the control files once, and pause, continue or stop accordingly."""
    # Ignore errors of the store: the next check comes soon.
    with contextlib.suppress(CamelError):
        wished = {one: await asyncio.to_thread(read_wish, one) for one in list(folders)}
        halt.paused = "pause" in wished.values()
        for folder, what in wished.items():
            if what == "stop":
                halt.set(STOPPED)
                # The stop applies to this process, not to the next one.
                await asyncio.to_thread(wish, folder, "go")
