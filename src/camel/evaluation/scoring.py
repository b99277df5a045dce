"""The job behind `camel score`: adds columns of scores to a run.

Each column is a stage `score-NAME` in the run's own folder, with one file for each shard of the run: `id`, `value`, `text`
and `reason` of every conversation. The next call scores only new shards, and those that a retry has rewritten.

The one decision to know: row k of shard s is item `s * SPACING + k`. So the numbers stay the same when shards are committed
in another order, or when later shards have another size.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache, partial
from math import fsum
from pathlib import Path
from typing import Any

import msgspec

from camel.core.checks import shown
from camel.core.errors import CamelError, InputError
from camel.core.history import estimate_tokens
from camel.core.message import Usage, well_formed
from camel.core.model import Model
from camel.core.transcript import Score, Transcript
from camel.engine.stage import Written
from camel.evaluation.scorers import Scorer
from camel.jobs.item import Item
from camel.jobs.job import Job, Stage
from camel.models.spec import ModelSpec
from camel.record.parquet import arrow, write_batches
from camel.runs.derived import forget_outdated, outdated_rows, schema_with_source, valid_shards
from camel.runs.reader import RunReader
from camel.runs.run import RunFolder
from camel.runs.scores import SCORE_STAGE, read_scores

SPACING = 2**20
"""Distance between the numbers of the first items of two consecutive shards."""
CACHED = 2_048
"""Number of conversations in memory, at least one shard of them."""
FAILED = "failed: "
"""Beginning of the reason of a score that failed."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,59}")
_SCORED, _SUM, _WORD = "score.scored", "score.sum", "score.word."
_MOST_WORDS = 50


class ScoreColumn(msgspec.Struct, frozen=True):
    """The figures of a column of scores."""

    name: str
    scored: int
    missing: int
    """Number of conversations without a score: excluded ones, and those whose scoring failed."""
    mean: float | None
    """The mean of the scores. For scores that are true or false, this is the share of true ones."""
    words: dict[str, int] = {}
    """For scores that are words: how often each occurs, most frequent first."""


@cache
def schema() -> Any:
    """Return the Arrow schema of a file of scores."""
    pa = arrow()
    return pa.schema(
        [("id", pa.string()), ("value", pa.float64()), ("text", pa.string()), ("reason", pa.string())]
    )


@dataclass(frozen=True)
class ScoreJob(Job):
    """A job that scores the conversations of a run."""

    name = "score"
    log = "score.jsonl"
    run: str
    """The run's folder or address."""
    scorers: Mapping[str, Scorer]
    """The scorers by the names of their columns."""
    replace: bool = False
    """Whether to replace paid scores of another rubric or model. Free ones are always replaced."""
    place: str = field(init=False)
    models: Mapping[str, Model | ModelSpec] = field(init=False)

    def __post_init__(self) -> None:
        for name in self.scorers:
            if not _NAME.fullmatch(name):
                raise InputError(
                    f"the name of a score must be letters, digits and underscores, not {shown(name)}: choose another name"
                )
        if not self.scorers:
            raise InputError("there is nothing to score: name at least one scorer")
        object.__setattr__(self, "place", self.run)
        models = {name: one.model for name, one in self.scorers.items() if one.model is not None}
        object.__setattr__(self, "models", models)

    def open(self, accept: Collection[str] = ()) -> RunFolder:
        """Open the run's folder. Raise an `InputError` if the run has no conversations yet."""
        if unknown := sorted(set(accept) - {"model.name"}):
            raise InputError(f"--accept-change must be model.name, not {unknown[0]!r}")
        run = RunReader(self.run)
        run.need_some()
        return run.folder

    def outline(self, run: RunFolder) -> Sequence[Stage]:
        """Return all stages. Scores of rewritten shards, and free ones of a changed scorer, are removed before."""
        stages: list[Stage] = []
        for name, scorer in self.scorers.items():
            stage = SCORE_STAGE + name
            self._remove_changed(run, stage, name, scorer)
            scored = valid_shards(run, stage, self._scored.reader)
            scorer.prepare(self._scored.reader, scored)
            stages.append(self._scored.stage(stage, name, scorer))
        return stages

    def _remove_changed(self, run: RunFolder, stage: str, name: str, scorer: Scorer) -> None:
        begun, wanted = run.begun_with(stage), msgspec.to_builtins(scorer.identity)
        differs = [key for key in wanted if begun and begun.get(key) != wanted[key]]
        there = run.committed(stage) | run.open_shards(stage)
        if not differs or not there:
            return
        if scorer.model is not None and not self.replace:
            if differs == ["model"]:
                return  # the runner asks whether the change is accepted
            raise InputError(
                f"score.{name} was made with another {differs[0]}: choose another name for the column, or replace its scores "
                "with --force (in Python: replace=True)"
            )
        run.remove_shards(stage, there)
        forget_outdated(run, stage)

    def result(self, run: RunFolder) -> list[ScoreColumn]:
        """Return the figures of the columns, from the totals in their markers."""
        return [column_of(run, name) for name in self.scorers]

    def estimate(self) -> dict[str, Usage]:
        """Estimate the usage of each scorer with a model, from some prompts and answers of 50 tokens."""
        run, found = self._scored.reader, dict[str, Usage]()
        for name, scorer in self.scorers.items():
            done = run.folder.committed(SCORE_STAGE + name)
            left = [marker for marker in run.markers if marker.shard not in done]
            if scorer.rubric and (calls := sum(marker.rows for marker in left)):
                some = self._scored.shard(left[0].shard)[:20]
                sizes = [estimate_tokens(scorer.rubric.question(one)) for one in some]
                # `estimate_tokens` assumes three bytes per token, which is about 25% too many tokens.
                prompt = calls * sum(sizes) * 4 // (5 * len(sizes))
                found[name] = Usage(prompt, 50 * calls, calls=calls)
        return found

    @cached_property
    def _scored(self) -> _ScoredRun:
        return _ScoredRun(RunReader(self.run))

    @property
    def title(self) -> str:
        """The run and the columns."""
        return f"{Path(self.run).name}: {', '.join(self.scorers)}"


class _ScoredRun:
    """A run's conversations, and the stages that score them."""

    def __init__(self, reader: RunReader) -> None:
        self.reader = reader
        self._places = {marker.shard: place for place, marker in enumerate(reader.markers)}
        largest = max((marker.rows for marker in reader.markers), default=1)
        self.shard = lru_cache(maxsize=max(2, CACHED // max(1, largest)))(self._read)
        self._earlier = lru_cache(maxsize=8)(partial(outdated_rows, reader.folder))

    def _read(self, shard: int) -> list[Transcript]:
        return self.reader.shard(self._places[shard])

    def _transcript(self, index: int) -> Transcript:
        return self.shard(index // SPACING)[index % SPACING]

    def stage(self, stage: str, name: str, scorer: Scorer) -> Stage:
        """Return the stage of one column."""
        markers = self.reader.markers
        return Stage(
            name=stage,
            count=SPACING * (max(marker.shard for marker in markers) + 1),
            work=partial(self._work, name, scorer),
            write=partial(self._write, scorer),
            failed=_failed,
            failure=_why_failed,
            id=lambda index: self._transcript(index).id,
            read=lambda marker: read_scores(self.reader, marker.shard, [name])[name],
            identity=scorer.identity,
            seat=name if scorer.model is not None else "",
            shard_size=SPACING,
            items={
                marker.shard: range(marker.shard * SPACING, marker.shard * SPACING + marker.rows)
                for marker in markers
            },
        )

    async def _work(self, name: str, scorer: Scorer, item: Item) -> Score | None:
        if scorer.item is None:
            return None  # the shard is scored when it is written
        transcript = self._transcript(item.index)
        if scorer.model is not None:  # a rewritten shard has conversations that were already rated
            earlier = self._earlier(SCORE_STAGE + name, item.index // SPACING).get(transcript.id)
            if earlier and (earlier["value"] is not None or earlier["text"]):
                return Score(earlier["value"], earlier["reason"] or "", text=earlier["text"] or "")
        return _excluded(transcript) or await scorer.item(item, name, transcript)

    def _write(self, scorer: Scorer, path: Path, records: Sequence[Score | None]) -> Written:
        shard = int(path.name.partition("-")[0])
        transcripts = self.shard(shard)
        scores = [one for one in records if one is not None]
        if scorer.shard is not None:
            made = scorer.shard(transcripts, shard)
            scores = [_excluded(one) or score for one, score in zip(transcripts, made, strict=True)]
        columns = {
            "id": [one.id for one in transcripts],
            "value": [one.value for one in scores],
            "text": [one.text for one in scores],
            "reason": [well_formed(one.reason) for one in scores],
        }
        layout = schema_with_source(schema(), self.reader.markers[self._places[shard]].sha256)
        batch = arrow().RecordBatch.from_pydict(columns, schema=layout)
        written = write_batches(path, [batch], layout)
        return Written(written.rows, written.sha256, _totals(scores))


def _totals(scores: Iterable[Score]) -> dict[str, float]:
    values = [one.value for one in scores if one.value is not None]
    words = Counter(one.text for one in scores if one.text)
    totals = {_SCORED: float(sum(one.value is not None or bool(one.text) for one in scores))}
    if values:
        totals[_SUM] = fsum(values)
    return totals | {f"{_WORD}{word[:60]}": float(n) for word, n in words.most_common(_MOST_WORDS)}


def column_of(run: RunFolder, name: str) -> ScoreColumn:
    """Return the figures of a column of scores from its markers."""
    sums: Counter[str] = Counter()
    rows = 0
    for marker in run.markers(SCORE_STAGE + name, sorted(run.committed(SCORE_STAGE + name))):
        rows += marker.rows
        sums.update(marker.totals)  # pyright: ignore[reportArgumentType] - numbers of any kind
    scored = int(sums[_SCORED])
    words = Counter({key.removeprefix(_WORD): int(n) for key, n in sums.items() if key.startswith(_WORD)})
    mean = sums[_SUM] / scored if scored and _SUM in sums else None
    return ScoreColumn(name, scored, rows - scored, mean, dict(words.most_common()))


def _excluded(transcript: Transcript) -> Score | None:
    """Return the empty score of an excluded conversation. Return None for any other conversation."""
    if transcript.stop is None or not transcript.excluded:
        return None
    return Score(None, f"not scored: the conversation ended with {transcript.stop.reason}")


def _failed(item: Item, error: CamelError) -> Score:
    return Score(None, f"{FAILED}{type(error).__name__}: {error}"[:500])


def _why_failed(record: Score | None) -> str:
    failed = record is not None and record.value is None and record.reason.startswith(FAILED)
    return record.reason.removeprefix(FAILED) if record is not None and failed else ""
