"""`camel pause`, `camel resume`, `camel stop`: a word to whoever works on a run, wherever they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from camel.cli.options import RunPlace
from camel.core.errors import InputError

if TYPE_CHECKING:
    from camel.runs.control import Wish


def pause(run: RunPlace) -> None:
    """Have a run make no new calls until it is resumed; what is in flight ends. The next start waits, too."""
    said = f"paused: no new calls until camel resume {run}"
    _wish(run, "pause", said, "makes no new calls until camel resume")


def resume(run: RunPlace) -> None:
    """Have a run that was paused go on."""
    _wish(run, "go", "it goes on", "goes on")


def stop(run: RunPlace) -> None:
    """Have whoever works on a run stop, as Ctrl-C does: calls in flight end, and nothing is lost."""
    _wish(run, "stop", "it stops once the calls in flight have ended", "ends its calls in flight and stops")


def _wish(run: str, what: Wish, said: str, done: str) -> None:
    """Leave the word; `said` tells of a run that is worked on here, `done` what whoever works on it elsewhere will do."""
    from camel.engine.controlled import EVERY_REMOTE
    from camel.jobs.status import job_folder, read_status
    from camel.runs.control import CONTROL, wish

    folder = job_folder(run)
    now = read_status(run)
    here = now.state == "working"
    if folder.on_disk and not here and what == "stop":
        raise InputError(f"nobody is working on {run}: there is nothing to stop")
    wish(folder, what)
    if here:
        typer.echo(said)
    elif folder.on_disk:
        typer.echo(f"nobody is working on {run} now: this is for the next start")
    else:
        # Of a run in an object store it is not known whether somebody elsewhere works on it.
        rest = "" if what == "stop" else "; if nobody does, this is for the next start"
        typer.echo(
            f"asked for in {run}/{CONTROL}: who works on it, wherever that is, looks there every {EVERY_REMOTE:g} s and {done}{rest}"
        )
