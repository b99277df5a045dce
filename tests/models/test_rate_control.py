"""Rate control on a virtual clock: simulated endpoints that refuse or slow down calls, and where the limit settles."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from camel import Request, Usage
from camel.core.errors import RateLimited
from camel.core.history import History
from camel.models.discovery import Given
from camel.models.governor import Rates
from camel.models.pool import Pool
from camel.models.replica import PoolSettings
from tests.support.virtual_time import run_virtual

URL = "http://endpoint/v1"
REQUEST = Request(History("S"))
ADAPTED = 30.0
"""Seconds after which calls are counted."""
Latency = Callable[["Server"], float]


@dataclass(kw_only=True)
class Server:
    """An endpoint that refuses calls within 10 ms and says when to come again, in whole seconds."""

    latency: Latency = lambda server: server.draw.lognormvariate(-0.08, 0.4)
    """Seconds of a call that is served; 1 on average."""
    reply_tokens: Callable[[float], int] = lambda seconds: 50
    counts_tokens: bool = True
    refused_at_random: float = 0.0
    most_at_once: float = math.inf
    per_second: float = 0.0
    burst: float = 1.0
    """Seconds of `per_second` that can be saved up."""
    window: float = 0.0
    """Seconds; with it, so many calls are served in each such period of time instead."""
    draw: random.Random = field(default_factory=lambda: random.Random(7))
    inside: int = 0
    seconds: float = 0.0
    """Since the start, at the last call."""
    tokens: int = 0
    """Of the last call."""
    _saved: float | None = None
    _period: int = -1

    @property
    def retry_after(self) -> float:
        return math.ceil((self._period + 1) * self.window - self.seconds) if self.window else 1.0

    def admits(self, seconds: float) -> bool:
        """Whether a call that arrives now is served."""
        passed, self.seconds = seconds - self.seconds, seconds
        if self.draw.random() < self.refused_at_random or self.inside >= self.most_at_once:
            return False
        if not self.per_second:
            return True
        full = self.per_second * (self.window or self.burst)
        if self.window:
            period = int(seconds / self.window)
            if period != self._period:
                self._saved, self._period = full, period
        else:
            self._saved = full if self._saved is None else min(full, self._saved + passed * self.per_second)
        if (self._saved or 0.0) < 1:
            return False
        self._saved = (self._saved or 0.0) - 1
        return True


@dataclass
class Outcome:
    served: int = 0
    refused: int = 0
    delays: list[float] = field(default_factory=list[float])
    """Seconds between a refusal and the next attempt of the same call."""
    limits: list[float] = field(default_factory=list[float])
    """Each second, from the first."""

    @property
    def refused_share(self) -> float:
        return self.refused / (self.served + self.refused)

    @property
    def limit(self) -> float:
        """On average, after the time to adapt."""
        return sum(self.limits[int(ADAPTED) :]) / len(self.limits[int(ADAPTED) :])


def run(server: Server, callers: int, seconds: float, *, start: float | None = 8) -> Outcome:
    """Let `callers` call as fast as the pool admits them, and retry as the client does."""
    return run_virtual(_run(server, callers, seconds, start))


async def _run(server: Server, callers: int, seconds: float, start: float | None) -> Outcome:
    loop = asyncio.get_running_loop()
    pool = Pool(Given([URL]), PoolSettings(rates=Rates(ceiling=callers, start=start)))
    began, outcome, draw = loop.time(), Outcome(), random.Random(11)

    async def call() -> None:
        refused_at = 0.0
        while True:
            slot = pool.take(REQUEST, b"") or await pool.wait(REQUEST, b"", math.inf)
            if refused_at:
                outcome.delays.append(loop.time() - refused_at)
            counted = loop.time() - began > ADAPTED
            if not server.admits(loop.time() - began):
                await asyncio.sleep(0.01)
                error = RateLimited("too many requests")
                error.retry_after = asked = server.retry_after
                pool.failed(slot, error)
                outcome.refused += counted
                refused_at = loop.time()
                await asyncio.sleep(asked + draw.uniform(0, 0.1))
                continue
            server.inside += 1
            server.tokens = tokens = server.reply_tokens(server.seconds)
            await asyncio.sleep(server.latency(server))
            server.inside -= 1
            pool.served(slot, Usage(100, tokens) if server.counts_tokens else Usage())
            outcome.served += counted
            return

    async def caller() -> None:
        while True:
            await call()

    tasks = [asyncio.ensure_future(caller()) for _ in range(callers)]
    for _ in range(int(seconds)):
        await asyncio.sleep(1)
        outcome.limits.append(pool.states()[0].limit or math.inf)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return outcome


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.005, 0.02])
@pytest.mark.parametrize("latency", ["constant", "varied"])
def test_random_refusals_leave_the_limit_alone(share: float, latency: str):
    server = Server(refused_at_random=share)
    if latency == "constant":
        server.latency = lambda server: 1.0
    outcome = run(server, callers=64, seconds=120)
    assert outcome.refused > 0.5 * share * outcome.served
    assert outcome.limit >= 0.8 * 64
    assert min(outcome.delays) >= 1.0  # the refused call itself waits as long as it is asked to


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.005, 0.02])
def test_random_refusals_do_not_hide_a_real_limit(share: float):
    without = run(Server(most_at_once=30), callers=60, seconds=90)
    with_them = run(Server(most_at_once=30, refused_at_random=share), callers=60, seconds=90)
    assert with_them.limit == pytest.approx(without.limit, rel=0.2)
    assert with_them.served >= 0.9 * without.served


@pytest.mark.parametrize("most", [8, 30, pytest.param(60, marks=pytest.mark.slow)])
def test_a_limit_of_concurrent_calls_is_respected(most: int):
    outcome = run(Server(most_at_once=most), callers=3 * most, seconds=90)
    assert outcome.refused_share <= 0.05
    assert outcome.served >= 0.9 * (90 - ADAPTED) * most


@pytest.mark.parametrize(
    ("per_second", "burst", "window"),
    [
        pytest.param(10, 1, 0, id="10"),
        pytest.param(30, 1, 0, id="30"),
        pytest.param(30, 10, 0, id="30 saved for 10 s"),
        pytest.param(50, 1, 0, id="50", marks=pytest.mark.slow),
        pytest.param(10, 0, 60, id="600 per minute"),
        pytest.param(40, 0, 1, id="40 in each second", marks=pytest.mark.slow),
    ],
)
def test_a_limit_of_calls_per_time_is_respected(per_second: float, burst: float, window: float):
    server = Server(per_second=per_second, burst=burst, window=window)
    seconds = 210 if window > 1 else 90  # of the last period only what is left after `ADAPTED` can be counted
    outcome = run(server, callers=int(3 * per_second), seconds=seconds)
    assert outcome.refused_share <= 0.05
    assert outcome.served >= 0.9 * (seconds - ADAPTED) * per_second


def test_less_than_one_call_at_a_time():
    server = Server(per_second=1, burst=5, latency=lambda server: server.draw.uniform(0.2, 0.4))
    outcome = run(server, callers=8, seconds=330)
    assert outcome.refused_share <= 0.08
    assert outcome.served >= 0.9 * 300


# --- latency ---------------------------------------------------------------------------------------------------------


def _longer_with_time(seconds: float) -> int:
    """40 tokens at first, 480 after two minutes."""
    return 40 + round(440 * min(1.0, seconds / 120))


def _by_length(server: Server) -> float:
    """0.5 s for 40 tokens, 6 s for 480."""
    return server.tokens / 80 * server.draw.uniform(0.8, 1.2)


def test_longer_replies_are_not_overload():
    outcome = run(Server(reply_tokens=_longer_with_time, latency=_by_length), callers=64, seconds=180)
    assert min(outcome.limits[int(ADAPTED) :]) == 64


def test_replies_that_become_longer_at_once_are_not_overload():
    server = Server(reply_tokens=lambda seconds: 40 if seconds < 40 else 480, latency=_by_length)
    assert min(run(server, callers=64, seconds=180).limits[int(ADAPTED) :]) == 64


def test_shorter_replies_are_not_overload():
    """A short reply takes longer per token."""
    server = Server(
        reply_tokens=lambda seconds: 500 if seconds < 60 else 5,
        latency=lambda server: 1.5 + 0.01 * server.tokens,
    )
    assert min(run(server, callers=64, seconds=120).limits[50:]) == 64


def test_without_token_counts_cuts_that_do_not_help_are_undone():
    server = Server(
        reply_tokens=lambda seconds: 40 if seconds < 40 else 480,
        latency=lambda server: server.tokens / 80,
        counts_tokens=False,
    )
    outcome = run(server, callers=64, seconds=240)
    assert outcome.limits[-1] == 64
    assert outcome.limit >= 0.8 * 64


@pytest.mark.parametrize("counts_tokens", [True, False])
def test_latency_that_grows_with_the_load_lowers_the_limit(counts_tokens: bool):
    server = Server(latency=lambda server: 0.5 * max(1.0, server.inside / 10), counts_tokens=counts_tokens)
    outcome = run(server, callers=200, seconds=150)
    assert outcome.refused == 0
    assert max(outcome.limits) > 100
    assert outcome.limit < 0.6 * 200
    assert outcome.served >= 0.9 * (150 - ADAPTED) * 20


def test_long_replies_do_not_hide_a_queue():
    server = Server(
        reply_tokens=_longer_with_time,
        latency=lambda server: _by_length(server) * max(1.0, server.inside / 20),
    )
    assert min(run(server, callers=400, seconds=300).limits[int(ADAPTED) :]) < 250
