"""The in-process supervisor: one worker, here, over the shards that are not committed yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from camel.engine.control import controlled
from camel.engine.fence import Fence
from camel.engine.halt import Halt
from camel.engine.stage import Stage
from camel.engine.worker import Window, run_worker
from camel.runs.run import RunFolder


class RunStage(Protocol):
    """Who sees to it that a stage is worked on: here, or on a cluster."""

    async def __call__(
        self,
        stage: Stage,
        folder: RunFolder,
        *,
        concurrency: int,
        fingerprint: str,
        halt: Halt,
        committed: Callable[[int], None],
        attempt: int,
    ) -> bool:
        """Finish a stage, or as much of it as can be done before `halt`; True when every shard is committed.

        `attempt` is how often the stage was gone through before, since the run was started.
        """
        ...


async def run_stage(
    stage: Stage,
    folder: RunFolder,
    *,
    concurrency: int | Window,
    fingerprint: str,
    halt: Halt,
    committed: Callable[[int], None] = lambda shard: None,
    attempt: int = 0,
) -> bool:
    """Finish a stage, or as much of it as can be done before `halt`; True when every shard is committed."""
    if left := Fence(folder).left():
        await asyncio.sleep(left)
    folder.sweep(stage.name)
    done = folder.committed(stage.name)
    pending = iter(shard for shard in stage.numbers if shard not in done)

    async def lease() -> int | None:
        return next(pending, None)

    async with controlled(folder, halt):
        await run_worker(
            stage,
            folder,
            lease,
            concurrency=concurrency,
            fingerprint=fingerprint,
            halt=halt,
            committed=committed,
        )
    folder.sweep(stage.name)
    return len(folder.committed(stage.name)) == stage.shards


async def run_stages(
    stages: Iterable[tuple[Stage, str]], folder: RunFolder, *, concurrency: int, halt: Halt
) -> None:
    """Work on several stages, each with its fingerprint, at the same time; the first failure is raised when all have ended."""
    # One window for all of them: the last slow answers of one stage do not hold up the next.
    window = Window(concurrency)
    working = [
        run_stage(stage, folder, concurrency=window, fingerprint=fingerprint, halt=halt)
        for stage, fingerprint in stages
    ]
    # Not in a group: the failure of one would cancel calls of the others that are being paid for. It halts them.
    for one in await asyncio.gather(*working, return_exceptions=True):
        if isinstance(one, BaseException):
            raise one
