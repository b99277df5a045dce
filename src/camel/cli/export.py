"""`camel export` and `camel import`: a run in other people's formats or as pages to read, and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from camel.cli import completing
from camel.cli.options import RunPlace

if TYPE_CHECKING:
    from camel.storage.run import RunFolder

SITE = "site"
"""The one format that is not of `storage`: its pages are the explorer's."""


def export(
    run: RunPlace,
    format: Annotated[
        str,
        typer.Argument(
            metavar="FORMAT",
            autocompletion=completing.formats,
            help="chat, instruction, problems, messages, sharegpt, alpaca, preferences, inspect, dataset, site, or a plug-in's.",
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file or folder to write.")],
    acknowledge: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL", help="Say that you know what labelled data is: misalignment."),
    ] = None,
    language: Annotated[
        str, typer.Option(metavar="CODE", help="What camel translate made, instead of the original.")
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    title: Annotated[
        str, typer.Option(help="Of a dataset's card or a site; its folder's name unless given.")
    ] = "",
    licence: Annotated[
        str,
        typer.Option(
            "--licence",
            "--license",
            metavar="ID",
            help="Of a dataset's card, as the hub names it: cc-by-4.0. None is stated unless given.",
        ),
    ] = "",
    id: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Of a site: this conversation; repeatable.")
    ] = None,
    first: Annotated[int, typer.Option(metavar="N", help="Of a site: the first so many.")] = 100,
    random: Annotated[int, typer.Option(metavar="N", help="Of a site: so many at random.")] = 0,
    seed: Annotated[int, typer.Option(help="Of a site: another draw with --random.")] = 0,
    where: Annotated[
        str,
        typer.Option(
            metavar="QUERY",
            help="Of a site: which conversations, as the explorer's address says it: 'stop=done&q=oasis'.",
        ),
    ] = "",
) -> None:
    """Write what a run has committed, in the order of its items, in another format."""
    from camel.core.errors import InputError
    from camel.storage.dataset import dataset
    from camel.storage.exporters import FORMATS
    from camel.storage.reader import Run
    from camel.storage.release import RESTRICTED, Release
    from camel.storage.run import open_folder

    if format not in (*FORMATS, SITE):
        raise InputError(f"no format {format!r}: there are {', '.join([*FORMATS, SITE])}")
    if unknown := sorted(set(acknowledge or []) - RESTRICTED):
        raise InputError(f"--acknowledge takes {', '.join(sorted(RESTRICTED))}, not {unknown[0]!r}")
    if (title and format not in ("dataset", SITE)) or (licence and format != "dataset"):
        raise InputError(
            "--title and --licence are for the card that the format dataset has, --title for a site too"
        )
    if format != SITE and (id or random or where):
        raise InputError(
            "--id, --random and --where choose the conversations of a site: other formats write all"
        )
    if out.is_file() and not force:
        raise InputError(f"{out} exists: --force replaces it")
    if format == SITE:
        if language:
            raise InputError("a site shows the original: --language is for the other formats")
        _site(run, out, id or [], first, random, seed, where, title, bool(acknowledge))
        return
    folder = open_folder(run)
    stage = _translated(folder, language) if language else _last_stage(folder)
    acknowledged = bool(acknowledge)
    release = Release(acknowledged, canary_of(folder) if acknowledged else "")
    records = Run(run, stage)
    if format == "dataset":
        written = dataset(records, out, release=release, title=title, licence=licence)
    else:
        written = FORMATS[format].write(records, out, release=release)
    what = f"conversations in {language}" if language else stage
    typer.echo(f"{written.conversations:,} {what} as {written.rows:,} rows in {written.path}")


def _site(
    run: str,
    out: Path,
    ids: list[str],
    first: int,
    random: int,
    seed: int,
    where: str,
    title: str,
    acknowledged: bool,
) -> None:
    """Chosen conversations as pages."""
    from urllib.parse import parse_qsl

    from camel.core.errors import InputError, MissingExtra
    from camel.storage.release import RESTRICTED, Release
    from camel.storage.run import open_folder

    try:
        from camel.explorer.catalogue import Catalogue, NeedsConsent
        from camel.explorer.query import Query
        from camel.explorer.reading import terms_of
        from camel.explorer.site import chosen, write_site
    except ImportError as error:
        raise MissingExtra(f"A site ({error.name})", "explore") from None
    # Whoever copies from the explorer's address may copy all of it.
    query = Query.from_params(parse_qsl(where.rpartition("?")[2]))
    release = Release(acknowledged, canary_of(open_folder(run)) if acknowledged else "")
    with Catalogue([run], RESTRICTED if acknowledged else ()) as catalogue:
        try:
            rows = chosen(catalogue, query, ids=ids, first=first, sample=random, seed=seed)
        except NeedsConsent as error:
            label = error.labels[0]
            raise InputError(f"{error}: say that you know what it is with --acknowledge {label}") from None
        written = write_site(catalogue, rows, out, title=title, terms=terms_of(query.text), release=release)
        there, hidden = catalogue.count(query), catalogue.restricted()
    of = f" of {there:,}" if written.conversations < there and not ids else ""
    typer.echo(f"{written.conversations:,}{of} conversations in {out / 'index.html'}")
    if hidden:
        typer.echo(f"without those labelled {', '.join(hidden)}: --acknowledge {hidden[0]} adds them")


def import_(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILES… OUT", help="Files or folders to read, then the new run.")
    ],
    format: Annotated[
        str, typer.Option(metavar="FORMAT", help="What they are: chat, instruction or problems.")
    ] = "chat",
    scenario: Annotated[str, typer.Option(help="The scenario to record for them.")] = "",
    skip: Annotated[
        bool, typer.Option("--skip", help="Pass over documents that cannot be read, naming each.")
    ] = False,
) -> None:
    """Read data of the original's formats into a run that can be explored and exported."""
    from itertools import chain

    from camel.core.errors import InputError
    from camel.models.catalogue import cost
    from camel.storage.importers import IMPORTERS, store
    from camel.storage.run import open_folder

    if format not in IMPORTERS:
        raise InputError(f"no format {format!r} can be read: there are {', '.join(IMPORTERS)}")
    if len(files) < 2:
        raise InputError("name the files to read and, last, the folder of the new run")
    *sources, out = files
    skipped = 0

    def pass_over(error: InputError) -> None:
        nonlocal skipped
        skipped += 1
        typer.echo(f"camel: skipped: {error}", err=True)

    read = IMPORTERS[format]
    on_error = pass_over if skip else None
    found = chain.from_iterable(read(path, scenario=scenario, on_error=on_error) for path in sources)
    rows = store(open_folder(out), found, format, cost)
    typer.echo(f"{rows:,} conversations in {out}" + (f", {skipped:,} skipped" if skipped else ""))


def _last_stage(folder: RunFolder) -> str:
    """The stage that holds transcripts."""
    from camel.core.errors import InputError
    from camel.generation.campaign import ANSWERS, CONVERSATIONS

    folder.settings()
    for stage in (CONVERSATIONS, ANSWERS):
        if folder.committed(stage):
            return stage
    raise InputError(
        f"{folder.address} has nothing to export yet: no shard of conversations is whole. What has ended is kept; go on "
        f"with the run, as camel status {folder.address} says"
    )


def _translated(folder: RunFolder, language: str) -> str:
    """The stage that holds a translation."""
    from camel.core.errors import InputError
    from camel.generation.translate import STAGE

    folder.settings()
    stage = f"{STAGE}{language}"
    if not folder.committed(stage):
        raise InputError(
            f"{folder.address} has nothing in {language!r}: make it with camel translate {folder.address} --to {language}"
        )
    return stage


def canary_of(folder: RunFolder) -> str:
    """The GUID of the scenario that the run was made from."""
    from camel.core.errors import CamelError, InputError
    from camel.scenarios import load

    name = str(folder.settings().config.get("scenario", ""))
    try:
        canary = load(name).canary
    except CamelError as error:
        raise InputError(f"the canary cannot be read from the scenario {name!r}: {error}") from None
    if not canary:
        raise InputError(f"the scenario {name!r} declares no canary, which such a release must carry")
    return canary
