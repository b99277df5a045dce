"""The runner: what every long command has in common.

It locks the job's folder, waits for workers of a killed start, counts what was used, goes through the steps, each several
times where items could not be finished, and keeps to the budget, the failure policy and the wishes of whoever pauses or
stops it. Where the work is done, here or on a cluster, is a `Supervisor`'s matter.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Generator, Iterator
from typing import Any, Literal

import msgspec

from camel.engine.controlled import controlled, look
from camel.engine.fence import Fence
from camel.engine.halt import Halt
from camel.engine.notices import Tell, ignore_notice
from camel.engine.supervisor import Supervisor, run_here
from camel.jobs.batched import LINES, SHARDS
from camel.jobs.budget import Budget, Meter
from camel.jobs.failures import PATIENCE, FailedItems
from camel.jobs.job import Job, Stage, Step
from camel.jobs.ledger import failed_items
from camel.jobs.retry import begin_retry, open_retry
from camel.jobs.signals import BY_A_PERSON
from camel.jobs.state import JobState, Models
from camel.models.replica import ReplicaState
from camel.runs.again import named
from camel.runs.control import read_wish, wish
from camel.runs.run import RunFolder

PASSES = 3
"""Times an item may be tried before an endpoint's failure becomes its record."""
RETRIED = -1
"""In the path of a step: its failed items, done again."""
EXIT = {"complete": 0, "halted": 3, "failures": 4, "stopped": 130}


class Outcome(msgspec.Struct, frozen=True):
    """How a start of a job ended."""

    status: Literal["complete", "failures", "halted", "stopped"]
    reason: str = ""
    """Why it ended before it was complete, in words."""
    result: Any = None
    failed: list[FailedItems] = []
    """Items that failed, by class."""

    @property
    def complete(self) -> bool:
        """Whether everything is committed, failed items included."""
        return self.status in ("complete", "failures")

    @property
    def exit_status(self) -> int:
        """What a command exits with."""
        return EXIT[self.status]


class Runner:
    """Runs one job. Make it, then `await run()`, once."""

    def __init__(
        self,
        job: Job,
        *,
        budget: Budget = Budget(),  # noqa: B008 - frozen
        concurrency: int = 64,
        patience: float = PATIENCE,
        accept: Collection[str] = (),
        retry_failed: bool = False,
        halt: Halt | None = None,
        supervisor: Supervisor = run_here,
    ) -> None:
        """`accept` names changes of settings that a person accepts; `patience` is how many seconds an outage may last.

        With `retry_failed`, items that have failed before are done again. What was begun of that is continued without it.
        """
        self.job, self.concurrency, self.patience = job, concurrency, patience
        self.halt = halt or Halt()
        self.tell: Tell = ignore_notice
        """Called with each event that is worth a line in the log."""
        self.committed: Callable[[JobState, str, int], None] = lambda state, stage, shard: None
        """Called for each shard that is finished."""
        self.supervisor = supervisor
        self.meter = Meter(budget, self.halt, patience=patience, tell=self._tell)
        self.models = Models(self.meter, concurrency)
        self.state = JobState(job, self.meter, self.models, self._tell, accept=accept)
        """Of the job, or of the one within it that is being worked on."""
        self.folder = self.models.folder = self.state.folder
        self.workers = 1
        """Processes at work: this one, or those of a cluster."""
        self.elsewhere: list[ReplicaState] | None = None
        """The endpoints as the workers of a cluster tell it."""
        self.closes_given = False
        """Whether models that were given as objects are closed at the end: where the event loop ends with the run."""
        self._retry_failed = retry_failed
        self._folders: list[RunFolder] = []
        """Of the jobs that are being worked on, the outer one first."""
        self._failed: list[FailedItems] = []

    def _tell(self, event: str, text: str, **fields: Any) -> None:
        self.tell(event, text, **fields)

    def replicas(self) -> list[ReplicaState]:
        """The models' endpoints as they are now; none where the models are of another kind."""
        return self.state.replicas() if self.elsewhere is None else self.elsewhere

    async def run(self) -> Outcome:
        """Work until everything is committed or something stops it."""
        try:
            async with controlled(self._folders, self.halt, self.meter.out_of_time):
                if not await self._run(self.state, ()):
                    reason = self.halt.reason or "some items could not be finished"
                    return Outcome("stopped" if reason in BY_A_PERSON else "halted", reason)
        finally:
            await self.models.aclose(given=self.closes_given)
        result = await asyncio.to_thread(self.job.result, self.folder)
        return Outcome("failures" if self._failed else "complete", "", result, self._failed)

    async def _run(self, state: JobState, path: tuple[int, ...]) -> bool:
        """Run a job; False when something stopped it."""
        self.state, folder = state, state.folder
        with folder.locked(), state.counting():
            if read_wish(folder) == "stop":  # of somebody who wished it of an earlier start
                wish(folder, "go")
            self._folders.append(folder)
            try:
                await look(self._folders, self.halt)
                # Before anything is counted: until then workers of a killed start may still be paid for calls.
                await self._wait_for_others(folder)
                self._begin_retry(state)
                state.begin([*state.outline, *state.retried(state.outline)])
                self._say_what_was(state)
                return await self._steps(state, path)
            finally:
                self._folders.remove(folder)

    async def _steps(self, state: JobState, path: tuple[int, ...]) -> bool:
        steps, number = state.job.stages(state.folder), 0
        with contextlib.ExitStack() as stack:
            stack.callback(_close, steps)
            # On a thread: what a step is made from may have to be read.
            while (step := await asyncio.to_thread(_next, steps)) is not None:
                here = (*path, number)
                if isinstance(step, Job):
                    inner = JobState(step, self.meter, self.models, self._tell)
                    done = await self._run(inner, here)
                    self.state = state
                else:
                    stages = [state.begun(one) for one in (step if isinstance(step, tuple) else (step,))]
                    done = await self._step(state, stages, here)
                    if done and (again := state.retried(stages)):
                        done = await self._step(state, again, (*here, RETRIED))
                await self.models.rest()
                if not done:
                    return False
                number += 1
        await state.counted()
        return True

    async def _step(self, state: JobState, stages: list[Stage], path: tuple[int, ...]) -> bool:
        """Work on stages that share a window, in several passes; False when they could not be finished."""
        state.begin(stages)
        state.hold_journals(stages)
        if over := self.meter.out_of_time():
            self.halt.set(over)
        window = min((one.concurrency for one in stages if one.concurrency), default=self.concurrency)
        if stages and all(
            (asked := state.asked_by(one)) and asked.batch and not one.concurrency for one in stages
        ):
            window = min(LINES, SHARDS * min(one.shard_size for one in stages))

        def note(stage: str, shard: int) -> None:
            tally = state.tallies[stage]
            tally.committed += len(workloads[stage].indices(shard))
            self.committed(state, stage, shard)

        workloads = {one.name: state.workload(one) for one in stages}
        complete = False
        for attempt in range(PASSES):
            state.last_pass = attempt == PASSES - 1
            if attempt:
                await state.counted()
                # Another pass begins open shards anew and would count their items twice.
                state.recount(workloads)
            complete = await self.supervisor(
                list(workloads.values()),
                state.folder,
                concurrency=window,
                halt=self.halt,
                committed=note,
                step=path,
                attempt=attempt,
            )
            if not complete and (reason := self.meter.rejected()):
                self.halt.set(reason)
            if complete or self.halt.reason:
                break
        if not complete:
            return False
        for stage in stages:
            if named(stage.name).retry:  # what its stage had counted is no longer so
                state.count_anew(named(stage.name).stage)
        if not state.retried(stages):
            await state.counted()
            self._note_failed(state, stages)
        return True

    def _note_failed(self, state: JobState, stages: list[Stage]) -> None:
        for stage in stages:
            name = named(stage.name).stage
            if state.tallies[name].failed:
                self._failed += failed_items(state.folder, state.stage(name))

    def _begin_retry(self, state: JobState) -> None:
        """Find what failed before, and have it done again; what was begun of that goes first."""
        state.retry = open_retry(state.folder)
        if state.retry or not self._retry_failed:
            return
        state.retry = begin_retry(state.folder, state.outline)
        if state.retry is None:
            self.tell("retry", "nothing has failed, so nothing is retried", items=0)
            return
        items = sum(len(shard) for shards in state.retry.stages.values() for shard in shards.values())
        self.tell("retry", f"{items:,} items that failed are done again", items=items)

    async def _wait_for_others(self, folder: RunFolder) -> None:
        """Return when no worker of an earlier start can be at work."""
        if left := Fence(folder).left():
            self.tell(
                "waiting",
                f"waiting {left:.0f} s at most: an earlier start of this run was killed, and its workers may be at work until "
                "their leases have run out",
                seconds=left,
            )
            await asyncio.sleep(left)

    def _say_what_was(self, state: JobState) -> None:
        """Tell what an earlier start has left."""
        done = sum(tally.committed for tally in state.tallies.values())
        if done or state.journaled:
            planned = sum(tally.planned for tally in state.tallies.values())
            self.tell(
                "resumed",
                f"continues: {done:,} of {planned:,} items are committed, "
                f"{state.journaled:,} answers of unfinished ones are in the journal; "
                + (
                    f"another {state.damaged:,} cannot be read and will be paid for again"
                    if state.damaged
                    else "none of them is asked again"
                ),
                committed=done,
                journaled=state.journaled,
            )


def _next(steps: Iterator[Step]) -> Step | None:
    return next(steps, None)


def _close(steps: Iterator[Step]) -> None:
    """Close what a generator has open, however far it got."""
    if isinstance(steps, Generator):
        steps.close()
