"""`camel generate`: a dataset from a configuration, shown while it is made and resumed by the same command."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from camel.cli.command import SPREAD, How, long_command
from camel.cli.options import Batch

if TYPE_CHECKING:
    from camel.core.model import Model
    from camel.generation.config import GenerateConfig
    from camel.generation.generate import Generation
    from camel.jobs.launch import JobOptions
    from camel.jobs.runner import Outcome


@long_command(SPREAD)
def generate(
    how: How,
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="What to generate.")],
    local: Annotated[
        bool, typer.Option("--local", help="Use the tiny real model on this machine; no key.")
    ] = False,
    batch: Batch = False,
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
    from msgspec.structs import replace

    from camel.cli.command import resume_line
    from camel.generation.config import check_place, read_config

    settings = read_config(config, local=local).adjusted(batch=batch)
    local = local or settings.is_local
    if (how.address or batch) and local:
        raise typer.BadParameter(
            "--local goes neither with --address nor with --batch: leave out one of them"
        )
    settings = settings.adjusted(local=local, concurrency=how.concurrency, out=out, budget=how.limits)
    if not out:
        check_place(config, settings)
    if dry_run:
        from camel.cli.plan import dry_run as show

        show(how.console, settings, how.as_json, fork)
        return
    source = ""
    if fork:
        settings, source = replace(settings, out=fork), settings.where
    resume = resume_line(
        how.context,
        without=("--out",) if fork else (),
        more=("--out", fork) if fork else (),
        where=settings.where,
    )
    options = how.configured(settings, accept=accept_change or (), resume=resume)
    start(how, settings, local, options, fork_of=source)


def start(how: How, settings: GenerateConfig, local: bool, options: JobOptions, *, fork_of: str = "") -> None:
    """Generate a run, and leave with its exit status."""
    from camel.generation.generate import Generation

    with served_here(how, settings, local) as model:
        job = Generation(settings, model, fork_of)
        how.run(job, options, done=lambda outcome: _done(job, outcome))


def _done(job: Generation, outcome: Outcome) -> Iterator[str]:
    from camel.generation.config import last_stage
    from camel.reports.numbers import counted

    scenario, run = job.config.loaded_scenario(), shlex.quote(job.place)
    last = last_stage(scenario)
    lost = sum(one.count for one in outcome.failed if one.stage == last)
    yield f"complete: {counted(scenario.count, last.removesuffix('s'))} in {job.place}" + (
        f", {lost:,} of them failed and in no export" if lost else ""
    )
    yield f"next    camel explore {run} shows them, camel export {run} dataset DIR makes a dataset"


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
