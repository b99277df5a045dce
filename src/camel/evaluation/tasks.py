"""Which tasks of a run are judged: drawn by a seed, the same ones each time, and a larger sample holds the smaller one.

The one decision to know: what is drawn is a hash of the seed and the conversation's id. No order of files and no size of
the sample changes who comes first, so that a sample can grow later and nothing that was paid for is asked again.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from camel.core.errors import InputError
from camel.core.transcript import Transcript
from camel.record.arrow import read_shard, stream_shard
from camel.record.release import RESTRICTED
from camel.runs.reader import RunReader


class Drawn(NamedTuple):
    """A task, and the conversations of one or several runs about it."""

    id: str
    text: str
    """What a solution is to solve: the specified task, or the original where runs have specified it differently."""
    labels: tuple[str, ...]
    transcripts: dict[str, Transcript]
    """By the name of the system that a run stands for."""


class DrawnTasks(NamedTuple):
    """The tasks of a run, in the order in which they were drawn."""

    tasks: list[Drawn]
    of: int
    """Conversations that they were drawn from."""
    excluded: int
    """Conversations left out for a label that was not acknowledged."""
    empty: int
    """Conversations left out because nothing was said in them, or they failed."""
    specified: bool = True
    """Whether the tasks are as specified; where runs differ in that, all of them are the original ones."""


class _Place(NamedTuple):
    draw: bytes
    part: int
    row: int


def draw_tasks(
    runs: Mapping[str, RunReader], count: int, *, seed: int = 0, acknowledge: Collection[str] = ()
) -> DrawnTasks:
    """Draw `count` tasks of the first run, with what each of the runs, by the names of their systems, has to say on it.

    A task that another run does not have, or has otherwise, is an error: they would not be compared on the same thing.
    """
    (name, first), *others = runs.items()
    closed = RESTRICTED.difference(acknowledge)
    places: list[_Place] = []
    of = excluded = empty = 0
    for part, columns in _scanned(first, ["id", "labels", "messages.list.element.index", "stop.reason"]):
        sizes = columns["messages"].combine_chunks().value_lengths().to_pylist()
        reasons = columns["stop"].combine_chunks().field("reason").to_pylist()
        rows = zip(columns["id"].to_pylist(), columns["labels"].to_pylist(), sizes, reasons, strict=True)
        for row, (id, labels, size, reason) in enumerate(rows):
            if closed.intersection(labels or ()):
                excluded += 1
            elif not size or reason == "error":
                empty += 1
            else:
                of += 1
                places.append(_Place(_draw(seed, id), part, row))
        places = heapq.nsmallest(count, places)
    found = _read(first, places)
    also = {system: _by_id(run, {one.id for one in found}) for system, run in others}
    # What failed in one of the runs says nothing about its agents.
    found = [
        one
        for one in found
        if not any(one.id in theirs and theirs[one.id].failed for theirs in also.values())
    ]
    matched: list[dict[str, Transcript]] = []
    for one in found:
        matched.append({name: one})
        for system, theirs in also.items():
            run, other = runs[system].folder.address, theirs.get(one.id)
            if other is None or other.task.original != one.task.original or not other.messages:
                raise InputError(
                    f"{run} cannot be compared with {first.folder.address}: it does not have the task of {one.id}"
                )
            if closed.intersection(other.labels):
                raise InputError(f"{one.id} of {run} is labelled {', '.join(other.labels)}: acknowledge it")
            matched[-1][system] = other
    specified = all(len({other.task.text for other in same.values()}) == 1 for same in matched)
    tasks = [
        Drawn(
            one.id,
            one.task.text if specified else one.task.original,
            tuple(sorted({label for other in same.values() for label in other.labels})),
            same,
        )
        for one, same in zip(found, matched, strict=True)
    ]
    return DrawnTasks(tasks, of, excluded, empty, specified)


def _draw(seed: int, id: str) -> bytes:
    return hashlib.blake2b(f"{seed} {id}".encode("utf-8", "replace"), digest_size=16).digest()


def _scanned(run: RunReader, columns: Sequence[str]) -> Iterator[tuple[int, Any]]:
    """Some columns of each file, one file in memory at a time."""
    with run.folder.opened(part.file for part in run.parts) as files:
        for part, file in enumerate(files):
            yield part, read_shard(file, columns)


def _read(run: RunReader, places: Sequence[_Place]) -> list[Transcript]:
    """The conversations at some places, in the order of `places`; each file is opened once."""
    rows: dict[int, list[int]] = {}
    for place in places:
        rows.setdefault(place.part, []).append(place.row)
    found: dict[tuple[int, int], Transcript] = {}
    parts = sorted(rows)
    with run.opened([run.parts[part] for part in parts]) as files:
        for part, file in zip(parts, files, strict=True):
            for row in sorted(rows[part]):
                found[part, row] = next(stream_shard(file, row, row + 1))
    return [found[place.part, place.row] for place in places]


def _by_id(run: RunReader, ids: Collection[str]) -> dict[str, Transcript]:
    places = [
        _Place(b"", part, row)
        for part, columns in _scanned(run, ["id"])
        for row, id in enumerate(columns["id"].to_pylist())
        if id in ids
    ]
    return {one.id: one for one in _read(run, places)}
