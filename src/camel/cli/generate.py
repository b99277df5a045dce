"""`camel generate`: generate a dataset from a configuration; the same command resumes it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from camel.cli import options as shared
from camel.cli.command import CLUSTER_OPTIONS, Invocation, long_command
from camel.cli.options import option

if TYPE_CHECKING:
    from camel.generation.config import GenerateConfig
    from camel.generation.generate import Generation
    from camel.jobs.launch import JobOptions
    from camel.jobs.runner import Outcome


ReuseListsOption = Annotated[str, option("After a change of settings: start a new run in FOLDER, and copy the results that the change does not affect.", "FOLDER")]  # fmt: skip


@long_command({**CLUSTER_OPTIONS, "budget_tool_calls": shared.BudgetToolCalls})
def generate(
    call: Invocation,
    config: shared.ConfigFile = Path("camel.toml"),
    model: shared.ModelName = "",
    base_url: shared.BaseUrl = "",
    user_model: Annotated[str, option("Model that plays the user.", "MODEL")] = "",
    assistant_model: Annotated[str, option("Model that plays the assistant.", "MODEL")] = "",
    critic_model: Annotated[str, option("Model that chooses between proposed messages.", "MODEL")] = "",
    local: shared.Local = False,
    batch: shared.Batch = False,
    out: shared.Out = "",
    reuse_lists: ReuseListsOption = "",
    accept_change: shared.AcceptChange = None,
    dry_run: shared.DryRun = False,
) -> None:
    """Generate a dataset of conversations, called a run."""
    from msgspec.structs import replace

    from camel.cli.command import read_settings, resume_line

    seats = {"user": user_model, "assistant": assistant_model, "critic": critic_model}
    more = {"concurrency": call.concurrency, "budget": call.limits, "seats": seats, "batch": batch}
    settings = read_settings(call.context, config, model, base_url, local=local, out=out, **more)
    if dry_run:
        from camel.cli.plan import dry_run as show

        show(settings, call.as_json, reuse_lists)
        return
    source = ""
    if reuse_lists:
        settings, source = replace(settings, out=reuse_lists), settings.where
    resume = resume_line(
        call.context,
        without=("--out",) if reuse_lists else (),
        more=("--out", reuse_lists) if reuse_lists else (),
        where=settings.where,
    )
    options = call.configured(settings, accept=accept_change or (), resume=resume)
    start(call, settings, options, lists_of=source)


def start(call: Invocation, settings: GenerateConfig, options: JobOptions, *, lists_of: str = "") -> None:
    """Generate a run and exit with its status."""
    from camel.generation.generate import Generation

    job = Generation(settings, lists_of=lists_of)
    call.run(job, options, done=lambda outcome: _done(job, outcome))


def _done(job: Generation, outcome: Outcome) -> Iterator[str]:
    from camel.generation.config import last_stage
    from camel.reports.numbers import counted
    from camel.runs.plan import planned_layouts
    from camel.runs.run import open_folder

    last = last_stage(job.config.loaded_scenario())
    folder, run = open_folder(job.place), shlex.quote(job.place)
    total = planned_layouts(folder, folder.settings().planned)[last].active
    lost = sum(one.count for one in outcome.failed if one.stage == last)
    yield f"complete: {counted(total, last.removesuffix('s'))} in {job.place}" + (
        f", {lost:,} of them failed and not exported" if lost else ""
    )
    yield f"next    camel explore {shlex.quote(str(run))}"
    yield f"        camel export {shlex.quote(str(run))} dataset FOLDER"
