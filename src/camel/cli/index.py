"""`camel run index`: build the indexes that make a large run quick to explore."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from camel.cli import options as shared
from camel.cli.options import flag
from camel.cli.output import print_json

if TYPE_CHECKING:
    from rich.console import Console

    from camel.index.marks import Looking
    from camel.runs.reader import RunReader


FindingsOption = Annotated[bool, flag("--findings", "Also find behaviors such as role flipping, for the explorer's filters and plots.")]  # fmt: skip


def index(
    run: shared.RunPlace,
    text: Annotated[bool, flag("--text", "Also build an index for full-text search.")] = False,
    findings: FindingsOption = False,
    stage: shared.Stage = "",
    processes: shared.Processes = None,
    address: shared.Address = "",
    as_json: shared.AsJson = False,
) -> None:
    """Build the indexes that make a large run quick to explore."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from camel.index.merge import merge
    from camel.index.text import TextMade, make_text_index
    from camel.models.prices import cost
    from camel.reports.numbers import counted
    from camel.runs.reader import RunReader

    records = RunReader(run, stage)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    view = (console := Console(stderr=True)).is_terminal and not as_json
    made = TextMade(0, 0, 0)
    folder, stage = records.folder, records.stage
    with ExitStack() as stack:
        count = stack.enter_context(shared.started(processes, address))
        looking = _detect(console, records, count) if findings else None
        progress = stack.enter_context(Progress(*columns, console=console, disable=not view))
        tasks: dict[str, object] = {}

        def note(what: str, done: int, of: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=of)
            progress.update(tasks[what], completed=done, total=of)  # pyright: ignore[reportArgumentType]

        merged = merge(folder, stage, cost=cost, looking=looking, processes=count, note=note)
        if text:
            # The text index of a run in an object store is on the machine that searches.
            here = 1 if address and not folder.on_disk else count
            made = make_text_index(folder, stage, processes=here, note=note)
    if as_json:
        print_json({**merged._asdict(), **({"text": made._asdict()} if text else {})})
        return
    typer.echo(f"{merged.rows:,} {stage} in {merged.files:,} index files, {merged.made:,} of them new")
    if merged.built:
        typer.echo(f"{counted(merged.built, 'shard')} had no index")
    if text:
        typer.echo(f"{made.rows:,} {stage} in {made.indexes:,} text indexes, {made.made:,} of them new")


def _detect(console: Console, run: RunReader, processes: int) -> Looking:
    """Run the detectors on all conversations that have no results yet."""
    from camel.cli.panel import choose_view, stopped
    from camel.evaluation.findings import Findings, Looker, study_folder
    from camel.index.marks import Looking
    from camel.jobs.job import KEPT
    from camel.jobs.launch import JobOptions, Launch
    from camel.storage import inside

    kept = inside.path(study_folder(run.folder), KEPT)
    job = Findings(str(kept), run.folder.address, processes=processes)
    outcome = Launch(job, JobOptions(), choose_view(console, False)).run()
    if not outcome.complete:
        typer.echo(f"{stopped(outcome.reason)}; run the same command to continue", err=True)
        raise typer.Exit(outcome.exit_status)
    looker = Looker(run, kept)
    return Looking(looker.name, looker.found)
