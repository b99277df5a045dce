"""Writes rows of JSON: one file per document, or one line per row."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from camel.core.errors import InputError
from camel.core.transcript import Transcript
from camel.record.release import Exported, Release, marks, published
from camel.runs.scores import in_ranges
from camel.storage.files import sink

DOCUMENT_ENDINGS = (".tar.gz", ".tgz", ".jsonl", ".jsonl.gz", ".json", ".json.gz", "")
ROW_ENDINGS = (".jsonl", ".jsonl.gz", ".json", ".json.gz")
_encode = msgspec.json.Encoder().encode


class NothingFits(InputError):
    """No conversation has a row in the format."""


def write_rows(
    transcripts: Iterable[Transcript],
    path: Path,
    release: Release,
    rows: Callable[[Transcript], Iterable[dict[str, Any]]],
    endings: tuple[str, ...],
    metadata: bool = True,
) -> Exported:
    """Write the rows of each transcript as JSON, atomically. The ending of the path decides the layout.

    `metadata` is the format's default: whether rows have the key `metadata`, to which a row can add its own.
    """
    conversations = count = 0
    described = metadata if release.metadata is None else release.metadata
    with sink(path, endings) as put:
        for rendered in in_ranges(transcripts, partial(_render, release, rows, described)):
            for id, documents in rendered:
                for document in documents:
                    put(id, document)
                conversations, count = conversations + 1, count + len(documents)
        if conversations and not count:
            raise NothingFits(
                f"none of the {conversations:,} conversations fits this format. Export questions and answers as problems or "
                "alpaca, role plays as chat or instruction, and those with a critic as preferences"
            )
    return Exported(path, conversations, count)


def _render(
    release: Release,
    rows: Callable[[Transcript], Iterable[dict[str, Any]]],
    described: bool,
    transcripts: Iterable[Transcript],
) -> list[tuple[str, list[bytes]]]:
    """Return the id of each transcript to export, and its rows as JSON."""
    rendered: list[tuple[str, list[bytes]]] = []
    for transcript in published(transcripts, release):
        marked = marks(transcript, release)
        about = metadata_of(transcript, release.run) if described else {}
        documents: list[bytes] = []
        for row in rows(transcript):
            more = row.pop("metadata", {})
            documents.append(_encode({**row, **({"metadata": about | more} if about else {}), **marked}))
        rendered.append((transcript.id, documents))
    return rendered


def metadata_of(transcript: Transcript, run: str) -> dict[str, str]:
    """Return the values of a conversation for which a format has no place.

    Their names differ from row to row, and `datasets` needs the same types in all rows: so they are JSON texts.
    """
    scores = {name: score.text or score.value for name, score in transcript.scores.items()}
    named = {"inputs": transcript.inputs, "scores": scores, "result": transcript.result}
    texts = {name: _encode(value).decode() for name, value in named.items()}
    return {"id": transcript.id, "run": run, **texts}
