"""An exporter: transcripts in, a file out. `write_rows` does the files, the labels and the canaries."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from camel import Transcript
from camel.formats.exporters import Exporter
from camel.formats.json_rows import ROW_ENDINGS, write_rows
from camel.record.release import Exported, Release


def rows(transcript: Transcript) -> Iterator[dict[str, Any]]:
    """What was asked for, without what was answered."""
    for message in transcript.messages:
        if message.move.instruction:
            yield {"id": transcript.id, "role": message.role, "question": message.move.instruction}


def questions(transcripts: Iterable[Transcript], path: Path, *, release: Release = Release()) -> Exported:  # noqa: B008
    """One row for each instruction."""
    return write_rows(transcripts, path, release, rows, ROW_ENDINGS)


QUESTIONS = Exporter(questions, "the instructions alone", ROW_ENDINGS)
