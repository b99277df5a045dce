"""`camel export` and `camel import`: convert a run to other formats or to pages, and read such data back."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from camel.cli import options as shared
from camel.cli.options import argument, complete_formats, flag, option
from camel.cli.output import visible
from camel.core.errors import InputError, MissingExtra

if TYPE_CHECKING:
    from camel.record.release import Release
    from camel.runs.run import RunFolder

REASONING = ("messages", "dataset")
"""Formats that have a field for reasoning."""
SITE = "site"
"""The only format that is not in `formats`, because the explorer writes its pages."""

FormatArgument = Annotated[str, argument("FORMAT", "chat, instruction, problems, messages, sharegpt, alpaca, preferences, inspect, dataset, site, or a format of a plug-in.", autocompletion=complete_formats)]  # fmt: skip
LanguageOption = Annotated[str, option("Export the translation into this language, which `camel translate` made.", "CODE")]  # fmt: skip
WithReasoningOption = Annotated[bool, flag("--with-reasoning", "For messages and dataset: include the model's reasoning.")]  # fmt: skip
SplitOption = Annotated[str, option("Write a folder with one file per split, with these shares, such as train=0.9,test=0.1.", "NAME=SHARE,...")]  # fmt: skip
SplitByOption = Annotated[str, option("With --split: keep conversations with the same value of this column together, such as input.customer.", "COLUMN")]  # fmt: skip
ByOption = Annotated[str, option("For preferences: compare conversations by this column, such as score.helpful, instead of a critic's choices.", "COLUMN")]  # fmt: skip
MarginOption = Annotated[float, option("With --by: minimum difference of the two values.", "NUMBER", min=0)]
MetadataOption = Annotated[bool | None, option("Add the key metadata to each row: id, run, inputs, scores and result.", None, "--metadata/--no-metadata")]  # fmt: skip
SpeakerOption = Annotated[str, option("For messages, sharegpt and preferences with --by: speaker to train on. Default: assistant, or else the second of two speakers.", "NAME")]  # fmt: skip


def export(
    run: shared.RunPlace,
    format: FormatArgument,
    out: Annotated[Path, argument("OUT", "File or folder to write to.")],
    acknowledge: shared.Acknowledge = None,
    language: LanguageOption = "",
    with_reasoning: WithReasoningOption = False,
    metadata: MetadataOption = None,
    split: SplitOption = "",
    split_by: SplitByOption = "",
    by: ByOption = "",
    margin: MarginOption = 0.0,
    speaker: SpeakerOption = "",
    force: shared.Force = False,
    title: shared.Title = "",
    license: Annotated[str, option("For dataset and site: license, such as cc-by-4.0.", "ID")] = "",
    id: Annotated[list[str] | None, option("For site: include the conversation with this id.", "ID")] = None,
    first: Annotated[int | None, option("For site: include the first N conversations.", "N")] = None,
    random: Annotated[int, option("For site: include N conversations, drawn at random.", "N")] = 0,
    seed: shared.Seed = None,
    where: shared.Where = "",
    processes: shared.Processes = None,
    address: shared.Address = "",
) -> None:
    """Export conversations to files, a dataset or web pages."""
    from camel.cli.options import acknowledged
    from camel.formats.exporters import FORMATS
    from camel.formats.splits import read_shares
    from camel.generation.config import ANSWERS, CONVERSATIONS
    from camel.jobs.status import planned_shards
    from camel.library.run import Run
    from camel.query.columns import narrow
    from camel.record.release import Release
    from camel.reports.numbers import counted
    from camel.runs.canary import canary_of
    from camel.runs.reader import RunReader
    from camel.runs.run import open_folder
    from camel.storage.files import in_place_of

    if format not in (*FORMATS, SITE):
        raise InputError(f"there is no format {format!r}. Use one of {', '.join([*FORMATS, SITE])}")
    restricted = bool(acknowledged(acknowledge))
    if (title or license) and format not in ("dataset", SITE):
        raise InputError("--title and --license work only with the formats dataset and site: remove them")
    if format != SITE and (id or random or first is not None or seed is not None):
        raise InputError(
            "--id, --first, --random and --seed work only with the format 'site'. Remove them, or choose conversations with --where"
        )
    if with_reasoning and format not in REASONING:
        raise InputError(f"--with-reasoning works only with the formats {' and '.join(REASONING)}")
    if seed is not None and not random:
        raise InputError("--seed needs --random")
    if format == SITE and (split or by or metadata is not None):
        raise InputError("--split, --by and --metadata do not work with the format site: remove them")
    shares = read_shares(split) if split else {}
    endings = ("",) if format == SITE or split else FORMATS[format].endings
    folders = "" in endings
    # `.` has no name that a title or a temporary folder could be derived from.
    out = out if out.name not in ("", "..") else out.resolve()
    if out.is_file() and endings == ("",):
        raise InputError(f"'{out}' is a file, but the format {format} writes a folder: choose another name")
    if not force and (out.is_file() or (folders and out.is_dir() and any(out.iterdir()))):
        raise InputError(f"'{out}' already exists: choose another name, or overwrite it with --force")
    if format == SITE and language:
        raise InputError("the format site shows the original text: remove --language")
    folder = open_folder(run)
    # A site can also be made from a file, which has no stages.
    stage = _stage_of(folder, language) if format != SITE or folder.exists else ""
    release = Release(restricted, canary_of(folder) if restricted else "", with_reasoning)
    # A translation has as many records as its run.
    plan = planned_shards(folder).get(stage if stage == ANSWERS else CONVERSATIONS) if stage else None
    planned = plan.active if plan else 0
    if format == SITE:
        choice = {
            "ids": id or [],
            "first": 100 if first is None else first,
            "sample": random,
            "seed": seed or 0,
        }
        _write_site(run, out, force, release, title or out.name, license, where, choice)
        committed = len(RunReader(run, stage)) if stage else 0
    else:
        options: dict[str, Any] = {"metadata": metadata, "by": by, "margin": margin}
        options |= {"acknowledge": restricted, "with_reasoning": with_reasoning}
        options |= {"seat": speaker} if speaker else {}
        if format == "dataset":
            options |= {"title": title or out.name, "license": license}
            options |= {"planned": planned, "language": language}
        records = narrow(Run(run, stage), where)
        with shared.started(processes, address) as count, in_place_of(out, force and folders) as place:
            written = records.export(
                format, place, split=shares, split_by=split_by, processes=count, **options
            )
        committed = len(records) if by else written.conversations
        what = counted(written.conversations, "conversation" if language else stage.removesuffix("s"))
        into = f" in {language}" if language else ""
        typer.echo(f"{what}{into} as {counted(written.rows, 'row')} in {out}")
    if committed < planned and not where:
        typer.echo(
            f"camel: the run is unfinished: {committed:,} of {planned:,} conversations are done. Resume it "
            f"(`camel run status {shlex.quote(str(run))}` shows how), then export again",
            err=True,
        )


def _write_site(
    run: str,
    out: Path,
    force: bool,
    release: Release,
    title: str,
    license: str,
    where: str,
    choice: dict[str, Any],
) -> None:
    """Write the chosen conversations as web pages."""
    from camel.record.release import RESTRICTED
    from camel.reports.numbers import counted
    from camel.storage.files import in_place_of

    try:
        from camel.explorer.site import chosen, write_site
        from camel.query.answers import NeedsConsent
        from camel.query.catalogue import Catalogue
        from camel.query.where import Query
    except ImportError as error:
        raise MissingExtra(f"A site ({error.name})", "explore") from None
    query = Query(where=where.strip())
    page: dict[str, Any] = {"title": title, "license": license}
    with Catalogue([run], RESTRICTED if release.acknowledge else ()) as catalogue:
        try:
            rows = chosen(catalogue, query, **choice)
        except NeedsConsent as error:
            label = error.labels[0]
            raise InputError(f"{error}: add --acknowledge {label}") from None
        with in_place_of(out, force) as place:
            shown = write_site(catalogue, rows, place, release=release, **page).conversations
        there, hidden = catalogue.count(query), catalogue.restricted()
    part = f"{shown:,} of " if shown < there and not choice["ids"] else ""
    typer.echo(f"{part}{counted(there if part else shown, 'conversation')} in {out / 'index.html'}")
    if hidden:
        typer.echo(
            f"conversations labeled {', '.join(hidden)} are excluded: --acknowledge {shlex.quote(hidden[0])} includes them"
        )


FilesArgument = Annotated[list[Path], argument("FILE... RUN", "Files or folders to read, or hf:OWNER/NAME, and the folder of the new run.")]  # fmt: skip
FormatOption = Annotated[str, option("Format of the files: chat, instruction, problems, messages, sharegpt, alpaca, dataset or transcript.", "FORMAT")]  # fmt: skip


def import_(
    files: FilesArgument,
    format: FormatOption = "chat",
    scenario: shared.ScenarioName = "",
    skip: Annotated[bool, flag("--skip", "Skip conversations that cannot be read, and list them.")] = False,
) -> None:
    """Import conversations from files into a new run."""
    from itertools import chain

    from msgspec.structs import replace

    from camel.formats.documents import IMPORTERS, store
    from camel.models.prices import cost
    from camel.reports.numbers import counted
    from camel.runs.run import open_folder
    from camel.scenarios import load

    if format not in IMPORTERS:
        raise InputError(f"--format must be one of {', '.join(IMPORTERS)}, not {format!r}")
    if len(files) < 2:
        raise InputError("the folder of the new run is missing. Usage: camel import FILE... RUN")
    *sources, out = files
    skipped = 0

    def report(error: InputError) -> None:
        nonlocal skipped
        skipped += 1
        typer.echo(f"camel: skipped: {visible(str(error))}", err=True)

    read = IMPORTERS[format]
    on_error = report if skip else None
    found = chain.from_iterable(read(path, scenario=scenario, on_error=on_error) for path in sources)
    try:
        labels = load(scenario).labels if scenario else ()
    except InputError:  # an unknown name
        labels = ()
    if labels:
        found = (replace(one, labels=sorted({*one.labels, *labels})) for one in found)
    rows = store(open_folder(out), found, format, cost)
    typer.echo(f"{counted(rows, 'conversation')} in {out}" + (f", {skipped:,} skipped" if skipped else ""))


def _stage_of(folder: RunFolder, language: str = "") -> str:
    """Return the name of the stage with the conversations or answers, or with their translation into `language`."""
    from camel.generation.config import ANSWERS, CONVERSATIONS
    from camel.generation.translate import STAGE

    folder.settings()
    for stage in (f"{STAGE}{language}",) if language else (CONVERSATIONS, ANSWERS):
        if folder.committed(stage):
            return stage
    if language:
        raise InputError(
            f"'{folder.address}' has no translation {language!r}: make it with `camel translate {shlex.quote(folder.address)} --to {shlex.quote(language)}`"
        )
    raise InputError(
        f"'{folder.address}' has nothing to export yet: no shard is complete. `camel run status {shlex.quote(folder.address)}` shows how to "
        "resume the run"
    )
