"""Exporters: write transcripts in formats of other tools.

    chat          the paper's conversations: an archive or a folder of JSON files, or lines
    instruction   the paper's instruction and solution pairs
    problems      the paper's Math and Science rows: a problem and its solution
    messages, sharegpt, alpaca    rows for training
    preferences   chosen and rejected answers, by a critic or by scores, for preference training
    dataset       Parquet files and a card for `datasets.load_dataset(folder)`

Each takes any iterable, keeps one transcript (`dataset`: one row group) in memory, and writes atomically with a rename. The
same transcripts in the same order give the same bytes.

The one decision to know: in every format, a row of a labeled transcript has an additional last key `labels`; rows without
labels have exactly the format's own keys and, except in the paper's formats, `metadata`. Data labeled `misalignment` raises an error unless the release acknowledges it
and has a canary, which every such row then has under `canary`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.core.plugins import Plugin, Registry
from camel.core.transcript import Transcript
from camel.formats.conversation import alpaca, messages, sharegpt
from camel.formats.dataset import dataset
from camel.formats.inspect_log import ENDINGS, inspect_log
from camel.formats.json_rows import DOCUMENT_ENDINGS, ROW_ENDINGS, NothingFits
from camel.formats.original import chat, instruction, problems
from camel.formats.preferences import preferences
from camel.formats.splits import check_shares, in_split
from camel.record.release import Exported, Release, published
from camel.storage.files import new_folder


class Write(Protocol):
    """Writes transcripts to a path in one format."""

    def __call__(self, transcripts: Iterable[Transcript], path: Path, *, release: Release = ...) -> Exported:
        """Write all of `transcripts` atomically."""
        ...


@dataclass(frozen=True, slots=True)
class Exporter:
    """An export format with its description."""

    write: Write
    summary: str
    endings: tuple[str, ...]
    """Valid endings of the path. The empty ending stands for a folder."""


_OWN = {
    "chat": Exporter(chat, "the paper's conversations, one JSON object each", DOCUMENT_ENDINGS),
    "instruction": Exporter(instruction, "the paper's instruction and solution pairs", ROW_ENDINGS),
    "problems": Exporter(problems, "the paper's Math and Science problems and solutions", DOCUMENT_ENDINGS),
    "messages": Exporter(messages, "chat messages and tool calls for OpenAI and TRL", ROW_ENDINGS),
    "sharegpt": Exporter(sharegpt, "conversations of human and gpt", ROW_ENDINGS),
    "alpaca": Exporter(alpaca, "instruction, input, output", ROW_ENDINGS),
    "preferences": Exporter(
        preferences, "chosen and rejected answers, by a critic or by scores", ROW_ENDINGS
    ),
    "inspect": Exporter(inspect_log, "a log for the viewer of inspect_ai", ENDINGS),
    "dataset": Exporter(dataset, "Parquet files and a card for datasets.load_dataset and the hub", ("",)),
}


def _plugged(plugin: Plugin, part: Any) -> Exporter:
    """Wrap a plug-in's exporter, so that it only gets transcripts that the release allows."""
    if not isinstance(part, Exporter):
        raise plugin.failed(f"must be an Exporter of camel.formats.exporters, not {shown(part)}")

    def write(transcripts: Iterable[Transcript], path: Path, *, release: Release = Release()) -> Exported:  # noqa: B008 - frozen
        return part.write(published(transcripts, release), path, release=release)

    return Exporter(write, part.summary, part.endings)


FORMATS: Registry[Exporter] = Registry("exporters", _OWN, _plugged, kind="format")
"""All export formats by name."""
_OPTIONS = {
    "dataset": {"title", "license", "planned", "language", "input_licenses"},
    "messages": {"seat"},
    "sharegpt": {"seat"},
    "preferences": {"by", "margin", "seat"},
}


def write_format(
    format: str,
    read: Callable[[], Iterable[Transcript]],
    path: Path,
    release: Release,
    split: Mapping[str, float],
    split_by: str = "",
    **options: Any,
) -> Exported:
    """Write the transcripts that `read` returns in a format, with its own `options`.

    With a `split`, `path` becomes a folder with a file per split. The transcripts of a split are those for which a hash of the column `split_by` is in its range. The default is the id, or
    the task for preferences, whose pairs come from conversations of one task. `read` is called once per split.
    """
    exporter = FORMATS.find(format)
    if others := sorted({*options} - _OPTIONS.get(format, set[str]())):
        raise InputError(f"the format '{format}' has no option '{others[0]}'. Remove the option")
    write: Any = partial(exporter.write, release=release, **options)
    if not split:
        return write(read(), path)
    check_shares(split)
    column = split_by or ("task" if format == "preferences" else "id")
    parts = {name: in_split(published(read(), release), name, split, column) for name in split}
    if format == "dataset":
        return write(parts, path)
    ending = ".jsonl" if ".jsonl" in exporter.endings else exporter.endings[0]
    conversations = rows = 0
    with new_folder(path) as folder:
        for name, part in parts.items():
            try:
                written = write(part, folder / f"{name}{ending}")
            except NothingFits:  # a small split may have no row
                written = write([], folder / f"{name}{ending}")
            conversations, rows = conversations + written.conversations, rows + written.rows
        if not rows:
            raise NothingFits(f"no conversation has a row in the format {format}: choose another format")
    return Exported(path, conversations, rows)
