"""The in-process supervisor: one worker, here, over the shards that are not committed yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from camel.engine.fence import Fence
from camel.engine.halt import Halt
from camel.engine.stage import ShardTable, Workload
from camel.engine.worker import Window, run_worker
from camel.runs.run import RunFolder


class Supervisor(Protocol):
    """Who sees to it that workloads are worked on: here, or on a cluster."""

    async def __call__(
        self,
        workloads: Sequence[Workload],
        folder: RunFolder,
        *,
        concurrency: int,
        halt: Halt,
        committed: Callable[[str, int], None],
        step: tuple[int, ...],
        attempt: int,
    ) -> bool:
        """Finish the workloads, or as much of them as can be done before `halt`; True when every shard is committed.

        They share one window, so that the last slow items of one do not hold up the next. `step` says which step of the
        job they are, `attempt` how often it was gone through before, since the run was started.
        """
        ...


async def run_here(
    workloads: Sequence[Workload],
    folder: RunFolder,
    *,
    concurrency: int | Window,
    halt: Halt,
    committed: Callable[[str, int], None] = lambda stage, shard: None,
    step: tuple[int, ...] = (),
    attempt: int = 0,
) -> bool:
    """Finish workloads in this process; True when every shard is committed."""
    if left := Fence(folder).left():
        await asyncio.sleep(left)
    for one in workloads:
        folder.sweep(one.name)
    table = ShardTable(workloads)
    done = set(table.done(folder))
    pending = (table[number] for number in range(len(table)) if number not in done)

    async def lease() -> tuple[Workload, int] | None:
        return next(pending, None)

    await run_worker(
        folder,
        lease,
        concurrency=concurrency,
        halt=halt,
        committed=lambda stage, shard: committed(stage.name, shard),
    )
    for one in workloads:
        folder.sweep(one.name)
    return all_committed(workloads, folder)


def all_committed(workloads: Sequence[Workload], folder: RunFolder) -> bool:
    """Whether every shard is committed."""
    return all(folder.committed(one.name).issuperset(one.numbers) for one in workloads)
