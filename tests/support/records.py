"""Runs of conversations, small enough to be made by the dozen."""

from __future__ import annotations

from camel.core.message import Message, Usage
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Transcript
from camel.record.arrow import write_shard
from camel.runs.markers import Marker, new_attempt
from camel.runs.run import RunFolder
from camel.runs.settings import Settings

STAGE = "conversations"


def transcript(number: int) -> Transcript:
    return Transcript(
        f"{number:06d}",
        Task(f"task {number}"),
        messages=[
            Message(n, ("user", "assistant")[n % 2], "Role", f"said {number} {n} 🐪", usage=Usage(3, 2, 1, 1))
            for n in range(number % 4)
        ],
        stop=Stop("done", "done"),
        inputs={"number": str(number)},
    )


def commit(folder: RunFolder, shard: int, rows: int = 3, *, first: int | None = None) -> Marker:
    start = shard * 3 if first is None else first
    path = folder.data_path(STAGE, shard, new_attempt(), ".parquet")
    written = write_shard(path, map(transcript, range(start, start + rows)))
    file, size = folder.persist(path)
    marker = Marker(STAGE, shard, file, written.rows, written.sha256, "f", {}, size)
    assert folder.commit(marker)
    return marker


def a_run(folder: RunFolder, shards: int) -> RunFolder:
    folder.create(Settings("f", {"shard_size": 3}, "0"))
    for shard in range(shards):
        commit(folder, shard)
    return folder
