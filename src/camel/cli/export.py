"""`camel export` and `camel import`: a run in other people's formats or as pages to read, and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from camel.cli import completing
from camel.cli.options import Acknowledge, Force, RunPlace, argument, flag, option
from camel.core.errors import InputError, MissingExtra

if TYPE_CHECKING:
    from camel.record.release import Release
    from camel.runs.run import RunFolder

REASONING = ("messages", "dataset")
"""The formats that have a place for what models thought."""
SITE = "site"
"""The one format that is not among those of `formats`: its pages are the explorer's."""


def export(
    run: RunPlace,
    format: Annotated[
        str,
        argument(
            "FORMAT",
            "chat, instruction, problems, messages, sharegpt, alpaca, preferences, inspect, dataset, site, or a plug-in's.",
            autocompletion=completing.formats,
        ),
    ],
    out: Annotated[Path, argument("OUT", "The file or folder to write.")],
    acknowledge: Acknowledge = None,
    language: Annotated[str, option("What camel translate made, instead of the original.", "CODE")] = "",
    with_reasoning: Annotated[
        bool,
        flag("--with-reasoning", "Of messages and a dataset: also what models thought before they spoke."),
    ] = False,
    force: Force = False,
    title: Annotated[str, option("Of a dataset's card or a site; its folder's name unless given.")] = "",
    licence: Annotated[
        str,
        option(
            "Of a dataset or a site, as the hub names it: cc-by-4.0. None is stated unless given.",
            "ID",
            "--licence",
            "--license",
        ),
    ] = "",
    id: Annotated[list[str] | None, option("Of a site: this conversation; repeatable.", "ID")] = None,
    first: Annotated[int | None, option("Of a site: the first so many; 100 unless given.", "N")] = None,
    random: Annotated[int, option("Of a site: so many at random.", "N")] = 0,
    seed: Annotated[int | None, option("Of a site: another draw with --random.")] = None,
    where: Annotated[
        str,
        option(
            "Of a site: which conversations, as the explorer's address says it: 'stop=done&q=oasis'.", "QUERY"
        ),
    ] = "",
) -> None:
    """Write what a run has committed, in the order of its items, in another format.

    `messages` and `sharegpt` write every conversation as it was said, whole and with its prompts. For rows to train on,
    without duplicates and test questions, cut to a length and without the grammar's markers, see `camel rows`.
    """
    from camel.cli.options import acknowledged
    from camel.formats.dataset import dataset
    from camel.formats.exporters import FORMATS
    from camel.record.release import Release
    from camel.reports.numbers import counted
    from camel.runs.canary import canary_of
    from camel.runs.reader import RunReader
    from camel.runs.run import open_folder
    from camel.storage.files import in_place_of

    if format not in (*FORMATS, SITE):
        raise InputError(f"no format {format!r}: there are {', '.join([*FORMATS, SITE])}")
    restricted = bool(acknowledged(acknowledge))
    if (title or licence) and format not in ("dataset", SITE):
        raise InputError("--title and --licence are for the card of a dataset and for a site")
    if format != SITE and (id or random or where or first is not None or seed is not None):
        raise InputError(
            "--id, --first, --random, --seed and --where choose the conversations of a site: other formats write all"
        )
    if with_reasoning and format not in REASONING:
        raise InputError(
            f"--with-reasoning is for {' and '.join(REASONING)}: other formats have no place for it"
        )
    if seed is not None and not random:
        raise InputError("--seed is for another draw of --random N: give both, or neither")
    endings = ("",) if format == SITE else FORMATS[format].endings
    folders = "" in endings
    # `.` has no name that a title, or what is written beside it, could have.
    out = out if out.name not in ("", "..") else out.resolve()
    if out.is_file() and endings == ("",):
        raise InputError(f"{out} is a file, and a {format} is a folder: choose another name")
    if not force and (out.is_file() or (folders and out.is_dir() and any(out.iterdir()))):
        raise InputError(f"{out} exists: --force replaces it")
    if format == SITE and language:
        raise InputError("a site shows the original: --language is for the other formats")
    folder = open_folder(run)
    # A file of the original's formats is shown on a site as well, and has no stages.
    stage = _stage_of(folder, language) if format != SITE or folder.exists else ""
    release = Release(restricted, canary_of(folder) if restricted else "", with_reasoning)
    planned = _planned(folder, stage) if stage else 0
    if format == SITE:
        choice = {
            "ids": id or [],
            "first": 100 if first is None else first,
            "sample": random,
            "seed": seed or 0,
        }
        _write_site(run, out, force, release, title or out.name, licence, where, choice)
        committed = len(RunReader(run, stage)) if stage else 0
    else:
        records = RunReader(run, stage)
        with in_place_of(out, force and folders) as place:
            if format == "dataset":
                card: dict[str, Any] = {"title": title or out.name, "license": licence, "planned": planned}
                written = dataset(records, place, release=release, **card)
            else:
                written = FORMATS[format].write(records, place, release=release)
        committed = written.conversations
        what = counted(committed, "conversation" if language else stage.removesuffix("s"))
        into = f" in {language}" if language else ""
        typer.echo(f"{what}{into} as {counted(written.rows, 'row')} in {out}")
    if committed < planned:
        advice = f"camel status {run} says how to go on; then export again"
        typer.echo(f"camel: {committed:,} of {planned:,} conversations: unfinished. {advice}", err=True)


def _write_site(
    run: str,
    out: Path,
    force: bool,
    release: Release,
    title: str,
    licence: str,
    where: str,
    choice: dict[str, Any],
) -> None:
    """Write chosen conversations as pages."""
    from urllib.parse import parse_qsl

    from camel.record.release import RESTRICTED
    from camel.reports.numbers import counted
    from camel.storage.files import in_place_of

    try:
        from camel.explorer.reading import terms_of
        from camel.explorer.site import chosen, write_site
        from camel.query.answers import NeedsConsent
        from camel.query.catalogue import Catalogue
        from camel.query.where import PAGING, PARAMETERS, Query
    except ImportError as error:
        raise MissingExtra(f"A site ({error.name})", "explore") from None
    # Whoever copies from the explorer's address may copy all of it.
    address, mark, rest = where.partition("?")
    asked = parse_qsl(rest if mark and "=" not in address else where, keep_blank_values=True)
    if unknown := sorted({name for name, _ in asked} - PARAMETERS - PAGING):
        raise InputError(f"--where knows no {', '.join(unknown)}: there are {', '.join(sorted(PARAMETERS))}")
    query = Query.from_params(asked)
    page: dict[str, Any] = {"title": title, "licence": licence, "terms": terms_of(query.text)}
    with Catalogue([run], RESTRICTED if release.acknowledge else ()) as catalogue:
        try:
            rows = chosen(catalogue, query, **choice)
        except NeedsConsent as error:
            label = error.labels[0]
            raise InputError(f"{error}: say that you know what it is with --acknowledge {label}") from None
        with in_place_of(out, force) as place:
            shown = write_site(catalogue, rows, place, release=release, **page).conversations
        there, hidden = catalogue.count(query), catalogue.restricted()
    part = f"{shown:,} of " if shown < there and not choice["ids"] else ""
    typer.echo(f"{part}{counted(there if part else shown, 'conversation')} in {out / 'index.html'}")
    if hidden:
        typer.echo(f"without those labelled {', '.join(hidden)}: --acknowledge {hidden[0]} adds them")


def import_(
    files: Annotated[list[Path], argument("FILES… OUT", "Files or folders to read, then the new run.")],
    format: Annotated[
        str, option("What they are: chat, instruction, problems or transcript.", "FORMAT")
    ] = "chat",
    scenario: Annotated[str, option("The scenario to record for them.")] = "",
    skip: Annotated[bool, flag("--skip", "Pass over documents that cannot be read, naming each.")] = False,
) -> None:
    """Read data of the original's formats, or what `camel play --save` wrote, into a run that can be explored and exported."""
    from itertools import chain

    from msgspec.structs import replace

    from camel.cli.screen import visible
    from camel.formats.documents import IMPORTERS, store
    from camel.models.prices import cost
    from camel.reports.numbers import counted
    from camel.runs.run import open_folder
    from camel.scenarios import load

    if format not in IMPORTERS:
        raise InputError(f"no format {format!r} can be read: there are {', '.join(IMPORTERS)}")
    if len(files) < 2:
        raise InputError("name the files to read and, last, the folder of the new run")
    *sources, out = files
    skipped = 0

    def pass_over(error: InputError) -> None:
        nonlocal skipped
        skipped += 1
        typer.echo(f"camel: skipped: {visible(str(error))}", err=True)

    read = IMPORTERS[format]
    on_error = pass_over if skip else None
    found = chain.from_iterable(read(path, scenario=scenario, on_error=on_error) for path in sources)
    try:
        labels = load(scenario).labels if scenario else ()
    except InputError:  # not one of those there are
        labels = ()
    if labels:
        found = (replace(one, labels=sorted({*one.labels, *labels})) for one in found)
    rows = store(open_folder(out), found, format, cost)
    typer.echo(f"{counted(rows, 'conversation')} in {out}" + (f", {skipped:,} skipped" if skipped else ""))


def _planned(folder: RunFolder, stage: str) -> int:
    """How many records a stage is to have, a translation as many as its run; 0 where that is not known."""
    from camel.generation.config import ANSWERS, CONVERSATIONS
    from camel.jobs.status import planned_shards

    plan = planned_shards(folder).get(stage if stage == ANSWERS else CONVERSATIONS)
    return plan.items if plan else 0


def _stage_of(folder: RunFolder, language: str = "") -> str:
    """The stage that holds transcripts, or their translation."""
    from camel.generation.config import ANSWERS, CONVERSATIONS
    from camel.generation.translate import STAGE

    folder.settings()
    for stage in (f"{STAGE}{language}",) if language else (CONVERSATIONS, ANSWERS):
        if folder.committed(stage):
            return stage
    if language:
        raise InputError(
            f"{folder.address} has nothing in {language!r}: make it with camel translate {folder.address} --to {language}"
        )
    raise InputError(
        f"{folder.address} has nothing to export yet: no shard of conversations is whole. What has ended is kept; go on "
        f"with the run, as camel status {folder.address} says"
    )
