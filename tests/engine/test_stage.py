"""A workload: how items become shards, how the shards of several are numbered, and what is on disk once a shard is written."""

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
    ShardTable,
    Steps,
    Workload,
    Written,
    read_step,
    write_lines,
    write_step,
    write_whole,
)
from camel.runs.markers import Marker
from camel.runs.run import RunFolder
from camel.runs.settings import Settings


async def work(index: int, steps: Steps) -> Any:
    return index


@pytest.mark.parametrize("count", [1, 3, 4, 5, 8, 9])
@pytest.mark.parametrize("size", [1, 4, 10])
def test_every_item_is_in_exactly_one_shard(count: int, size: int):
    workload = Workload(name="conversations", count=count, work=work, write=write_lines, shard_size=size)
    shards = [list(workload.indices(shard)) for shard in workload.numbers]
    assert [item for shard in shards for item in shard] == list(range(count))
    assert all(len(shard) == size for shard in shards[:-1])
    assert shards[-1]


def test_a_table_numbers_the_shards_of_several_workloads(tmp_path: Path):
    first = Workload(name="first", count=10, work=work, write=write_lines, shard_size=4)
    empty = Workload(name="empty", count=0, work=work, write=write_lines)
    items = {7: [28, 31], 2: [9], 3: [12, 13]}
    some = Workload(name="some", count=40, work=work, write=write_lines, shard_size=4, items=items)
    last = Workload(name="last", count=2, work=work, write=write_lines, shard_size=1)
    table = ShardTable([first, empty, some, last])
    shards = [(first, 0), (first, 1), (first, 2), (some, 2), (some, 3), (some, 7), (last, 0), (last, 1)]
    assert len(table) == 8
    assert [table[number] for number in range(8)] == shards
    assert [table.number(one.name, shard) for one, shard in shards] == list(range(8))
    assert [list(some.indices(shard)) for shard in some.numbers] == [[9], [12, 13], [28, 31]]

    folder = RunFolder(tmp_path)
    folder.create(Settings("f", {}, "0"))
    assert list(table.done(folder)) == []
    # Of `some`, a shard may be committed that nobody asks for now.
    for name, shard in (("some", 3), ("some", 5), ("first", 2), ("last", 0)):
        folder.commit(Marker(name, shard, f"data/{name}/{shard}", 1, "", "f"))
    assert list(table.done(folder)) == [2, 4, 6]
    for number in set(range(8)) - {2, 4, 6}:
        one, shard = table[number]
        folder.commit(Marker(one.name, shard, f"data/{one.name}/{shard}", 1, "", "f"))
    assert list(table.done(folder)) == list(range(8))


def test_a_table_of_nothing_is_empty(tmp_path: Path):
    assert len(ShardTable(())) == 0
    assert not ShardTable(()).done(RunFolder(tmp_path))


def test_a_shard_is_durable_and_known_by_its_hash(tmp_path: Path, synced: list[str]):
    path = tmp_path / "shard.bin"
    written = write_whole(path, b"data", 3)
    assert written == Written(3, hashlib.sha256(b"data").hexdigest(), {})
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
        log = folder.open_journal("conversations", shard, "attempt")
        for step in range(2):
            reply = Reply((Choice("said"),), Usage(tokens, 1, 0, 1))
            await log.append(write_step(JournaledStep(shard, step, b"check", write_step(reply))))
        await log.close()
    assert [used.prompt for _, used, _ in journaled(folder, "conversations")] == [10, 10, 20, 20, 40, 40]
    assert list(journaled(folder, "other")) == []
