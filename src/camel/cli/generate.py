"""`camel generate`: a dataset from a configuration, shown while it is made and resumed by the same command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from camel.cli.command import SPREAD, How, long_command
from camel.cli.options import Batch, flag, option

if TYPE_CHECKING:
    from camel.generation.config import GenerateConfig
    from camel.generation.generate import Generation
    from camel.jobs.launch import JobOptions
    from camel.jobs.runner import Outcome


_ACCEPT = "Continue a run although this has changed: model.name, or models.SEAT.name. Finished items keep their model."


@long_command(SPREAD)
def generate(
    how: How,
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="What to generate.")] = Path(
        "camel.toml"
    ),
    local: Annotated[bool, flag("--local", "Use the tiny real model on this machine; no key.")] = False,
    batch: Batch = False,
    dry_run: Annotated[
        bool, flag("--dry-run", "Show the plan and one prompt of each kind; call nothing.")
    ] = False,
    out: Annotated[str, option("The run's folder.", "DIR")] = "",
    fork: Annotated[
        str, option("Begin a run there under a changed configuration, keeping what it can.", "NEWDIR")
    ] = "",
    accept_change: Annotated[list[str] | None, option(_ACCEPT, "NAME")] = None,
    user_model: Annotated[str, option("The model of the user's seat: NAME or NAME@URL.", "MODEL")] = "",
    assistant_model: Annotated[str, option("The model of the assistant's seat.", "MODEL")] = "",
    critic_model: Annotated[str, option("The model that judges for the critic.", "MODEL")] = "",
) -> None:
    """Generate a dataset. Ctrl-C stops it; the same command continues where it stopped."""
    from msgspec.structs import replace

    from camel.cli.command import resume_line
    from camel.generation.config import check_place, read_config

    settings = read_config(config, local=local)
    seats = {"user": user_model, "assistant": assistant_model, "critic": critic_model}
    settings = settings.adjusted(
        local=local,
        concurrency=how.concurrency,
        out=out,
        budget=how.limits,
        seats=seats,
        batch=batch,
    )
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
    start(how, settings, options, fork_of=source)


def start(how: How, settings: GenerateConfig, options: JobOptions, *, fork_of: str = "") -> None:
    """Generate a run, and leave with its exit status."""
    from camel.generation.generate import Generation

    job = Generation(settings, fork_of=fork_of)
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
