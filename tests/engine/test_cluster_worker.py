"""Workers, coordinator and driver in one process on real files: what Ray would do to them, done by hand.

The witness is the workload's own count of steps that were taken, as the endpoint's ledger would have them.
"""

# ruff: noqa: ASYNC110 - what is waited for is the world, not an event

from __future__ import annotations

import asyncio
import contextlib
import errno
import pickle
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from camel.core.message import Usage
from camel.engine import cluster_worker as member
from camel.engine.cluster_worker import ClusterWorker, WorkerEnd
from camel.engine.coordinator import QUESTIONS, Coordinator, Totals
from camel.engine.halt import LEASE_LOST, Halt, Unfinished
from camel.engine.site import (
    WAIT,
    CoordinatorGone,
    Divider,
    Grant,
    Heartbeat,
    HeartbeatReply,
    ModelReport,
    StageReport,
    Turn,
    WorkerReport,
    WorkerShare,
)
from camel.engine.stage import ShardTable, Workload
from camel.jobs.budget import Budget
from camel.jobs.shares import Shares
from camel.models.governor import EndpointReport, Share
from camel.models.sharing import PoolShare
from camel.models.subsets import ReplicaList, Subset
from camel.runs.run import RunFolder
from camel.storage.journal import JournalBroken
from tests.support.bench import Bench
from tests.support.virtual_time import now, virtual_time


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "BEAT_EVERY", 0.02)
    monkeypatch.setattr(member, "PATIENCE", 0.05)
    monkeypatch.setattr(member, "PAUSE", 0.01)
    monkeypatch.setattr("camel.engine.halt.clock", now)
    monkeypatch.setattr(member, "clock", now)


STEP = (0,)


class BenchSite:
    """A worker's site on a bench."""

    has_freed_slots = False

    def __init__(self, *benches: Bench) -> None:
        self._benches, self.folder, self.halt = benches, RunFolder(benches[0].folder.root), Halt()
        self.turns: list[tuple[tuple[int, ...], int]] = []
        """The step and the attempt of each."""
        self.shares: list[WorkerShare] = []
        self.closed = False
        self.unreached = 0
        self.finished: list[tuple[str, int]] = []

    def workloads(self, step: tuple[int, ...], attempt: int) -> Sequence[Workload]:
        self.turns.append((step, attempt))
        return [bench.workload for bench in self._benches]

    def committed(self, stage: str, shard: int) -> None:
        self.finished.append((stage, shard))

    def report(self) -> WorkerReport:
        """A call for each shard that it has finished."""
        model = ModelReport(
            Usage(calls=len(self.finished)), served=len(self.finished), unreached=self.unreached
        )
        return WorkerReport({"simulated": model}, in_flight=1)

    def apply_share(self, share: WorkerShare) -> None:
        self.shares.append(share)

    def copy_journals(self) -> None:
        raise AssertionError("all workers share a folder")

    async def aclose(self) -> None:
        self.closed = True


class Line:
    """A worker's way to the coordinator, which can be cut."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self.cut = self.dead = False
        self.loses, self.chance = 0.0, random.Random(0)

    async def _pass(self) -> None:
        await asyncio.sleep(0.001)
        if self.dead:
            raise CoordinatorGone
        while self.cut:
            await asyncio.sleep(0.01)

    def _lose_some(self) -> None:
        """What was said has been heard; the answer gets lost."""
        if self.chance.random() < self.loses:
            raise TimeoutError

    async def __call__(self, method: str, *args: Any) -> Any:
        await self._pass()
        answer = getattr(self._coordinator, method)(*args)
        if method != "turn":
            self._lose_some()
        return answer


class Team:
    """A driver by hand, and its workers."""

    def __init__(self, *benches: Bench, ttl: float = 2.0, concurrency: int = 6) -> None:
        self.benches = benches
        self.coordinator = Coordinator(concurrency, ttl=ttl, now=now)
        self.sites: dict[str, BenchSite] = {}
        self.lines: dict[str, Line] = {}
        self.tasks: dict[str, asyncio.Task[WorkerEnd]] = {}
        self.seen: list[int] = []
        """Numbers of the shards that are known to be finished."""
        self.table = ShardTable([bench.workload for bench in benches])
        self.number = 0
        self.expected = 2

    def hire(self, name: str) -> None:
        self.sites[name], self.lines[name] = BenchSite(*self.benches), Line(self.coordinator)
        worker = ClusterWorker(name, self.sites[name], self.lines[name], f"node of {name}")
        self.tasks[name] = asyncio.create_task(worker.live())

    def look(self) -> Totals:
        totals = self.coordinator.look(len(self.seen), self.expected)
        self.seen += totals.committed
        return totals

    def begin(self, attempt: int = 0) -> None:
        self.number += 1
        self.seen.clear()
        done = self.table.done(self.benches[0].folder)
        self.coordinator.begin(Turn(self.number, STEP, attempt), len(self.table), done)

    async def run_pass(self, attempt: int = 0, during: Any = None) -> Totals:
        self.begin(attempt)
        acting = asyncio.create_task(during()) if during else None
        async with asyncio.timeout(120):
            while not (totals := self.look()).over:
                await asyncio.sleep(0.01)
            if acting:
                await acting
        return totals

    async def close(self) -> dict[str, WorkerEnd]:
        self.coordinator.close()
        async with asyncio.timeout(60):
            while not all(task.done() for task in self.tasks.values()):
                self.look()
                await asyncio.sleep(0.01)
        return {name: task.result() for name, task in self.tasks.items() if not task.cancelled()}


@virtual_time
async def test_a_coordinator_that_cannot_be_had_is_not_asked_without_end(tmp_path: Path):
    site, asked = BenchSite(Bench(tmp_path, 1)), 0

    class Unavailable(Line):
        async def __call__(self, method: str, *args: Any) -> Any:
            nonlocal asked
            asked += method == "beat"
            raise TimeoutError

    task = asyncio.create_task(ClusterWorker("a", site, Unavailable(Coordinator(1, now=now))).live())
    await asyncio.sleep(0.1)
    site.halt.set(member.GONE)
    await task
    assert 1 < asked < 20, "ten pauses of 0.01 s"


@virtual_time
async def test_two_workers_do_everything_once(tmp_path: Path):
    bench = Bench(tmp_path, 80)
    team = Team(bench)
    team.hire("a")
    team.hire("b")
    totals = await team.run_pass()
    assert bench.data() == bench.expected()
    assert set(bench.taken.values()) == {1}
    assert bench.most <= 6, "more in flight than the window of the whole run"
    assert sorted(team.seen) == list(range(20))
    left = await team.close()
    assert left == {"a": WorkerEnd("dismissed"), "b": WorkerEnd("dismissed")}
    assert all(site.closed and site.finished for site in team.sites.values()), "one of them did nothing"
    assert team.look().report.usage == Usage(calls=20), "what all of them had, also those that have left"
    assert totals.shards == {"done": 20, "held": 0, "waiting": 0}


@virtual_time
async def test_several_workloads_are_leased_together(tmp_path: Path):
    """Items 5 of `second` and 5 and 22 of `some` cannot be finished in the first pass."""
    first = Bench(tmp_path, 40)
    second = Bench(tmp_path, 21, shard_size=3, name="second", folder=first.folder)
    items = {5: [21, 22], 9: [36], 1: [4, 5, 6, 7]}
    some = Bench(tmp_path, 40, name="some", folder=first.folder, items=items)
    benches = [first, second, some]
    team = Team(*benches)
    most = 0

    async def slow(index: int, step: int) -> None:
        nonlocal most
        most = max(most, sum(bench.running for bench in benches))
        await asyncio.sleep(0.005)

    async def ill(index: int, step: int) -> None:
        await slow(index, step)
        if index in (5, 22) and step == 1:
            raise Unfinished("the endpoint is ill")

    def seen() -> set[tuple[str, int]]:
        assert len(set(team.seen)) == len(team.seen)
        return {(one.name, shard) for one, shard in map(team.table.__getitem__, team.seen)}

    everything = {(one.workload.name, shard) for one in benches for shard in one.workload.numbers}
    unfinished = {("second", 1), ("some", 1), ("some", 5)}
    first.before, second.before, some.before = slow, ill, ill
    for name in "ab":
        team.hire(name)
        team.lines[name].loses = 0.2
    totals = await team.run_pass()
    assert most == 6, "one window for all of them"
    committed = {
        (one.workload.name, shard) for one in benches for shard in first.folder.committed(one.workload.name)
    }
    assert seen() == committed == everything - unfinished
    assert totals.shards == {"done": 17, "held": 0, "waiting": 3}
    second.before = some.before = slow
    await team.run_pass(attempt=1)
    assert seen() == unfinished
    assert {left.how for left in (await team.close()).values()} == {"dismissed"}
    assert [bench.data() for bench in benches] == [bench.expected() for bench in benches]
    repeated = [{place for place, times in bench.taken.items() if times > 1} for bench in benches]
    assert repeated == [set(), {(5, 1)}, {(5, 1), (22, 1)}]
    finished = [one for site in team.sites.values() for one in site.finished]
    assert sorted(finished) == sorted(everything)


@virtual_time
async def test_a_worker_that_is_killed_loses_only_what_it_had_in_flight(tmp_path: Path):
    bench = Bench(tmp_path, 80)
    team = Team(bench)
    inflight = 0

    async def slow(index: int, step: int) -> None:
        await asyncio.sleep(0.005)

    async def kill() -> None:
        nonlocal inflight
        while bench.taken.total() < 60:
            await asyncio.sleep(0.001)
        inflight = bench.running
        team.tasks["a"].cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await team.tasks["a"]
        team.coordinator.lost("a")
        team.hire("c")

    bench.before = slow
    team.hire("a")
    team.hire("b")
    await team.run_pass(during=kill)
    assert bench.data() == bench.expected()
    assert sum(times - 1 for times in bench.taken.values()) <= inflight
    await team.close()


@virtual_time
async def test_nobody_takes_a_step_while_it_is_paused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("camel.engine.halt.PAUSED", 0.01)
    bench = Bench(tmp_path, 80)
    team = Team(bench, ttl=1.5)

    async def slow(index: int, step: int) -> None:
        await asyncio.sleep(0.005)

    async def pause() -> None:
        while bench.taken.total() < 60:
            await asyncio.sleep(0.001)
        team.coordinator.pause(True)
        await asyncio.sleep(0.8)
        taken = bench.taken.total()
        await asyncio.sleep(1.8)  # longer than a lease, which is kept alive
        assert bench.taken.total() == taken
        team.coordinator.pause(False)

    bench.before = slow
    team.hire("a")
    team.hire("b")
    await team.run_pass(during=pause)
    assert bench.data() == bench.expected()
    assert set(bench.taken.values()) == {1}
    assert {left.how for left in (await team.close()).values()} == {"dismissed"}


@virtual_time
async def test_lost_answers_lose_nothing(tmp_path: Path):
    bench = Bench(tmp_path, 120)
    team = Team(bench, ttl=5)
    for name in ("a", "b", "c"):
        team.hire(name)
        team.lines[name].loses = 0.4
    await team.run_pass()
    assert bench.data() == bench.expected()
    assert set(bench.taken.values()) == {1}
    assert sorted(team.seen) == list(range(30))
    assert {left.how for left in (await team.close()).values()} == {"dismissed"}


@virtual_time
async def test_a_silent_worker_stops_by_itself_before_its_shards_go_to_others(tmp_path: Path):
    bench = Bench(tmp_path, 60, steps=6)
    team = Team(bench)

    async def slow(index: int, step: int) -> None:
        await asyncio.sleep(0.01)

    async def cut() -> None:
        while bench.taken.total() < 60:
            await asyncio.sleep(0.001)
        team.lines["a"].cut = True
        await team.tasks["a"]

    bench.before = slow
    team.hire("a")
    team.hire("b")
    await team.run_pass(during=cut)
    assert team.tasks["a"].result() == WorkerEnd("out", LEASE_LOST)
    assert bench.data() == bench.expected()
    assert all(times == 1 for times in bench.taken.values()), (
        "its calls ended and were journaled, so none is repeated"
    )
    await team.close()


@virtual_time
async def test_what_fails_in_a_worker_that_is_out_concerns_nobody(tmp_path: Path):
    bench = Bench(tmp_path, 4)
    team = Team(bench, ttl=0.2)

    async def until_out(index: int, step: int) -> None:
        while not team.sites["a"].halt.reason:
            await asyncio.sleep(0.01)
        raise JournalBroken("a file that another process removed")

    bench.before = until_out
    team.hire("a")
    team.begin()
    team.look()
    while not bench.running:
        await asyncio.sleep(0.01)
    team.lines["a"].cut = True
    assert await team.tasks["a"] == WorkerEnd("out", LEASE_LOST)


@virtual_time
async def test_a_worker_that_was_declared_dead_leaves(tmp_path: Path):
    bench = Bench(tmp_path, 40)
    team = Team(bench, ttl=30)

    async def slow(index: int, step: int) -> None:
        await asyncio.sleep(0.005)

    async def declare() -> None:
        while bench.taken.total() < 20:
            await asyncio.sleep(0.001)
        team.coordinator.lost("a")

    bench.before = slow
    team.hire("a")
    team.hire("b")
    await team.run_pass(during=declare)
    assert (await team.close())["a"] == WorkerEnd("out", member.OUT)
    assert bench.data() == bench.expected()
    assert len(bench.files("data")) == 10


@virtual_time
async def test_all_stop_when_the_driver_is_silent(tmp_path: Path):
    bench = Bench(tmp_path, 120)
    team = Team(bench, ttl=0.3)

    async def slow(index: int, step: int) -> None:
        await asyncio.sleep(0.01)

    bench.before = slow
    team.hire("a")
    team.hire("b")
    team.begin()
    team.look()  # and never again
    async with asyncio.timeout(60):
        left = await asyncio.gather(*team.tasks.values())
    assert [one.how for one in left] == ["out", "out"]
    taken = bench.taken.total()
    assert 0 < taken < 360
    bench.before = bench.nothing
    assert await bench.run()
    assert set(bench.taken.values()) == {1}


@pytest.mark.parametrize(
    ("reason", "left"),
    [("", WorkerEnd("out", member.GONE)), ("the budget of 5 calls is used up", WorkerEnd("dismissed"))],
)
@virtual_time
async def test_a_dead_coordinator_ends_its_workers(tmp_path: Path, reason: str, left: WorkerEnd):
    """Also one that was to stop already, for a reason of its own."""
    bench = Bench(tmp_path, 400)
    team = Team(bench, ttl=30)

    async def slow(index: int, step: int) -> None:
        await asyncio.sleep(0.01)

    bench.before = slow
    team.hire("a")
    team.begin()
    team.look()
    await asyncio.sleep(0.1)
    team.lines["a"].dead = True
    team.sites["a"].halt.set(reason)
    async with asyncio.timeout(60):
        assert await team.tasks["a"] == left
    assert team.sites["a"].closed


@virtual_time
async def test_unfinished_shards_are_offered_again_in_the_next_pass(tmp_path: Path):
    bench = Bench(tmp_path, 40)
    team = Team(bench)

    async def ill(index: int, step: int) -> None:
        if index % 8 == 1 and step == 1:
            raise Unfinished("the endpoint is ill")

    bench.before = ill
    team.hire("a")
    team.hire("b")
    await team.run_pass()
    assert len(bench.folder.committed(bench.workload.name)) == 5
    bench.before = bench.nothing
    await team.run_pass(attempt=1)
    assert bench.data() == bench.expected()
    assert team.sites["a"].turns == [(STEP, 0), (STEP, 1)]
    await team.close()


@virtual_time
async def test_one_workers_reason_to_halt_stops_all(tmp_path: Path):
    bench = Bench(tmp_path, 400)
    team = Team(bench, ttl=30)

    async def refuse(index: int, step: int) -> None:
        await asyncio.sleep(0.005)
        if bench.taken.total() >= 50:
            team.sites["a"].halt.set("the key is wrong")

    bench.before = refuse
    team.hire("a")
    team.hire("b")
    totals = await team.run_pass()
    assert totals.halt == "the key is wrong"
    assert team.sites["b"].halt.reason == "the key is wrong"
    assert bench.taken.total() < 150
    await team.close()
    bench.before = bench.nothing
    assert await bench.run()
    assert set(bench.taken.values()) == {1}, "what was in flight was not kept"


@virtual_time
async def test_an_error_in_a_worker_ends_it_and_halts_the_rest(tmp_path: Path):
    bench = Bench(tmp_path, 400)
    team = Team(bench, ttl=30)

    async def fail(index: int, step: int) -> None:
        await asyncio.sleep(0.005)
        if index == 30:
            raise RuntimeError("a bug")

    bench.before = fail
    team.hire("a")
    team.hire("b")
    totals = await team.run_pass()
    assert totals.halt == "RuntimeError: a bug"
    team.coordinator.close()
    ends = await asyncio.gather(*team.tasks.values(), return_exceptions=True)
    assert sorted(type(end).__name__ for end in ends) == ["RuntimeError", "WorkerEnd"]


@virtual_time
async def test_what_others_wait_for_is_reported_before_the_next_heartbeat_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(member, "BEAT_EVERY", 5.0)
    team = Team(Bench(tmp_path, 8), ttl=60.0)
    team.hire("a")
    await asyncio.sleep(1.0)
    site = team.sites["a"]
    before = len(site.shares)
    await asyncio.sleep(1.0)
    assert len(site.shares) == before
    site.has_freed_slots = True
    await asyncio.sleep(1.0)
    assert before < len(site.shares) <= before + 1.0 / member.SOON + 1
    site.has_freed_slots = False
    await team.close()


class SixtyCalls(Divider):
    """A budget for one worker."""

    def share(self, worker: str) -> WorkerShare:
        return WorkerShare(3, Grant(60))


@virtual_time
async def test_a_worker_with_a_full_disk_hurts_only_itself(tmp_path: Path):
    bench = Bench(tmp_path, 80)
    team = Team(bench, ttl=30)
    inflight = 0

    async def full(index: int, step: int) -> None:
        nonlocal inflight
        await asyncio.sleep(0.005)
        if index == 30 and step == 1 and not inflight:
            inflight = bench.running
            raise OSError(errno.ENOSPC, "No space left on device", f"{tempfile.gettempdir()}/a")

    async def bury() -> None:
        """What the supervisor does."""
        done, _ = await asyncio.wait(team.tasks.values(), return_when=asyncio.FIRST_COMPLETED)
        for name, task in team.tasks.items():
            if task in done:
                team.coordinator.lost(name)

    bench.before = full
    team.hire("a")
    team.hire("b")
    totals = await team.run_pass(during=bury)
    assert not totals.halt
    assert bench.data() == bench.expected()
    assert sum(times - 1 for times in bench.taken.values()) <= inflight, "only what was in flight"
    ends = await team.close()
    [(name, failed)] = [(name, end) for name, end in ends.items() if end.how == "failed"]
    assert failed.fault is not None
    assert (failed.fault.node, failed.fault.kind) == (f"node of {name}", "disk")


@virtual_time
async def test_the_workers_of_a_retired_node_exit_and_others_get_their_shards(tmp_path: Path):
    bench = Bench(tmp_path, 80)
    team = Team(bench, ttl=30)

    async def slow(index: int, step: int) -> None:
        await asyncio.sleep(0.005)

    async def retire() -> None:
        while bench.taken.total() < 60:
            await asyncio.sleep(0.001)
        assert team.coordinator.retire("node of a") == ["a"]
        await team.tasks["a"]
        team.hire("a")  # a worker that was already on its way to the node
        await team.tasks["a"]

    bench.before = slow
    team.hire("a")
    team.hire("b")
    totals = await team.run_pass(during=retire)
    assert not totals.halt
    assert bench.data() == bench.expected()
    assert (await team.close())["a"] == WorkerEnd("out", member.OUT)


@virtual_time
async def test_a_lone_caller_without_a_route_passes_its_shards_on(tmp_path: Path):
    bench = Bench(tmp_path, 1)
    team = Team(bench, ttl=30)

    async def unreachable(index: int, step: int) -> None:
        site = team.sites["a"]
        if not site.halt.reason:
            site.unreached += 1
            while not site.halt.reason:
                await asyncio.sleep(0.01)
            raise Unfinished("no connection")

    bench.before = unreachable
    team.hire("a")
    team.begin()
    team.look()
    while not bench.running:
        await asyncio.sleep(0.01)
    team.hire("b")
    async with asyncio.timeout(60):
        while not (totals := team.look()).over:
            await asyncio.sleep(0.01)
    assert bench.data() == bench.expected()
    assert not totals.faults, "b only showed that the endpoint works"
    assert (await team.close())["a"] == WorkerEnd("out", member.OUT)


@virtual_time
async def test_shares_reach_their_workers(tmp_path: Path):
    bench = Bench(tmp_path, 8)
    team = Team(bench)
    team.coordinator = Coordinator(6, share=SixtyCalls(), now=now)
    team.hire("a")
    await team.run_pass()
    await team.close()
    assert WorkerShare(3, Grant(calls=60.0)) in team.sites["a"].shares


@virtual_time
async def test_places_that_may_be_taken_any_moment_are_not_given_to_others(tmp_path: Path):
    team = Team(Bench(tmp_path, 4), ttl=30)
    team.expected = 1
    team.look()
    beats: list[Heartbeat] = []
    windows: list[int] = []

    class Watched(Line):
        async def __call__(self, method: str, *args: Any) -> Any:
            orders = await super().__call__(method, *args)
            if method != "beat":
                return orders
            beats.append(args[0])
            # Who comes now, while the answer is on its way: the worker can still fill the window it had.
            if len(beats) == 5:
                team.expected = 2
                team.look()
            windows.append(
                team.coordinator.beat(Heartbeat("b", 0, WorkerReport())).window if len(beats) > 5 else 0
            )
            return orders

    worker = ClusterWorker("a", BenchSite(*team.benches), Watched(team.coordinator))
    team.tasks["a"] = asyncio.create_task(worker.live())
    while len(beats) < 9:
        await asyncio.sleep(0.01)
    assert [beat.open for beat in beats[:6]] == [0, 6, 6, 6, 6, 6], (
        "it has nothing in flight, and may have six"
    )
    assert windows[5] == 0
    assert windows[7] == 3
    await team.close()


def test_windows_add_up_while_workers_come_and_go():
    now = 0.0
    coordinator = Coordinator(10, ttl=5, now=lambda: now)

    def beat(worker: str, inside: int = 0) -> int:
        return coordinator.beat(Heartbeat(worker, 0, WorkerReport(), open=inside)).window

    coordinator.look(0, 1)
    assert beat("a") == 10
    assert beat("b") == 0, "all of it is taken"
    assert beat("a", 10) == 5
    assert beat("b") == 0, "still taken: those items are open"
    assert beat("a", 7) == 5
    assert beat("b") == 3
    assert beat("a", 5) == 5
    assert beat("b") == 5
    coordinator.look(0, 3)
    assert (beat("a"), beat("b"), beat("c")) == (4, 3, 3)
    coordinator.lost("b")
    coordinator.look(0, 2)
    assert (beat("a"), beat("c")) == (5, 5)
    now += 6
    coordinator.look(0, 1)
    assert beat("d") == 10, "the silent ones are out"


def test_the_driver_hears_once_of_who_fell_silent_and_what_they_held():
    now = 0.0
    coordinator = Coordinator(10, ttl=5, now=lambda: now)
    coordinator.look(0, 2)
    coordinator.begin(Turn(1, STEP), 4, ())
    for worker in ("a", "b"):
        coordinator.beat(Heartbeat(worker, 1, WorkerReport()))
    coordinator.look(0, 2)
    for worker in ("a", "b"):
        coordinator.beat(Heartbeat(worker, 1, WorkerReport()))
    held = {worker: coordinator.lease(worker, 1, 1) for worker in ("a", "b")}
    assert sorted(map(str, held.values())) == ["0", "1"]
    assert coordinator.lost("b") == [held["b"]]
    now += 6
    # Its own beat, too late, is what shows it.
    assert coordinator.beat(Heartbeat("a", 1, WorkerReport())).out
    assert coordinator.look(0, 1).silent == {"a": [held["a"]]}
    assert coordinator.look(0, 1).silent == {}


def test_no_shard_for_who_has_no_room():
    coordinator = Coordinator(1)
    coordinator.begin(Turn(1, STEP), 3, ())
    coordinator.look(0, 2)
    beats = [coordinator.beat(Heartbeat(name, 1, WorkerReport())) for name in ("a", "b")]
    assert [orders.window for orders in beats] == [1, 0]
    assert coordinator.lease("b", 1, 1) == WAIT
    assert coordinator.lease("a", 1, 1) == 0
    assert coordinator.lease("a", 1, 1) == 0, "the answer may have been lost"
    assert coordinator.lease("a", 1, 2) == 1


def test_however_many_workers_there_are_the_coordinator_is_asked_as_often():
    def asked(workers: int, ttl: float) -> float:
        """The interval that the coordinator gives the last of these workers."""
        coordinator = Coordinator(1_000, ttl=ttl, now=lambda: 0.0)
        return [coordinator.beat(Heartbeat(f"w{n}", 0, WorkerReport())).apart for n in range(workers)][-1]

    assert asked(4, ttl=10.0) < 0.05  # a few need not wait for one another
    assert 200 / asked(200, ttl=10.0) == pytest.approx(QUESTIONS)
    assert asked(200, ttl=1.0) == 0.25  # and never so long that a lease could run out


def test_a_report_of_all_workers_counts_what_the_dead_used_and_where_the_living_are():
    now = 0.0
    coordinator = Coordinator(10, ttl=5, share=Shares(Budget(), {}, now=lambda: now), now=lambda: now)

    def report(calls: int, words: str = "") -> WorkerReport:
        return WorkerReport(
            {
                "big": ModelReport(
                    Usage(10 * calls, calls, 0, calls, usd=0.5 * calls),
                    {"ServerFailed": 1},
                    2,
                    3,
                    calls,
                    1,
                    calls > 1,
                    7.0,
                    words,
                ),
                "small": ModelReport(Usage(calls=1), served=1),
            },
            {"conversations": StageReport(2, calls, 1, {"stop.done": calls})},
            {
                "big": {
                    "http://one": EndpointReport(1, 2, 3, calls, 1, 1, 100, 50, 2, int(calls > 1), calls > 1)
                }
            },
            in_flight=4,
            starved=1,
            follows=9,
            account=9,
        )

    coordinator.look(0, 3)
    for worker, calls in (("dead", 100), ("a", 1), ("b", 2)):
        coordinator.beat(Heartbeat(worker, 0, report(calls, "refused" if worker == "b" else "")))
    coordinator.lost("dead")
    now = 1.0
    coordinator.beat(Heartbeat("b", 0, report(2, "refused")))
    totals = coordinator.look(0, 2)
    assert sorted(totals.live) == ["a", "b"]
    assert totals.report == WorkerReport(
        {
            "big": ModelReport(
                Usage(1_030, 103, 0, 103, usd=51.5), {"ServerFailed": 3}, 6, 9, 103, 3, True, 7.0, "refused"
            ),
            "small": ModelReport(Usage(calls=3), served=3),
        },
        {"conversations": StageReport(4, 3, 2, {"stop.done": 3})},
        {"big": {"http://one": EndpointReport(2, 4, 6, 3, 2, 2, 200, 100, 4, failing=1, broken=False)}},
        in_flight=8,
        starved=2,
    )
    assert totals.report.usage == Usage(1_030, 103, 0, 106, usd=51.5)


def test_reports_and_shares_are_the_same_in_another_process():
    endpoint = EndpointReport(3, 4, -1, 10, 1, 1, 100, 50, 2, 3, True)
    report = WorkerReport(
        {"m": ModelReport(Usage(1, 2, 0, 3, 1, usd=0.5), {"ServerFailed": 1}, words="down")},
        {"conversations": StageReport(1, 2, 3, {"stop.done": 2})},
        {"m": {"http://one": endpoint, "http://gone": None}},
        {"m": ReplicaList("d1", b"packed")},
        7,
        6,
        follows=0,
        account=7,
    )
    shares = {"http://one": Share(ceiling=5, rpm=60), "http://other": None}
    share = WorkerShare(4, Grant(calls=10), {"m": PoolShare(shares, Subset("d1", (1, 4), (2, 2)))})
    for sent in (
        Heartbeat("w", 1, report, (1, 2)),
        HeartbeatReply(share=share),
        HeartbeatReply(),
        Turn(2, (0, 3, -1), 1),
    ):
        assert pickle.loads(pickle.dumps(sent)) == sent
