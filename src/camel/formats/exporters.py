"""Exporters: transcripts in the formats that other people's code reads.

    chat          the original's conversations: an archive or a folder of JSON files, or lines
    instruction   the original's instruction and solution pairs
    problems      the original's Math and Science rows: a problem and its solution
    messages, sharegpt, alpaca    rows for training
    preferences   what a critic chose and what it did not, for training by preference
    dataset       Parquet files and a card; `datasets.load_dataset(folder)` opens it

Each takes any iterable, holds one transcript (`dataset`: one row group) at a time, and puts the result in its place
with a rename, so a file that is there is whole. The same transcripts in the same order give the same bytes.

The one decision to know: a row made from a transcript with labels carries them under an additional last key `labels`,
whatever the format; rows without labels have exactly the format's own keys. What is labeled `misalignment` is
refused unless the release acknowledges it and names a canary, which every such row then has under `canary`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from camel.core.checks import shown
from camel.core.plugins import Plugin, Registry
from camel.core.transcript import Transcript
from camel.formats.conversation import alpaca, messages, sharegpt
from camel.formats.dataset import dataset
from camel.formats.inspect_log import ENDINGS, inspect_log
from camel.formats.json_rows import DOCUMENT_ENDINGS, ROW_ENDINGS
from camel.formats.original import chat, instruction, problems
from camel.formats.preferences import preferences
from camel.record.release import Exported, Release, published


class Write(Protocol):
    """Writes transcripts to a path in one format."""

    def __call__(self, transcripts: Iterable[Transcript], path: Path, *, release: Release = ...) -> Exported:
        """Write all of `transcripts`, or nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Exporter:
    """A format, as a list of formats shows it."""

    write: Write
    summary: str
    endings: tuple[str, ...]
    """How a path may end; the empty ending is a folder."""


_OWN = {
    "chat": Exporter(chat, "the original's conversations, one JSON object each", DOCUMENT_ENDINGS),
    "instruction": Exporter(instruction, "the original's instruction and solution pairs", ROW_ENDINGS),
    "problems": Exporter(
        problems, "the original's Math and Science problems and solutions", DOCUMENT_ENDINGS
    ),
    "messages": Exporter(messages, "chat messages as OpenAI and TRL read them", ROW_ENDINGS),
    "sharegpt": Exporter(sharegpt, "conversations of human and gpt", ROW_ENDINGS),
    "alpaca": Exporter(alpaca, "instruction, input, output", ROW_ENDINGS),
    "preferences": Exporter(preferences, "a critic's choices and what they were preferred to", ROW_ENDINGS),
    "inspect": Exporter(inspect_log, "a log for the viewer of inspect_ai", ENDINGS),
    "dataset": Exporter(dataset, "Parquet files and a card for datasets.load_dataset and the hub", ("",)),
}


def _plugged(plugin: Plugin, part: Any) -> Exporter:
    """A plug-in's exporter. What it is not meant to see does not reach it: the gate is ours, whatever it writes."""
    if not isinstance(part, Exporter):
        raise plugin.failed(f"must be an Exporter of camel.formats.exporters, not {shown(part)}")

    def write(transcripts: Iterable[Transcript], path: Path, *, release: Release = Release()) -> Exported:  # noqa: B008 - frozen
        return part.write(published(transcripts, release), path, release=release)

    return Exporter(write, part.summary, part.endings)


FORMATS: Registry[Exporter] = Registry("exporters", _OWN, _plugged, kind="format")
"""Every format by its name on the command line."""
