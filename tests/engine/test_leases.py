"""The table of shards under any history: nobody shares a shard, nothing is lost, nothing is done twice."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from camel.engine.leases import Leases

TTL = 10.0
WORKERS = st.sampled_from(["a", "b", "c", "d"])


class History(RuleBasedStateMachine):
    """Workers that beat, work, fall silent, die and come back too late, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.leases = Leases(7, done=[2], ttl=TTL)
        self.holds: dict[str, set[int]] = {}
        self.until: dict[str, float] = {}
        """Each worker's own deadline, as it knows it: what it may rely on."""
        self.done: set[int] = {2}
        self.names = 0
        self.names_of: dict[str, str] = {}

    def name(self, worker: str) -> str:
        return self.names_of.setdefault(worker, worker)

    @rule(seconds=st.floats(0, 2 * TTL))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(worker=WORKERS)
    def beat(self, worker: str) -> None:
        name = self.name(worker)
        if self.leases.beat(name, self.now):
            self.until[name] = self.now + TTL
        else:
            self.leave(worker)

    @rule(worker=WORKERS)
    def lease(self, worker: str) -> None:
        name = self.name(worker)
        shard = self.leases.lease(name, self.now)
        if shard is None:
            return
        assert shard not in self.done, "leased after it was done"
        assert self.now <= self.until[name], "leased to a worker whose lease has expired"
        for other, held in self.holds.items():
            if self.until.get(other, -1) >= self.now:
                assert shard not in held, f"{name} and {other} hold {shard}"
        self.holds.setdefault(name, set()).add(shard)

    @precondition(lambda self: any(self.holds.values()))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        """A worker whose lease has expired may finish a shard, too: the marker counts."""
        shard = data.draw(st.sampled_from(sorted(set[int]().union(*self.holds.values()))))
        assert self.leases.finish(shard) == (shard not in self.done)
        self.done.add(shard)
        for held in self.holds.values():
            held.discard(shard)

    @rule(worker=WORKERS)
    def is_lost(self, worker: str) -> None:
        self.leases.lost(self.name(worker))
        self.leave(worker)

    @rule(worker=WORKERS)
    def cannot_be_reached(self, worker: str) -> None:
        """It may be alive, and continues until its lease expires by its own clock."""
        name = self.name(worker)
        self.leases.mark_unreachable(name)
        assert not self.leases.beat(name, self.now)
        assert self.leases.lease(name, self.now) is None

    @rule()
    def look(self) -> None:
        for name in self.leases.expired(self.now):
            assert self.until[name] < self.now
            self.holds.pop(name, None)

    def leave(self, worker: str) -> None:
        """A replacement comes under a name of its own."""
        self.holds.pop(self.name(worker), None)
        self.names += 1
        self.names_of[worker] = f"{worker}{self.names}"

    @invariant()
    def counts_are_right(self) -> None:
        assert self.leases.done == len(self.done)
        assert self.leases.over == (len(self.done) == 7)

    def teardown(self) -> None:
        """Whatever happened, one good worker can finish the rest."""
        self.now += 3 * TTL
        self.leases.expired(self.now)
        assert self.leases.beat("last", self.now)
        while (shard := self.leases.lease("last", self.now)) is not None:
            assert self.leases.finish(shard)
        assert self.leases.over
        assert self.leases.done == 7


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


class ManyHistories(History):
    """The same, more often."""


TestManyHistories = pytest.mark.thorough(ManyHistories.TestCase)
TestManyHistories.settings = settings(max_examples=500, stateful_step_count=40, deadline=None)


@given(st.sets(st.integers(0, 49)), st.integers(1, 5))
def test_every_shard_is_leased_exactly_once_when_nothing_happens(done: set[int], workers: int):
    leases = Leases(50, done)
    taken: list[int] = []
    names = [f"w{number}" for number in range(workers)]
    for name in names:
        assert leases.beat(name, 0.0)
    while True:
        round_ = [shard for name in names if (shard := leases.lease(name, 1.0)) is not None]
        taken += round_
        if not round_:
            break
    assert sorted(taken) == sorted(set(range(50)) - done)
    assert leases.held == len(taken)


def test_what_comes_back_is_leased_first_and_in_order():
    leases = Leases(10)
    assert leases.beat("a", 0.0)
    assert leases.beat("b", 0.0)
    assert [leases.lease("a", 0.0) for _ in range(4)] == [0, 1, 2, 3]
    assert leases.finish(1)
    leases.lost("a")
    assert [leases.lease("b", 0.0) for _ in range(4)] == [0, 2, 3, 4]
    assert leases.lease("a", 0.0) is None
    assert not leases.beat("a", 0.0), "who is out stays out"


def test_what_could_not_be_finished_waits_for_the_next_pass():
    leases = Leases(3)
    leases.beat("a", 0.0)
    assert [leases.lease("a", 0.0) for _ in range(3)] == [0, 1, 2]
    leases.leave("a", 1)
    assert not leases.over
    leases.finish(0)
    leases.leave_all("a")
    assert leases.over
    assert leases.lease("a", 0.0) is None
    again = leases.begin(3, [0])
    assert [again.lease("a", 0.0) for _ in range(3)] == [1, 2, None]


def test_a_late_beat_is_refused_even_if_nobody_looked():
    leases = Leases(1, ttl=TTL)
    leases.beat("a", 0.0)
    assert leases.lease("a", 0.0) == 0
    assert not leases.beat("a", TTL + 0.1)
    assert leases.beat("b", TTL + 0.1)
    assert leases.lease("b", TTL + 0.1) == 0


def test_73000_shards_are_small_and_fast():
    leases = Leases(73_000, done=range(0, 73_000, 2))
    leases.beat("a", 0.0)
    leased = 0
    while (shard := leases.lease("a", 0.0)) is not None:
        leased += 1
        assert leases.finish(shard)
    assert leased == 36_500
    assert sys.getsizeof(leases._state) < 100_000  # pyright: ignore[reportPrivateUsage]
