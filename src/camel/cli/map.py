"""`camel map`: the tasks or instructions of a run as points that lie close where they mean the same."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from camel.cli.command import COMPUTING, How, long_command
from camel.cli.options import Acknowledge, Force, RunPlace, option
from camel.core.errors import InputError, MissingExtra

if TYPE_CHECKING:
    from rich.console import Console

    from camel.maps.table import MapHeader


@long_command(COMPUTING)
def map_(
    how: How,
    run: RunPlace,
    model: Annotated[
        str,
        option(
            "The embedding model: a sentence-transformers folder, a package with one, or a name of the hub.",
            "MODEL",
            envvar="CAMEL_EMBEDDER",
        ),
    ] = "",
    of: Annotated[str, option("tasks or instructions.", "WHAT")] = "tasks",
    seed: Annotated[int, option("Of the layout and the groups.", min=0, max=2**31 - 1)] = 0,
    groups: Annotated[
        int | None, option("Groups; by the number of texts unless given.", "N", min=1, max=200)
    ] = None,
    threshold: Annotated[
        float, option("Cosine from which two texts are near-duplicates.", min=0.5, max=1.0)
    ] = 0.95,
    export: Annotated[str, option("Write the map that is there as atlas or nomic instead.", "FORMAT")] = "",
    out: Annotated[Path | None, option("The file (atlas) or folder (nomic) to write.", "OUT")] = None,
    acknowledge: Acknowledge = None,
    force: Force = False,
) -> None:
    """Embed a run's texts, lay them out and group them, for the explorer's map. The same command continues after a stop."""
    try:
        from camel.maps.embedders import SentenceModel
        from camel.maps.mapping import MapJob
    except ImportError as error:
        raise MissingExtra(f"A map ({error.name})", "map") from None
    from camel.maps.texts import checked

    kind = checked(of)
    if export or out:
        _export(run, kind, export, out, acknowledge or [], force)
        return
    job = MapJob(run, SentenceModel(model), kind, seed=seed, groups=groups, threshold=threshold)
    how.run(
        job,
        how.options(),
        show=lambda made: _show(how.console, made.header),
        done=lambda outcome: (
            f"table   {outcome.result.path}",
            f"look    camel explore {shlex.quote(run)}, then Map",
        ),
    )


def _show(console: Console, header: MapHeader) -> None:
    from camel.cli.panel import say
    from camel.reports.numbers import counted

    figures = header.all
    talks = counted(header.conversations, "conversation")
    say(console, f"{header.rows:,} {header.of} of {talks} · {header.method}")
    for group in header.groups[:8]:
        say(console, f"group   {group.texts:>7,}  {group.label}")
    if len(header.groups) > 8:
        say(console, f"        and {len(header.groups) - 8} more groups")
    share = f"{figures.copies / figures.texts:.1%}"
    pairs = f"{figures.pairs:,} pairs of cosine {figures.threshold:g} or more"
    say(console, f"copies  {figures.copies:,} texts repeat another ({share}), in {pairs}")
    near = "" if figures.nearest is None else f"nearest other at {figures.nearest:.3f} on average · "
    say(console, f"variety {near}effective number {figures.effective:.1f} (Vendi)")


def _export(run: str, of: str, format: str, out: Path | None, acknowledge: list[str], force: bool) -> None:
    from camel.cli.options import acknowledged
    from camel.maps.export import FORMATS, export_map
    from camel.maps.table import path_of
    from camel.record.release import Release
    from camel.reports.numbers import counted
    from camel.runs.canary import canary_of
    from camel.runs.run import open_folder

    if not format or out is None:
        raise InputError(f"an export takes both --export {'|'.join(FORMATS)} and --out OUT")
    acknowledged(acknowledge)
    folder = open_folder(run)
    folder.settings()
    source = path_of(folder, of)
    if not source.is_file():
        raise InputError(
            f"{run} has no map of its {of} yet: camel map {run} --of {of} --model MODEL makes it"
        )
    release = Release(bool(acknowledge), canary_of(folder) if acknowledge else "")
    written = export_map(source, out, format, release=release, force=force)
    typer.echo(f"{written.rows:,} {of} of {counted(written.conversations, 'conversation')} in {written.path}")
