"""`camel gc`: remove what a run does not need."""

from __future__ import annotations

from typing import Annotated

import typer

from camel.cli.options import AsJson, RunPlace


def gc(
    run: RunPlace,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go; remove nothing.")] = False,
    compacted: Annotated[
        bool, typer.Option("--compacted", help="Also the small files that compaction has replaced.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove files that no marker names and journals of committed shards."""
    import msgspec

    from camel.cli.screen import visible
    from camel.storage.gc import collect_garbage
    from camel.storage.run import open_folder

    found = collect_garbage(open_folder(run), dry_run=dry_run, compacted=compacted)
    if as_json:
        typer.echo(msgspec.json.encode({**msgspec.to_builtins(found), "dry_run": dry_run}).decode())
        return
    if dry_run:
        for name in (*found.losers, *found.journals, *found.compacted, *found.indexes):
            typer.echo(visible(name))
    done = "would be removed" if dry_run else "removed"
    typer.echo(f"{found.files:,} files, {found.bytes:,} bytes {done}")
    if found.kept:
        why = "a process is working on the run" if found.working else "somebody may be about to commit them"
        typer.echo(f"{found.kept:,} without a marker left, for they are less than an hour old and {why}")
