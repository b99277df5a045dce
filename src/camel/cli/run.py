"""`camel run`: operate runs. Pause, resume and stop write a control file that reaches a run on any machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from camel.cli import options as shared
from camel.cli.compact import compact
from camel.cli.gc import gc
from camel.cli.help import HelpCommand, HelpGroup
from camel.cli.index import index
from camel.cli.status import list_, status
from camel.cli.verify import verify
from camel.core.errors import InputError

if TYPE_CHECKING:
    from camel.runs.control import Wish

app = typer.Typer(name="run", cls=HelpGroup, no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def run() -> None:
    """Pause, resume, stop, check and clean up runs."""


def pause(run: shared.RunPlace) -> None:
    """Pause a run: it makes no new calls until you resume it."""
    _request(run, "pause", f"paused: no new calls until camel run resume {run}", "pauses")


def resume(run: shared.RunPlace) -> None:
    """Resume a paused run."""
    _request(run, "go", "resumed", "resumes")


def stop(run: shared.RunPlace) -> None:
    """Stop a run when its current calls finish, as Ctrl-C does."""
    _request(run, "stop", "stopping after the calls in flight", "stops after its calls in flight")


def _request(run: str, what: Wish, here: str, elsewhere: str) -> None:
    """Write a request to pause, resume or stop to the run's folder, and report it. `here` is printed if a process works on the
    run now. `elsewhere` completes the report if that is not known here."""
    from camel.engine.controlled import EVERY_REMOTE
    from camel.jobs.status import job_folder, read_status
    from camel.runs.control import CONTROL, wish

    folder = job_folder(run)
    working = read_status(run).state == "working"
    if folder.on_disk and not working and what == "stop":
        raise InputError(f"no process is working on '{run}': there is nothing to stop")
    wish(folder, what)
    if working:
        typer.echo(here)
    elif folder.on_disk:
        typer.echo(f"no process is working on {run}: this applies when it is restarted")
    else:
        # Whether a process on another machine works on a run in an object store is not known here.
        later = "" if what == "stop" else "; otherwise this applies when it is restarted"
        typer.echo(
            f"requested in {run}/{CONTROL}: a process that works on the run {elsewhere} within {EVERY_REMOTE:g} s{later}"
        )


for command in (pause, resume, stop, status, list_, verify, compact, gc, index):
    app.command(command.__name__.rstrip("_"), cls=HelpCommand)(command)
