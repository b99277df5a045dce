"""`camel run status` and `camel run list`: progress of runs, read from their folders alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from camel.cli import options as shared
from camel.cli.options import argument
from camel.cli.output import echo, print_json, table
from camel.core.errors import InputError

OLD = 15.0
"""Seconds after which the figures of a run in progress are shown as outdated."""


def status(run: shared.RunPlace, as_json: shared.AsJson = False) -> None:
    """Show a run's progress, cost and the command to continue it."""
    from rich.console import Console

    from camel.cli.panel import line, panel, stage_notes, stopped
    from camel.jobs.status import read_status
    from camel.reports.numbers import duration
    from camel.runs.run import JOURNALS

    now = read_status(run)
    console = Console(highlight=False)
    if as_json:
        print_json(now.to_dict())
        return

    if console.is_terminal:
        console.print(panel(now, min(96, console.width)))
    else:
        state = stopped(now.why, now.state) if now.why else "paused" if now.paused else now.state
        echo(f"{now.scenario} · {now.model} · {state}")
        for stage in now.stages:
            committed = f"{stage.committed:,} of {stage.planned:,} committed"
            echo(f"stage {stage.title}: {', '.join([committed, *stage_notes(now, stage)])}")
        echo(line(now))
        if now.stops:
            ends = ", ".join(f"{reason} {count:,}" for reason, count in now.stops.items())
            echo(f"ended: {ends}")
    echo(f"run     {now.run}{' (in progress)' if now.state == 'working' else ''}")
    if now.state == "working" and (now.age is None or now.age > OLD):
        old = "unknown" if now.age is None else f"{duration(now.age)} old"
        echo(
            f"figures {old}: only committed results are visible from this machine. "
            f"Run camel run status {now.run} where the run is executing for live figures.",
        )
    for replica in now.replicas:
        if now.state == "working" and replica.state != "closed":
            echo(f"endpoint {replica.url} does not answer; it gets no calls for a while")
    if now.journals and now.state != "complete":
        echo(
            f"journal {now.journals} ({JOURNALS}): only this folder shows whether a process is working on the run",
        )
    if now.paused:
        echo(f"paused  continue with camel run resume {now.run}")
    if now.forked_from:
        echo(f"forked  from {now.forked_from}")
    if now.log:
        echo(f"log     {now.log}")
    if now.resume and now.state in ("stopped", "new"):
        echo(f"resume  {now.resume}")


def list_(
    folder: Annotated[str, argument("FOLDER", "Folder to search, or s3://bucket/prefix.")] = "runs",
    as_json: shared.AsJson = False,
) -> None:
    """List the runs in a folder."""
    from camel.cli.panel import current, spent
    from camel.jobs.status import find_runs, read_status
    from camel.storage.store import is_remote

    if not is_remote(folder) and not Path(folder).is_dir():
        raise InputError(f"there is no folder '{folder}': give an existing folder with runs")
    rows: list[tuple[str, ...]] = []
    for path in find_runs(folder):
        try:
            now = read_status(path)
        except InputError as error:
            if as_json:
                print_json({"run": str(path), "state": "damaged", "error": str(error)})
            rows.append((str(path), "damaged", "", "", str(error)[:60], "", ""))
            continue
        if as_json:
            print_json(now.to_dict())
            continue
        stage = current(now)
        done = f"{stage.title} {stage.committed:,}/{stage.planned:,}" if stage else ""
        rows.append((now.run, now.state, now.scenario, now.model, done, f"{now.failed:,}", spent(now)))
    if as_json:
        return
    if not rows:
        typer.echo(f"no runs in {folder}")
        return
    head = ("run", "state", "scenario", "model", "stage", "failed", "spent")
    table(head, rows)
