"""A job on a Ray cluster: the site in a worker, its reports, and how the driver uses them.

The one decision to know: figures have two sources. *Usage* is the sum over all workers, including dead ones. *Progress*
comes from the markers, and from live workers for items in shards that are not committed yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from camel.core.errors import InputError
from camel.core.model import Model
from camel.engine.coordinator import Totals
from camel.engine.halt import Halt, Halted, ignore_notice
from camel.engine.site import StageReport, WorkerReport, WorkerShare
from camel.engine.stage import Workload
from camel.engine.supervisor import StepPass
from camel.jobs.account import ACCOUNTS, Account
from camel.jobs.budget import Budget, Meter
from camel.jobs.failures import PATIENCE
from camel.jobs.job import Job, Stage, Step
from camel.jobs.ledger import Counted, Tally
from camel.jobs.retry import open_retry
from camel.jobs.runner import PASSES, RETRIED, Runner
from camel.jobs.shares import Shares
from camel.jobs.state import JobState, Models, name_of
from camel.models.connect import pool_of
from camel.models.governor import EndpointReport, Rates
from camel.models.pool import Pool
from camel.models.replica import ReplicaState
from camel.models.sharing import Outbox
from camel.models.spec import ModelSpec
from camel.models.traced import flush
from camel.runs.again import named
from camel.runs.run import DRIVER, JOURNALS, RunFolder, journals, open_folder

_POLL = 0.5
"""Seconds between two looks whether the driver's journals are copied."""

if TYPE_CHECKING:
    from camel.engine.ray.supervisor import RaySupervisor

HANDED_OVER = ("OPENAI_", "AWS_", "OTEL_", "CAMEL_")
"""Prefixes of environment variables that workers get from the driver if they do not have them."""


def worker_environment(job: Job) -> dict[str, str]:
    """Return the environment variables that workers may need. They include API keys and must not be stored."""
    keys = {name for spec in job.models.values() if isinstance(spec, ModelSpec) for name in spec.variables()}
    keys |= {*job.variables}
    found = {
        name: value for name, value in os.environ.items() if name.startswith(HANDED_OVER) or name in keys
    }
    # A relative path would be another folder in each worker, and the next process would not find its journals.
    return found | {JOURNALS: str(journals().absolute())}


# ---------------------------------------------------------------- in a worker


class JobFactory(msgspec.Struct, frozen=True):
    """Creates a job's site in a worker. Contains no API key."""

    job: Job
    cwd: str
    concurrency: int
    budgeted: bool = False
    """Whether workers write accounts, because there is a budget."""
    holder: str = ""
    """The id of the driver's folder for journals. Empty for a run on a disk."""

    async def __call__(self, worker: str = "") -> JobSite:
        """Create the site, in the driver's working directory, because the job may name files there."""
        with contextlib.suppress(OSError):  # a node may lack the directory if the job names no file in it
            os.chdir(self.cwd)
        return JobSite(self.job, self.concurrency, worker if self.budgeted else "", self.holder)


class _Walk:
    """The steps of a job so far."""

    def __init__(self, state: JobState) -> None:
        self.state = state
        self._steps: Iterator[Step] = state.job.stages(state.folder)
        self._seen: list[Step] = []
        self.inner: dict[int, _Walk] = {}

    def step(self, number: int) -> Step:
        """Return the step at an index of the job. Everything before it must be committed."""
        while len(self._seen) <= number:
            self._seen.append(next(self._steps))
        return self._seen[number]


class JobSite:
    """A job in a worker."""

    def __init__(self, job: Job, concurrency: int, account: str = "", holder: str = "") -> None:
        """`account` is the name of this worker's account. If empty, none is written."""
        self._apart = not shares_folder(open_folder(job.place), holder)  # before anything is created there
        self._copies = False
        """Whether journals are copied."""
        self.halt = Halt()
        self._share = WorkerShare()
        # Budgets belong to the driver; a worker only has its grant.
        self._meter = Meter(Budget(), self.halt, shared=True, patience=PATIENCE)
        self._models = Models(self._meter, concurrency)
        self._models.opened = self._opened
        self._pools: dict[str, Pool] = {}
        self._outbox: Outbox[tuple[str, str], EndpointReport] = Outbox()
        """The reports on endpoints, by model and address."""
        self._walk = _Walk(self._state(job))
        self._current = self._walk.state
        self._account: Account | None = None
        if account:
            # Without an account, a dead worker's whole grant counts as spent.
            with contextlib.suppress(OSError):
                self._account = Account(self._current.folder.root, account)

    @property
    def folder(self) -> RunFolder:
        """The folder of the job or of its current nested job."""
        return self._current.folder

    def workloads(self, step: tuple[int, ...], attempt: int) -> Sequence[Workload]:
        """Return the workloads of a step."""
        walk, path = self._walk, [number for number in step if number != RETRIED]
        for number in path[:-1]:
            if number not in walk.inner:
                job = walk.step(number)
                assert isinstance(job, Job)
                walk.inner[number] = _Walk(self._state(job))
            walk = walk.inner[number]
        found = walk.step(path[-1])
        assert not isinstance(found, Job)
        state = self._current = walk.state
        state.last_pass = attempt == PASSES - 1
        stages = [state.begun(one) for one in (found if isinstance(found, tuple) else (found,))]
        if step[-1] == RETRIED:
            state.retry = open_retry(state.folder)
            stages = state.retried(stages)
        self._await_copies(state.folder, stages)
        state.begin(stages)
        state.tallies = {name: Tally(tally.planned) for name, tally in state.tallies.items()}
        return [state.workload(stage) for stage in stages]

    def _await_copies(self, folder: RunFolder, stages: Sequence[Stage]) -> None:
        """Copy journals if those of the run are copied. If this node cannot see the driver's, wait until they are."""
        while folder.copier and not folder.copier.active:
            holders = [folder.holder(named(one.name).stage) for one in stages]
            if self._copies or any(one and one.copied for one in holders):
                folder.copier.activate()
            elif not self._apart:
                return
            elif self.halt.reason:
                raise Halted(self.halt.reason)
            else:
                time.sleep(_POLL)

    def copy_journals(self) -> None:
        """Copy journals to the store from now on."""
        # A worker with another folder has to wait for the driver's journals first.
        if not (self._copies or self._apart):
            self._copies = True
            if self.folder.copier:
                self.folder.copier.activate()

    def committed(self, stage: str, shard: int) -> None:
        """Stop counting the items of a committed shard here, because its marker counts them now."""
        if named(stage).retry:  # markers of a retry count whole shards; the driver recounts at the end
            return
        state, tally = self._current, self._current.tallies[stage]
        counted = Counted().add(state.folder.marker(stage, shard))
        tally.finished -= len(state.stages[stage].indices(shard))
        tally.failed -= counted.failed
        tally.counts.subtract(counted.counts)

    def report(self) -> WorkerReport:
        """Return the current counts of calls and items, for the coordinator."""
        pools = self._pools.items()
        self._outbox.replace({(name, url): one for name, pool in pools for url, one in pool.report().items()})
        number, changes = self._outbox.message()
        endpoints: dict[str, dict[str, EndpointReport | None]] = {name: {} for name in self._pools}
        for (name, url), one in changes.items():
            endpoints[name][url] = one
        parts = self._share.endpoints
        lists = {name: pool.listed(name in parts and parts[name].send_list) for name, pool in pools}
        return WorkerReport(
            {name: one.report() for name, one in self._meter.models.items()},
            {
                name: StageReport(tally.open, tally.finished, tally.failed, dict(tally.counts))
                for name, tally in self._current.tallies.items()
            },
            endpoints,
            {name: listed for name, listed in lists.items() if listed},
            number,
            self._share.number,
            self._meter.in_flight,
            self._meter.starved,
            self._share.offer,
            self._account.number if self._account else None,
            self._meter.tools,
            self._apart,
        )

    def apply_share(self, share: WorkerShare) -> None:
        """Apply this worker's share of budget and endpoints."""
        self._share, self._meter.grant = share, share.grant
        self._outbox.acknowledge(share.heard)
        for name, part in share.endpoints.items():
            self._pools[name].allow(part)

    @property
    def has_freed_slots(self) -> bool:
        """Whether other workers wait for what this worker has stopped using."""
        return any(pool.has_freed_slots for pool in self._pools.values())

    async def aclose(self) -> None:
        """Close the connections."""
        await self._models.aclose()
        await asyncio.to_thread(flush)
        if self._account:
            self._account.close()

    def _state(self, job: Job) -> JobState:
        for name in job.models:  # open now, so that its endpoints are in the next report
            self._models.seat(job, name)
        return JobState(job, self._meter, self._models, ignore_notice, shared=True)

    def _opened(self, name: str, model: Model) -> None:
        if (pool := pool_of(model)) is not None:
            pool.join()
            pool.gate = self._gate
            self._pools[name] = pool

    def _gate(self) -> None:
        """Write the account, then check the lease. In this order, every call that is sent is in the account."""
        if self._account:
            in_flight = sum(pool.in_flight for pool in self._pools.values())
            self._account.write(self._meter.usage, in_flight)
        self.halt.check_lease()


def shares_folder(folder: RunFolder, holder: str) -> bool:
    """Return whether the folder on this node is the driver's, `holder`. Raise an error if it must be, but is not."""
    root = folder.root
    # List the folder instead of a lookup: a network file system may cache an old answer.
    if root.is_dir() and DRIVER in os.listdir(root) and holder in ("", folder.own_holder().token):  # noqa: PTH208 - a name is enough
        return True
    if folder.on_disk:
        raise InputError(
            f"'{root}' on this node is not the folder that the driver uses: store the run in a folder that all nodes share "
            "under the same path, or in an object store"
        )
    folder.claim_journals()
    return False


# ---------------------------------------------------------------- in the driver


class Cluster:
    """Runs the steps of a job on a cluster, while it is open as a context manager."""

    def __init__(self, runner: Runner, address: str, *, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise InputError(f"--workers must be at least 1, not {workers}")
        self._runner, self._address, self._workers = runner, address, workers
        runner.supervisor = self.run
        runner.elsewhere, runner.workers = [], 0
        self._supervisor: RaySupervisor | None = None
        self._stack = contextlib.ExitStack()
        self._base: dict[str, Tally] = {}
        """Counts from the markers, by stage."""
        self._switch: asyncio.Task[None] | None = None
        """Begins to copy journals, because a worker has another folder."""

    def __enter__(self) -> Cluster:
        from camel.engine.ray.connect import connected

        self._stack.enter_context(connected(self._address, workers=self._workers))
        return self

    def __exit__(self, *exc: Any) -> None:
        self._stack.__exit__(*exc)

    async def run(self, work: StepPass) -> bool:
        """Run a step on the cluster."""
        if self._supervisor is None:
            self._supervisor = await asyncio.to_thread(self._begin)
        self._base = {
            name: replace(tally, counts=tally.counts.copy())
            for name, tally in self._runner.state.tallies.items()
        }

        def note(stage: str, shard: int) -> None:
            if not named(stage).retry:
                self._base[stage].add(Counted().add(work.folder.marker(stage, shard)))
            work.committed(stage, shard)

        return await self._supervisor.run(replace(work, committed=note))

    def _begin(self) -> RaySupervisor:
        from camel.engine.ray.supervisor import RaySupervisor

        runner, folder, meter = self._runner, self._runner.folder, self._runner.meter
        job = runner.job
        if objects := [seat for seat, spec in job.models.items() if not isinstance(spec, ModelSpec)]:
            raise InputError(
                f"the model of '{objects[0] or job.name}' is a Python object, which a cluster cannot use: pass a model by name"
            )
        self._stack.callback(shutil.rmtree, folder.root / ACCOUNTS, ignore_errors=True)
        supervisor = RaySupervisor(
            JobFactory(
                job.absolute(),
                str(Path.cwd()),
                runner.concurrency,
                meter.budget.counts,
                "" if folder.on_disk else folder.own_holder().token,
            ),
            folder,
            concurrency=runner.concurrency,
            workers=self._workers,
            share=Shares(
                meter.budget,
                rates_of(job, runner.concurrency),
                before=meter.before,
                accounts=folder.root.absolute(),
                patience=runner.patience,
            ),
            environment=worker_environment(job),
            watch=self.watch,
            tell=lambda event, text, **fields: runner.tell(event, text, **fields),
        )
        return self._stack.enter_context(supervisor)

    def watch(self, totals: Totals) -> None:
        """Update the runner's counts and endpoint states from the workers' reports."""
        runner, report = self._runner, totals.report
        runner.meter.take(report)
        runner.workers = len(totals.live)
        for name, base in self._base.items():
            tally, told = runner.state.tallies[name], report.stages.get(name, StageReport())
            tally.open = told.open
            tally.finished = min(tally.planned, tally.committed + max(0, told.finished))
            tally.failed, tally.usage = base.failed + told.failed, base.usage
            tally.counts = base.counts + Counter({key: n for key, n in told.counts.items() if n > 0})
        runner.elsewhere = [
            ReplicaState.from_report(url, one)
            for places in report.endpoints.values()
            for url, one in sorted(places.items())
            if one is not None
        ]
        if over := runner.meter.over_budget():
            runner.halt.set(over)
        if report.apart and self._switch is None:
            self._switch = asyncio.ensure_future(runner.copy_journals())


def rates_of(job: Job, concurrency: int) -> dict[str, Rates]:
    """Return the rate limits of each model's endpoints, for all workers together."""
    return {
        # The run's concurrency is divided as windows of items, so it is no limit of an endpoint.
        name_of(spec): structs.replace(spec.rates(concurrency), ceiling=None)
        for spec in job.models.values()
        if isinstance(spec, ModelSpec)
    }
