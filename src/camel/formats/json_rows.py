"""Writes rows of JSON: one file per document, or one line per row."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from camel.core.errors import InputError
from camel.core.transcript import Transcript
from camel.record.release import Exported, Release, marks, published
from camel.storage.files import sink

DOCUMENT_ENDINGS = (".tar.gz", ".tgz", ".jsonl", ".jsonl.gz", ".json", ".json.gz", "")


ROW_ENDINGS = (".jsonl", ".jsonl.gz", ".json", ".json.gz")


_encode = msgspec.json.Encoder().encode


def write_rows(
    transcripts: Iterable[Transcript],
    path: Path,
    release: Release,
    rows: Callable[[Transcript], Iterable[dict[str, Any]]],
    endings: tuple[str, ...],
) -> Exported:
    """Write the rows of each transcript as JSON, atomically. The ending of the path decides the layout."""
    conversations = count = 0
    with sink(path, endings) as put:
        for transcript in published(transcripts, release):
            marked = marks(transcript, release)
            conversations += 1
            for row in rows(transcript):
                put(transcript.id, _encode({**row, **marked} if marked else row))
                count += 1
        if conversations and not count:
            raise InputError(
                f"none of the {conversations:,} conversations fits this format. Export questions and answers as problems or "
                "alpaca, role plays as chat or instruction, and those with a critic as preferences"
            )
    return Exported(path, conversations, count)
