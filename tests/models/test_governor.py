"""The governor on a clock of its own: where its limit goes, and what it lets through."""

from __future__ import annotations

import heapq
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camel import InputError
from camel.models.governor import LONGEST_PAUSE, EndpointReport, Governor, Rates, Share


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


def test_a_worker_does_not_learn_a_limit_that_the_coordinator_sets():
    governor = Governor(Rates(ceiling=64))
    governor.allow(Share(ceiling=4), 0.0)
    for _ in range(3):
        governor.refused(0.0, governor.begin())
    assert governor.limit == 64
    governor.begin(), governor.begin()
    assert governor.wait(0.0) > 0, "two slots stay empty after three refusals in a row"
    governor.left(), governor.left()
    assert governor.wait(10.0) == 0
    governor.allow(None, 10.0)
    assert governor.allowed(10.0) == 4, "it starts from the last share"


def test_below_one_call_at_a_time_there_are_pauses():
    governor, now, sent = Governor(), 0.0, 0
    governor.served(0.0, governor.begin(), 1.0, 1, 1, 0, 0)
    governor.allow(Share(ceiling=0.25, seconds=1e9), 0.0)
    while now < 400:
        if (wait := governor.wait(now)) <= 0:
            epoch = governor.begin(now=now)
            governor.served(now + 1, epoch, 1.0, 1, 1, 0, 0)
            sent, now = sent + 1, now + 1
        else:
            now += wait
    assert 95 <= sent <= 105


def test_workers_that_begin_together_divide_the_first_calls():
    governor = Governor(Rates(start=32))
    governor.divide_start(20)
    assert governor.allowed(0.0) == pytest.approx(1.6)
    governor.begin()
    governor.divide_start(1)
    assert governor.allowed(0.0) == pytest.approx(1.6), "it has begun"


def test_what_a_worker_reports_of_an_endpoint():
    governor = Governor(Rates(ceiling=8))
    assert governor.report(0.0) == EndpointReport(allowed=8)
    governor.allow(Share(ceiling=4), 0.0)
    served, _, _ = governor.begin(), governor.begin(), governor.begin()
    governor.served(0.0, served, 0.1, 100, 10, 50, 0)
    assert governor.report(0.0, waiting=3) == EndpointReport(2, 3, 4, calls=1, prompt=100, cached=50)
    assert Governor().report(0.0).allowed == -1, "as many as it likes"
