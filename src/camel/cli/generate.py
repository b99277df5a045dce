"""`camel generate`: a dataset from a configuration, shown while it is made and resumed by the same command."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import time
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from camel.cli.panel import View
    from camel.core.model import Model
    from camel.engine.supervisor import RunStage
    from camel.generation.campaign import Campaign, Outcome
    from camel.generation.config import GenerateConfig
    from camel.generation.plan import Plan
    from camel.generation.status import RunLog, Watcher

LOG_EVERY, NOW_EVERY = 30.0, 5.0
"""Seconds between two lines of progress in the run's log, and between two writings of the figures for `camel status`."""


def generate(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="What to generate.")],
    local: Annotated[
        bool, typer.Option("--local", help="Use the tiny real model on this machine; no key.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan and one prompt of each kind; call nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", help="Conversations in flight, instead of the configuration's.")
    ] = None,
    out: Annotated[str, typer.Option(metavar="DIR", help="The run's folder.")] = "",
    fork: Annotated[
        str,
        typer.Option(
            metavar="NEWDIR", help="Begin a run there under a changed configuration, keeping what it can."
        ),
    ] = "",
    address: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Work on a Ray cluster: local (one started here), auto, or host:port of its head.",
        ),
    ] = "",
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Workers on the cluster; one for each CPU unless given.")
    ] = None,
    accept_change: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Continue a run although this has changed: model.name. Finished items keep their model.",
        ),
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Retry items that have failed.")
    ] = False,
) -> None:
    """Generate a dataset. Ctrl-C stops it; the same command goes on where it stopped."""
    from rich.console import Console

    from camel.cli.panel import choose_view
    from camel.generation.config import check_place, read_config

    console = Console(highlight=False)
    settings = read_config(config, local=local)
    local = local or settings.is_local
    if address and local:
        raise typer.BadParameter("the model of --local is on this machine only: leave out one of the two")
    if workers is not None and not address:
        raise typer.BadParameter("--workers are those of a cluster: give its --address too")
    settings = settings.adjusted(local=local, concurrency=concurrency, out=out)
    if not out:
        check_place(config, settings)
    if dry_run:
        from camel.cli.plan import dry_run as show

        show(console, settings, as_json, fork)
        return
    view = choose_view(console, as_json)
    if fork:
        settings = _forked(settings, fork, view)
    resume = _resume(config, local, concurrency, fork or out, address, workers, settings.where)
    with _model(settings, local, address, view) as model:
        code = _run(settings, model, view, resume, address, workers, accept_change or [], retry_failed)
    if code:
        raise typer.Exit(code)


def _run(
    settings: GenerateConfig,
    model: Model,
    view: View,
    resume: str,
    address: str,
    workers: int | None,
    accept: list[str],
    retry_failed: bool,
) -> int:
    """Run the campaign in its view; returns the exit code."""
    from camel.cli.panel import counted, stopped
    from camel.cli.stopping import FAILED_ITEMS, HALTED, INTERRUPTED, failed_lines
    from camel.core.errors import CamelError, InputError
    from camel.generation.campaign import Campaign, failed_items
    from camel.generation.status import LOG, RunLog, Watcher, is_locked, progress_of

    campaign = Campaign(settings, model, accept=accept, retry_failed=retry_failed)
    watcher = Watcher(campaign, resume=resume)
    log = RunLog(campaign.folder.path(LOG))
    if is_locked(campaign.folder.root):
        raise InputError(f"another process is working on {campaign.folder.address}: wait for it or stop it")
    _announce(campaign, watcher.plan(), log, view, resume)
    interrupted = False
    try:
        with view, _cluster(campaign, address, workers) as run_stage:
            outcome, interrupted = asyncio.run(_work(campaign, model, watcher, view, log, run_stage))
            last = watcher.now("complete" if outcome.complete else "stopped")
            view.show(last)
    except CamelError as error:
        log.write("end", **progress_of(watcher.now("stopped")), error=str(error))
        log.forget_now()
        if not isinstance(error, InputError):  # which says itself what has to be done first
            view.note(f"resume  {resume}")
        raise
    ending = progress_of(last) | {"why": outcome.halted}
    entry = log.write("end", **ending, run=last.run, resume=resume)
    log.forget_now()
    campaign.folder.save_beside(LOG)
    view.event(entry)
    if outcome.complete:
        made = counted(campaign.last.count, campaign.last.name.removesuffix("s"))
        run = shlex.quote(last.run)
        failed = failed_items(campaign.folder, campaign.last.name)
        lost = sum(one.count for one in failed)
        view.note(
            f"complete: {made} in {last.run}"
            + (f", {lost:,} of them failed and in no export" if lost else "")
        )
        if failed:
            for line in failed_lines(failed):
                view.note(line)
            view.note(f"retry   {resume} --retry-failed")
        view.note(f"next    camel explore {run} shows them, camel export {run} dataset DIR makes a dataset")
        return FAILED_ITEMS if failed else 0
    view.note(stopped(outcome.halted))
    if last.usage.calls:
        view.note(
            "kept    all replies so far, including those of unfinished conversations; none is paid for again"
        )
    view.note(f"resume  {resume}")
    if "HTTP 404" in outcome.halted:  # perhaps a model that was retired
        view.note(f"        with another model.name: {resume} --accept-change model.name")
    if outcome.halted.startswith("the budget of"):
        view.note("raise the [budget] in the configuration first, or it stops again at once")
    return INTERRUPTED if interrupted else HALTED


def _announce(campaign: Campaign, plan: Plan, log: RunLog, view: View, resume: str) -> None:
    """Say where everything is and what it will take, before the first call."""
    from msgspec import to_builtins

    from camel.cli.plan import rate_of, summary, warnings
    from camel.runs.run import JOURNALS

    price = campaign.config.price()
    log.forget_now()  # of a start that was killed
    entry = log.write(
        "start",
        run=campaign.folder.address,
        log=str(log.path),
        resume=resume,
        pid=os.getpid(),
        model=campaign.config.model.name,
        price=None if price is None else to_builtins(price),
        concurrency=campaign.config.run.concurrency,
        budget=to_builtins(campaign.config.budget),
        stages={stage.name: stage.count for stage in campaign.stages if stage.again is None},
        estimate=plan.to_dict(),
    )
    view.note(f"run     {campaign.folder.address}")
    view.note(f"log     {log.path}")
    if not campaign.folder.on_disk:
        again = f"every start needs the same ({JOURNALS})"
        view.note(f"journal {campaign.folder.root}: {again}")
    view.note(f"resume  {resume}")
    view.note(f"expect  {summary(plan)}")
    for line in warnings(plan, campaign.config, rate_of(campaign.config).hours(plan.left)):
        view.note(f"budget  {line}")
    view.event(entry)


@contextlib.contextmanager
def _cluster(campaign: Campaign, address: str, workers: int | None) -> Generator[RunStage]:
    """Where the work is done: here, unless there is an address."""
    if not address:
        from camel.engine.supervisor import run_stage

        yield run_stage
        return
    from camel.generation.cluster import Cluster

    with Cluster(campaign, address, workers=workers) as cluster:
        yield cluster.run_stage


async def _work(
    campaign: Campaign,
    model: Model,
    watcher: Watcher,
    view: View,
    log: RunLog,
    run_stage: RunStage,
) -> tuple[Outcome, bool]:
    """Run until it is complete or stopped; says also whether a person stopped it."""
    from camel.cli.stopping import Stopping, abandoned, finishing
    from camel.engine.control import STOPPED
    from camel.generation.campaign import Outcome
    from camel.generation.status import progress_of
    from camel.jobs.notices import Endpoints

    def tell(event: str, text: str, **fields: Any) -> None:
        view.event(log.write(event, text=text, **fields))

    def note() -> None:
        in_flight, seconds = campaign.meter.in_flight, campaign.config.run.deadline
        tell("stopping", finishing(in_flight, seconds), in_flight=in_flight, seconds=seconds)

    async def show() -> None:
        while True:
            await asyncio.sleep(view.every)
            view.show(watcher.now())

    async def keep() -> None:
        written, put = (0.0, 1, False), 0.0
        endpoints = Endpoints(tell)
        while True:
            await asyncio.sleep(1.0)
            endpoints.look(campaign.replicas())
            now = time.monotonic(), campaign.workers, campaign.halt.paused
            if now[2] and not written[2]:
                tell("paused", f"paused: no new calls until camel resume {campaign.folder.address}")
            elif written[2] and not now[2]:
                tell("unpaused", "goes on after a pause")
            if now[0] - written[0] >= LOG_EVERY or now[1:] != written[1:]:
                written = now
                log.write("progress", **progress_of(watcher.now()))
            if now[0] - put >= NOW_EVERY:
                put = now[0]
                log.write_now(**progress_of(watcher.now()))

    def committed(stage: str, shard: int) -> None:
        watcher.committed(stage, shard)
        tally = campaign.tallies[stage]
        if tally.committed == tally.planned:
            view.event(
                log.write(
                    "stage", stage=stage, items=tally.planned, usage=progress_of(watcher.now())["usage"]
                )
            )

    campaign.tell = tell
    stopping = Stopping(campaign.halt, note, lambda: campaign.meter.in_flight)
    watchers: list[asyncio.Task[None]] = []
    outcome = Outcome(False, "")
    try:
        async with model, asyncio.TaskGroup() as group:
            watchers = [group.create_task(show()), group.create_task(keep())]
            try:
                outcome = await campaign.run(committed, run_stage)
            finally:
                for watcher_task in watchers:
                    watcher_task.cancel()
    except asyncio.CancelledError:
        stopping.forgive()
        outcome = Outcome(False, campaign.halt.reason + abandoned(stopping.abandoned))
    except BaseExceptionGroup as group_error:
        raise _first(group_error) from None
    return outcome, (bool(stopping.asked) or outcome.halted == STOPPED) and not outcome.complete


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What to report of several failures: one that we know, in one line, if there is one."""
    from camel.core.errors import CamelError

    leaves: list[BaseException] = []
    todo: list[BaseException] = [group]
    while todo:
        error = todo.pop(0)
        inner: tuple[BaseException, ...] = getattr(error, "exceptions", ())
        todo += inner
        leaves += [] if inner else [error]
    for error in leaves:
        if isinstance(error, CamelError):
            return error
    for error in leaves:
        if isinstance(error, OSError):
            return CamelError(f"the run's folder cannot be written: {error}; what is committed is safe")
    return group


def _forked(config: GenerateConfig, target: str, view: View) -> GenerateConfig:
    from msgspec.structs import replace

    from camel.cli.plan import fork_lines
    from camel.generation.fork import fork_run
    from camel.generation.plan import committed_in, make_plan

    forked = replace(config, out=target)
    found = fork_run(forked, config.where)
    plan = make_plan(forked, committed=committed_in(forked.open_folder(), forked))
    for line in fork_lines(config.where, found, plan):
        view.note(line)
    return forked


@contextlib.contextmanager
def _model(config: GenerateConfig, local: bool, address: str, view: View) -> Generator[Model]:
    if address:
        from camel.generation.site import Elsewhere

        yield Elsewhere()
        return
    if local:
        from camel.models.local import LocalServer, local_model

        server = LocalServer(parallel=max(1, config.run.concurrency))
        with local_model(server, guided="llama.cpp", say=view.note) as model:
            yield model
        return
    yield config.open_model()


def _resume(
    config: Path,
    local: bool,
    concurrency: int | None,
    out: str,
    address: str,
    workers: int | None,
    where: str,
) -> str:
    from camel.runs.run import JOURNALS
    from camel.storage.store import is_remote

    journals = os.environ.get(JOURNALS, "") if is_remote(where) else ""
    words: list[Any] = ["camel", "generate", config]
    words += ["--local"] if local else []
    words += ["--concurrency", concurrency] if concurrency is not None else []
    words += ["--out", out] if out else []
    words += ["--address", address] if address else []
    words += ["--workers", workers] if workers is not None else []
    command = shlex.join(str(word) for word in words)
    return f"{JOURNALS}={shlex.quote(journals)} {command}" if journals else command
