"""`camel generate`: a dataset from a configuration, shown while it is made and resumed by the same command."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from camel.cli.command import SPREAD, How, long_command

if TYPE_CHECKING:
    from camel.core.model import Model
    from camel.generation.config import GenerateConfig
    from camel.jobs.launch import JobOptions, Launch


@long_command(SPREAD)
def generate(
    how: How,
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="What to generate.")],
    local: Annotated[
        bool, typer.Option("--local", help="Use the tiny real model on this machine; no key.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan and one prompt of each kind; call nothing.")
    ] = False,
    out: Annotated[str, typer.Option(metavar="DIR", help="The run's folder.")] = "",
    fork: Annotated[
        str,
        typer.Option(
            metavar="NEWDIR", help="Begin a run there under a changed configuration, keeping what it can."
        ),
    ] = "",
    accept_change: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Continue a run although this has changed: model.name. Finished items keep their model.",
        ),
    ] = None,
) -> None:
    """Generate a dataset. Ctrl-C stops it; the same command continues where it stopped."""
    from camel.cli.command import resume_line
    from camel.generation.config import check_place, read_config

    settings = read_config(config, local=local)
    local = local or settings.is_local
    if how.address and local:
        raise typer.BadParameter("the model of --local is on this machine only: leave out one of the two")
    settings = settings.adjusted(local=local, concurrency=how.concurrency, out=out, budget=how.limits)
    if not out:
        check_place(config, settings)
    if dry_run:
        from camel.cli.plan import dry_run as show

        show(how.console, settings, how.as_json, fork)
        return
    resume = resume_line(
        how.context,
        without=("--out",) if fork else (),
        more=("--out", fork) if fork else (),
        where=settings.where,
    )
    if fork:
        settings = _forked(settings, fork, how)
    options = how.options(
        settings.run.concurrency,
        budget=settings.budget,
        patience=60 * settings.run.outage_patience,
        accept=accept_change or (),
        resume=resume,
    )
    start(how, settings, local, options)


def start(how: How, settings: GenerateConfig, local: bool, options: JobOptions) -> None:
    """Generate a run, and leave with its exit status."""
    from camel.generation.config import last_stage
    from camel.generation.generate import Generation
    from camel.reports.numbers import counted

    scenario = settings.loaded_scenario()
    run = shlex.quote(settings.where)

    def done(result: Any) -> Iterator[str]:
        made = counted(scenario.count, last_stage(scenario).removesuffix("s"))
        lost = job_failed(settings)
        yield f"complete: {made} in {settings.where}" + (
            f", {lost:,} of them failed and in no export" if lost else ""
        )
        yield f"next    camel explore {run} shows them, camel export {run} dataset DIR makes a dataset"

    with served_here(how, settings, local) as model:
        how.run(Generation(settings, model), options, announce=_announce, told=_told, done=done)


def job_failed(config: GenerateConfig) -> int:
    """Conversations of a run that failed."""
    from camel.jobs.status import read_status

    return read_status(config.where).stages[-1].failed


def _announce(launch: Launch) -> Iterator[str]:
    """What it will take, in words."""
    from camel.cli.plan import rate_of, summary, warnings
    from camel.generation.generate import Generation
    from camel.generation.plan import committed_in, make_plan

    assert isinstance(launch.runner.job, Generation)
    config = launch.runner.job.config
    plan = make_plan(config, committed=committed_in(launch.folder, config))
    yield f"expect  {summary(plan)}"
    for line in warnings(plan, config, rate_of(config).hours(plan.left)):
        yield f"budget  {line}"


def _told(launch: Launch) -> dict[str, Any]:
    """What the log has to know: the plan, and the items of each stage."""
    from camel.generation.generate import Generation
    from camel.generation.plan import committed_in, make_plan

    assert isinstance(launch.runner.job, Generation)
    config = launch.runner.job.config
    plan = make_plan(config, committed=committed_in(launch.folder, config))
    stages = {stage.name: stage.items for stage in plan.stages}
    return {"stages": stages, "estimate": plan.to_dict()}


def _forked(config: GenerateConfig, target: str, how: How) -> GenerateConfig:
    from msgspec.structs import replace

    from camel.cli.plan import fork_lines
    from camel.generation.fork import fork_run
    from camel.generation.plan import committed_in, make_plan
    from camel.runs.run import open_folder

    forked = replace(config, out=target)
    found = fork_run(forked, config.where)
    plan = make_plan(forked, committed=committed_in(open_folder(forked.where), forked))
    for line in fork_lines(config.where, found, plan):
        how.say(line)
    return forked


@contextlib.contextmanager
def served_here(how: How, config: GenerateConfig, local: bool) -> Generator[Model | None]:
    """The model that is served on this machine, where that is wanted; None: it is the configuration's."""
    if not local:
        yield None
        return
    from camel.models.local import LocalServer, local_model

    server = LocalServer(parallel=max(1, config.run.concurrency))
    with local_model(server, guided="llama.cpp", say=how.say) as model:
        yield model
