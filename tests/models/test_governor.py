"""The governor on a clock of its own: where its limit goes, what it lets through, and what a coordinator makes of many."""

from __future__ import annotations

import heapq
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camel import InputError
from camel.models.governor import LONGEST_PAUSE, EndpointReport, Governor, Rates, Share
from camel.models.sharing import RENEWED, SILENT, share_out


class Endpoint:
    """A simulated endpoint: so many at once, each for so long; everything above is refused at once."""

    def __init__(self, governor: Governor, latency: float = 0.1, wanted: int = 1_000) -> None:
        self.governor, self.latency, self.wanted = governor, latency, wanted
        self.now = 0.0
        self.inside = 0
        self.ending: list[tuple[float, int]] = []
        self.served = self.refused = 0

    def run(self, seconds: float, capacity: float, queues: bool = False) -> None:
        """Send whatever may be sent; with `queues`, what is too much makes all slower instead of being refused."""
        end = self.now + seconds
        while self.now < end:
            while len(self.ending) < self.wanted and self.governor.wait(self.now) <= 0:
                epoch = self.governor.begin()
                if self.inside >= capacity and not queues:
                    self.refused += 1
                    self.governor.refused(self.now, epoch, 1.0)
                    continue
                self.inside += 1
                slower = max(1.0, self.inside / capacity) if queues else 1.0
                heapq.heappush(self.ending, (self.now + self.latency * slower, epoch))
            step = self.now + 0.005
            while self.ending and self.ending[0][0] <= step:
                at, epoch = heapq.heappop(self.ending)
                self.inside -= 1
                self.served += 1
                self.governor.served(
                    at, epoch, self.latency * slower if queues else self.latency, 10, 5, 0, 0
                )
            self.now = step


def test_it_follows_the_capacity():
    governor = Governor(Rates(ceiling=200, start=8))
    endpoint = Endpoint(governor)
    endpoint.run(5, 100)  # to adapt
    for capacity, recovery, seconds in ((100, 0, 30), (25, 2, 30), (100, 12, 30)):
        endpoint.run(recovery, capacity)
        before, refused = endpoint.served, endpoint.refused
        endpoint.run(seconds, capacity)
        goodput = (endpoint.served - before) / (seconds * capacity / endpoint.latency)
        assert goodput >= 0.9, capacity
        assert endpoint.refused - refused <= 0.01 * (endpoint.served - before)


@pytest.mark.parametrize("latency", [0.05, 1.0, 8.0])
def test_slow_endpoints_are_learnt_in_their_own_time(latency: float):
    endpoint = Endpoint(Governor(Rates(start=8)), latency)
    endpoint.run(40 * latency + 20, 60)
    before, refused = endpoint.served, endpoint.refused
    endpoint.run(40 * latency + 20, 60)
    assert endpoint.served - before >= 0.85 * (40 * latency + 20) * 60 / latency
    assert endpoint.refused - refused <= max(20, 0.02 * (endpoint.served - before))


def test_a_round_is_cut_once():
    governor = Governor(Rates(ceiling=100))
    epochs = [governor.begin() for _ in range(100)]
    for epoch in epochs:
        governor.refused(1.0, epoch)
    assert governor.limit == pytest.approx(80)
    governor.refused(1.0, governor.begin())
    assert governor.limit < 80


def test_a_storm_of_refusals_waits_as_long_as_it_is_asked_to():
    governor = Governor(Rates(ceiling=64))
    for _ in range(3):
        for epoch in [governor.begin() for _ in range(max(1, int(governor.limit)))]:
            governor.refused(10.0, epoch, 5.0)
    assert governor.wait(10.0) == pytest.approx(5.0)
    assert governor.wait(15.0) == 0
    governor.refused(15.0, governor.begin(), 3600.0)
    assert governor.wait(15.0) == pytest.approx(LONGEST_PAUSE)  # it looks again before an hour is over


def _answers(governor: Governor, unavailable: float, seconds: int) -> float:
    """The mean limit while that share of the answers is 503, with no word of when to come again."""
    chance, limits = random.Random(1), list[float]()
    for now in range(seconds * 10):
        epochs = [governor.begin() for _ in range(int(governor.limit) - governor.in_flight)]
        for epoch in epochs:
            if chance.random() < unavailable:
                governor.unavailable(now / 10, epoch)
            else:
                governor.served(now / 10, epoch, 0.1, 10, 5, 0, 0)
        limits.append(governor.limit)
    return sum(limits) / len(limits)


def test_503s_now_and_then_are_faults_and_many_are_too_many_calls():
    assert _answers(Governor(Rates(ceiling=50)), 0.05, 60) > 45
    assert _answers(Governor(Rates(ceiling=50)), 0.7, 60) < 25


def test_after_a_storm_it_is_soon_back_where_it_was():
    endpoint = Endpoint(Governor(Rates(ceiling=64)))
    endpoint.run(5, 64)
    endpoint.run(5, 0)
    assert endpoint.refused < 250
    assert endpoint.governor.limit < 2
    endpoint.run(4, 64)
    assert endpoint.governor.limit > 32
    endpoint.run(6, 64)
    before = endpoint.served
    endpoint.run(10, 64)
    assert endpoint.served - before >= 0.9 * 10 * 64 / endpoint.latency


def test_calls_that_come_one_at_a_time_are_never_held_back():
    governor = Governor()
    for _ in range(20):
        governor.refused(0.0, governor.begin(), 9.0, others_wait=False)
        assert governor.wait(0.0) == 0


def test_an_endpoint_that_queues_is_noticed_by_its_latency():
    governor = Governor(Rates(ceiling=500, start=4))
    endpoint = Endpoint(governor, latency=0.5, wanted=500)
    endpoint.run(120, 30, queues=True)
    assert endpoint.refused == 0
    assert governor.limit < 250


def test_heavy_tails_are_not_slowness():
    governor, rng = Governor(Rates(ceiling=64)), random.Random(1)
    for _ in range(500):
        epochs = [governor.begin() for _ in range(64 - governor.in_flight)]
        for epoch in epochs:
            governor.served(0.0, epoch, rng.lognormvariate(math.log(0.1), 1.0), 1, 1, 0, 0)
    assert governor.limit == 64


@given(rpm=st.floats(30, 6_000), seconds=st.integers(20, 60))
@settings(max_examples=15)
def test_requests_per_minute(rpm: float, seconds: int):
    governor, sent, now = Governor(Rates(rpm=rpm)), 0, 0.0
    while now < seconds:
        wait = governor.wait(now)
        if wait <= 0:
            governor.served(now, governor.begin(), 0.1, 1, 1, 0, 0)
            sent += 1
        now += max(1e-3, wait)
    most = rpm / 60 * seconds + max(1, rpm / 6) + 1
    assert 0.8 * rpm / 60 * seconds <= sent <= most


def test_tokens_per_minute_are_guessed_before_and_corrected_after():
    governor, now, used = Governor(Rates(tpm=6_000)), 0.0, 0
    while now < 300:
        wait = governor.wait(now, 50)
        if wait <= 0:
            governor.served(now, governor.begin(50), 0.1, 150, 50, 0, 50)  # four times the guess
            used += 200
        now += max(1e-3, wait)
    assert 0.9 * 30_000 <= used <= 30_000 + 1_000 + 200


def test_a_share_that_is_not_renewed_runs_out():
    governor = Governor(Rates(ceiling=64))
    governor.allow(Share(ceiling=40, seconds=5), 100.0)
    assert [governor.allowed(100 + late) for late in (0, 5, 6, 10, 11, 999)] == [40, 40, 10, 10, 0, 0]
    governor.allow(Share(ceiling=20, seconds=5), 1_200.0)
    assert governor.allowed(1_201.0) == 20


@pytest.mark.parametrize("name", ["ceiling", "start", "rpm", "tpm"])
def test_rates_are_above_zero(name: str):
    for wrong in (0, -1, math.nan):
        with pytest.raises(InputError, match=name):
            Rates(**{name: wrong})


# --- shares ----------------------------------------------------------------------------------------------------------

workers = st.dictionaries(
    st.sampled_from([f"w{number}" for number in range(12)]),
    st.builds(
        EndpointReport,
        in_flight=st.integers(0, 30),
        waiting=st.integers(0, 200),
        allowed=st.integers(0, 30),
        age=st.sampled_from([0.0, 1.0, 3.0, 7.0, 12.0, 60.0]),
    ),
)


@given(workers=workers, ceiling=st.integers(1, 200), rpm=st.floats(1, 1e5), tick=st.integers(0, 99))
def test_shares_never_exceed_the_limits(
    workers: dict[str, EndpointReport], ceiling: int, rpm: float, tick: int
):
    reports = {worker: {"url": report} for worker, report in workers.items()}
    limits = {"url": Rates(ceiling=ceiling, rpm=rpm)}
    before = {worker: {"url": Share(ceiling=report.allowed)} for worker, report in workers.items()}
    shares = share_out(limits, reports, before, tick)
    given_now = {worker: its["url"] for worker, its in shares.items() if its}
    silent = [w for w, r in workers.items() if w not in given_now and r.age < SILENT]
    assert all(workers[w].age < RENEWED for w in given_now)
    held = sum(before[w]["url"].ceiling for w in silent)
    assert sum(share.ceiling for share in given_now.values()) + min(held, ceiling) <= ceiling
    assert sum(share.rpm or 0 for share in given_now.values()) <= rpm * (1 + 1e-9)
    # Together with what the others may still be doing under their last shares, nobody gets more than is free.
    if held + sum(max(workers[w].in_flight, workers[w].allowed) for w in given_now) <= ceiling:
        busy = sum(max(s.ceiling, workers[w].in_flight, workers[w].allowed) for w, s in given_now.items())
        assert held + busy <= ceiling


@given(
    demands=st.lists(st.integers(0, 300), min_size=1, max_size=9),
    ceiling=st.integers(1, 300),
    calls=st.integers(1, 4),
)
@settings(max_examples=20)
def test_shares_converge_and_starve_nobody(demands: list[int], ceiling: int, calls: int):
    """Workers that keep wanting what they want, with calls that take a few ticks; a newcomer joins half-way."""
    in_flight = {f"w{number}": 0 for number in range(len(demands))}
    wants = dict(zip(in_flight, demands, strict=True))
    allowed = dict.fromkeys(in_flight, 0.0)
    ages: dict[str, list[int]] = {worker: [] for worker in in_flight}
    ever: dict[str, int] = dict.fromkeys(in_flight, 0)
    for tick in range(2 * 5 * 10):
        if tick == 40:
            in_flight["new"], wants["new"], allowed["new"], ages["new"], ever["new"] = 0, 50, 0.0, [], 0
        reports = {
            w: {"url": EndpointReport(in_flight[w], max(0, wants[w] - in_flight[w]), allowed[w])}
            for w in in_flight
        }
        shares = share_out({"url": Rates(ceiling=ceiling)}, reports, None, tick)
        for worker, its in shares.items():
            allowed[worker] = its["url"].ceiling
            ages[worker] = [age + 1 for age in ages[worker] if age + 1 < calls]
            start = int(min(allowed[worker], wants[worker])) - len(ages[worker])
            ages[worker] += [0] * max(0, start)
            ever[worker] += max(0, start)
            in_flight[worker] = len(ages[worker])
        assert sum(in_flight.values()) <= ceiling
    assert all(ever[worker] for worker in wants if wants[worker])
    # Max-min fair in the end: a worker with less than it wants has at least as much as any other, up to rounding.
    if ceiling >= len(in_flight):
        poorest = min((allowed[w] for w in wants if allowed[w] < wants[w]), default=math.inf)
        assert poorest >= max((min(allowed[w], wants[w]) for w in wants), default=0) - 5 or math.isinf(
            poorest
        )
        assert sum(allowed.values()) >= min(ceiling, sum(wants.values())) - len(in_flight)


def test_what_all_workers_see_of_an_endpoint():
    governor = Governor(Rates(ceiling=8))
    assert governor.report(0.0) == EndpointReport(allowed=8)
    governor.allow(Share(ceiling=4), 0.0)
    served, _, _ = governor.begin(), governor.begin(), governor.begin()
    governor.served(0.0, served, 0.1, 100, 10, 50, 0)
    first = governor.report(0.0, waiting=3)
    assert first == EndpointReport(2, 3, 4, calls=1, prompt=100, cached=50)
    assert Governor().report(0.0).allowed == -1, "as many as it likes"
    other = EndpointReport(1, 1, 2, 10, 2, 3, 400, 100, 5, True, 4, 60.0)
    together = EndpointReport(3, 4, 6, 11, 2, 3, 500, 150, 5, True, 4)
    assert EndpointReport.summed([first, other]) == together
