"""Pairs of solutions to the same task, and what was said of them: the files between a judge, voters and a report.

    pairs.jsonl       one `Pair` a line: what is compared
    verdicts.jsonl    one `PairVerdict` a line: what a judge (or a person) found, both orders taken together

The one decision to know: `a` and `b` are names of the two solutions, not places on a screen. `system_a` is the one whose
wins are reported, always; whoever shows a pair draws the order anew, shows no system's name, and writes its verdict
down in terms of `a` and `b`. All texts are a model's: never trust them as HTML or as part of a prompt.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.storage import inside
from camel.storage.files import sink

PAIRS, VERDICTS = "pairs.jsonl", "verdicts.jsonl"
Winner = Literal["a", "b", "draw"]
WINNERS: tuple[Winner, ...] = ("a", "b", "draw")


class Pair(msgspec.Struct, frozen=True, omit_defaults=True):
    """Two solutions of one task."""

    id: str
    """Unique in its file, and the same whenever the same evaluation is made again."""
    task: str
    system_a: str
    text_a: str
    system_b: str
    text_b: str
    labels: tuple[str, ...] = ()
    """Marks of the conversation that travel with every copy, e.g. `misalignment`."""
    group: str = ""
    """The row of the table that it counts in, mostly the scenario, e.g. `ai_society`."""
    source: str = ""
    """The conversation it was made from, as its run calls it."""


class PairVerdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one judge found of one pair."""

    pair: str
    """The pair's id."""
    judge: str
    """A model's name, or a voter's."""
    winner: Winner | None
    """None: it did not decide, and counts nowhere."""
    reason: str = ""
    score_a: float | None = None
    score_b: float | None = None
    first: Winner | None = None
    """What it found when `a` was shown first; where that differs from `second`, the winner is `draw`."""
    second: Winner | None = None
    """What it found when `b` was shown first."""
    kind: Literal["judge", "human"] = "judge"


Row = TypeVar("Row", Pair, PairVerdict)


def read_pairs(folder: Path) -> list[Pair]:
    """The pairs of an evaluation's folder (or of a file), in their order; raises an `InputError` where there are none."""
    path = inside.path(folder, PAIRS) if folder.is_dir() else folder
    pairs = _read(path, Pair)
    if len({pair.id for pair in pairs}) != len(pairs):
        twice = next(one.id for place, one in enumerate(pairs) if one.id in {p.id for p in pairs[:place]})
        raise InputError(f"{path}: two pairs have the id {shown(twice)}")
    return pairs


def write_pairs(folder: Path, pairs: Iterable[Pair]) -> Path:
    """Write the pairs, all or none."""
    return _write(folder / PAIRS, pairs)


def read_verdicts(folder: Path) -> list[PairVerdict]:
    """The verdicts of an evaluation's folder (or of a file)."""
    return _read(inside.path(folder, VERDICTS) if folder.is_dir() else folder, PairVerdict)


def write_verdicts(folder: Path, verdicts: Iterable[PairVerdict]) -> Path:
    """Write the verdicts, all or none."""
    return _write(folder / VERDICTS, verdicts)


def _read(path: Path, kind: type[Row]) -> list[Row]:
    rows: list[Row] = []
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}; `camel evaluate agents RUN` makes it"
        ) from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                rows.append(msgspec.json.decode(line, type=kind))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise InputError(f"{path}, line {number}: {error}") from None
    return rows


def _write(path: Path, rows: Iterable[Pair] | Iterable[PairVerdict]) -> Path:
    with sink(path, (".jsonl",)) as put:
        for number, row in enumerate(rows):
            put(str(number), msgspec.json.encode(row))
    return path
