"""`camel run verify`: check that the files of a run are as they were committed."""

from __future__ import annotations

from typing import Annotated

import typer

from camel.cli import options as shared
from camel.cli.options import flag
from camel.cli.output import print_json, visible

SHOWN = 20
FIX = (
    "To fix it: restore the file from a copy. Without a copy, delete the file and its marker and rerun the command that "
    "wrote it; the shard is generated and paid for again. Then delete the folders index and text, and run camel run index."
)


def verify(
    run: shared.RunPlace,
    unfinished: Annotated[bool, flag("--unfinished", "Accept a run that is not finished yet.")] = False,
    processes: shared.Processes = None,
    address: shared.Address = "",
    as_json: shared.AsJson = False,
) -> None:
    """Check the files of a run for damage."""
    import msgspec
    from rich.console import Console

    from camel.jobs.status import planned_shards
    from camel.runs.run import open_folder
    from camel.runs.verify import verify as verify_files

    folder = open_folder(run)
    console = Console(stderr=True, highlight=False)
    with shared.started(processes, address) as count, console.status("") as bar:

        def progress(done: int, of: int) -> None:
            bar.update(f"{done:,} of {of:,} files")

        report = verify_files(folder, planned_shards(folder), processes=count, progress=progress)
    fine = report.sound and (report.complete or unfinished)
    if as_json:
        print_json({**msgspec.to_builtins(report), "sound": report.sound, "complete": report.complete})
    else:
        problems: dict[str, list[str]] = {}
        for problem in report.problems:
            marked = f" (marker {problem.marker})" if problem.marker not in ("", problem.file) else ""
            problems.setdefault(f"{problem.stage}: {problem.file}{marked}", []).append(problem.what)
        for place, whats in list(problems.items())[:SHOWN]:
            typer.echo(visible(f"{place}: {'; '.join(whats)}"))
        if len(problems) > SHOWN:
            typer.echo(f"and {len(problems) - SHOWN:,} more: --json lists all")
        if any(problem.marker for problem in report.problems):
            typer.echo(FIX)
        for stage, count in report.missing.items():
            if count:
                missing = "1 shard is" if count == 1 else f"{count:,} shards are"
                typer.echo(visible(f"{stage}: {missing} not generated yet: rerun camel generate"))
        for note in report.notes:
            typer.echo(visible(f"note: {note}"))
        state = "all files are as committed" if fine else "problems found"
        typer.echo(f"{report.files:,} files, {report.rows:,} rows, {report.bytes:,} bytes: {state}")
    if not fine:
        raise typer.Exit(1)
