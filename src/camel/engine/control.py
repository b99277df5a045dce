"""Following the control file of a run while a stage is worked on.

The one decision to know: only the driver looks at it. Workers elsewhere hear of a pause with the answer to their next
heartbeat, so that a file in an object store is asked for by one process, and rarely.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from camel.core.errors import CamelError
from camel.engine.halt import Halt
from camel.runs.control import read_wish, wish
from camel.runs.run import RunFolder

EVERY, EVERY_REMOTE = 1.0, 5.0
"""Seconds between two looks: at a disk, and at an object store."""
STOPPED = "stopped by camel stop or the explorer"


@contextlib.asynccontextmanager
async def controlled(folder: RunFolder, halt: Halt) -> AsyncGenerator[None]:
    """Pause, go on and stop as the run's control file says, for as long as this lasts."""
    await _look(folder, halt)
    following = asyncio.ensure_future(_follow(folder, halt))
    try:
        yield
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following


async def _follow(folder: RunFolder, halt: Halt) -> None:
    while not halt.reason:
        await asyncio.sleep(EVERY if folder.on_disk else EVERY_REMOTE)
        await _look(folder, halt)


async def _look(folder: RunFolder, halt: Halt) -> None:
    with contextlib.suppress(
        CamelError
    ):  # a store that fails now is asked again; what must not fail says so itself
        wished = await asyncio.to_thread(read_wish, folder)
        halt.paused = wished == "pause"
        if wished == "stop":
            halt.set(STOPPED)
            await asyncio.to_thread(wish, folder, "go")  # it was for us, and not for whoever comes next
