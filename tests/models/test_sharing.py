"""How the coordinator divides endpoints: what is lent never adds up to more than there is, and everyone has a turn."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camel.models.governor import EndpointReport, Rates
from camel.models.placement import HashRing
from camel.models.replica import PoolSettings, Replica
from camel.models.sharing import (
    LONGEST_TURN,
    UNUSED_SECONDS,
    Outbox,
    SharedEndpoint,
    SharedEndpoints,
    SharedLimit,
)
from camel.models.subsets import FEW, ReplicaList, assign_subsets, digest_of, pack, subset_size

URL = "http://one/v1"


class Slots:
    """Workers on one endpoint that use what they are lent, and report once a second, each at its own time."""

    def __init__(self, ceiling: float, wants: list[int], calls: float = 2.0) -> None:
        self.endpoint = SharedEndpoint(Rates(ceiling=ceiling))
        self.wants = {f"w{number}": want for number, want in enumerate(wants)}
        self.allowed = dict.fromkeys(self.wants, 0)
        self.ends: dict[str, list[float]] = {worker: [] for worker in self.wants}
        self.begun: Counter[str] = Counter()
        self.last: dict[str, float] = dict.fromkeys(self.wants, 0.0)
        """When each of them sent its last call."""
        self.longest = 0.0
        self.busy = 0.0
        self.calls, self.now, self.chance = calls, 0.0, random.Random(1)
        self.loses = 0.0

    def run(self, seconds: float, step: float = 0.1) -> None:
        end = self.now + seconds
        while self.now < end:
            for place, worker in enumerate(self.wants):
                self._work(worker)
                if int((self.now + place * 0.37) / step) % round(1 / step) == 0:
                    self._beat(worker)
            in_flight = sum(map(len, self.ends.values()))
            assert in_flight <= self.endpoint.limit.limit
            self.busy += in_flight * step
            if int(self.now / step) % 5 == 0:
                self.endpoint.tick(self.now)
            self.now += step

    def _work(self, worker: str) -> None:
        ends = self.ends[worker] = [end for end in self.ends[worker] if end > self.now]
        while len(ends) < min(self.allowed[worker], self.wants[worker]):
            ends.append(self.now + self.calls * self.chance.uniform(0.5, 1.5))
            self.begun[worker] += 1
            self.longest = max(self.longest, self.now - self.last[worker])
            self.last[worker] = self.now

    def _beat(self, worker: str) -> None:
        sent = len(self.ends[worker])
        self.endpoint.hear(worker, EndpointReport(sent, self.wants[worker] - sent, self.allowed[worker]))
        share = self.endpoint.share(worker, self.now)
        assert share is not None
        if self.chance.random() >= self.loses:
            self.allowed[worker] = math.ceil(share.ceiling)


@given(
    wants=st.lists(st.integers(0, 30), min_size=1, max_size=12),
    ceiling=st.integers(1, 60),
    loses=st.sampled_from([0.0, 0.3]),
)
@settings(max_examples=25, deadline=None)
def test_slots_never_exceed_the_limit_and_starve_nobody(wants: list[int], ceiling: int, loses: float):
    """Also when answers are lost. With fewer slots than workers, everyone still has a turn."""
    slots = Slots(ceiling, wants)
    slots.loses = loses
    slots.run(20)  # to begin
    slots.begun.clear()
    slots.busy = 0.0
    slots.run(12 * (LONGEST_TURN + 3))
    assert all(slots.begun[worker] for worker, want in slots.wants.items() if want)
    if not loses and ceiling >= len(wants):
        possible = min(ceiling, sum(wants)) * 12 * (LONGEST_TURN + 3)
        assert slots.busy >= 0.8 * possible


def test_two_hundred_workers_take_turns_at_eight_slots():
    slots = Slots(8, [1] * 200)
    slots.run(600)
    assert len(slots.begun) == 200
    assert slots.longest < 400, "a call waits 600 s at most"
    assert slots.busy >= 0.85 * 8 * 600


def test_a_newcomer_starts_from_the_learned_limit():
    slots = Slots(8, [20, 20])
    slots.run(20)
    slots.wants["new"], slots.allowed["new"], slots.ends["new"], slots.last["new"] = 20, 0, [], 20.0
    slots.run(30)
    assert sorted(slots.allowed.values()) in ([2, 3, 3], [2, 2, 3], [2, 2, 4])


class Server:
    """An endpoint with so many slots, as its workers report it once a second; each refused call comes again after a second."""

    def __init__(self, capacity: int, wanted: int, latency: float = 1.0) -> None:
        self.limit = SharedLimit()
        self.capacity, self.wanted, self.latency = capacity, wanted, latency
        self.now = self.part = 0.0
        self.served = self.refused = 0

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.part += min(self.limit.limit, self.wanted)
            sent = int(self.part)
            self.part = self.part - sent if self.limit.limit < 1 else 0.0
            inside = min(sent, self.capacity)
            served = round(inside / self.latency)
            self.limit.served += served
            self.limit.refused += sent - inside
            self.served, self.refused = self.served + served, self.refused + sent - inside
            self.limit.judge(self.now, inside, self.wanted)
            self.now += 1


@pytest.mark.parametrize("capacity", [1, 8, 32, 500])
def test_the_limit_is_found_and_followed(capacity: int):
    server = Server(capacity, wanted=10 * capacity)
    assert math.isinf(server.limit.limit), "nothing is limited before there are refusals"
    server.run(10)
    for capacity_now, seconds in ((capacity, 0), (max(1, capacity // 4), 30), (capacity, 90)):
        server.capacity = capacity_now
        server.run(seconds)
        server.served = server.refused = 0
        server.run(120)
        assert server.served >= 0.93 * 120 * capacity_now
        assert server.refused <= 0.06 * server.served


def test_random_refusals_lead_to_no_limit():
    limit, chance = SharedLimit(), random.Random(1)
    for second in range(600):
        limit.refused += sum(chance.random() < 0.02 for _ in range(100))
        limit.served += 98
        limit.judge(float(second), 100, 200)
    assert math.isinf(limit.limit)


def test_a_limit_that_nobody_reaches_is_forgotten():
    server = Server(8, wanted=80)
    server.run(20)
    assert server.limit.limit < 10
    server.wanted = 3
    server.run(int(UNUSED_SECONDS) + 2)
    assert math.isinf(server.limit.limit)


def test_a_rejecting_endpoint_is_asked_rarely_and_recovers():
    server = Server(0, wanted=80)
    server.run(120)
    assert server.limit.limit <= 1
    server.capacity = 40
    server.run(120)
    assert server.limit.limit >= 30


def shared(*workers: str, rates: Rates | None = None) -> tuple[SharedEndpoints, dict[str, Outbox]]:
    boxes = {worker: Outbox() for worker in workers}
    return SharedEndpoints("m", rates or Rates(), boxes), boxes


def test_nothing_is_divided_without_a_limit_and_without_refusals():
    endpoints, boxes = shared("a", "b")
    for worker in boxes:
        endpoints.hear(worker, {URL: EndpointReport(20, 50, -1, calls=100)}, None)
    endpoints.tick(0.0, 1)
    for worker, box in boxes.items():
        assert not endpoints.share(worker, 0.0).closed
        assert box.message()[1] == {}
    assert endpoints.sums[URL] == EndpointReport(40, 100, -2, calls=200)


def test_refusals_of_all_workers_make_one_limit():
    endpoints, boxes = shared("a", "b", "late")
    for number in range(5):
        for worker in ("a", "b"):
            endpoints.hear(worker, {URL: EndpointReport(4, 50, -1, calls=10, refused=6 + number)}, None)
        endpoints.tick(number * 0.5, 1)
        for worker in ("a", "b"):
            endpoints.share(worker, number * 0.5)
    assert sum(boxes[worker].message()[1]["m", URL].ceiling for worker in ("a", "b")) <= 8
    endpoints.hear("late", {URL: EndpointReport(0, 50, 32)}, None)
    endpoints.tick(3.0, 1)
    endpoints.share("late", 3.0)
    assert boxes["late"].message()[1]["m", URL].ceiling <= 3, "it starts from what the others have learned"


def test_a_replica_counts_as_down_when_most_workers_say_so():
    endpoints, _ = shared(*"abcde")
    for number, worker in enumerate("abcde"):
        tripped = number < 2
        endpoints.hear(worker, {URL: EndpointReport(failed=9, failing=int(tripped), broken=tripped)}, None)
    assert (endpoints.sums[URL].failing, endpoints.sums[URL].broken) == (2, False)
    endpoints.hear("c", {URL: EndpointReport(failed=9, failing=1, broken=True)}, None)
    assert (endpoints.sums[URL].failing, endpoints.sums[URL].broken) == (3, True)
    endpoints.leave("c")
    endpoints.hear("a", {URL: EndpointReport(calls=1, failed=9)}, None)
    assert (endpoints.sums[URL].failing, endpoints.sums[URL].broken) == (1, False)


# --- subsets ---------------------------------------------------------------------------------------------------------


def degrees(subsets: dict[str, set[str]], replicas: list[str]) -> list[int]:
    counts = Counter(url for its in subsets.values() for url in its)
    return [counts[url] for url in replicas]


@given(
    workers=st.integers(1, 40),
    replicas=st.integers(FEW + 1, 120),
    changes=st.lists(st.integers(0, 3), max_size=6),
)
@settings(max_examples=30, deadline=None)
def test_subsets_are_even_and_move_little(workers: int, replicas: int, changes: list[int]):
    names = [f"w{number}" for number in range(workers)]
    urls = [f"http://r{number}/v1" for number in range(replicas)]
    size = subset_size(len(names), len(urls))
    now = assign_subsets(names, urls, size, {})
    for number, change in enumerate(changes):
        before = now
        if change == 0 and len(names) > 1:
            names = names[1:]
        elif change == 1:
            names = [*names, f"new{number}"]
        elif change == 2 and len(urls) > FEW + 1:
            urls = urls[1:]
        else:
            urls = [*urls, f"http://new{number}/v1"]
        size = subset_size(len(names), len(urls))
        now = assign_subsets(names, urls, size, before)
        assert {len(its) for its in now.values()} == {size}
        gained = sum(len(now[name] - before.get(name, set())) for name in names)
        # A newcomer gets a subset, and each replica that came or went has some pairs; sizes may change by a few.
        grown = len(names) * max(0, size - min(len(its) for its in before.values()))
        assert gained <= grown + size + 2 * (len(names) * size // len(urls) + 1) + len(names) // 4 + 4
    counts = degrees(now, urls)
    assert max(counts) - min(counts) <= 3
    assert min(counts) >= 1
    assert sum(counts) == len(names) * size


def test_two_hundred_workers_and_two_thousand_replicas():
    names = [f"w{number}" for number in range(200)]
    urls = [f"http://10.0.{number // 250}.{number % 250}:8000/v1" for number in range(2_000)]
    first = assign_subsets(names, urls, subset_size(200, 2_000), {})
    assert set(degrees(first, urls)) == {2}
    assert {len(its) for its in first.values()} == {20}
    second = assign_subsets(names, urls[1:], subset_size(200, 1_999), first)
    assert sum(len(second[name] - first[name]) for name in names) <= 4
    assert len(pack(urls)) < 20_000
    assert ReplicaList("d", pack(urls)).unpack() == tuple(sorted(urls))


def test_a_worker_is_asked_for_a_list_that_nobody_knows():
    urls = [f"http://r{number}/v1" for number in range(50)]
    endpoints, boxes = shared("a", "b")
    digest = digest_of(urls)
    for worker in "ab":
        endpoints.hear(worker, {}, ReplicaList(digest))
        endpoints.tick(0.0, 1)
    assert [endpoints.share(worker, 0.0).send_list for worker in "ab"] == [True, False]
    endpoints.hear("a", {}, ReplicaList(digest, pack(urls)))
    endpoints.tick(1.0, 1)
    subsets = [box.message()[1]["m", ""] for box in boxes.values()]
    assert {place for subset in subsets for place in subset.positions} == set(range(50))
    assert not endpoints.share("b", 1.0).send_list


# --- changes ---------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(0, 2) | st.none(),
            st.sampled_from(["", "lost", "reply lost", "heard"]),
        ),
        max_size=60,
    )
)
def test_no_change_is_lost_with_a_message(moves: list[tuple[int, int | None, str]]):
    """The receiver has the table after the first message that arrives, whatever was lost before."""
    box: Outbox[int, int] = Outbox()
    table: dict[int, int | None] = {}
    there: dict[int, int] = {}

    def deliver(rows: dict[int, int | None]) -> None:
        for key, value in rows.items():
            if value is None:
                there.pop(key, None)
            else:
                there[key] = value

    for key, value, message in moves:
        box.put(key, value)
        table[key] = value
        if message:
            number, rows = box.message()
            if message != "lost":
                deliver(rows)
                assert there == {key: value for key, value in table.items() if value is not None}
            if message == "heard":
                box.acknowledge(number)
    number, rows = box.message()
    deliver(rows)
    assert there == {key: value for key, value in table.items() if value is not None}
    box.acknowledge(number)
    assert box.message()[1] == {}, "what is acknowledged is not sent again"


# --- the ring --------------------------------------------------------------------------------------------------------


def test_a_replica_that_comes_or_goes_moves_only_its_own_conversations():
    replicas = [Replica(f"http://r{number}/v1", PoolSettings(), 0.0) for number in range(50)]
    names = [f"c{number}" for number in range(500)]
    one, fewer = HashRing(replicas), HashRing(replicas[1:])
    for name in names:
        first, second = next(one.draw(name)), next(fewer.draw(name))
        assert first is second or first is replicas[0]
    counts = Counter(next(one.draw(name)).url for name in (f"d{number}" for number in range(20_000)))
    assert max(counts.values()) < 1.7 * 400
    assert len(counts) == 50
    assert not list(HashRing([]).draw("c"))
