"""Problems with a checkable answer: GSM8K, HumanEval+, and files of your own.

The one decision to know: an answer is reduced to a key, such as `18` or a program without comments. Votes count keys, so that
the same answer in other words is one answer. The expected answer is used only by the check, after all calls.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import re
from collections.abc import Callable, Iterable
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Literal

import msgspec

from camel.core.checks import shown, similar
from camel.core.errors import InputError
from camel.evaluation.humaneval.extract import extract
from camel.evaluation.humaneval.judging import ProgramJudge
from camel.evaluation.humaneval.problems import Problem
from camel.evaluation.humaneval.problems import problems as humaneval_problems

Check = Callable[[str, str], bool]
"""Returns whether an answer, the first argument, is right, given the expected one."""
GSM8K = Path(__file__).parent / "data" / "GSM8K-test.jsonl.gz"
_SLICE = re.compile(r"(?P<name>.+?)(?:\[(?P<start>\d*):(?P<stop>\d*)\])?")
_NUMBER = re.compile(r"-?\$?\d[\d,]*(?:\.\d+)?")
_MARKED = re.compile(r"(?:####|\\boxed\{|answer(?: is|:)?\**:?)\s*\$?(-?[\d,]*\.?\d+)", re.IGNORECASE)


class Exercise(msgspec.Struct, frozen=True):
    """A problem and its expected answer."""

    name: str
    question: str
    answer: str
    kind: Literal["number", "text", "program"]

    @property
    def form(self) -> str:
        """What to write at the end of an answer."""
        if self.kind == "program":
            return "Write the complete function, with its imports, in one Python code block."
        what = "the number" if self.kind == "number" else "the answer"
        return f"End with a line that contains only #### and {what}."

    def key(self, text: str) -> str:
        """Return the answer in a text in a normal form. Empty if there is none."""
        if self.kind == "program":
            program = extract(_program(self.name), text)
            return ast.unparse(ast.parse(program)) if program else ""
        if self.kind == "text":
            return " ".join(text.rsplit("####", 1)[-1].casefold().split()) if "####" in text else ""
        found = _MARKED.findall(text) or _NUMBER.findall(text)
        return _number(found[-1]) if found else ""

    def right(self, key: str, judge: ProgramJudge | None, check: Check | None) -> bool:
        """Return whether an answer, given as its key, is right."""
        if check is not None:
            return bool(key) and check(key, self.answer)
        if self.kind != "program":
            return bool(key) and key == self.key(f"#### {self.answer}")
        assert judge is not None
        return bool(key) and judge.judge(_program(self.name), key).plus


def read_exercises(text: str | Iterable[Exercise]) -> list[Exercise]:
    """Return the problems that a text such as `gsm8k[:200]`, `humaneval+` or `FILE.jsonl[20:40]` names.

    A line of a file has `question` and `answer`, and optionally `name`.
    """
    if not isinstance(text, str):
        return list(text)
    parts = _SLICE.fullmatch(text.strip())
    name = parts["name"] if parts else ""
    if name == "gsm8k":
        found = _rows(gzip.decompress(GSM8K.read_bytes()), "gsm8k")
    elif name == "humaneval+":
        found = [Exercise(one.name, one.prompt.rstrip(), "", "program") for one in humaneval_problems()]
    elif Path(name).is_file():
        found = _rows(Path(name).read_bytes(), Path(name).stem)
    else:
        raise InputError(
            f"there are no problems {shown(name)}{similar(name, ['gsm8k', 'humaneval+'])}. Use gsm8k, humaneval+ or a JSONL "
            "file with question and answer; [:200] selects the first 200"
        )
    start, stop = (int(parts[one]) if parts and parts[one] else None for one in ("start", "stop"))
    if not found[start:stop]:
        raise InputError(f"{text} selects none of {len(found):,} problems")
    return found[start:stop]


class _Row(msgspec.Struct):
    question: str
    answer: str
    name: str = ""


def _rows(data: bytes, name: str) -> list[Exercise]:
    try:
        rows = msgspec.json.Decoder(_Row).decode_lines(data)
    except msgspec.ValidationError as error:
        raise InputError(f"a line of {name} is no problem with question and answer: {error}") from None
    made: list[Exercise] = []
    for place, row in enumerate(rows):
        answer = row.answer.rsplit("####", 1)[-1].strip()
        kind = "number" if _NUMBER.fullmatch(answer) else "text"
        made.append(Exercise(row.name or f"{name}/{place}", row.question.strip(), answer, kind))
    return made


def _number(text: str) -> str:
    try:
        return format(Decimal(text.replace(",", "").replace("$", "")).normalize(), "f")
    except InvalidOperation:
        return ""


def _program(name: str) -> Problem:
    return next(one for one in humaneval_problems() if one.name == name)


def digest(exercises: Iterable[Exercise]) -> str:
    """Return a hash of problems."""
    return hashlib.sha256(msgspec.json.encode(list(exercises))).hexdigest()[:16]
