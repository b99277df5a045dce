"""`camel verify`: whether a run is as it was committed."""

from __future__ import annotations

from typing import Annotated

import typer

from camel.cli.options import AsJson, RunPlace, flag, print_json

SHOWN = 20
MEND = (
    "to mend it: restore the file from a copy; or remove the file and its marker and give the command that made it again, "
    "which makes that shard, and pays for it, again. Then remove the folders index and text too: camel index makes them"
)


def verify(
    run: RunPlace,
    unfinished: Annotated[
        bool, flag("--unfinished", "Let shards be missing that are still to be made.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check every marker, and the hash, rows and ids of every file. Exits with 1 when something is wrong."""
    import msgspec
    from rich.console import Console

    from camel.cli.screen import visible
    from camel.jobs.status import planned_shards
    from camel.runs.run import open_folder
    from camel.runs.verify import verify as look

    folder = open_folder(run)
    console = Console(stderr=True, highlight=False)
    with console.status("") as bar:

        def progress(done: int, of: int) -> None:
            bar.update(f"{done:,} of {of:,} files")

        report = look(folder, planned_shards(folder), progress=progress)
    fine = report.sound and (report.complete or unfinished)
    if as_json:
        print_json({**msgspec.to_builtins(report), "sound": report.sound, "complete": report.complete})
    else:
        said: dict[str, list[str]] = {}
        for problem in report.problems:
            marked = f" (marker {problem.marker})" if problem.marker not in ("", problem.file) else ""
            said.setdefault(f"{problem.stage}: {problem.file}{marked}", []).append(problem.what)
        for place, whats in list(said.items())[:SHOWN]:
            typer.echo(visible(f"{place}: {'; '.join(whats)}"))
        if len(said) > SHOWN:
            typer.echo(f"and {len(said) - SHOWN:,} more: --json shows all")
        if any(problem.marker for problem in report.problems):
            typer.echo(MEND)
        for stage, count in report.missing.items():
            if count:
                missing = "1 shard is" if count == 1 else f"{count:,} shards are"
                typer.echo(visible(f"{stage}: {missing} not there yet: camel generate makes the rest"))
        for note in report.notes:
            typer.echo(visible(f"note: {note}"))
        state = "as committed" if fine else "not as it should be"
        typer.echo(f"{report.files:,} files, {report.rows:,} rows, {report.bytes:,} bytes: {state}")
    if not fine:
        raise typer.Exit(1)
