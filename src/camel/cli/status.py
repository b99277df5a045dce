"""`camel status` and `camel runs`: how runs are doing, from their folders alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from camel.cli.options import AsJson, RunPlace, argument, flag, print_json
from camel.core.errors import InputError

OLD = 15.0
"""Seconds after which figures of a run that is going on are said to be old."""


def status(run: RunPlace, as_json: AsJson = False) -> None:
    """Show how far a run is, what it used, and how to go on with it."""
    from rich.console import Console

    from camel.cli.panel import line, panel, say, stopped, uncommitted
    from camel.jobs.status import read_status
    from camel.reports.numbers import duration, short
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
        say(console, f"{now.scenario} · {now.model} · {state}")
        for stage in now.stages:
            notes = [
                f"{stage.committed:,} of {stage.planned:,} committed",
                uncommitted(now, stage),
                f"{stage.failed:,} failed" if stage.failed else "",
                f"{short(stage.tokens)} tokens" if stage.extra and stage.tokens else "",
            ]
            say(console, f"stage {stage.title}: {', '.join(note for note in notes if note)}")
        say(console, line(now))
        if now.stops:
            say(console, "ended: " + ", ".join(f"{reason} {count:,}" for reason, count in now.stops.items()))
    say(console, f"run     {now.run}{' (a process is working on it)' if now.state == 'working' else ''}")
    if now.state == "working" and (now.age is None or now.age > OLD):
        old = "not known yet" if now.age is None else f"{duration(now.age)} old"
        say(console, f"figures {old} beyond what is committed; where the run works they are at hand")
    for replica in now.replicas:
        if now.state == "working" and replica.state != "closed":
            say(console, f"endpoint {replica.url} does not answer, and is left alone for a while")
    if now.journals and now.state != "complete":
        where = f"who works on it is known where its journals are ({JOURNALS}): {now.journals}"
        say(console, f"seen    from here: {where}")
    if now.paused:
        say(console, f"paused  camel resume {now.run} has it go on")
    if now.forked_from:
        say(console, f"forked  from {now.forked_from}")
    if now.log:
        say(console, f"log     {now.log}")
    if now.resume and now.state in ("stopped", "new"):
        say(console, f"resume  {now.resume}")


def runs(
    folder: Annotated[str, argument("DIR", "Where to look.")] = "runs",
    as_json: Annotated[bool, flag("--json", "Print one JSON object a line.")] = False,
) -> None:
    """List the runs below a folder."""
    from rich.console import Console

    from camel.cli.panel import current, spent, table
    from camel.jobs.status import find_runs, read_status
    from camel.storage.store import is_remote

    if not is_remote(folder) and not Path(folder).is_dir():
        raise InputError(f"{folder} is not a folder")
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
        typer.echo(f"no runs below {folder}")
        return
    head = ("run", "state", "scenario", "model", "stage", "failed", "spent")
    table(Console(highlight=False), head, rows)
