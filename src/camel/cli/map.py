"""`camel map`: place the tasks or instructions of a run by meaning, for the explorer's map."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from camel.cli import options as shared
from camel.cli.command import LOCAL_OPTIONS, Invocation, long_command
from camel.cli.options import acknowledged, option
from camel.cli.output import echo
from camel.core.errors import InputError, MissingExtra

if TYPE_CHECKING:
    from camel.maps.table import MapHeader


EmbedderOption = Annotated[str, option("Embedding model: a folder, a Python package that contains one, or a name on the Hugging Face Hub. Default: none, texts are compared by their words.", "MODEL", envvar="CAMEL_EMBEDDER")]  # fmt: skip
ThresholdOption = Annotated[float, option("Cosine similarity from which two texts count as near-duplicates.", "NUMBER", min=0.5, max=1.0)]  # fmt: skip
ExportOption = Annotated[str, option("Export an existing map, for Embedding Atlas (atlas) or Nomic Atlas (nomic).", "FORMAT")]  # fmt: skip


@long_command(LOCAL_OPTIONS)
def map_(
    call: Invocation,
    run: shared.RunPlace,
    embedder: EmbedderOption = "",
    of: Annotated[str, option("Texts to map: tasks or instructions.", "WHAT")] = "tasks",
    seed: shared.Seed = 0,
    groups: Annotated[int | None, option("Number of groups.", "N", min=1, max=200)] = None,
    threshold: ThresholdOption = 0.95,
    sample: shared.Sample = 100_000,
    export: ExportOption = "",
    out: shared.Out = "",
    acknowledge: shared.Acknowledge = None,
    force: shared.Force = False,
) -> None:
    """Map texts by meaning, and find groups and duplicates."""
    try:
        from camel.maps.embedding import checked, find_embedder
        from camel.maps.mapping import MapJob
    except ImportError as error:
        raise MissingExtra(f"A map ({error.name})", "map") from None

    kind = checked(of)
    if export or out:
        _export(run, kind, export, out, acknowledge or [], force)
        return
    job = MapJob(
        run, find_embedder(embedder), kind, seed=seed or 0, groups=groups, threshold=threshold, sample=sample
    )
    call.run(
        job,
        call.options(),
        show=lambda made: _show(made.header),
        done=lambda outcome: (
            f"table   {outcome.result.path}",
            f"next    camel explore {shlex.quote(run)}, then open Map",
        ),
    )


def _show(header: MapHeader) -> None:
    from camel.reports.numbers import counted

    figures = header.all
    conversations = counted(header.conversations, "conversation")
    chosen = f" (1 in {header.every:,})" if header.every > 1 else ""
    echo(f"{header.rows:,} {header.of} of {conversations}{chosen} · {header.method}")
    for group in header.groups[:8]:
        echo(f"group   {group.texts:>7,}  {group.label}")
    if len(header.groups) > 8:
        echo(f"        and {len(header.groups) - 8} more groups")
    share = f"{figures.copies / figures.texts:.1%}"
    pairs = f"{figures.pairs:,} pairs of cosine {figures.threshold:g} or more"
    echo(f"copies  {figures.copies:,} texts repeat another one ({share}), in {pairs}")
    near = "" if figures.nearest is None else f"nearest other at {figures.nearest:.3f} on average · "
    echo(f"variety {near}effective number {figures.effective:.1f} (Vendi)")


def _export(run: str, of: str, format: str, out: str, acknowledge: list[str], force: bool) -> None:
    from camel.maps.table import FORMATS, export_map, path_of
    from camel.record.release import Release
    from camel.reports.numbers import counted
    from camel.runs.canary import canary_of
    from camel.runs.run import open_folder

    if not format or not out:
        raise InputError(f"--export and --out work only together: --export {'|'.join(FORMATS)} --out PATH")
    acknowledged(acknowledge)
    folder = open_folder(run)
    folder.settings()
    source = path_of(folder, of)
    if not source.is_file():
        raise InputError(f"there is no map yet: make it with `camel map {shlex.quote(str(run))} --of {of}`")
    release = Release(bool(acknowledge), canary_of(folder) if acknowledge else "")
    written = export_map(source, Path(out), format, release=release, force=force)
    typer.echo(f"{written.rows:,} {of} of {counted(written.conversations, 'conversation')} in {written.path}")
