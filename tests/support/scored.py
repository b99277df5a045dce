"""A run with inputs, scores and findings, for filter expressions."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from camel.core.transcript import Score, Transcript
from camel.record.parquet import arrow, write_batches
from camel.runs.derived import schema_with_source
from camel.runs.markers import Marker, new_attempt
from camel.runs.run import RunFolder, open_folder
from camel.runs.scores import SCORE_STAGE
from camel.runs.settings import Settings
from tests.support.societies import STAGE, commit, transcript


def store_scores(
    folder: RunFolder, name: str, shard: int, ids: Sequence[str], scores: Iterable[Score]
) -> None:
    """Store scores of a shard as `camel score` does."""
    pa, given = arrow(), list(scores)
    fields = [("id", pa.string()), ("value", pa.float64()), ("text", pa.string()), ("reason", pa.string())]
    layout = schema_with_source(pa.schema(fields), folder.marker(STAGE, shard).sha256)
    columns = [list(ids), *([getattr(one, field) for one in given] for field in ("value", "text", "reason"))]
    arrays = [pa.array(values, kind) for values, (_, kind) in zip(columns, fields, strict=True)]
    stage = f"{SCORE_STAGE}{name}"
    path = folder.data_path(stage, shard, new_attempt(), ".parquet")
    written = write_batches(path, [pa.RecordBatch.from_arrays(arrays, schema=layout)], layout)
    file, size = folder.persist(path)
    assert folder.commit(Marker(stage, shard, file, written.rows, written.sha256, "f", {}, size))


def scored_run(where: str | Path, rows: int = 60, size: int = 7, *, index: bool = True) -> list[Transcript]:
    """Make a run; returns its transcripts with their scores. The last shard has no scores."""
    folder = open_folder(where)
    folder.create(Settings("f", {"shard_size": size}, "0"))
    chance = random.Random(3)
    made = [transcript(number, labels=["fine"] if number % 5 == 0 else []) for number in range(rows)]
    for number, one in enumerate(made):
        one.inputs = {"age": str(number % 9), "first name": chance.choice(["Ada", "Bo", ""])}
    for shard, start in enumerate(range(0, rows, size)):
        some = made[start : start + size]
        commit(folder, shard, some, index=index)
        if start + size >= rows:
            break
        named = {
            "helpful": [Score(chance.choice([None, 1.0, 2.0, 4.5]), "because") for _ in some],
            "duplicate": [Score(float(chance.random() < 0.3)) for _ in some],
            "tone": [Score(None, text=chance.choice(["warm", "cold"])) for _ in some],
        }
        for name, scores in named.items():
            store_scores(folder, name, shard, [one.id for one in some], scores)
            for one, score in zip(some, scores, strict=True):
                one.scores = one.scores | ({} if score == Score(None) else {name: score})
    return made
