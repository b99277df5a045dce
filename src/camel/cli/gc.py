"""`camel run gc`: remove files that a run does not need."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from camel.cli import options as shared
from camel.cli.options import flag
from camel.cli.output import print_json, visible
from camel.core.errors import InputError

if TYPE_CHECKING:
    from camel.runs.garbage import Garbage

SHOWN = 20


def gc(
    run: shared.RunPlace,
    yes: shared.Yes = False,
    dry_run: shared.DryRun = False,
    compacted: Annotated[
        bool, flag("--compacted", "Also remove small files that `camel run compact` has merged.")
    ] = False,
    as_json: shared.AsJson = False,
) -> None:
    """List files that a run does not need, and remove them."""
    import msgspec

    from camel.index.merge import unused
    from camel.runs.garbage import collect_garbage
    from camel.runs.run import open_folder

    # A question among lines of JSON could not be parsed.
    asks = not as_json and sys.stdin.isatty() and sys.stdout.isatty()

    def confirm(found: Garbage) -> bool:
        if not as_json:
            _show(found, SHOWN)
        return yes or (asks and typer.confirm("Remove them?"))

    found = collect_garbage(
        open_folder(run), dry_run=dry_run, compacted=compacted, derived=unused, confirm=confirm
    )
    if as_json:
        print_json({**msgspec.to_builtins(found), "dry_run": dry_run})
    else:
        if dry_run:
            _show(found, None)
        elif found.removed or not found.files:
            typer.echo(f"{_size(found)} removed")
        if found.kept:
            why = (
                "a process is working on the run"
                if found.working
                else "a process may be about to commit them"
            )
            young = f"they are less than {found.age / 60:,.0f} minutes old"
            typer.echo(f"{found.kept:,} uncommitted files are kept: {young}, and {why}")
    if found.files and not (dry_run or found.removed):
        if not asks:
            raise InputError("nothing was removed, because there is no terminal to confirm it: add --yes")
        typer.echo("nothing was removed")


def _show(found: Garbage, most: int | None) -> None:
    names = [*found.losers, *found.journals, *found.copies, *found.compacted, *found.indexes]
    for name in names[:most]:
        typer.echo(visible(name))
    if len(names) > len(names[:most]):
        typer.echo(f"and {len(names) - len(names[:most]):,} more: --dry-run lists all")
    typer.echo(f"{_size(found)} can be removed from {visible(found.run)}")


def _size(found: Garbage) -> str:
    from camel.reports.numbers import counted

    return f"{counted(found.files, 'file')}, {counted(found.bytes, 'byte')}"
