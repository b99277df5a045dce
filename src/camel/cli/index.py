"""`camel index`: make a large run quick to explore."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from camel.cli.options import AsJson, RunPlace, Stage, flag, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from camel.index.marks import Looking
    from camel.runs.reader import RunReader


def index(
    run: RunPlace,
    text: Annotated[bool, flag("--text", "Also index every word, for searching.")] = False,
    findings: Annotated[
        bool, flag("--findings", "Also look through it with the detectors, for facets and plots.")
    ] = False,
    stage: Stage = "",
    as_json: AsJson = False,
) -> None:
    """Put the indexes of a run together, make those that are missing, and count the facets.

    What --findings finds is kept where `camel study` looks for it, and the other way round: a run is looked through once.

    A run is indexed while it is generated, so that this is for large ones, and for those that come from elsewhere. It can be
    stopped and begun again at any time, also while the run goes on.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from camel.index.merge import merge
    from camel.index.text import TextMade, make_text_index
    from camel.models.prices import cost
    from camel.reports.numbers import counted
    from camel.runs.reader import RunReader

    records = RunReader(run, stage)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    made = TextMade(0, 0, 0)
    looking = _look(console, records) if findings else None
    with Progress(*columns, console=console, disable=as_json or not console.is_terminal) as progress:
        tasks: dict[str, object] = {}

        def note(what: str, done: int, of: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=of)
            progress.update(tasks[what], completed=done, total=of)  # pyright: ignore[reportArgumentType]

        merged = merge(records.folder, records.stage, cost=cost, looking=looking, note=note)
        if text:
            made = make_text_index(records.folder, records.stage, note=note)
    if as_json:
        print_json({**merged._asdict(), **({"text": made._asdict()} if text else {})})
        return
    typer.echo(
        f"{merged.rows:,} {records.stage} in {merged.files:,} index files, {merged.made:,} of them new"
    )
    if merged.built:
        typer.echo(f"{counted(merged.built, 'shard')} had no index")
    if text:
        typer.echo(
            f"{made.rows:,} {records.stage} in {made.indexes:,} text indexes, {made.made:,} of them new"
        )


def _look(console: Console, run: RunReader) -> Looking:
    """Look through the run; what was looked through before is not looked through again."""
    import os

    from camel.cli.panel import choose_view, stopped
    from camel.evaluation.findings import Findings, Looker, study_folder
    from camel.index.marks import Looking
    from camel.jobs.job import KEPT
    from camel.jobs.launch import JobOptions, Launch
    from camel.storage import inside

    kept = inside.path(study_folder(run.folder), KEPT)
    job = Findings(str(kept), run.folder.address, processes=os.cpu_count() or 1)
    outcome = Launch(job, JobOptions(), choose_view(console, False)).run()
    if not outcome.complete:
        typer.echo(f"{stopped(outcome.reason)}; the same command continues", err=True)
        raise typer.Exit(outcome.exit_status)
    looker = Looker(run, kept)
    return Looking(looker.name, looker.found)
