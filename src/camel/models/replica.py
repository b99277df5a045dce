"""A replica of a model: how it is doing, the sessions it holds, and the order in which a session tries them."""

from __future__ import annotations

import asyncio
import hashlib
import math
import random
from collections import deque
from typing import Literal

import msgspec

from camel.core.errors import (
    InputError,
    MalformedReply,
    ModelError,
    NotAuthorized,
    RequestRejected,
)
from camel.models.endpoint import proxy_for
from camel.models.governor import Governor, Rates

FAILURES = 5
"""In a row, after which a replica is left alone for a while."""
PAUSE, LONGEST_PAUSE = 2.0, 30.0
"""Seconds that the first such while takes; each further one twice as long, up to the longest."""
WARM, COLD = 0.9, 0.6
"""Shares of the prefix that a started conversation finds cached, above and below which a replica's cache is, or is not,
large enough for the conversations open on it."""


State = Literal["closed", "open", "half-open"]


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How calls are spread over replicas."""

    rates: Rates = Rates()
    """Of each replica."""
    open_per_replica: int | None = None
    """Conversations open on a replica at a time; `None` learns it from the cached tokens in replies."""
    load: float = 1.25
    """How many times its fair part of the conversations a replica may have."""

    def __post_init__(self) -> None:
        if self.open_per_replica is not None and self.open_per_replica < 1:
            raise InputError(f"open_per_replica must be at least 1, not {self.open_per_replica!r}")
        if not self.load >= 1:
            raise InputError(f"load must be at least 1, not {self.load!r}")


class ReplicaState(msgspec.Struct, frozen=True, kw_only=True):
    """A replica at a moment, for people."""

    url: str
    state: State
    limit: float | None
    """Calls in flight at most; `None` is no limit."""
    in_flight: int
    waiting: int
    """Calls of its conversations that wait for a place."""
    open: int
    """Conversations."""
    most_open: int | None
    calls: int
    refused: int
    """429 and 503."""
    failed: int
    cached: float
    """Share of the prompt tokens that it had in its cache."""
    failing: int = 0
    """Failures in a row."""
    said: str = ""
    """Its last failure."""


class Replica:
    """One server of the model."""

    def __init__(self, url: str, settings: PoolSettings, now: float) -> None:
        self.url = url
        self.proxy = proxy_for(url)
        self.governor = Governor(settings.rates, now=now)
        self.room = _Room(settings.open_per_replica)
        self.open = 0
        self.queue: deque[Waiter] = deque()
        """Calls of started conversations that wait for a place here."""
        self.gone = False
        """No longer in the list."""
        self.failures = self.trips = 0
        self.until = 0.0
        """Left alone until then; 0 while it is healthy."""
        self.probing = False
        self.said = ""
        self.reached = False
        """Whether it ever answered, whatever it said."""

    def usable(self, now: float) -> bool:
        """Whether a call may be sent to it, as far as its health goes."""
        return not self.gone and (not self.until or (now >= self.until and not self.probing))

    def state(self, now: float) -> State:
        """Of its circuit breaker."""
        if not self.until:
            return "closed"
        return "open" if now < self.until else "half-open"

    def answered(self, said: str = "") -> None:
        """It is there, whatever it said; a refusal is kept, for whoever waits in vain for a place."""
        self.failures = self.trips = 0
        self.until, self.probing, self.said = 0.0, False, said or self.said

    def failure(self, now: float, said: str, alone: bool) -> bool:
        """Count a failure; true if the replica is left alone from now on."""
        self.failures += 1
        self.said = said
        # A single endpoint is never left alone: the client's own pauses are all there is to do.
        if alone or not (self.probing or (not self.until and self.failures >= FAILURES)):
            return False
        pause = min(LONGEST_PAUSE, PAUSE * 2 ** min(self.trips, 10))
        self.trips += 1
        self.probing = False
        # Jitter: the workers of a cluster must not all come back at once.
        self.until = now + pause * random.uniform(0.5, 1.5)  # noqa: S311 - not for secrets
        return True


class _Room:
    """How many conversations a replica's cache can hold."""

    def __init__(self, given: int | None) -> None:
        self.most: float = math.inf if given is None else given
        self._learns = given is None
        self._expected = self._cached = self._calls = 0
        self._cuts = self._rest = self._good = 0
        self._patience = 1
        self._before: float = self.most
        self._reported = False

    def note(self, expected: int, cached: int, open_now: int) -> None:
        """Note how much of the prefix that a started conversation had sent before was still cached."""
        if not self._learns:
            return
        self._reported = self._reported or cached > 0  # many endpoints say nothing of their cache
        if open_now > self.most:
            self._expected = self._cached = self._calls = 0  # until those that are too many have ended
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
                # Ever fewer conversations did not help, so it is not their number.
                self.most, self._cuts, self._rest = self._before, 0, 50
                return
            if not self._cuts:
                # One conversation too many can cost the cache of all: the more often, the rarer it is tried.
                self._before, self._patience = self.most, min(64, 2 * self._patience)
            self._good = 0
            self.most = max(1, int(open_now * (0.5 if self._cuts else 0.75)))
            self._cuts += 1


class Session(msgspec.Struct, gc=False, eq=False):
    """A conversation as the pool knows it. Kept out of the garbage collector, as its slots are: there are many."""

    name: str
    replica: Replica
    open: bool = False
    busy: int = 0
    used_at: float = 0.0
    failures: int = 0
    fled: Replica | None = None
    """The replica that its last calls failed on, which it leaves if there is another."""
    prompts: dict[str, int] = {}
    """Length of each speaker's last prompt, which the replica may have cached."""


class Slot(msgspec.Struct, gc=False, eq=False):
    """The right to send one attempt to a replica, until its end is noted."""

    replica: Replica
    session: Session | None
    sent_at: float
    guess: float
    epoch: int


class Waiter:
    """A call that waits for a place on a replica."""

    __slots__ = ("future", "guess", "name", "order")

    def __init__(self, name: str, guess: float, future: asyncio.Future[Slot]) -> None:
        self.name, self.guess, self.future = name, guess, future
        self.order: list[Replica] | None = None


def is_misplaced(error: ModelError) -> bool:
    """Whether the fault may be that of one replica of several: another model is behind it, another key, or no model."""
    rejected = isinstance(error, RequestRejected) and error.status in (404, 405)
    return rejected or isinstance(error, MalformedReply | NotAuthorized)


def by_affinity(name: str, replicas: list[Replica]) -> list[Replica]:
    """Replicas in a session's rendezvous order, the same in every process; without a session, the idle first."""
    if len(replicas) == 1:
        return replicas
    if not name:
        return sorted(replicas, key=lambda replica: replica.governor.in_flight)
    key = name.encode("utf-8", "replace")
    return sorted(
        replicas,
        key=lambda replica: hashlib.blake2b(key, digest_size=8, key=_key(replica.url)).digest(),
        reverse=True,
    )


def _key(url: str) -> bytes:
    encoded = url.encode("utf-8", "replace")
    return encoded if len(encoded) <= 64 else hashlib.blake2b(encoded, digest_size=32).digest()


def state_of(replica: Replica, now: float) -> ReplicaState:
    """How a replica is doing."""
    governor, most = replica.governor, replica.room.most
    allowed = governor.allowed(now)
    return ReplicaState(
        url=replica.url,
        state=replica.state(now),
        limit=None if math.isinf(allowed) else allowed,
        in_flight=governor.in_flight,
        waiting=len(replica.queue),
        open=replica.open,
        most_open=None if math.isinf(most) else int(most),
        calls=governor.calls,
        refused=governor.refused_calls,
        failed=governor.failed_calls,
        cached=governor.cached / governor.prompt if governor.prompt else 0.0,
        failing=replica.failures,
        said=replica.said,
    )


def give_back(slot: Slot) -> None:
    """Undo an admission that came to nothing; a probe that was not made can be made by the next."""
    slot.replica.governor.left()
    slot.replica.probing = False
    if slot.session is not None:
        slot.session.busy -= 1


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop of this thread; None where none runs."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
