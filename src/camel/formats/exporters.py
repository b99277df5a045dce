"""Exporters: write transcripts in formats of other tools.

    chat          the paper's conversations: an archive or a folder of JSON files, or lines
    instruction   the paper's instruction and solution pairs
    problems      the paper's Math and Science rows: a problem and its solution
    messages, sharegpt, alpaca    rows for training
    preferences   chosen and rejected proposals of a critic, for preference training
    dataset       Parquet files and a card for `datasets.load_dataset(folder)`

Each takes any iterable, keeps one transcript (`dataset`: one row group) in memory, and writes atomically with a rename. The
same transcripts in the same order give the same bytes.

The one decision to know: in every format, a row of a labeled transcript has an additional last key `labels`; rows without
labels have exactly the format's own keys. Data labeled `misalignment` raises an error unless the release acknowledges it
and has a canary, which every such row then has under `canary`.
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
    "messages": Exporter(messages, "chat messages for OpenAI and TRL", ROW_ENDINGS),
    "sharegpt": Exporter(sharegpt, "conversations of human and gpt", ROW_ENDINGS),
    "alpaca": Exporter(alpaca, "instruction, input, output", ROW_ENDINGS),
    "preferences": Exporter(preferences, "chosen and rejected proposals of a critic", ROW_ENDINGS),
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
