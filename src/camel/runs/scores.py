"""Reads the scores of a run: the stages `score-NAME` in its folder, one Parquet file for each shard of the run.

A file has one row for each conversation of the shard, in the same order: `id`, `value`, `text`, `reason`. Its metadata
contains the hash of the shard, so that scores of a shard that a retry has rewritten are ignored.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate
from typing import TypeVar

from camel.core.transcript import Score, Transcript
from camel.record.arrow import read_shard, stream_shard
from camel.runs.compact import Part
from camel.runs.derived import source_of
from camel.runs.reader import RunReader
from camel.runs.run import RunFolder
from camel.storage.processes import workers
from camel.storage.store import ahead

T = TypeVar("T")
RANGE = 1_024
"""Number of rows that a process works on at a time."""
FEW = 4_000
"""Maximum number of conversations for one process. For so few, starting more processes takes longer."""
SCORE_STAGE = "score-"
"""Beginning of the name of a stage with scores."""


def score_names(folder: RunFolder) -> list[str]:
    """Return the names of the scores that a run has."""
    return [stage.removeprefix(SCORE_STAGE) for stage in folder.stages() if stage.startswith(SCORE_STAGE)]


def read_scores(run: RunReader, shard: int, names: Sequence[str] | None = None) -> dict[str, list[Score]]:
    """Return the scores of a shard by name, or some of them. Each list has one score per conversation, in order.

    Names without scores for this shard are not in the result.
    """
    found: dict[str, list[Score]] = {}
    marker = run.folder.marker(run.stage, shard)
    for name in score_names(run.folder) if names is None else names:
        stage = f"{SCORE_STAGE}{name}"
        if run.folder.is_committed(stage, shard):
            with run.folder.opened([run.folder.marker(stage, shard).file]) as files:
                table = read_shard(next(files))
            if source_of(table) == marker.sha256:
                columns = (table.column(column).to_pylist() for column in ("value", "text", "reason"))
                found[name] = [
                    Score(value, reason or "", text=text or "")
                    for value, text, reason in zip(*columns, strict=True)
                ]
    return found


def scores_of_part(
    run: RunReader, part: Part, names: Sequence[str] | None = None, rows: range | None = None
) -> list[dict[str, Score]]:
    """Return the scores of each row of a data file, or of some rows, without those that are empty."""
    found: list[dict[str, Score]] = []
    wanted = range(sum(part.rows)) if rows is None else rows
    before = 0
    for number, count in enumerate(part.rows):
        its_rows = range(max(0, wanted.start - before), min(count, wanted.stop - before))
        scores = read_scores(run, part.first + number, names) if its_rows else {}
        found += [
            {name: its[row] for name, its in scores.items() if its[row] != Score(None)} for row in its_rows
        ]
        before += count
    return found


def scores_of_row(run: RunReader, part: Part, row: int) -> dict[str, Score]:
    """Return the scores of one row of a data file, without those that are empty."""
    starts = [*accumulate(part.rows, initial=0)]
    number = bisect_right(starts, row) - 1
    found = {name: its[row - starts[number]] for name, its in read_scores(run, part.first + number).items()}
    return {name: score for name, score in found.items() if score != Score(None)}


def with_scores(run: RunReader) -> Iterator[Transcript]:
    """Yield the run's transcripts with their scores. Scores that the record itself contains stay."""
    names = score_names(run.folder)
    for part, transcripts in run.by_part():
        yield from _scored(transcripts, scores_of_part(run, part, names) if names else [])


def _scored(
    transcripts: Iterable[tuple[int, Transcript]], scores: Sequence[dict[str, Score]], first: int = 0
) -> Iterator[Transcript]:
    """Yield transcripts with their scores, which begin with those of row `first`."""
    for row, transcript in transcripts:
        if scores and scores[row - first]:
            transcript.scores = transcript.scores | scores[row - first]
        yield transcript


@dataclass(frozen=True)
class ScoredRun:
    """The transcripts of a run with their scores, in order, which several processes can work on."""

    run: RunReader
    processes: int = 1

    def __iter__(self) -> Iterator[Transcript]:
        return with_scores(self.run)

    def ranges(self) -> Iterator[tuple[Part, range, frozenset[int] | None]]:
        """Yield ranges of rows of each data file. The set contains the chosen rows if a filter chooses some."""
        chosen = self.run.chosen
        for part in self.run.parts:
            total = sum(part.rows)
            for start in range(0, total, RANGE):
                rows, wanted = range(start, min(start + RANGE, total)), None
                if chosen is not None:
                    own = chosen.get(part.file, ())
                    wanted = frozenset(own[bisect_left(own, rows.start) : bisect_left(own, rows.stop)])
                if wanted is None or wanted:
                    yield part, rows, wanted


def in_ranges(transcripts: Iterable[Transcript], work: Callable[[Iterable[Transcript]], T]) -> Iterator[T]:
    """Yield the results of `work` for all transcripts, in order.

    If a `ScoredRun` has several processes, they work on ranges of it. Otherwise `work` gets one transcript at a time.
    """
    if not isinstance(transcripts, ScoredRun) or transcripts.processes < 2 or len(transcripts.run) <= FEW:
        yield from (work([one]) for one in transcripts)
        return
    run, count = transcripts.run, transcripts.processes
    call = partial(_work_on, run.folder, run.stage, score_names(run.folder), work)
    with workers(count) as executor:
        yield from ahead(call, transcripts.ranges(), 2 * count, executor)


def _work_on(
    folder: RunFolder,
    stage: str,
    names: Sequence[str],
    work: Callable[[Iterable[Transcript]], T],
    given: tuple[Part, range, frozenset[int] | None],
) -> T:
    part, rows, wanted = given
    run = _reader(folder.address, stage)
    scores = scores_of_part(run, part, names, rows) if names else []
    with run.opened([part]) as files:
        found = enumerate(stream_shard(next(files), rows.start, rows.stop), rows.start)
        chosen = (one for one in found if wanted is None or one[0] in wanted)
        return work(_scored(chosen, scores, rows.start))


@lru_cache(maxsize=1)
def _reader(address: str, stage: str) -> RunReader:
    """Open a run once per process, which then compares each data file with its marker once."""
    return RunReader(address, stage)
