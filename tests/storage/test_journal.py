"""The journal believes exactly what is whole and durable, wherever it is cut, flipped, filled or refused."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from camel.storage import files, journal
from camel.storage.journal import Damage, Journal, JournalBroken, read, scan
from tests.support.journals import first_format, frame, framed, frames, header

payloads = st.lists(st.binary(min_size=1, max_size=80), min_size=1, max_size=12)
on_files = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def fresh(folder: Path) -> Path:
    return folder / f"{len(list(folder.iterdir()))}"


async def write_all(path: Path, records: list[bytes]) -> None:
    log = Journal(path)
    for record in records:
        await log.append(record)
    await log.close()


def damage(path: Path) -> list[Damage]:
    return [one for one in scan(path) if isinstance(one, Damage)]


@on_files
@given(payloads)
def test_the_format_is_what_the_module_says(tmp_path: Path, records: list[bytes]):
    path = fresh(tmp_path)
    asyncio.run(write_all(path, records))
    data = path.read_bytes()
    assert data == framed(records, tag=data[16:24])
    assert list(scan(path)) == records


async def test_what_is_written_together_is_a_group(tmp_path: Path):
    log = Journal(tmp_path / "log")
    records = [b"%d" % number for number in range(5)]
    await asyncio.gather(*map(log.append, records))
    await log.append(b"alone")
    await log.close()
    data = log.path.read_bytes()
    assert data == framed([*records, b"alone"], [5, 1], tag=data[16:24])


async def test_every_journal_has_a_tag_of_its_own(tmp_path: Path):
    for name in "ab":
        await write_all(tmp_path / name, [b"same"])
    assert (tmp_path / "a").read_bytes()[16:24] != (tmp_path / "b").read_bytes()[16:24]


@settings(on_files, max_examples=15)
@given(payloads)
def test_cut_at_every_byte_of_the_last_four_records(tmp_path: Path, records: list[bytes]):
    whole = framed(records)
    path = fresh(tmp_path)
    for end in range(len(framed(records[:-4])), len(whole) + 1):
        path.write_bytes(whole[:end])
        kept = list(scan(path))
        assert kept == records[: len(kept)], "a torn tail is no damage"
        assert len(framed(records[: len(kept)])) <= end
        assert len(kept) == len(records) or len(framed(records[: len(kept) + 1])) > end, (
            "a whole record was lost"
        )


@pytest.mark.parametrize("end", range(len(framed([b"x"])) + 1))
def test_cut_in_the_first_bytes(tmp_path: Path, end: int):
    path = tmp_path / "log"
    path.write_bytes(framed([b"x"])[:end])
    assert list(scan(path)) == ([b"x"] if end == len(framed([b"x"])) else [])


@pytest.mark.parametrize(
    "groups",
    [
        pytest.param([1, 7, 12, 2, 8], id="30"),
        pytest.param([1, 7, 30, 2, 60, 50, 40, 10], id="200", marks=[pytest.mark.slow, pytest.mark.thorough]),
    ],
)
def test_every_byte_damaged_one_at_a_time(tmp_path: Path, groups: list[int]):
    chance, count = random.Random(8), sum(groups)
    records = [chance.randbytes(chance.randint(1, 40)) for _ in range(count)]
    whole = framed(records, groups)
    ends = list(accumulate(map(len, frames(records, groups)), initial=len(header())))
    path = tmp_path / "log"
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= chance.randint(1, 255)
        path.write_bytes(changed)
        hit = next((n for n in range(count) if ends[n] <= at < ends[n + 1]), None)
        found = list(scan(path))
        kept = [one for one in found if not isinstance(one, Damage)]
        damaged = [one for one in found if isinstance(one, Damage)]
        assert kept == [one for n, one in enumerate(records) if n != hit], at
        if hit is not None and hit >= count - groups[-1]:
            assert not damaged, "it may never have been durable"
        else:
            assert [(one.start <= at < one.end, one.records) for one in damaged] == [
                (True, int(hit is not None))
            ]


@settings(on_files, max_examples=80)
@given(payloads, st.data())
def test_any_bytes_may_be_replaced(tmp_path: Path, records: list[bytes], data: st.DataObject):
    whole = framed(records)
    start = data.draw(st.integers(0, len(whole) - 1))
    end = data.draw(st.integers(start + 1, len(whole)))
    path = fresh(tmp_path)
    path.write_bytes(whole[:start] + data.draw(st.binary(max_size=200)) + whole[end:])
    kept = list(read(path))
    left = iter(records)
    assert all(one in left for one in kept), "something that was not written, or in another order"
    assert len(kept) + sum(one.records or 0 for one in damage(path)) <= len(records)


def test_records_that_are_cut_out_are_missed(tmp_path: Path):
    records = [b"%d" % number for number in range(6)]
    parts = frames(records)
    path = tmp_path / "log"
    path.write_bytes(header() + b"".join(parts[:2] + parts[4:]))
    assert list(read(path)) == [b"0", b"1", b"4", b"5"]
    assert [one.records for one in damage(path)] == [2]


def test_the_next_record_shows_that_a_record_was_replaced(tmp_path: Path):
    parts = frames([b"one", b"two", b"three"])
    parts[1] = frame(b"TWO", 1, previous=int.from_bytes(parts[1][16:20], "little"))
    path = tmp_path / "log"
    path.write_bytes(header() + b"".join(parts))
    assert len(damage(path)) == 1


def test_text_that_looks_like_a_journal_is_none(tmp_path: Path):
    """What a model wrote is in payloads: where the frame around it is damaged, it must not pass for a record."""
    records = [b"before", framed([b"forged"], tag=b"guessed!") + b"camel-journal:2\n", b"after", b"last"]
    path = tmp_path / "log"
    changed = bytearray(framed(records))
    changed[len(framed(records[:1])) + 30] ^= 1
    path.write_bytes(changed)
    assert list(read(path)) == [b"before", b"after", b"last"]


@on_files
@given(payloads, st.integers(1, 5000))
def test_a_tail_of_zeros_is_no_record(tmp_path: Path, records: list[bytes], zeros: int):
    path = fresh(tmp_path)
    path.write_bytes(framed(records) + bytes(zeros))
    assert list(scan(path)) == records
    path.write_bytes(bytes(zeros))
    assert list(scan(path)) == []


@settings(on_files, max_examples=60)
@given(payloads, st.binary(max_size=200))
def test_a_tail_of_anything_never_raises(tmp_path: Path, records: list[bytes], tail: bytes):
    path = fresh(tmp_path)
    path.write_bytes(framed(records) + tail)
    assert list(scan(path)) == records


def test_a_file_of_something_else_is_damage(tmp_path: Path):
    path = tmp_path / "log"
    path.write_bytes(b"another format, long enough for a header\n")
    assert list(scan(path)) == [Damage(path, 0, 41, None)]


def test_a_length_that_lies_costs_no_memory(tmp_path: Path):
    path = tmp_path / "log"
    path.write_bytes(framed([b"x"]) + frame(b"y", 1, length=0xFFFFFFFF))
    assert list(scan(path)) == [b"x"]


def test_a_newer_kind_of_record_is_not_taken_for_a_reply(tmp_path: Path):
    path = tmp_path / "log"
    path.write_bytes(header() + frame(b"x", kind=9))
    with pytest.raises(JournalBroken):
        list(scan(path))


@on_files
@given(payloads, st.integers(0, 200))
def test_journals_of_the_first_format_are_read(tmp_path: Path, records: list[bytes], cut: int):
    path = fresh(tmp_path)
    whole = first_format(records)
    path.write_bytes(whole[: max(16, len(whole) - cut)])
    kept = list(scan(path))
    assert kept == records[: len(kept)]
    assert len(kept) == len(records) or len(first_format(records[: len(kept) + 1])) > max(
        16, len(whole) - cut
    )


async def test_concurrent_appends_are_grouped_durable_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    synced = 0
    fdatasync = os.fdatasync

    def counted(descriptor: int) -> None:
        nonlocal synced
        synced += 1
        fdatasync(descriptor)

    monkeypatch.setattr(os, "fdatasync", counted)
    log = Journal(tmp_path / "log")
    records = [b"%d" % number for number in range(500)]

    async def append(record: bytes) -> None:
        await log.append(record)
        assert record in set(read(log.path)), "returned before it was on the disk"

    async with asyncio.TaskGroup() as group:
        for record in records:
            group.create_task(append(record))
    await log.close()
    assert list(read(log.path)) == records
    assert synced < 100, "each append was synced on its own"


async def test_a_cancelled_append_harms_no_other(tmp_path: Path):
    log = Journal(tmp_path / "log")
    tasks = [asyncio.create_task(log.append(b"%d" % number)) for number in range(50)]
    await asyncio.sleep(0)
    chance = random.Random(3)
    for task in chance.sample(tasks, 25):
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    await log.append(b"last")
    await log.close()
    kept = list(read(log.path))
    assert kept[-1] == b"last"
    assert {b"%d" % number for number, end in enumerate(ended) if end is None} <= set(kept)


async def test_a_cancelled_close_loses_nothing(tmp_path: Path):
    log = Journal(tmp_path / "log")
    waiting = asyncio.create_task(log.append(b"a"))
    await asyncio.sleep(0)
    closing = asyncio.create_task(log.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait_for(waiting, 60)
    await asyncio.gather(closing, return_exceptions=True)
    await log.close()
    assert list(read(log.path)) == [b"a"]


async def test_what_arrives_while_closing_is_written_or_refused(tmp_path: Path):
    log = Journal(tmp_path / "log")
    first = asyncio.create_task(log.append(b"first"))
    await asyncio.sleep(0)
    first.add_done_callback(lambda _: late.append(asyncio.ensure_future(log.append(b"late"))))
    late: list[asyncio.Future[None]] = []
    await log.close()
    await first
    await asyncio.sleep(0)
    [ended] = await asyncio.gather(*late, return_exceptions=True)
    assert isinstance(ended, JournalBroken | None)
    assert list(read(log.path)) == ([b"first"] if ended else [b"first", b"late"])


async def test_closed_is_closed(tmp_path: Path):
    log = Journal(tmp_path / "log")
    await log.append(b"a")
    await log.close()
    await log.close()
    with pytest.raises(JournalBroken):
        await log.append(b"b")
    assert list(read(log.path)) == [b"a"]


@pytest.mark.parametrize("size", [0, 1000])
async def test_what_could_not_be_read_back_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
):
    monkeypatch.setattr(journal, "MAX_PAYLOAD", 999)
    log = Journal(tmp_path / "log")
    await log.append(b"before")
    with pytest.raises(ValueError, match="bytes"):
        await log.append(bytes(size))
    await log.append(b"after")
    await log.close()
    assert list(read(log.path)) == [b"before", b"after"]


class FullDisk:
    """Refuses at the k-th system call; before that, writes as little at a time as it likes."""

    def __init__(self, seed: int, refuse: str, at: int) -> None:
        self.chance, self.refuse, self.left = random.Random(seed), refuse, at
        self.real = {"write": os.write, "fdatasync": os.fdatasync}

    def _strike(self, call: str) -> None:
        if call == self.refuse:
            self.left -= 1
            if self.left < 0:
                raise OSError(errno.ENOSPC, "No space left on device")

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        size = self.chance.randint(1, len(data))
        self._strike("write")
        return self.real["write"](descriptor, memoryview(data)[:size])

    def fdatasync(self, descriptor: int) -> None:
        self._strike("fdatasync")
        self.real["fdatasync"](descriptor)


@settings(on_files, max_examples=60)
@given(st.integers(0, 2**32), st.sampled_from(["write", "fdatasync"]), st.integers(0, 60), st.integers(1, 5))
def test_disk_full(tmp_path: Path, seed: int, refuse: str, at: int, group: int):
    disk = FullDisk(seed, refuse, at)
    path = fresh(tmp_path)

    async def fill() -> tuple[list[bytes], list[bytes]]:
        log, durable, refused = Journal(path), [], []
        for start in range(0, 30, group):
            records = [b"record %d" % number for number in range(start, start + group)]
            ends = await asyncio.gather(*map(log.append, records), return_exceptions=True)
            for record, end in zip(records, ends, strict=True):
                assert end is None or isinstance(end, JournalBroken)
                (durable if end is None else refused).append(record)
                assert "\n" not in str(end)
        await log.close()
        return durable, refused

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", disk.write)
        patch.setattr(os, "fdatasync", disk.fdatasync)
        durable, refused = asyncio.run(fill())
    kept = list(read(path)) if path.exists() else []
    everything = durable + refused
    assert kept == everything[: len(kept)], "what comes after a hole was believed"
    assert kept[: len(durable)] == durable, "something durable was lost"
    assert len(kept) <= len(durable) + group, "something was written after the journal broke"


async def test_nothing_is_written_after_a_hole_even_if_the_disk_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    log = Journal(tmp_path / "log")
    await log.append(b"before")
    size = log.path.stat().st_size
    write = os.write

    def half(descriptor: int, data: memoryview) -> int:
        monkeypatch.setattr(os, "write", write)
        write(descriptor, data[:5])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", half)
    first = asyncio.create_task(log.append(b"first"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    second = asyncio.create_task(log.append(b"second"))  # waits while the first is being written
    ends = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(end) for end in ends] == [JournalBroken, JournalBroken]
    await log.close()
    assert log.path.stat().st_size == size + 5
    assert list(read(log.path)) == [b"before"]


async def test_any_error_of_the_writer_reaches_the_waiting_callers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def broken(descriptor: int) -> None:
        raise MemoryError

    monkeypatch.setattr(os, "fdatasync", broken)
    log = Journal(tmp_path / "log")
    for _ in range(2):
        with pytest.raises(JournalBroken):
            await asyncio.wait_for(log.append(b"a"), 60)
    await log.close()


async def test_a_file_that_exists_is_never_appended_to(tmp_path: Path):
    path = tmp_path / "log"
    path.write_bytes(b"another file")
    log = Journal(path)
    with pytest.raises(JournalBroken, match="exists"):
        await log.append(b"a")
    await log.close()
    assert path.read_bytes() == b"another file"


async def test_a_journal_without_records_leaves_no_file(tmp_path: Path):
    log = Journal(tmp_path / "folder" / "log")
    await log.close()
    assert not log.path.exists()


async def test_new_folders_are_durable_up_to_the_one_that_existed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    synced: list[Path] = []
    for module in (journal, files):
        monkeypatch.setattr(module, "sync_folder", synced.append)
    log = Journal(tmp_path / "journal" / "stage" / "log")
    await log.append(b"a")
    await log.close()
    assert {tmp_path, tmp_path / "journal", tmp_path / "journal" / "stage"} <= set(synced)
