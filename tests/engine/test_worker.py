"""The worker with a workload of our own: exactly once, no barrier, never beyond the window, and nothing taken twice."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from camel.core.errors import InputError
from camel.engine.halt import LEASE_LOST, Halt, Halted, Unfinished, clock
from camel.engine.stage import Steps, Workload, Written
from camel.engine.supervisor import StepPass, run_here
from camel.engine.worker import CommitFailed, ReplayMismatch, Window, run_worker
from camel.runs.markers import Marker
from camel.runs.run import RunFolder
from camel.storage.journal import JournalBroken
from tests.support.bench import Bench, write
from tests.support.virtual_time import virtual_time


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize(
    ("count", "size", "width"), [(0, 4, 3), (1, 4, 3), (20, 4, 1), (21, 4, 5), (9, 100, 50)]
)
@virtual_time
async def test_every_item_exactly_once_and_in_order(tmp_path: Path, count: int, size: int, width: int):
    bench = Bench(tmp_path, count, shard_size=size)
    told: list[tuple[str, int]] = []

    def note(name: str, shard: int) -> None:
        told.append((name, shard))

    assert await bench.run(concurrency=width, committed=note)
    assert bench.data() == bench.expected()
    assert sorted(told) == [(bench.workload.name, shard) for shard in bench.workload.numbers]
    assert set(bench.taken.values()) <= {1}
    assert bench.most <= width
    assert bench.files("journal") == []
    assert len(bench.files("data")) == len(bench.workload.numbers)
    assert await bench.run(), "a finished workload is finished"
    assert set(bench.taken.values()) <= {1}


@virtual_time
async def test_records_are_in_the_order_of_their_indices_not_of_their_ends(tmp_path: Path):
    bench = Bench(tmp_path, 8, shard_size=8, steps=1)

    async def later_first(index: int, step: int) -> None:
        await asyncio.sleep((8 - index) * 0.005)

    bench.before = later_first
    assert await bench.run(concurrency=8)
    assert bench.data() == bench.expected()


@virtual_time
async def test_a_slow_item_holds_up_no_other_shard(tmp_path: Path):
    bench = Bench(tmp_path, 40, shard_size=4)
    release = asyncio.Event()
    told: list[int] = []

    async def one_is_slow(index: int, step: int) -> None:
        if index == 1:
            await release.wait()

    def note(name: str, shard: int) -> None:
        told.append(shard)
        if len(told) == 9:
            release.set()

    bench.before = one_is_slow
    assert await bench.run(concurrency=3, committed=note)
    assert told[-1] == 0
    assert bench.data() == bench.expected()


@virtual_time
async def test_the_window_is_filled_across_shards(tmp_path: Path):
    bench = Bench(tmp_path, 24, shard_size=2)
    together = asyncio.Barrier(12)

    async def meet(index: int, step: int) -> None:
        if index < 12:
            await together.wait()

    bench.before = meet
    assert await bench.run(concurrency=12)
    assert bench.most == 12


def three(root: Path) -> list[Bench]:
    """Workloads of one run; of the last, only some items of some shards are worked on."""
    first = Bench(root, 10)
    second = Bench(root, 12, shard_size=3, name="second", folder=first.folder)
    items = {7: [28, 31], 2: [9], 3: [12, 13, 14, 15]}
    return [first, second, Bench(root, 40, name="some", folder=first.folder, items=items)]


async def run_all(benches: Sequence[Bench], **kwargs: Any) -> bool:
    workloads = [bench.workload for bench in benches]
    work = run_here(
        StepPass(workloads=workloads, folder=benches[0].folder, concurrency=6, halt=Halt(), **kwargs)
    )
    return await asyncio.wait_for(work, 30)


@virtual_time
async def test_several_workloads_share_one_window(tmp_path: Path):
    benches = three(tmp_path)
    release = asyncio.Event()
    told: list[tuple[str, int]] = []
    most = 0

    async def count(index: int, step: int) -> None:
        nonlocal most
        most = max(most, sum(bench.running for bench in benches))
        await asyncio.sleep(0.01)

    async def one_is_slow(index: int, step: int) -> None:
        await count(index, step)
        if index == 1:
            await release.wait()

    def note(name: str, shard: int) -> None:
        told.append((name, shard))
        if len(told) == 9:
            release.set()

    for bench in benches:
        bench.before = count
    benches[0].before = one_is_slow
    assert await run_all(benches, committed=note)
    assert told[-1] == (benches[0].workload.name, 0), "a slow item of one workload holds up the next"
    assert sorted(told) == sorted(
        (one.workload.name, shard) for one in benches for shard in one.workload.numbers
    )
    assert most == 6
    for bench in benches:
        assert bench.data() == bench.expected()
        assert set(bench.taken.values()) == {1}
        name = bench.workload.name
        markers = bench.folder.markers(name, sorted(bench.folder.committed(name)))
        assert {marker.fingerprint for marker in markers} == {f"of {name}"}
    assert benches[0].files("journal") == []
    assert await run_all(benches, committed=note), "finished workloads are finished"
    assert len(told) == 10


@virtual_time
async def test_a_workload_that_cannot_be_finished_holds_up_no_other(tmp_path: Path):
    benches = three(tmp_path)

    async def fail_one(index: int, step: int) -> None:
        if index == 4 and step == 1:
            raise Unfinished("the endpoint is ill")

    benches[1].before = fail_one
    assert not await run_all(benches)
    assert [sorted(bench.folder.committed(bench.workload.name)) for bench in benches] == [
        [0, 1, 2],
        [0, 2, 3],
        [2, 3, 7],
    ]
    benches[1].before = benches[1].nothing
    assert await run_all(benches, attempt=1)
    assert [bench.data() for bench in benches] == [bench.expected() for bench in benches]
    assert sum(sum(bench.taken.values()) - len(bench.taken) for bench in benches) == 1, (
        "only the step that failed is taken again"
    )


@virtual_time
async def test_halt_ends_what_is_in_flight_and_takes_nothing_new(tmp_path: Path):
    bench = Bench(tmp_path, 40)
    halt = Halt()

    async def stop_at_the_tenth(index: int, step: int) -> None:
        if bench.taken.total() == 10:
            halt.set("enough")
        await asyncio.sleep(0.01)

    bench.before = stop_at_the_tenth
    assert not await bench.run(halt=halt)
    assert bench.taken.total() == 10, "a step was begun after the halt"
    halt.set("too late")
    assert halt.reason == "enough"
    bench.before = bench.nothing
    assert await bench.run()
    assert bench.taken.total() == 120
    assert set(bench.taken.values()) == {1}, "a step in flight at the halt was not journaled"
    assert bench.data() == bench.expected()


@virtual_time
async def test_halted_before_it_begins(tmp_path: Path):
    bench = Bench(tmp_path)
    halt = Halt()
    halt.set("no")
    assert not await bench.run(halt=halt)
    assert not bench.taken


@virtual_time
async def test_an_exception_halts_and_what_is_in_flight_is_kept(tmp_path: Path):
    bench = Bench(tmp_path)
    halt = Halt()

    async def fail(index: int, step: int) -> None:
        await asyncio.sleep(0.02 if (index, step) == (2, 1) else 0.01 if step == 0 else 0.05)
        if (index, step) == (2, 1):
            raise RuntimeError("a bug")

    bench.before = fail
    with pytest.raises(RuntimeError, match="a bug"):
        await bench.run(halt=halt)
    assert halt.reason == "RuntimeError: a bug"
    assert bench.running == 0
    assert bench.taken.total() == 10, "something was begun after the error"
    bench.before = bench.nothing
    assert await bench.run()
    assert bench.data() == bench.expected()
    assert {key for key, times in bench.taken.items() if times > 1} == {(2, 1)}, "a paid step was thrown away"


@virtual_time
async def test_a_shard_that_cannot_be_opened_lets_the_others_end(tmp_path: Path):
    bench = Bench(tmp_path, 8)
    real = bench.folder.attempts

    def broken(stage: str, shard: int) -> Any:
        if shard == 1:
            raise JournalBroken("cannot be read")
        return real(stage, shard)

    async def slow(index: int, step: int) -> None:
        await asyncio.sleep(0.02)

    bench.before, bench.folder.attempts = slow, broken  # type: ignore[method-assign]
    with pytest.raises(JournalBroken):
        await bench.run(concurrency=8)
    bench.folder.attempts = real  # type: ignore[method-assign]
    assert await bench.run()
    assert set(bench.taken.values()) == {1}


@virtual_time
async def test_a_shard_that_was_committed_meanwhile_is_not_worked_on(tmp_path: Path):
    bench = Bench(tmp_path, 8)
    assert await bench.run()
    told: list[tuple[str, int]] = []
    left = iter([(bench.workload, 0), (bench.workload, 1), None])

    async def lease() -> tuple[Workload, int] | None:
        return next(left)

    await run_worker(
        bench.folder,
        lease,
        concurrency=4,
        halt=Halt(),
        committed=lambda workload, shard: told.append((workload.name, shard)),
    )
    assert told == [(bench.workload.name, 0), (bench.workload.name, 1)]
    assert set(bench.taken.values()) == {1}
    assert bench.files("journal") == []


@virtual_time
async def test_journals_that_vanish_while_they_are_read_mean_that_another_worker_committed(tmp_path: Path):
    bench = Bench(tmp_path, 4)
    halt = Halt()

    async def stop(index: int, step: int) -> None:
        halt.set("pause")

    bench.before = stop
    await bench.run(halt=halt)
    real = bench.folder.attempts

    def overtaken(stage: str, shard: int) -> Any:
        for path in bench.files("journal"):
            path.unlink()
        bench.folder.commit(Marker(stage, 0, f"data/{stage}/theirs", 4, "", "f"))
        yield from real(stage, shard)
        raise FileNotFoundError("gone")

    bench.folder.attempts = overtaken  # type: ignore[method-assign]
    taken = bench.taken.total()
    assert await bench.run()
    assert bench.taken.total() == taken


@virtual_time
async def test_a_worker_whose_lease_has_run_out_begins_nothing(tmp_path: Path):
    bench = Bench(tmp_path, 40)
    halt = Halt()
    halt.lease(clock() + 60)

    async def paused(index: int, step: int) -> None:
        if bench.taken.total() == 10:
            halt.lease(clock() - 1)  # what a process finds that was stopped for longer than its lease
        await asyncio.sleep(0.01)

    bench.before = paused
    assert not await bench.run(halt=halt)
    assert bench.taken.total() == 10
    halt.lease(clock() + 60)
    assert halt.reason == LEASE_LOST, "a lost lease does not come back"


@virtual_time
async def test_without_room_for_journals_no_call_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Callable[..., None]
):
    bench = Bench(tmp_path)

    def full(path: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError) as refused:
        await bench.run()
    snapshot("errors", refused.value)
    assert not bench.taken


@virtual_time
async def test_a_task_that_is_canceled_as_a_place_comes_free_hands_it_on():
    window = Window(1)
    await window.acquire()
    first, second = (asyncio.create_task(window.acquire()) for _ in range(2))
    await asyncio.sleep(0)
    window.release()
    first.cancel()
    await asyncio.wait_for(second, 30)
    assert window.taken == 1
    with pytest.raises(asyncio.CancelledError):
        await first


@virtual_time
async def test_a_window_grows_and_shrinks_while_items_are_in_flight(tmp_path: Path):
    bench = Bench(tmp_path, 60, steps=1)
    window, sizes = Window(2), list[int]()

    async def note(index: int, step: int) -> None:
        await asyncio.sleep(0.005)
        sizes.append(bench.running)
        window.resize(6 if index < 30 else 3)

    bench.before = note
    assert await bench.run(concurrency=window)
    assert max(sizes) == 6
    assert max(sizes[40:]) <= 3


@virtual_time
async def test_cancelled_from_outside_keeps_what_was_journaled(tmp_path: Path):
    bench = Bench(tmp_path)

    async def slow(index: int, step: int) -> None:
        if step == 2:
            await asyncio.sleep(30)

    bench.before = slow
    task = asyncio.create_task(bench.run())
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    bench.before = bench.nothing
    assert await bench.run()
    assert {key for key, times in bench.taken.items() if times > 1} == {(index, 2) for index in range(5)}


@pytest.mark.parametrize("journals", [1, 2])
@virtual_time
async def test_replay_of_another_question_stops_the_run(tmp_path: Path, journals: int):
    bench = Bench(tmp_path)
    halt = Halt()

    async def stop(index: int, step: int) -> None:
        halt.set("pause")

    bench.before = stop
    await bench.run(halt=halt)
    taken = bench.taken.total()
    for path in bench.files("journal") * (journals - 1):
        path.with_name(f"{path.name}0").write_bytes(path.read_bytes())
    bench.check = lambda index, step: b"something else"  # type: ignore[method-assign]
    bench.before = bench.nothing
    with pytest.raises(ReplayMismatch, match=rf"\bstep 0 .*\bitem 0 .*\b{bench.workload.name}\b"):
        await bench.run(concurrency=1)
    assert bench.taken.total() == taken, "paid before it was noticed"
    assert bench.folder.committed(bench.workload.name) == set()


@pytest.mark.parametrize(
    ("lengths", "paid"), [({"a": 5, "b": 3}, 1), ({"a": 3, "b": 5}, 1), ({"a": 4, "b": 4}, 2)]
)
@virtual_time
async def test_of_two_histories_of_an_item_the_longer_continues(
    tmp_path: Path, lengths: dict[str, int], paid: int
):
    """A paused worker resumes next to the one that replaced it. A third worker finds the journals of both."""
    bench = Bench(tmp_path, 1)
    for attempt, length in lengths.items():
        log = bench.folder.open_journal(bench.workload.name, 0, attempt)
        told = ""
        for step in range(length):
            answer = f"{told} {attempt}{step}"
            await log.append(msgspec.msgpack.encode((0, step, told.encode(), answer.encode())))
            told = answer
        await log.close()

    async def work(index: int, steps: Steps) -> str:
        told = b""
        for step in range(6):

            async def go_on(told: bytes = told, step: int = step) -> bytes:
                bench.taken[index, step] += 1
                return b"%s c%d" % (told, step)

            told = await steps.once(told, go_on)
        return told.decode()

    bench.workload = Workload(name=bench.workload.name, count=1, work=work, write=write)
    assert await bench.run()
    own, new = 6 - paid, range(6 - paid, 6)
    longer = max(lengths, key=lambda name: lengths[name])
    assert bench.data() == ["".join(f" {longer}{n}" for n in range(own)) + "".join(f" c{n}" for n in new)]
    assert bench.taken.total() == paid


@pytest.mark.parametrize("same", [True, False])
@virtual_time
async def test_a_damaged_step_is_paid_again_and_the_item_continues_over_any_number_of_starts(
    tmp_path: Path, same: bool
):
    """Step 1 of 6 is damaged. Each start takes one new step and is stopped."""
    bench = Bench(tmp_path, 1)
    halt, attempt = Halt(), ""

    async def work(index: int, steps: Steps) -> str:
        said = b""
        for step in range(6):

            async def make(said: bytes = said, step: int = step) -> bytes:
                bench.taken[index, step] += 1
                if attempt:
                    halt.set("stopped")
                return b"%s %d%s" % (said, step, attempt.encode())

            said = await steps.once(said, make)
        return said.decode()

    bench.workload = Workload(name=bench.workload.name, count=1, work=work, write=_fail)
    with pytest.raises(CommitFailed):
        await bench.run(concurrency=1)
    [path] = bench.files("journal")
    data = bytearray(path.read_bytes())
    data[data.index(b" 0 1")] ^= 1
    path.write_bytes(data)
    bench.workload = Workload(name=bench.workload.name, count=1, work=work, write=write)
    starts = 0
    while True:
        halt, attempt = Halt(), "" if same else "'"
        starts += 1
        if await bench.run(concurrency=1, halt=halt):
            break
    new = "" if same else "'"
    assert bench.data() == ["".join([" 0", *(f" {step}{new}" for step in range(1, 6))])]
    paid = {(0, 1): 2} if same else {(0, step): 2 for step in range(1, 6)}
    assert {place: times for place, times in bench.taken.items() if times > 1} == paid
    assert starts == (1 if same else 5)


def _fail(path: Path, records: Sequence[Any]) -> Written:
    raise OSError(errno.ENOSPC, "No space left on device")


@virtual_time
async def test_a_link_whose_answer_was_lost_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Over a network the link is made, the answer lost, and asked again it is there already."""
    link = os.link

    def twice(source: str, target: str, **folders: Any) -> None:
        link(source, target, **folders)
        link(source, target, **folders)

    monkeypatch.setattr(os, "link", twice)
    bench = Bench(tmp_path, 8)
    assert await bench.run()
    assert bench.data() == bench.expected()


@virtual_time
async def test_an_unfinished_item_leaves_its_shard_open_and_lets_go_of_it(tmp_path: Path):
    bench = Bench(tmp_path, 160)
    files = open_files()
    most = 0

    async def fail_one_in_each(index: int, step: int) -> None:
        nonlocal most
        most = max(most, open_files() - files)
        if index % 4 == 1 and step == 1:
            raise Unfinished("the endpoint is ill")

    bench.before = fail_one_in_each
    assert not await bench.run()
    assert bench.folder.committed(bench.workload.name) == set()
    assert most < 30, "shards that cannot be finished now are held open"
    bench.before = bench.nothing
    assert await bench.run()
    assert bench.data() == bench.expected()
    assert {key for key, times in bench.taken.items() if times > 1} == {(n, 1) for n in range(1, 160, 4)}


class Kept(str):
    """A record that counts as kept while there is a reference to it."""

    made: ClassVar[list[int]] = []
    gone: ClassVar[list[int]] = []  # grown by whichever thread lets go of it
    most = 0

    def __init__(self, _: str) -> None:
        Kept.made.append(1)
        Kept.most = max(Kept.most, len(Kept.made) - len(Kept.gone))

    def __del__(self) -> None:
        Kept.gone.append(1)


@pytest.mark.parametrize("unfinished", [False, True])
@virtual_time
async def test_memory_does_not_grow_with_the_number_of_shards(tmp_path: Path, unfinished: bool):
    async def work(index: int, steps: Steps) -> str:
        await asyncio.sleep(0)
        if unfinished and index % 4 == 3:
            raise Unfinished("no")
        return Kept("x")

    Kept.made, Kept.gone, Kept.most = [], [], 0
    bench = Bench(tmp_path, 1)
    bench.workload = Workload(name=bench.workload.name, count=200, work=work, write=write, shard_size=4)
    assert await bench.run(concurrency=5) is not unfinished
    assert Kept.most <= 2 * 5 * 4, "each of five in flight may wait for the commit of its shard"
    gc.collect()
    assert len(Kept.made) == len(Kept.gone) >= 150


@virtual_time
async def test_a_disk_that_is_slow_to_commit_holds_the_work_back(tmp_path: Path):
    bench = Bench(tmp_path, 60, shard_size=1, steps=1)
    uncommitted = 0

    def slow(path: Path, records: Sequence[Any]) -> Written:
        nonlocal uncommitted
        uncommitted = max(uncommitted, len(bench.taken) - len(bench.folder.committed(bench.workload.name)))
        time.sleep(0.005)
        return write(path, records)

    bench.workload = Workload(name=bench.workload.name, count=60, work=bench.work, write=slow, shard_size=1)
    assert await bench.run(concurrency=3)
    assert uncommitted <= 6


@virtual_time
async def test_who_comes_second_removes_its_own_file(tmp_path: Path):
    bench = Bench(tmp_path, 4)
    theirs = bench.folder.data_path(bench.workload.name, 0, "theirs", ".parquet")
    write(theirs, bench.expected())

    async def overtaken(index: int, step: int) -> None:
        file = str(theirs.relative_to(bench.folder.root))
        bench.folder.commit(Marker(bench.workload.name, 0, file, 4, "", "f"))

    bench.before = overtaken
    assert await bench.run()
    assert bench.files("data") == [theirs]
    assert bench.files("journal") == []
    assert bench.folder.marker(bench.workload.name, 0).file.endswith("000000-theirs.parquet")


@pytest.mark.parametrize("call", ["write", "fdatasync"])
@virtual_time
async def test_disk_full_is_one_plain_error_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
):
    bench = Bench(tmp_path, 40)
    real: Any = getattr(os, call)
    left = 12

    def full(*args: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(JournalBroken, match=os.strerror(errno.ENOSPC)):
            await bench.run()
    taken = bench.taken.copy()
    assert await bench.run()
    assert bench.data() == bench.expected()
    repeats = bench.taken.total() - 120
    assert repeats <= 5 + sum(times - 1 for times in taken.values())


@virtual_time
async def test_disk_full_at_the_commit_leaves_no_half_file(tmp_path: Path):
    bench = Bench(tmp_path, 8)

    def full(path: Path, records: Sequence[Any]) -> Written:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    whole, bench.workload = (
        bench.workload,
        Workload(name=bench.workload.name, count=8, work=bench.work, write=full, shard_size=4),
    )
    with pytest.raises(CommitFailed, match="No space"):
        await bench.run()
    assert bench.files("data") == []
    bench.workload = whole
    assert await bench.run()
    assert bench.data() == bench.expected()
    assert set(bench.taken.values()) == {1}


@virtual_time
async def test_what_a_crash_after_the_marker_left_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    bench = Bench(tmp_path, 8)
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "drop_journals", lambda *args: None)
        patch.setattr(RunFolder, "sweep", lambda *args: None)
        assert await bench.run()
    assert bench.files("journal")
    assert await bench.run()
    assert bench.files("journal") == []
    assert bench.data() == bench.expected()


def test_a_lease_that_ran_out_or_was_revoked_lets_nothing_leave():
    free, late, out = Halt(), Halt(), Halt()
    free.set("stopped by the user")
    free.check_lease()  # what is in flight ends as usual
    late.lease(clock() - 1)
    out.lease(clock() + 60)
    out.check_lease()
    out.revoke("another has it")
    for halt, reason in ((late, LEASE_LOST), (out, "another has it")):
        with pytest.raises(Halted, match=reason):
            halt.check_lease()
