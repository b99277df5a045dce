"""Runs a job with its log, a view, signals and a cluster.

`camel.run_job`, `camel.generate` and every long command use this.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from camel._version import __version__
from camel.core.errors import CamelError, InputError
from camel.core.play import run_now
from camel.core.toml import to_toml
from camel.jobs.budget import Budget
from camel.jobs.failures import PATIENCE, EndpointNotices
from camel.jobs.job import KEPT, Job
from camel.jobs.log import RunLog
from camel.jobs.progress import View, Watcher, progress_of
from camel.jobs.runner import Outcome, Runner
from camel.jobs.signals import STOPPED, Stopping
from camel.jobs.state import JobState, name_of, price_of
from camel.jobs.status import is_locked
from camel.models.spec import SLOTS, ModelSpec
from camel.reports.intervals import ReportFigures
from camel.reports.numbers import counted
from camel.runs.run import RunFolder
from camel.storage import inside

LOG_EVERY, NOW_EVERY = 30.0, 5.0
"""Seconds between two progress lines in the log, and between two updates of the figures for `camel run status`."""
STUDY = "study.toml"
"""The file with the settings of a study, next to its report."""
DEADLINE = 600.0
"""Assumed maximum duration of a call in seconds, if its model does not set one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """How a job runs; no option affects the records."""

    budget: Budget = Budget()  # noqa: RUF009 - frozen
    concurrency: int = 64
    """Maximum number of items in flight."""
    patience: float = PATIENCE
    """Seconds to wait for an endpoint that does not answer."""
    accept: Collection[str] = ()
    """Changes of settings that the user accepts, such as `model.name`."""
    retry_failed: bool = False
    """Whether to retry items that failed before."""
    address: str = ""
    """Address of a Ray cluster: local, auto or host:port; empty: run in this process."""
    workers: int | None = None
    """Number of workers on the cluster. Default: one per CPU."""
    resume: str = ""
    """The command line that resumes the job."""


def report_folder(folder: RunFolder) -> Path:
    """Return the folder of a job's report, given the job's folder."""
    return folder.root.parent if folder.root.name == KEPT else folder.root


def study_file(job: Job, command: str) -> str:
    """Return the file that says what a study was asked, so that it can be repeated."""
    models = {seat or "model": name_of(one) for seat, one in job.models.items()}
    made = {
        "camel": __version__,
        "job": job.name,
        "command": command,
        "models": models,
        "settings": job.identity(),
    }
    return "# What this study was asked.\n" + "".join(
        f"{name} = {to_toml(value)}\n" for name, value in made.items()
    )


class Launch:
    """One execution of a job."""

    def __init__(self, job: Job, options: JobOptions, view: View | None = None) -> None:
        self.view = view or View()
        for spec in (one for one in job.models.values() if isinstance(one, ModelSpec)):
            spec.check_hosts()
            if not spec.is_here:
                continue
            if options.address:
                raise InputError(f"'{spec.name}' runs only on this machine: for a cluster, use NAME@URL")
            if spec.batch:
                raise InputError(f"the model '{spec.name}' has no batch API: remove --batch or --local")
            spec.prepare(self.view.note)
            if spec.file:  # further calls would wait and time out
                options = replace(options, concurrency=min(options.concurrency, SLOTS))
        if options.address and any(one.batch for one in job.models.values()):
            raise InputError("--batch works only in one process: remove --address")
        self.options = options
        self.runner = Runner(
            job,
            budget=options.budget,
            concurrency=options.concurrency,
            patience=options.patience,
            accept=options.accept,
            retry_failed=options.retry_failed,
        )
        self.runner.closes_given = True
        self.folder = self.runner.folder
        self.watcher = Watcher(self.runner, resume=options.resume)
        self.log = RunLog(self.folder.path(job.log))
        self._adjusted: set[str] = set()
        self.end: dict[str, Any] = {}
        """The log entry about the end of the job."""
        if is_locked(self.folder.root):
            raise InputError(
                f"another process is working on '{self.folder.address}': wait for it, or stop it with `camel run stop {shlex.quote(self.folder.address)}`"
            )

    def run(self) -> Outcome:
        """Run the job until it is complete or something stops it."""
        for line in self.watcher.forecast():
            self.view.note(line)
        self._begin()
        is_run = self.folder.exists
        try:
            with self.view, self._place():
                outcome = run_now(self._work(), lambda: self.runner.halt.set(STOPPED))
                if is_run and not self.folder.exists:
                    raise InputError(
                        f"'{self.folder.address}' was moved or removed while the run wrote to it: put it back, and merge what was written since"
                    )
                last = self.watcher.now("complete" if outcome.complete else "stopped")
                self.view.show(last)
        except CamelError as error:
            self.log.write("end", **progress_of(self.watcher.now("stopped")), error=str(error))
            self.log.forget_now()
            # The message of an `InputError` already says what to do.
            if self.options.resume and not isinstance(error, InputError):
                self.view.note(f"resume  {self.options.resume}")
            raise
        ending = progress_of(last) | {"why": outcome.reason, "status": outcome.status}
        self.end = self.log.write("end", **ending, run=last.run, resume=self.options.resume)
        self.log.forget_now()
        self.folder.copy_to_store(self.runner.job.log)
        if outcome.complete and isinstance(outcome.result, ReportFigures) and self.folder.on_disk:
            text = study_file(self.runner.job, self.options.resume)
            inside.write(report_folder(self.folder), STUDY, text.encode())
        return outcome

    def _begin(self) -> None:
        """Log the start of the job with its settings."""
        job, options = self.runner.job, self.options
        specs = list(job.models.values())
        price = price_of(specs[0]) if len(specs) == 1 else None
        self.log.forget_now()  # of a killed process
        entry = self.log.write(
            "start",
            job=job.name,
            title=job.title,
            run=self.folder.address,
            log=str(self.log.path),
            resume=options.resume,
            pid=os.getpid(),
            model=", ".join(dict.fromkeys(map(name_of, specs))),
            price=None if price is None else msgspec.to_builtins(price),
            concurrency=options.concurrency,
            budget=msgspec.to_builtins(options.budget),
        )
        self.view.event(entry)

    def _place(self) -> contextlib.AbstractContextManager[Any]:
        """Return the cluster if an address is given. Otherwise the job runs in this process."""
        if not self.options.address:
            return contextlib.nullcontext()
        from camel.jobs.cluster import Cluster

        return Cluster(self.runner, self.options.address, workers=self.options.workers)

    def _tell(self, event: str, text: str, **fields: Any) -> None:
        self.view.event(self.log.write(event, text=text, **fields))

    async def _work(self) -> Outcome:
        runner = self.runner
        runner.tell, runner.committed = self._tell, self._committed
        stopping = Stopping(runner.halt, self._say_stopping, lambda: runner.meter.in_flight)
        outcome = Outcome("stopped", "")
        try:
            with stopping.heard():
                async with asyncio.TaskGroup() as group:
                    watching = group.create_task(self._watch())
                    try:
                        outcome = await runner.run()
                    finally:
                        watching.cancel()
                        self._tell_adjustments()  # of a run that ended before the first check
        except BaseExceptionGroup as errors:
            raise _first(errors) from None
        if not outcome.complete and not outcome.reason:
            lost = f", at once: {counted(stopping.abandoned, 'call')} in flight abandoned, to be repeated and paid for again"
            outcome = Outcome("stopped", runner.halt.reason + (lost if stopping.abandoned else ""))
        return outcome

    def _say_stopping(self) -> None:
        in_flight = self.runner.meter.in_flight
        specs = self.runner.job.models.values()
        seconds = max((one.deadline for one in specs if isinstance(one, ModelSpec)), default=DEADLINE)
        calls = counted(in_flight, "call")
        self._tell(
            "stopping",
            f"stopping: finishing {calls} in flight, {seconds:,.0f} s at most; Ctrl-C again stops at once, and these calls "
            "are then paid for again"
            if self.runner.meter.models
            else "stopping after the current step; Ctrl-C again stops at once",
            in_flight=in_flight,
            seconds=seconds,
        )

    async def _watch(self) -> None:
        """Show the progress, log changes at once, and log the progress from time to time."""
        runner, view, endpoints = self.runner, self.view, EndpointNotices(self._tell)
        shown, logged, kept, state = time.monotonic(), 0.0, 0.0, (1, False)
        while True:
            await asyncio.sleep(min(1.0, view.every))
            clock, before, state = time.monotonic(), state, (runner.workers, runner.halt.paused)
            endpoints.look(runner.replicas())
            if state[1] and not before[1]:
                self._tell(
                    "paused",
                    f"paused: no new calls until `camel run resume {shlex.quote(self.folder.address)}`",
                )
            elif before[1] and not state[1]:
                self._tell("unpaused", "resumed after a pause")
            self._tell_adjustments()
            if clock - shown >= view.every:
                shown = clock
                view.show(self.watcher.now())
            if clock - logged >= LOG_EVERY or state != before:
                logged = clock
                self.log.write("progress", **progress_of(self.watcher.now()))
            if clock - kept >= NOW_EVERY:
                kept = clock
                self.log.write_now(**progress_of(self.watcher.now()))

    def _tell_adjustments(self) -> None:
        for line in self.runner.models.adjustments():
            if line not in self._adjusted:
                self._adjusted.add(line)
                self._tell("adjusted", line)

    def _committed(self, state: JobState, stage: str, shard: int) -> None:
        self.watcher.committed(state, stage, shard)
        tally = state.tallies[stage]
        if tally.committed == tally.planned:
            usage = progress_of(self.watcher.now())["usage"]
            self.view.event(self.log.write("stage", stage=stage, items=tally.planned, usage=usage))


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error of the group to report: an error of CAMEL if there is one."""
    found: BaseException | None = group.subgroup(CamelError) or group.subgroup(OSError)
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    if isinstance(found, OSError):
        return CamelError(f"cannot write the run's folder: {found}; committed data is safe")
    return found or group
