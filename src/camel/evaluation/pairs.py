"""The files of an evaluation that judges, voters and reports share: pairs of solutions, and verdicts on them.

    pairs.jsonl       one `Pair` per line: two solutions of a task
    verdicts.jsonl    one `PairVerdict` per line: the verdict of a judge or a person, from both orders

The one decision to know: `a` and `b` name the two solutions, not their positions on a screen. Wins are always reported for
`system_a`. Code that shows a pair must choose the order at random, hide the systems' names, and record the verdict in terms
of `a` and `b`. All texts come from models, so never trust them as HTML or as part of a prompt.
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
    """Id of the pair, unique in the file. A repeated evaluation gives a pair the same id."""
    task: str
    system_a: str
    text_a: str
    system_b: str
    text_b: str
    labels: tuple[str, ...] = ()
    """Restricted labels of the conversation, e.g. `misalignment`. Every copy must keep them."""
    group: str = ""
    """The row of the results in which the pair counts, usually the scenario, e.g. `ai_society`."""
    source: str = ""
    """Id of the conversation that the pair comes from."""


class PairVerdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """The verdict of one judge or voter on one pair."""

    pair: str
    """Id of the pair."""
    judge: str
    """Name of the model or of the voter."""
    winner: Winner | None
    """The winner. None if undecided, which is not counted."""
    reason: str = ""
    score_a: float | None = None
    score_b: float | None = None
    first: Winner | None = None
    """Winner when `a` was shown first. If it differs from `second`, the pair is a `draw`."""
    second: Winner | None = None
    """Winner when `b` was shown first."""
    kind: Literal["judge", "human"] = "judge"


Row = TypeVar("Row", Pair, PairVerdict)


def read_pairs(folder: Path) -> list[Pair]:
    """Read the pairs from an evaluation's folder or from a file. Raises an `InputError` if the file cannot be read."""
    path = inside.path(folder, PAIRS) if folder.is_dir() else folder
    pairs = _read(path, Pair)
    if len({pair.id for pair in pairs}) != len(pairs):
        twice = next(one.id for place, one in enumerate(pairs) if one.id in {p.id for p in pairs[:place]})
        raise InputError(f"{path}: two pairs have the id {shown(twice)}; each id must be unique")
    return pairs


def write_pairs(folder: Path, pairs: Iterable[Pair]) -> Path:
    """Write the pairs atomically, and return the path of the file."""
    return _write(folder / PAIRS, pairs)


def read_verdicts(folder: Path) -> list[PairVerdict]:
    """Read the verdicts from an evaluation's folder or from a file."""
    return _read(inside.path(folder, VERDICTS) if folder.is_dir() else folder, PairVerdict)


def write_verdicts(folder: Path, verdicts: Iterable[PairVerdict]) -> Path:
    """Write the verdicts atomically, and return the path of the file."""
    return _write(folder / VERDICTS, verdicts)


def _read(path: Path, kind: type[Row]) -> list[Row]:
    rows: list[Row] = []
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(
            f"cannot read '{path}': {error.strerror}; `camel evaluate agents RUN` creates it"
        ) from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                rows.append(msgspec.json.decode(line, type=kind))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise InputError(f"'{path}', line {number}: {error}") from None
    return rows


def _write(path: Path, rows: Iterable[Pair] | Iterable[PairVerdict]) -> Path:
    with sink(path, (".jsonl",)) as put:
        for number, row in enumerate(rows):
            put(str(number), msgspec.json.encode(row))
    return path
