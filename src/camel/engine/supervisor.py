"""The in-process supervisor: one worker over the shards that are not committed yet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from camel.engine.fence import Fence
from camel.engine.halt import Halt
from camel.engine.stage import ShardTable, Workload
from camel.engine.worker import Window, run_worker
from camel.runs.run import RunFolder


@dataclass(frozen=True, kw_only=True)
class StepPass:
    """One pass over a step of a job."""

    workloads: Sequence[Workload]
    """They share one window, so that the last slow items of one do not delay the next."""
    folder: RunFolder
    concurrency: int | Window
    halt: Halt
    committed: Callable[[str, int], None] = lambda stage, shard: None
    """Called for each finished shard."""
    step: tuple[int, ...] = ()
    attempt: int = 0
    """Number of earlier passes over the step in this process."""


Supervisor = Callable[[StepPass], Awaitable[bool]]
"""Works on a pass, here or on a cluster, until it is finished or halted. Returns whether every shard is committed."""


async def run_here(work: StepPass) -> bool:
    """Run workloads in this process. Return True if every shard is committed."""
    workloads, folder = work.workloads, work.folder
    if left := Fence(folder).left():
        await asyncio.sleep(left)
    for one in workloads:
        folder.sweep(one.name)
    table = ShardTable(workloads)
    done = table.done(folder)
    pending = (table[number] for number in range(len(table)) if number not in done)

    async def lease() -> tuple[Workload, int] | None:
        return next(pending, None)

    def note(stage: Workload, shard: int) -> None:
        done.add(table.number(stage.name, shard))
        work.committed(stage.name, shard)

    await run_worker(folder, lease, concurrency=work.concurrency, halt=work.halt, committed=note)
    for one in workloads:
        folder.sweep(one.name)
    return len(done) == len(table)
