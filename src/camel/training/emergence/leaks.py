"""Finds training rows that contain test questions, because memorized answers would look like progress."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from camel.evaluation.overlap import ExamQuestion, ExamQuestions
from camel.evaluation.tasks import Drawn
from camel.storage.files import replacing
from camel.training.stored_rows import Rows


def leaks(rows: Sequence[str], tasks: Mapping[str, Sequence[Drawn]], kept: Path) -> dict[str, int]:
    """Count the training rows that contain a question, by domain. The result is cached in the folder `kept`."""
    opened = [Rows(path) for path in rows]
    asked = {name: [one.text for one in some] for name, some in tasks.items()}
    inputs = [[marker.sha256 for one in opened for marker in one.markers], asked]
    path = kept / f"leaks-{hashlib.sha256(msgspec.json.encode(inputs)).hexdigest()[:16]}.json"
    if path.is_file():
        return msgspec.json.decode(path.read_bytes(), type=dict[str, int])
    questions = ExamQuestions(ExamQuestion(name, (text,)) for name, texts in asked.items() for text in texts)
    found: Counter[str] = Counter()
    for one in opened:
        for group in one.groups():
            found.update(questions.names[place] for place in questions.found_in(group).values())
    kept.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(msgspec.json.encode(found, order="sorted"))
    return dict(found)
