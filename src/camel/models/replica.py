"""A replica of a model: its health, its sessions, and the order in which a session tries replicas."""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import Iterable, Sequence
from functools import cached_property
from heapq import nsmallest
from typing import Literal

import msgspec
from msgspec.structs import replace

from camel.core.errors import InputError, MalformedReply, ModelError, NotAuthorized, RequestRejected
from camel.models.endpoint import proxy_for
from camel.models.governor import EndpointReport, Governor, Rates

WORST = 20
"""Maximum number of replicas that a log, a status or a metric names."""


class ReplicaTotals(msgspec.Struct, frozen=True):
    """Sums over all replicas of a run's models."""

    count: int = 0
    healthy: int = 0
    in_flight: int = 0
    waiting: int = 0
    open: int = 0
    calls: int = 0
    refused: int = 0
    failed: int = 0

    @staticmethod
    def of(states: Iterable[ReplicaState]) -> ReplicaTotals:
        """Return the sums over these replicas."""
        all = list(states)
        names = ReplicaTotals.__struct_fields__[2:]
        sums = (sum(getattr(one, name) for one in all) for name in names)
        return ReplicaTotals(len(all), sum(one.state == "closed" for one in all), *sums)


def worst_replicas(states: Sequence[ReplicaState]) -> Sequence[ReplicaState]:
    """Return the replicas with most failures, and then with the highest load. If there are few, return all as they are."""
    return states if len(states) <= WORST else nsmallest(WORST, states, key=_badness)


def _badness(one: ReplicaState) -> tuple[bool, int, int, int, str]:
    return one.state == "closed", -one.failing, -one.failed, -(one.in_flight + one.waiting), one.url


FAILURES = 5
"""Number of failures in a row after which a replica gets a break, in which it receives no calls."""
PAUSE, LONGEST_PAUSE = 2.0, 30.0
"""Seconds of the first break, and of the longest one. Each break is twice as long as the last."""
WARM, COLD = 0.9, 0.6
"""Thresholds of the cached share of a conversation's prefix. Above the first, the replica's cache is large enough for its open
conversations. Below the second, it is too small."""


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How calls are spread over replicas."""

    rates: Rates = Rates()
    """Rate limits of each replica."""
    open_per_replica: int | None = None
    """Maximum number of open conversations per replica; `None`: learned from the cached tokens in replies."""
    load: float = 1.25
    """Maximum number of conversations on a replica, as a multiple of its equal share of all conversations."""

    def __post_init__(self) -> None:
        if self.open_per_replica is not None and self.open_per_replica < 1:
            raise InputError(f"open_per_replica must be at least 1, not {self.open_per_replica!r}")
        if not self.load >= 1:
            raise InputError(f"load must be at least 1, not {self.load!r}")


class ReplicaState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a replica, for display."""

    url: str
    state: Literal["closed", "open", "half-open"]
    """The state of its circuit breaker."""
    limit: float | None
    """Maximum number of calls in flight; `None`: no limit."""
    in_flight: int
    waiting: int
    """Number of waiting calls of the replica's conversations."""
    open: int
    """Number of open conversations."""
    most_open: int | None
    calls: int
    refused: int
    """Number of 429 and 503 responses."""
    failed: int
    cached: float
    """Share of prompt tokens that were in the replica's cache."""
    failing: int = 0
    """Number of failures in a row. On a cluster: number of workers that get no answer."""
    said: str = ""
    """Text of the last failure or refusal."""

    @staticmethod
    def from_report(url: str, report: EndpointReport) -> ReplicaState:
        """Return what a report contains about an endpoint."""
        return ReplicaState(
            url=url,
            state="open" if report.broken else "closed",
            limit=report.allowed if report.allowed >= 0 else None,
            in_flight=report.in_flight,
            waiting=report.waiting,
            open=report.open,
            most_open=None,
            calls=report.calls,
            refused=report.refused,
            failed=report.failed,
            cached=report.cached / report.prompt if report.prompt else 0.0,
            failing=report.failing,
        )


class Replica:
    """One server of the model."""

    def __init__(self, url: str, settings: PoolSettings, now: float) -> None:
        self.url = url
        self.governor = Governor(settings.rates, now=now)
        self.room = _Room(settings.open_per_replica)
        self.open = 0
        self.weight = 1.0
        """Its part of the load of an average replica."""
        self.inside = True
        """Whether conversations can start on it. False: it is not in this worker's subset."""
        self.counted = False
        """Whether it is in the pool's totals."""
        self.wakes = math.inf
        """Time of its next timer."""
        self.queue: deque[Waiter] = deque()
        """Waiting calls of conversations on this replica."""
        self.gone = False
        """Whether it was removed from the list of replicas."""
        self.failures = self.trips = 0
        self.until = 0.0
        """End of the current break. 0 if the replica is healthy."""
        self.probing = False
        self.said = ""
        self.reached = False
        """Whether the replica ever answered, even with an error."""
        self.misplaced = False
        """Whether its last failure may be specific to it, such as a wrong model or key."""

    @cached_property
    def proxy(self) -> str | None:
        """The proxy for its calls. Found at the first call: a lookup takes long, and there may be thousands of replicas."""
        return proxy_for(self.url)

    @property
    def is_unused(self) -> bool:
        """Whether it never had a call."""
        return not (self.governor.calls or self.governor.in_flight or self.open or self.queue)

    def usable(self, now: float) -> bool:
        """Return whether the replica is healthy enough for a call."""
        return not self.gone and (not self.until or (now >= self.until and not self.probing))

    def used(self, now: float, waiting: float = math.inf) -> float:
        """Return how many slots this worker uses or can use at once. `waiting` is the number of further waiting calls."""
        busy = self.governor.in_flight
        return max(busy, min(self.governor.allowed(now), busy + len(self.queue) + waiting))

    def report(self, now: float, waiting: int = 0) -> EndpointReport:
        """Return a report on the replica. `waiting` is the number of further calls that may wait for it."""
        found = self.governor.report(now, len(self.queue) + waiting)
        tripped = not self.usable(now) or self.failures >= FAILURES
        return replace(found, open=self.open, broken=tripped, failing=int(tripped))

    def state(self, now: float) -> ReplicaState:
        """Return the current state."""
        state = "closed" if not self.until else "open" if now < self.until else "half-open"
        most = None if math.isinf(self.room.most) else int(self.room.most)
        found = ReplicaState.from_report(self.url, self.report(now))
        return replace(found, state=state, most_open=most, failing=self.failures, said=self.said)

    def answered(self, said: str = "") -> None:
        """Record an answer. `said` is the text of a refusal, shown in the error of calls that time out while they wait."""
        self.failures = self.trips = 0
        self.until, self.probing, self.said = 0.0, False, said or self.said

    def failure(self, now: float, said: str, alone: bool) -> bool:
        """Count a failure. Return True if a break begins. If `alone` is true, it is the only replica and never gets a break."""
        self.failures += 1
        self.said = said
        # A single endpoint gets no break: the client's own waits are enough.
        if alone or not (self.probing or (not self.until and self.failures >= FAILURES)):
            return False
        pause = min(LONGEST_PAUSE, PAUSE * 2 ** min(self.trips, 10))
        self.trips += 1
        self.probing = False
        # Jitter, so that the workers of a cluster do not all return at once.
        self.until = now + pause * random.uniform(0.5, 1.5)  # noqa: S311 - not for secrets
        return True


class _Room:
    """Learns how many conversations fit into a replica's cache."""

    def __init__(self, given: int | None) -> None:
        self.most: float = math.inf if given is None else given
        self._learns = given is None
        self._expected = self._cached = self._calls = 0
        self._cuts = self._rest = self._good = 0
        self._patience = 1
        self._before: float = self.most
        self._reported = False

    def note(self, expected: int, cached: int, open_now: int) -> None:
        """Record how much of a conversation's earlier prefix was still cached."""
        if not self._learns:
            return
        self._reported = self._reported or cached > 0  # many endpoints do not report cached tokens
        if open_now > self.most:
            self._expected = self._cached = self._calls = 0  # wait until the excess conversations have ended
            return
        self._expected += expected
        self._cached += min(cached, expected)
        self._calls += 1
        if self._calls < max(20, 2 * open_now):
            return
        warmth = self._cached / max(1, self._expected)
        self._expected = self._cached = self._calls = 0
        self._judge(warmth, open_now)

    def _judge(self, warmth: float, open_now: int) -> None:
        if self._rest:
            self._rest -= 1
        elif warmth > WARM:
            self._cuts = 0
            self._good += open_now >= self.most
            if self._good >= self._patience:
                self.most, self._good = self.most + 1, 0
        elif warmth < COLD and self._reported:
            if self._cuts == 6 or open_now <= 1:
                # Fewer conversations did not help, so their number is not the reason.
                self.most, self._cuts, self._rest = self._before, 0, 50
                return
            if not self._cuts:
                # One conversation too many can evict all others, so increases become rarer after each failure.
                self._before, self._patience = self.most, min(64, 2 * self._patience)
            self._good = 0
            self.most = max(1, int(open_now * (0.5 if self._cuts else 0.75)))
            self._cuts += 1


class Session(msgspec.Struct, gc=False, eq=False):
    """A conversation in the pool. Not tracked by the garbage collector, because there are many."""

    name: str
    replica: Replica
    open: bool = False
    busy: int = 0
    used_at: float = 0.0
    failures: int = 0
    fled: Replica | None = None
    """The replica on which the last calls failed. The conversation moves to another one, if there is one."""
    prompts: dict[str, int] = {}
    """Tokens of each speaker's last prompt, which the replica may have cached."""


class Slot(msgspec.Struct, gc=False, eq=False):
    """Permission to send one attempt to a replica. Its end must be recorded."""

    replica: Replica
    session: Session | None
    sent_at: float
    guess: float
    epoch: int


class Waiter(msgspec.Struct, eq=False):
    """A call that waits for a replica."""

    name: str
    guess: float
    future: asyncio.Future[Slot]


def is_misplaced(error: ModelError) -> bool:
    """Return whether an error may be specific to one replica, such as a wrong model or key."""
    rejected = isinstance(error, RequestRejected) and error.status in (404, 405)
    return rejected or isinstance(error, MalformedReply | NotAuthorized)


def give_back(slot: Slot) -> None:
    """Free a slot whose attempt was abandoned. If it was a probe, the next call can probe."""
    slot.replica.governor.left()
    slot.replica.probing = False
    if slot.session is not None:
        slot.session.busy -= 1


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the running event loop of this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
