"""Reads the scores of a run: the stages `score-NAME` in its folder, one Parquet file for each shard of the run.

A file has one row for each conversation of the shard, in the same order: `id`, `value`, `text`, `reason`. Its metadata
contains the hash of the shard, so that scores of a shard that a retry has rewritten are ignored.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from camel.core.transcript import Score, Transcript
from camel.record.arrow import read_shard
from camel.runs.compact import Part
from camel.runs.derived import source_of
from camel.runs.reader import RunReader
from camel.runs.run import RunFolder

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


def scores_of_part(run: RunReader, part: Part, names: Sequence[str] | None = None) -> list[dict[str, Score]]:
    """Return the scores of each row of a data file, without those that are empty."""
    rows: list[dict[str, Score]] = []
    for number, count in enumerate(part.rows):
        scores = read_scores(run, part.first + number, names) if count else {}
        rows += [
            {name: its[row] for name, its in scores.items() if its[row] != Score(None)}
            for row in range(count)
        ]
    return rows


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
        scores = scores_of_part(run, part, names) if names else []
        for row, transcript in transcripts:
            if names and scores[row]:
                transcript.scores = transcript.scores | scores[row]
            yield transcript
