"""The in-process supervisor: one worker over the shards that are not committed yet."""

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
    """Runs workloads, in this process or on a cluster."""

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
        """Work on the workloads until they are finished or `halt` is set; returns True if every shard is committed.

        They share one window, so that the last slow items of one do not delay the next. `step` is the step of the job,
        `attempt` the number of earlier passes over it in this process.
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
    """Run workloads in this process. Return True if every shard is committed."""
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
    """Return whether every shard is committed."""
    return all(folder.committed(one.name).issuperset(one.numbers) for one in workloads)
