"""`camel verify`: whether a run is as it was committed."""

from __future__ import annotations

from typing import Annotated

import typer

from camel.cli.options import RunPlace

SHOWN = 20


def verify(
    run: RunPlace,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Let shards be missing that are still to be made.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check every marker, and the hash, rows and ids of every file. Exits with 1 when something is wrong."""
    import msgspec
    from rich.console import Console

    from camel.cli.screen import visible
    from camel.generation.status import planned_shards
    from camel.storage.run import open_folder
    from camel.storage.verify import verify as look

    folder = open_folder(run)
    console = Console(stderr=True, highlight=False)
    with console.status("") as bar:

        def progress(done: int, of: int) -> None:
            bar.update(f"{done:,} of {of:,} files")

        report = look(folder, planned_shards(folder), progress=progress)
    fine = report.sound and (report.complete or unfinished)
    if as_json:
        found = {**msgspec.to_builtins(report), "sound": report.sound, "complete": report.complete}
        typer.echo(msgspec.json.encode(found).decode())
    else:
        for problem in report.problems[:SHOWN]:
            typer.echo(visible(f"{problem.stage}: {problem.file}: {problem.what}"))
        if len(report.problems) > SHOWN:
            typer.echo(f"and {len(report.problems) - SHOWN:,} more: --json shows all")
        for stage, count in report.missing.items():
            if count:
                typer.echo(
                    visible(f"{stage}: {count:,} shards are not there yet: generate goes on with them")
                )
        for note in report.notes:
            typer.echo(visible(f"note: {note}"))
        state = "as committed" if fine else "not as it should be"
        typer.echo(f"{report.files:,} files, {report.rows:,} rows, {report.bytes:,} bytes: {state}")
    if not fine:
        raise typer.Exit(1)
