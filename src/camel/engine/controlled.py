"""Following the control files of a job while it is worked on.

The one decision to know: only the driver looks at them. Workers elsewhere hear of a pause with the answer to their next
heartbeat, so that a file in an object store is asked for by one process, and rarely.
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
"""Seconds between two looks: at a disk, and at an object store."""
STOPPED = "stopped by camel run stop or the explorer"


@contextlib.asynccontextmanager
async def controlled(
    folders: Sequence[RunFolder], halt: Halt, limit: Callable[[], str] = str
) -> AsyncGenerator[None]:
    """Pause, continue and stop as the control files in `folders` say, while this lasts. The list may change meanwhile: a job
    within another has a folder of its own. `limit` gives a further reason to stop, or nothing.
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
    """Do what the control files say now."""
    # A store that fails now is asked again; what must not fail says so itself.
    with contextlib.suppress(CamelError):
        wished = {one: await asyncio.to_thread(read_wish, one) for one in list(folders)}
        halt.paused = "pause" in wished.values()
        for folder, what in wished.items():
            if what == "stop":
                halt.set(STOPPED)
                await asyncio.to_thread(wish, folder, "go")  # it was for us, and not for the next start
