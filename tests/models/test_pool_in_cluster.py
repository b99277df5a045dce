"""A worker's pool in a cluster: its subset of replicas, the shares that it gets, and many replicas."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from camel import ChatModel, Request, Usage
from camel.core.errors import RateLimited, Unreachable
from camel.core.history import History
from camel.models.discovery import Given, Source
from camel.models.governor import Rates, Share
from camel.models.placement import DRAWS
from camel.models.pool import Pool
from camel.models.replica import FAILURES, PoolSettings, Replica
from camel.models.sharing import PoolShare
from camel.models.simulator import Simulator, SimulatorSettings
from camel.models.subsets import ReplicaList, Subset, digest_of, pack
from tests.support.virtual_time import virtual_time

MANY = [f"http://replica-{number:03}:8000/v1" for number in range(40)]
USAGE = Usage(10, 5, 0, 1)


def request(session: str) -> Request:
    return Request(History("S"), session=session)


def subset(urls: list[str], places: list[int], workers: int = 2) -> PoolShare:
    return PoolShare(subset=Subset(digest_of(urls), tuple(places), (workers,) * len(places)), workers=workers)


def call(pool: Pool, session: str) -> str:
    slot = pool.take(request(session), b"")
    assert slot is not None
    pool.served(slot, USAGE)
    return slot.replica.url


def joined(urls: list[str], rates: Rates | None = None, clock: Any = lambda: 0.0) -> Pool:
    pool = Pool(Given(urls), PoolSettings(rates=rates or Rates()), clock=clock)
    pool.join()
    return pool


def test_a_worker_with_many_replicas_waits_for_its_subset():
    pool = joined(MANY)
    assert pool.listed(packed=False) == ReplicaList(digest_of(MANY))
    assert pool.listed(packed=True) == ReplicaList(digest_of(MANY), pack(MANY))
    assert pool.report() == {}, "it sends no rows of replicas that it does not use"
    pool.allow(PoolShare())
    assert pool.take(request("c"), b"") is None
    pool.allow(subset(MANY, [3, 7, 20]))
    homes = Counter(call(pool, f"c{number}") for number in range(30))
    assert homes.keys() == {MANY[3], MANY[7], MANY[20]}
    assert max(homes.values()) <= 12


def test_a_conversation_stays_when_the_subset_changes_and_moves_when_its_replica_goes():
    class Changing(Source):
        first = tuple(MANY)

    pool = Pool(Changing(), clock=lambda: 0.0)
    pool.join()
    pool.allow(subset(MANY, [0, 1, 2]))
    homes = {f"c{number}": call(pool, f"c{number}") for number in range(30)}
    pool.allow(subset(MANY, [10, 11, 12]))
    assert {name: call(pool, name) for name in homes} == homes
    assert {call(pool, f"new{number}") for number in range(30)} <= set(MANY[10:13])
    assert pool.report().keys() == {*MANY[:3], *MANY[10:13]}, "where it has conversations, it still reports"
    with pool._lock:
        pool._set(MANY[1:])
    moved = {name for name, home in homes.items() if call(pool, name) != home}
    assert moved == {name for name, home in homes.items() if home == MANY[0]}
    assert {call(pool, name) for name in moved} <= set(MANY[10:13])


def test_a_replica_with_more_workers_gets_fewer_conversations_of_each():
    pool = joined(MANY)
    pool.allow(PoolShare(subset=Subset(digest_of(MANY), (0, 1, 2), (1, 2, 2))))
    homes = Counter(call(pool, f"c{number}") for number in range(200))
    assert homes[MANY[0]] <= 126
    assert max(homes[MANY[1]], homes[MANY[2]]) <= 63


def test_a_share_that_did_not_change_is_renewed_and_one_that_ends_leaves_the_worker_free():
    now = 0.0
    pool = joined(MANY[:1], clock=lambda: now)
    pool.allow(PoolShare(shares={MANY[0]: Share(ceiling=2, seconds=5)}))
    first, second, third = (pool.take(request(name), b"") for name in "abc")
    assert first
    assert second
    assert third is None
    assert pool.report()[MANY[0]].allowed == 2
    now = 8.0
    assert pool.report()[MANY[0]].allowed < 2
    pool.allow(PoolShare())
    assert pool.report()[MANY[0]].allowed == 2
    pool.allow(PoolShare(shares={MANY[0]: None}))
    assert pool.report()[MANY[0]].allowed == 2, "it starts from its last share"
    pool.served(first, USAGE)
    pool.served(second, USAGE)
    assert pool.report()[MANY[0]].allowed == 3, "and learns its own limit again"


def test_slots_that_others_wait_for_are_reported_soon():
    pool = joined(MANY[:1])
    pool.allow(PoolShare(shares={MANY[0]: Share(ceiling=1, scarce=True)}))
    pool.report()
    assert pool.has_freed_slots, "it has a slot and no call"
    slot = pool.take(request("c"), b"")
    assert slot is not None
    pool.report()
    assert not pool.has_freed_slots
    pool.allow(PoolShare(shares={MANY[0]: Share(ceiling=0, scarce=True)}))
    assert not pool.has_freed_slots, "its call has not ended"
    pool.served(slot, USAGE)
    assert pool.has_freed_slots
    pool.report()
    assert not pool.has_freed_slots, "it was reported"


def test_a_failing_replica_is_reported_once_per_worker():
    pool = joined(MANY[:1])
    pool.allow(PoolShare())
    for number in range(2 * FAILURES):
        assert pool.report()[MANY[0]].failing == int(number >= FAILURES)
        slot = pool.take(request("c"), b"")
        assert slot is not None
        pool.failed(slot, Unreachable("refused"))
    assert pool.states()[0].failing == 2 * FAILURES


@pytest.mark.parametrize("count", [100, 2_000])
def test_no_call_looks_at_all_replicas(count: int, monkeypatch: pytest.MonkeyPatch):
    """Neither a first call, nor one that waits, nor the end of a call while others wait."""
    pool = Pool(
        Given([f"http://r{number}/v1" for number in range(count)]), PoolSettings(rates=Rates(ceiling=1))
    )
    looked = 0
    usable = Replica.usable

    def counted(replica: Replica, now: float) -> bool:
        nonlocal looked
        looked += 1
        return usable(replica, now)

    monkeypatch.setattr(Replica, "usable", counted)
    slots = [pool.take(request(f"c{number}"), b"") for number in range(count)]
    assert all(slots), "as many conversations as replicas"
    assert looked <= 4 * count, "on average a few"
    looked = 0

    async def wait() -> None:
        nonlocal looked
        end = asyncio.get_running_loop().time() + 60
        waiting = [asyncio.create_task(pool.wait(request(f"w{number}"), b"", end)) for number in range(50)]
        await asyncio.sleep(0)
        assert looked <= count + 50 * DRAWS, "each replica is set aside once"
        looked = 0
        for slot in slots[:50]:
            assert slot is not None
            pool.served(slot, USAGE)
            pool.release(slot.session.name if slot.session else "")
        for task in waiting:
            pool.left(await task)
        assert looked <= 50 * 12

    asyncio.run(wait())


@virtual_time
async def test_refusals_do_not_use_up_the_attempts_of_a_worker_in_a_cluster():
    """Until the workers have learned together what the endpoint accepts."""
    settings = SimulatorSettings(length=None, words=3, faults={"429": 0.8}, retry_after=0.01)
    async with (
        Simulator(settings) as sim,
        ChatModel("m", base_url=sim.base_url, api_key="", max_attempts=2) as model,
    ):
        names = [request(f"c{number}") for number in range(20)]
        alone = await asyncio.gather(*map(model.reply, names), return_exceptions=True)
        assert any(isinstance(reply, RateLimited) for reply in alone)
        model.pool.allow(PoolShare())
        await asyncio.gather(*map(model.reply, names))
