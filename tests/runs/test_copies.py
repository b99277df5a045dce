"""Copies of journals in a store: what a node that is lost with its disk leaves to the others."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camel.core.errors import InputError
from camel.engine.halt import Halt
from camel.engine.supervisor import StepPass, run_here
from camel.generation.config import GenerateConfig, RunSection
from camel.models.spec import ModelSpec
from camel.runs import copies
from camel.runs.copies import Copier, CopyLimits, puts_per_second
from camel.runs.garbage import collect_garbage
from camel.runs.run import RunFolder
from camel.runs.settings import Settings
from camel.storage.journal import Journal, read
from camel.storage.store import BucketStore, DiskStore, StoreFailed
from tests.support.bench import Bench
from tests.support.virtual_time import virtual_time

STAGE = "conversations"
Bucket = Callable[[str], str]


class Shelf(DiskStore):
    """A folder in the part of an object store, whose puts may fail, or succeed without an answer, or wait."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.root = root
        self.puts: list[str] = []
        self.fate: Callable[[str], str] = lambda name: "done"
        self.open = threading.Event()
        self.open.set()

    def create(self, name: str, data: bytes) -> bool:
        if not name.startswith(copies.FOLDER):
            return super().create(name, data)
        self.open.wait(60)
        self.puts.append(name)
        fate = self.fate(name)
        made = super().create(name, data) if fate in ("done", "lost") else False
        if fate != "done":
            raise StoreFailed(f"writing {name} failed")
        return made or super().get(name) == data


def copier_of(root: Path, shelf: DiskStore, **limits: Any) -> Copier:
    found = Copier(cast("BucketStore", shelf), root)
    found.limits = CopyLimits(**limits)
    found.active = True
    return found


def node(root: Path, shelf: Shelf, **limits: Any) -> RunFolder:
    """The run as a worker on a node with a folder of its own sees it."""
    folder = RunFolder(root, cast("BucketStore", shelf))
    folder.__dict__["copier"] = copier_of(root, shelf, **limits)
    root.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    made = Shelf(tmp_path / "store")
    RunFolder(made.root).create(Settings("f", {}, "0"))
    return made


@pytest.fixture(autouse=True)
def _nobody_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "RESCUE", 0.0)


def bench_at(folder: RunFolder, **more: Any) -> Bench:
    return Bench(Path(), folder=folder, **more)


async def work(bench: Bench, halt: Halt | None = None) -> bool:
    work = StepPass(workloads=[bench.workload], folder=bench.folder, concurrency=4, halt=halt or Halt())
    return await run_here(work)


FATES = st.lists(st.sampled_from(["done", "done", "done", "lost", "failed"]), max_size=12)
GROUPS = st.lists(st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=4), max_size=8)


@settings(max_examples=60, deadline=None)
@given(groups=GROUPS, fates=FATES, unseen=st.sets(st.integers(0, 30)), limit=st.integers(1, 400))
def test_what_is_copied_is_a_beginning_of_the_journal_with_everything_that_was_acknowledged(
    groups: list[list[bytes]], fates: list[str], unseen: set[int], limit: int
):
    """Whatever fails, wherever the node is lost, and whichever of the later copies arrive."""
    with tempfile.TemporaryDirectory() as scratch:
        shelf, root = Shelf(Path(scratch) / "store"), Path(scratch) / "node"
        shelf.root.mkdir()
        left = list(fates)
        shelf.fate = lambda name: left.pop() if left else "done"
        copier = copier_of(root, shelf, seconds=1e-3, bytes=limit)
        journal = Journal(root / "journal" / STAGE / "000003-ab")
        acknowledged = 0

        async def write() -> None:
            nonlocal acknowledged
            copier.follow(journal)
            for group in groups:
                await asyncio.gather(*map(journal.append, group))
                await asyncio.sleep(0)
            followed = copier._open[journal.path]
            acknowledged = followed.copied
            if followed.task:  # the upload in flight, and nothing after it
                followed.dropped = True
                followed.full.set()
                await followed.task
            acknowledged = max(acknowledged, followed.copied)
            await journal.close()

        asyncio.run(write())
        original = journal.path.read_bytes() if groups else b""
        # Copies that were never acknowledged may be seen in any order, so some are missing.
        late = [name for name in dict.fromkeys(shelf.puts) if int(name.rpartition("-")[2]) >= acknowledged]
        shelf.remove([name for number, name in enumerate(late) if number in unseen])
        found = copier.contents(STAGE, 3, [], waits=False).get("ab", b"")
        assert original.startswith(found)
        assert len(found) >= acknowledged
        records = [one for group in groups for one in group]
        recovered = list(read(journal.path, found))
        assert recovered == records[: len(recovered)]

        # What a process left is copied by another one on its node, and the rest is not sent twice.
        if groups:
            left.clear()
            copier._open.clear()
            copier.copy_left(lambda stage, shard: False)
            assert copier.contents(STAGE, 3, [], waits=False)["ab"] == original
            assert copier.listed(STAGE, 3)["ab"].ended


@virtual_time
async def test_a_journal_is_copied_at_half_of_the_interval_and_never_without_news(
    tmp_path: Path, shelf: Shelf
):
    copier = copier_of(tmp_path, shelf, seconds=2.0)
    journal = Journal(tmp_path / "journal" / STAGE / "000003-ab")
    copier.follow(journal)
    await journal.append(b"first")
    await asyncio.sleep(0.1)
    assert len(shelf.puts) == 1, "at once, so that others know of it"
    await journal.append(b"second")
    await asyncio.sleep(0.5)
    await journal.append(b"third")
    await asyncio.sleep(0.4)
    assert len(shelf.puts) == 1
    await asyncio.sleep(0.2)
    assert len(shelf.puts) == 2
    await asyncio.sleep(100)
    assert len(shelf.puts) == 2
    assert copier.contents(STAGE, 3, [], waits=False)["ab"] == journal.path.read_bytes()
    await journal.append(b"fourth")
    await journal.close()
    await copier.close(journal, finish=True)
    assert copier.listed(STAGE, 3)["ab"].ended


@virtual_time
async def test_many_bytes_are_copied_before_the_interval(tmp_path: Path, shelf: Shelf):
    copier = copier_of(tmp_path, shelf, seconds=1_000.0, bytes=1_000)
    journal = Journal(tmp_path / "journal" / STAGE / "000003-ab")
    copier.follow(journal)
    await journal.append(b"first")
    for _ in range(10):
        await asyncio.sleep(1)
        await journal.append(bytes(100))
        assert not copier.behind
    assert 3 <= len(shelf.puts) <= 6


@virtual_time
async def test_what_was_shared_before_is_copied_from_its_beginning(tmp_path: Path, shelf: Shelf):
    copier = copier_of(tmp_path, shelf)
    copier.active = False
    journal = Journal(tmp_path / "journal" / STAGE / "000003-ab")
    copier.follow(journal)
    await journal.append(b"first")
    await asyncio.sleep(10)
    assert not shelf.puts
    copier.activate()
    await asyncio.sleep(10)
    assert copier.contents(STAGE, 3, [], waits=False)["ab"] == journal.path.read_bytes()
    copier.copy_left(lambda stage, shard: False)
    assert not copier.listed(STAGE, 3)["ab"].ended, "its process is alive"
    await journal.close()


async def test_another_node_continues_without_a_call_that_was_copied(tmp_path: Path, shelf: Shelf):
    halt = Halt()
    first = bench_at(node(tmp_path / "a", shelf))

    async def stop(index: int, step: int) -> None:
        if (index, step) == (6, 1):
            halt.set("enough")

    first.before = stop
    assert not await work(first, halt)
    shutil.rmtree(tmp_path / "a")  # the node is lost after it has stopped
    second = bench_at(node(tmp_path / "b", shelf))
    assert await work(second)
    assert max((first.taken + second.taken).values()) == 1
    assert list(shelf.entries(copies.FOLDER)) == []


async def test_a_node_that_is_lost_at_once_costs_what_was_not_copied(tmp_path: Path, shelf: Shelf):
    first = bench_at(node(tmp_path / "a", shelf, seconds=1_000.0, bytes=10**9), count=4)
    reached = asyncio.Event()

    async def hang(index: int, step: int) -> None:
        if step == 2:
            reached.set()
            await asyncio.Event().wait()

    first.before = hang
    running = asyncio.create_task(work(first))
    await reached.wait()
    async with asyncio.timeout(60):
        while not list(shelf.entries(copies.FOLDER)):  # noqa: ASYNC110 - the first copy is made on a thread
            await asyncio.sleep(0.01)
    shutil.copytree(shelf.root, tmp_path / "as it was")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    shelf.root = tmp_path / "as it was"
    second = bench_at(node(tmp_path / "b", shelf), count=4)
    copied = sum(1 for attempt in second.folder.attempts(STAGE, 0) for _ in attempt)
    assert 1 <= copied < 8
    assert await work(second)
    taken = first.taken + second.taken
    assert sum(times - 1 for (_, step), times in taken.items() if step < 2) == 8 - copied


async def test_a_worker_that_lost_its_shard_adds_only_to_its_own_journal(tmp_path: Path, shelf: Shelf):
    a, b = node(tmp_path / "a", shelf), node(tmp_path / "b", shelf)
    assert a.copier
    assert b.copier
    stale = a.open_journal(STAGE, 3, "aa")
    await stale.append(b"before")
    await a.close_journal(stale)
    fresh = b.open_journal(STAGE, 3, "bb")
    await fresh.append(b"of the new holder")
    await b.close_journal(fresh)
    # The bytes of a stale holder that names another's copy are refused.
    theirs = b.copier.contents(STAGE, 3, [], waits=False)["bb"]
    stolen = tmp_path / "a" / "journal" / STAGE / "000003-bb"
    stolen.write_bytes(bytes(len(theirs) + 10))
    a.copier.publish(stolen, 0, len(theirs))
    assert b.copier.contents(STAGE, 3, [], waits=False)["bb"] == theirs
    late = a.open_journal(STAGE, 3, "ac")
    await late.append(b"after")
    await a.close_journal(late)
    stolen.unlink()
    found = [record for attempt in b.attempts(STAGE, 3) for record in attempt]
    assert sorted(found) == [b"after", b"before", b"of the new holder"]


@pytest.mark.parametrize("damage", ["flipped", "short", "gone"])
async def test_a_local_journal_and_its_copy_complete_each_other(tmp_path: Path, shelf: Shelf, damage: str):
    folder = node(tmp_path / "a", shelf, seconds=1_000.0)
    journal = folder.open_journal(STAGE, 3, "aa")
    for number in range(4):
        await journal.append(b"record %d" % number)
    await folder.close_journal(journal)
    data = journal.path.read_bytes()
    if damage == "flipped":
        journal.path.write_bytes(data[:70] + bytes([data[70] ^ 1]) + data[71:])
    elif damage == "short":
        journal.path.write_bytes(data[:80])
    else:
        journal.path.unlink()
    (found,) = (list(attempt) for attempt in node(tmp_path / "a", shelf).attempts(STAGE, 3))
    assert found == [b"record %d" % number for number in range(4)]
    assert node(tmp_path / "b", shelf).journaled(STAGE) == {3}


def test_a_copy_after_a_gap_is_not_used(tmp_path: Path, shelf: Shelf):
    copier = copier_of(tmp_path, shelf)
    for start, data in ((0, b"ab"), (2, b"cd"), (5, b"fg")):
        shelf.create(f"copies/{STAGE}/000003/ab-{start:012d}", data)
    assert copier.contents(STAGE, 3, [], waits=False) == {"ab": b"abcd"}


async def test_a_slow_store_stops_new_calls_at_the_bound_and_delays_none_before(tmp_path: Path, shelf: Shelf):
    folder = node(tmp_path / "a", shelf, seconds=1_000.0, bytes=600)
    bench = bench_at(folder, count=40, shard_size=40, steps=5)
    copier = folder.copier
    assert copier
    waiting, progress = asyncio.Event(), copier.progress

    async def noted() -> None:
        waiting.set()
        await progress()

    copier.progress = noted
    shelf.open.clear()
    running = asyncio.create_task(work(bench))
    await waiting.wait()
    (path,) = (tmp_path / "a").rglob("journal/*/*")
    for _ in range(50):  # items in flight end, and then nothing moves
        await asyncio.sleep(0)
    assert 600 < path.stat().st_size < 600 + 8 * 80
    taken = bench.taken.total()
    assert taken < 40
    shelf.open.set()
    assert await running
    assert set(bench.taken.values()) == {1}


async def test_a_store_that_fails_ends_the_run_with_its_reason(tmp_path: Path, shelf: Shelf):
    shelf.fate = lambda name: "failed"
    bench = bench_at(node(tmp_path / "a", shelf, seconds=1_000.0, bytes=100))
    with pytest.raises(StoreFailed):
        await work(bench)
    shelf.fate = lambda name: "done"
    again = bench_at(node(tmp_path / "a", shelf))
    assert await work(again)
    assert max((bench.taken + again.taken).values()) == 1


async def test_copies_go_with_the_commit_and_late_ones_are_garbage(tmp_path: Path, shelf: Shelf):
    folder = node(tmp_path / "a", shelf)
    assert await work(bench_at(folder, count=4))
    assert shelf.puts
    assert list(shelf.entries(copies.FOLDER)) == []
    shelf.create(f"copies/{STAGE}/000000/ab-000000000000", b"late")
    shelf.create(f"copies/{STAGE}/000009/ab-000000000000", b"of an open shard")
    found = collect_garbage(folder)
    assert found.copies == [f"copies/{STAGE}/000000/ab-000000000000"]
    assert found.bytes == 4
    assert [one.name for one in shelf.entries(copies.FOLDER)] == [f"copies/{STAGE}/000009/ab-000000000000"]
    shelf.create(f"copies/{STAGE}/000000/ab-000000000000", b"late")
    folder.sweep(STAGE)
    assert folder.open_shards(STAGE) == {9}


def test_a_reader_waits_for_the_rest_that_another_process_on_the_node_copies(
    tmp_path: Path, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(copies, "RESCUE", 1_000.0)
    root = tmp_path / "a"

    async def die() -> None:
        journal = Journal(root / "journal" / STAGE / "000003-ab")
        await journal.append(b"copied")
        shelf.create(f"copies/{STAGE}/000003/ab-{0:012d}", journal.path.read_bytes())
        await journal.append(b"left")
        await journal.close()

    asyncio.run(die())
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        copier_of(root, shelf).copy_left(lambda stage, shard: False)

    monkeypatch.setattr(copies.time, "sleep", sleep)
    (records,) = (list(one) for one in node(tmp_path / "b", shelf).attempts(STAGE, 3))
    assert records == [b"copied", b"left"]
    assert len(slept) == 1


def test_a_journal_that_is_removed_meanwhile_is_not_missed(
    tmp_path: Path, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "journal" / STAGE
    folder.mkdir(parents=True)
    for name in ("000001-aa", "000002-bb"):
        (folder / name).write_bytes(b"journal")
    real = copies.is_finished

    def remove_first(path: Path) -> bool:
        (folder / "000001-aa").unlink(missing_ok=True)
        return real(path)

    monkeypatch.setattr(copies, "is_finished", remove_first)
    copier = copier_of(tmp_path, shelf)
    copier.copy_left(lambda stage, shard: False)
    assert copier.shards(STAGE).keys() == {2}


def test_what_it_costs_and_what_is_refused():
    assert puts_per_second(100, 2, 60_000) == 200
    assert puts_per_second(100, 2, 5_000_000) == 1_000
    assert puts_per_second(100, 2, 60_000, CopyLimits(10.0)) == 40
    for section in (RunSection(copy_every=0), RunSection(copy_bytes=0)):
        with pytest.raises(InputError, match=r"run\.copy_every"):
            GenerateConfig("ai_society", ModelSpec("m"), run=section)


def test_with_a_real_server(s3: object, bucket: Bucket, tmp_path: Path):
    store = BucketStore(bucket("run"))
    RunFolder(tmp_path / "a", store).create(Settings("f", {}, "0"))

    def at(name: str) -> RunFolder:
        folder = RunFolder(tmp_path / name, store)
        assert folder.copier
        folder.copier.activate()
        return folder

    async def first() -> Bench:
        halt, bench = Halt(), bench_at(at("a"), count=6)

        async def stop(index: int, step: int) -> None:
            if (index, step) == (5, 1):
                halt.set("enough")

        bench.before = stop
        assert not await work(bench, halt)
        return bench

    before = asyncio.run(first())
    assert list(store.entries(copies.FOLDER))
    shutil.rmtree(tmp_path / "a")
    after = bench_at(at("b"), count=6)
    assert asyncio.run(work(after))
    assert max((before.taken + after.taken).values()) == 1
    assert list(store.entries(copies.FOLDER)) == []
