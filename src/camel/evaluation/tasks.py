"""Draws the tasks of a run that are judged. The same seed gives the same tasks, and a larger sample contains a smaller one.

The one decision to know: conversations are ordered by a hash of the seed and their id. This order does not depend on files
or on the size of the sample, so that a sample can grow later without repeating any paid call.
"""

from __future__ import annotations

import hashlib
import heapq
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from camel.core.errors import InputError
from camel.core.stops import EXCLUDED
from camel.core.transcript import Transcript
from camel.record.arrow import read_shard, stream_shard
from camel.record.release import RESTRICTED
from camel.runs.reader import RunReader


class Drawn(NamedTuple):
    """A task, and the conversations of one or more runs about it."""

    id: str
    text: str
    """The specified task. If the runs have specified it differently, the original task."""
    labels: tuple[str, ...]
    transcripts: dict[str, Transcript]
    """The conversations about the task, by the name of the run's system."""


class DrawnTasks(NamedTuple):
    """The tasks of a run, in the order in which they were drawn."""

    tasks: list[Drawn]
    of: int
    """Number of conversations from which the tasks were drawn."""
    excluded: int
    """Number of conversations excluded because they have a restricted label that is not acknowledged."""
    empty: int
    """Number of conversations excluded because they have no messages or failed."""
    specified: bool = True
    """Whether the texts are the specified tasks. If runs differ in one of them, all texts are the original tasks."""


def draw_tasks(
    runs: Mapping[str, RunReader], count: int, *, seed: int = 0, acknowledge: Collection[str] = ()
) -> DrawnTasks:
    """Draw `count` tasks of the first run. Each has its conversations in all runs, by the name of the run's system.

    Raises an `InputError` if another run lacks a task or has a different one, because the comparison would not be fair.
    """
    (name, first), *others = runs.items()
    closed = RESTRICTED.difference(acknowledge)
    places: list[tuple[bytes, int, int]] = []
    of = excluded = empty = 0
    for part, columns in _scanned(first, ["id", "labels", "messages.list.element.index", "stop.reason"]):
        sizes = columns["messages"].combine_chunks().value_lengths().to_pylist()
        reasons = columns["stop"].combine_chunks().field("reason").to_pylist()
        rows = zip(columns["id"].to_pylist(), columns["labels"].to_pylist(), sizes, reasons, strict=True)
        chosen = None if first.chosen is None else {*first.chosen[first.parts[part].file]}
        for row, (id, labels, size, reason) in enumerate(rows):
            if chosen is not None and row not in chosen:
                continue
            if closed.intersection(labels or ()):
                excluded += 1
            elif not size or reason in EXCLUDED:
                empty += 1
            else:
                of += 1
                drawn = hashlib.blake2b(f"{seed} {id}".encode("utf-8", "replace"), digest_size=16).digest()
                places.append((drawn, part, row))
        places = heapq.nsmallest(count, places)
    found = _read(first, [(part, row) for _, part, row in places])
    also = {system: _by_id(run, {one.id for one in found}) for system, run in others}
    # A failed conversation shows nothing about the agents, so its task is skipped.
    found = [
        one
        for one in found
        if not any(one.id in theirs and theirs[one.id].excluded for theirs in also.values())
    ]
    matched: list[dict[str, Transcript]] = []
    for one in found:
        matched.append({name: one})
        for system, theirs in also.items():
            run, other = runs[system].folder.address, theirs.get(one.id)
            if other is None or other.task.original != one.task.original or not other.messages:
                raise InputError(
                    f"'{run}' cannot be compared with '{first.folder.address}', because it lacks the task of '{one.id}': compare "
                    "runs with the same tasks"
                )
            if closed.intersection(other.labels):
                raise InputError(
                    f"'{one.id}' of '{run}' is restricted: add --acknowledge {shlex.quote(other.labels[0])}"
                )
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


def _scanned(run: RunReader, columns: Sequence[str]) -> Iterator[tuple[int, Any]]:
    """Yield the given columns of each file of a run. Only one file is in memory at a time."""
    with run.folder.opened(part.file for part in run.parts) as files:
        for part, file in enumerate(files):
            yield part, read_shard(file, columns)


def _read(run: RunReader, places: Sequence[tuple[int, int]]) -> list[Transcript]:
    """Return the conversations at the given parts and rows, in the order of `places`. Each file is opened once."""
    rows: dict[int, list[int]] = {}
    for part, row in places:
        rows.setdefault(part, []).append(row)
    found: dict[tuple[int, int], Transcript] = {}
    parts = sorted(rows)
    with run.opened([run.parts[part] for part in parts]) as files:
        for part, file in zip(parts, files, strict=True):
            for row in sorted(rows[part]):
                found[part, row] = next(stream_shard(file, row, row + 1))
    return [found[place] for place in places]


def _by_id(run: RunReader, ids: Collection[str]) -> dict[str, Transcript]:
    places = [
        (part, row)
        for part, columns in _scanned(run, ["id"])
        for row, id in enumerate(columns["id"].to_pylist())
        if id in ids
    ]
    return {one.id: one for one in _read(run, places)}
