"""The runner of all long commands.

It locks the job's folder, waits for workers of a killed driver, counts the usage so far, and runs the steps, each in
several passes if items could not be finished. It applies the budget, the failure policy and requests to pause or stop. A
`Supervisor` decides where the work is done: here or on a cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from typing import Any, Literal

import msgspec

from camel.core.errors import CamelError
from camel.engine.controlled import controlled, look
from camel.engine.fence import Claim, Fence
from camel.engine.halt import Halt, Tell, ignore_notice
from camel.engine.supervisor import StepPass, Supervisor, run_here
from camel.jobs.batched import LINES, SHARDS
from camel.jobs.budget import Budget, Meter
from camel.jobs.failures import PATIENCE, FailedItems
from camel.jobs.job import Job, Stage
from camel.jobs.ledger import failed_items
from camel.jobs.retry import begin_retry, open_retry
from camel.jobs.signals import BY_A_PERSON
from camel.jobs.state import JobState, Models
from camel.models.replica import ReplicaState
from camel.runs.again import named
from camel.runs.control import read_wish, wish
from camel.runs.run import RunFolder

PASSES = 3
"""Number of attempts at an item. After the last one, a failure of the endpoint becomes the item's record."""
RETRIED = -1
"""Marks, in the path of a step, the retry of the step's failed items."""
EXIT = {"complete": 0, "halted": 3, "failures": 4, "stopped": 130}


class Outcome(msgspec.Struct, frozen=True):
    """How the execution of a job ended."""

    status: Literal["complete", "failures", "halted", "stopped"]
    reason: str = ""
    """Why it ended before it was complete."""
    result: Any = None
    failed: list[FailedItems] = []
    """Items that failed, by class."""

    @property
    def complete(self) -> bool:
        """Whether everything is committed, failed items included."""
        return self.status in ("complete", "failures")

    @property
    def exit_status(self) -> int:
        """The exit status of the command."""
        return EXIT[self.status]


class Runner:
    """Runs one job: create it, then `await run()` once."""

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
    ) -> None:
        """`accept` names changes of settings that the user accepts; `patience` is the maximum length of an outage in seconds.

        `retry_failed` retries items that failed before. An unfinished retry is resumed without it.
        """
        self.job, self.concurrency, self.patience = job, concurrency, patience
        self.halt = halt or Halt()
        self.tell: Tell = ignore_notice
        """Called with each event for the log."""
        self.committed: Callable[[JobState, str, int], None] = lambda state, stage, shard: None
        """Called for each finished shard."""
        self.supervisor: Supervisor = run_here
        self.meter = Meter(budget, self.halt, patience=patience, tell=self._tell)
        self.models = Models(self.meter, concurrency)
        self.state = JobState(job, self.meter, self.models, self._tell, accept=accept)
        """The state of the job or of its current nested job."""
        self.folder = self.models.folder = self.state.folder
        self.workers = 1
        """Number of running processes: 1, or the workers of a cluster."""
        self.elsewhere: list[ReplicaState] | None = None
        """The endpoints as reported by the workers of a cluster."""
        self.closes_given = False
        """Whether to close models that were passed as objects, because the event loop ends with the run."""
        self.copying = False
        """Whether workers on other nodes have their own folders, so that journals are copied to the object store."""
        self._claims: dict[str, Claim] = {}
        """Claims on runs whose journals are copied, by address."""
        self._retry_failed = retry_failed
        self._folders: list[RunFolder] = []
        """The folders of the current jobs, the outer one first."""
        self._failed: list[FailedItems] = []

    def _tell(self, event: str, text: str, **fields: Any) -> None:
        self.tell(event, text, **fields)

    def replicas(self) -> list[ReplicaState]:
        """Return the current state of the models' endpoints. Empty if the models have no endpoints."""
        return self.models.replicas() if self.elsewhere is None else self.elsewhere

    async def run(self) -> Outcome:
        """Run until everything is committed or something stops it."""
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
        """Run a job or a nested job. Return False if something stopped it."""
        self.state, folder, ended = state, state.folder, False
        with folder.locked():
            if read_wish(folder) == "stop":  # meant for an earlier process
                wish(folder, "go")
            self._folders.append(folder)
            try:
                await look(self._folders, self.halt)
                # Before counting the usage, because workers of a killed driver may still make calls.
                await self._wait_for_others(folder)
                if self.copying or await asyncio.to_thread(folder.copies_journals):
                    await self._claim(folder)
                self._begin_retry(state)
                state.begin([*state.outline, *state.retried(state.outline)])
                self._report_resume(state)
                done = await self._steps(state, path)
                ended = True
                return done
            finally:
                self._folders.remove(folder)
                if claim := self._claims.pop(folder.address, None):
                    await asyncio.to_thread(claim.release, ended=ended)
                state.over = True

    async def _steps(self, state: JobState, path: tuple[int, ...]) -> bool:
        steps, number = state.job.stages(state.folder), 0
        with contextlib.ExitStack() as stack:
            if close := getattr(steps, "close", None):  # of a generator
                stack.callback(close)
            # On a thread, because preparing a step may read files.
            while (step := await asyncio.to_thread(lambda: next(steps, None))) is not None:
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
        await state.counted()  # only here, because a large run is counted for minutes while it continues
        for name, stage in state.stages.items():
            if state.tallies[name].failed and not named(name).retry:
                self._failed += failed_items(state.folder, stage)
        return True

    async def _step(self, state: JobState, stages: list[Stage], path: tuple[int, ...]) -> bool:
        """Run stages together, in several passes. Return False if they could not be finished."""
        state.begin(stages)
        for stage in stages:
            # No other folder may use the journals of remaining items.
            if state.tallies[stage.name].committed < state.tallies[stage.name].planned:
                base = named(stage.name).stage
                await asyncio.to_thread(state.folder.hold_journals, base, copied=self.copying)
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
                # Another pass starts open shards again and would count their items twice.
                state.recount(workloads)
            work = StepPass(
                workloads=list(workloads.values()),
                folder=state.folder,
                concurrency=window,
                halt=self.halt,
                committed=note,
                step=path,
                attempt=attempt,
            )
            complete = await self.supervisor(work)
            if not complete and (reason := self.meter.rejected()):
                self.halt.set(reason)
            if complete or self.halt.reason:
                break
        if not complete:
            return False
        for stage in stages:
            if named(stage.name).retry:  # the counts of its stage have changed
                state.reset_count(named(stage.name).stage)
        return True

    async def copy_journals(self) -> None:
        """Copy journals to the store from now on, because a worker cannot see this process's folder."""
        self.copying, state = True, self.state
        try:
            for folder in list(self._folders):
                await self._claim(folder)
            for name, tally in state.tallies.items():
                if tally.committed < tally.planned and not named(name).retry:
                    await asyncio.to_thread(state.folder.hold_journals, name, copied=True)
        except (CamelError, OSError) as error:
            self.halt.set(str(error))

    async def _claim(self, folder: RunFolder) -> None:
        if folder.copier and folder.address not in self._claims:
            claim = self._claims[folder.address] = Claim(folder, self.halt)
            await claim.acquire(self._tell)

    def _begin_retry(self, state: JobState) -> None:
        """Find the failed items to retry. An unfinished retry is resumed first."""
        state.retry = open_retry(state.folder)
        if state.retry or not self._retry_failed:
            return
        state.retry = begin_retry(state.folder, state.outline)
        if state.retry is None:
            self.tell("retry", "no item has failed, so nothing is retried", items=0)
            return
        items = sum(len(shard) for shards in state.retry.stages.values() for shard in shards.values())
        self.tell("retry", f"retrying {items:,} failed items", items=items)

    async def _wait_for_others(self, folder: RunFolder) -> None:
        """Wait until no worker of an earlier, killed driver can be running."""
        if left := Fence(folder).left():
            self.tell(
                "waiting",
                f"waiting up to {left:.0f} s: an earlier process of this run was killed, and its workers may run until "
                "their leases expire",
                seconds=left,
            )
            await asyncio.sleep(left)

    def _report_resume(self, state: JobState) -> None:
        """Report how many items and replies of earlier processes are reused."""
        done = sum(tally.committed for tally in state.tallies.values())
        if done or state.journaled:
            planned = sum(tally.planned for tally in state.tallies.values())
            self.tell(
                "resumed",
                f"resumed: {done:,} of {planned:,} items are committed, "
                f"{state.journaled:,} replies of unfinished ones are in the journal; "
                + (
                    f"another {state.damaged:,} are damaged and will be paid for again"
                    if state.damaged
                    else "none of them is paid for again"
                ),
                committed=done,
                journaled=state.journaled,
            )
