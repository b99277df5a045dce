"""Leases and the fence to the second: what holds at a deadline, and what is known of whom."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from camel.engine.fence import MARGIN, Fence
from camel.engine.leases import Leases
from camel.runs.run import DRIVER, RunFolder

TTL = 10.0


def leased(shards: int = 3, *workers: str) -> Leases:
    """A table in which each worker has sent a heartbeat at 0 and leased one shard."""
    leases = Leases(shards, ttl=TTL)
    for worker in workers:
        assert leases.beat(worker, 0.0)
        assert leases.lease(worker, 0.0) is not None
    return leases


def test_a_lease_holds_up_to_its_deadline_and_not_after_it():
    leases = leased(3, "a")
    assert leases.expired(TTL) == {}
    assert leases.lease("a", TTL) == 1
    assert leases.lease("a", TTL + 0.001) is None
    assert leases.beat("a", TTL), "a heartbeat at the deadline is in time"
    assert leases.beat("a", 2 * TTL), "and moves the deadline"
    assert leases.expired(3 * TTL) == {}
    assert leases.expired(3 * TTL + 0.001) == {"a": [0, 1]}
    assert not leases.beat("a", 3 * TTL), "a worker that is out stays out"


def test_a_worker_without_a_heartbeat_gets_no_shard():
    leases = Leases(3, ttl=TTL)
    assert leases.lease("a", 0.0) is None
    assert leases.live == []
    assert leases.beat("a", 0.0)
    assert leases.lease("a", 0.0) == 0


def test_leases_last_ten_seconds_unless_told_otherwise():
    leases = Leases(1)
    leases.beat("a", 0.0)
    assert leases.expired(10.0) == {}
    assert leases.expired(10.1) == {"a": []}


def test_what_is_known_of_shards_and_workers():
    leases = Leases(5, done=[4], ttl=TTL)
    for worker in "ab":
        leases.beat(worker, 0.0)
    assert [leases.lease("a", 0.0), leases.lease("b", 0.0), leases.lease("a", 0.0)] == [0, 1, 2]
    assert leases.live == ["a", "b"]
    assert (leases.held_by("a"), leases.held_by("b"), leases.held_by("c")) == ([0, 2], [1], [])
    assert (leases.shards, leases.held, leases.done) == (5, 3, 1)
    assert not leases.finish(4), "done from the beginning"
    assert leases.finish(0)
    assert not leases.finish(0), "known before"
    assert (leases.held_by("a"), leases.held, leases.done) == ([2], 2, 2)
    assert leases.lost("a") == [2]
    assert leases.live == ["b"]
    assert leases.held == 1
    assert leases.lost("a") == [], "it holds nothing any more"


def test_only_the_holder_can_give_up_a_shard():
    leases = leased(2, "a", "b")
    leases.leave("b", 0)
    assert leases.held_by("a") == [0]
    leases.leave("nobody", 0)
    leases.leave("a", 0)
    leases.leave("a", 0)
    assert leases.held_by("a") == []
    assert not leases.over, "b still has one"
    leases.leave_all("b")
    assert leases.over


def test_a_shard_that_was_given_up_and_is_committed_after_all_counts_once():
    leases = leased(2, "a", "b")
    leases.leave("a", 0)
    assert leases.finish(0)
    assert not leases.over, "b still works on its shard"
    assert leases.finish(1)
    assert leases.over
    assert leases.done == 2


def test_a_shard_that_is_committed_while_it_waits_for_a_new_worker_is_not_leased_again():
    leases = leased(3, "a")
    leases.lost("a")
    assert leases.finish(0)
    leases.beat("b", 0.0)
    assert [leases.lease("b", 0.0) for _ in range(3)] == [1, 2, None]
    assert leases.lease("b", 0.0) is None


def test_a_worker_that_cannot_be_reached_keeps_its_shards_until_its_time_is_over():
    leases = leased(2, "a", "b")
    leases.mark_unreachable("a")
    assert not leases.beat("a", 1.0)
    assert leases.lease("a", 1.0) is None
    assert leases.held_by("a") == [0]
    assert leases.live == ["a", "b"]
    assert leases.lease("b", 1.0) is None
    leases.beat("b", 5.0)
    assert leases.expired(TTL + 1) == {"a": [0]}
    assert leases.lease("b", TTL + 1) == 0


def test_the_next_pass_knows_the_same_workers():
    leases = leased(3, "a", "b", "c")
    leases.lost("b")
    after = leases.begin(2, [1])
    assert (after.shards, after.done, after.held, after.live) == (2, 1, 0, ["a", "c"])
    assert after.ttl == TTL
    assert not after.beat("b", 0.0)
    assert after.lease("a", TTL + 1) is None
    assert after.lease("a", 0.0) == 0


# --- the fence -------------------------------------------------------------------------------------------------------


def fenced(root: Path, ttl: float, age: float) -> float:
    """What is left of a word of this age, by the clock of the file system."""
    Fence(RunFolder(root), ttl).renew()
    path = root / DRIVER
    written = path.stat().st_mtime
    os.utime(path, (written - age, written - age))
    return Fence(RunFolder(root)).left()


@pytest.mark.parametrize("age", [0.0, 4_000.0, 9_000.0])
def test_a_new_driver_waits_for_the_rest_of_a_lease(tmp_path: Path, age: float):
    left = fenced(tmp_path, 10_000.0, age)
    assert 10_000.0 + MARGIN - age - 900 < left <= 10_000.0 + MARGIN - age


def test_the_wait_is_a_little_longer_than_the_lease(tmp_path: Path):
    assert MARGIN >= 1.0
    assert fenced(tmp_path, 10_000.0, -5_000.0) == 10_000.0 + MARGIN, (
        "from the future: never longer than a lease"
    )
    assert fenced(tmp_path, 10_000.0, 20_000.0) == 0.0


def test_an_empty_word_is_waited_for_no_longer_than_the_margin(tmp_path: Path):
    (tmp_path / DRIVER).write_text("")
    future = (tmp_path / DRIVER).stat().st_mtime + 50_000
    os.utime(tmp_path / DRIVER, (future, future))
    assert Fence(RunFolder(tmp_path)).left() == MARGIN


def test_a_driver_without_workers_elsewhere_is_waited_for_no_longer_than_the_margin(tmp_path: Path):
    Fence(RunFolder(tmp_path)).renew()
    future = (tmp_path / DRIVER).stat().st_mtime + 50_000
    os.utime(tmp_path / DRIVER, (future, future))
    assert Fence(RunFolder(tmp_path)).left() == MARGIN


def test_looking_and_renewing_leave_no_other_files(tmp_path: Path):
    fence = Fence(RunFolder(tmp_path), TTL)
    fence.renew()
    fence.left()
    assert [path.name for path in tmp_path.iterdir()] == [DRIVER]
    fence.lift()
    fence.left()
    assert list(tmp_path.iterdir()) == []


def test_a_renewed_word_is_as_good_as_new(tmp_path: Path):
    fence = Fence(RunFolder(tmp_path), 10_000.0)
    assert fenced(tmp_path, 10_000.0, 9_000.0) < 1_500
    fence.renew()
    assert fence.left() > 9_000
