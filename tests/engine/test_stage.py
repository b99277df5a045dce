"""A stage: how items become shards, and what is on disk once a shard is written."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from camel.core.message import Usage
from camel.core.model import Choice, Reply
from camel.engine.journaled import journaled
from camel.engine.stage import (
    JournaledStep,
    Stage,
    Steps,
    Written,
    read_step,
    write_lines,
    write_step,
    write_whole,
)
from camel.runs.run import RunFolder


async def work(index: int, steps: Steps) -> Any:
    return index


@pytest.mark.parametrize("count", [1, 3, 4, 5, 8, 9])
@pytest.mark.parametrize("size", [1, 4, 10])
def test_every_item_is_in_exactly_one_shard(count: int, size: int):
    stage = Stage(name="talk", count=count, work=work, write=write_lines, shard_size=size)
    shards = [list(stage.indices(shard)) for shard in range(stage.shards)]
    assert [item for shard in shards for item in shard] == list(range(count))
    assert all(len(shard) == size for shard in shards[:-1])
    assert shards[-1]


def test_a_shard_is_durable_and_known_by_its_hash(tmp_path: Path, synced: list[str]):
    path = tmp_path / "shard.bin"
    written = write_whole(path, b"data", 3, {"calls": 2.0})
    assert written == Written(3, hashlib.sha256(b"data").hexdigest(), {"calls": 2.0})
    assert path.read_bytes() == b"data"
    assert synced == ["shard.bin", tmp_path.name]


def test_records_are_lines(tmp_path: Path):
    path = tmp_path / "shard.jsonl"
    written = write_lines(path, [Usage(1), {"a": "ü"}])
    assert path.read_text() == '{"prompt":1}\n{"a":"ü"}\n'
    assert (written.rows, written.totals) == (2, {})


def test_a_step_is_read_as_it_was_written():
    step = JournaledStep(7, 2, b"check", b"result")
    assert read_step(write_step(step)) == step
    with pytest.raises(AttributeError):
        step.result = b"other"  # type: ignore[misc]


async def test_what_open_journals_have_paid_for(tmp_path: Path):
    folder = RunFolder(tmp_path)
    for shard, tokens in ((0, 10), (1, 20), (2, 40)):
        log = folder.open_journal("talk", shard, "attempt")
        for step in range(2):
            reply = Reply((Choice("said"),), Usage(tokens, 1, 0, 1))
            await log.append(write_step(JournaledStep(shard, step, b"check", write_step(reply))))
        await log.close()
    assert list(journaled(folder, "talk", [0, 2])) == [Usage(10, 1, 0, 1)] * 2 + [Usage(40, 1, 0, 1)] * 2
    assert list(journaled(folder, "talk", [])) == []
