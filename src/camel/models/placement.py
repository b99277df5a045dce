"""Where conversations start: which replicas can accept one, and in which order they are tried.

The one decision to know: the cost does not depend on the number of replicas. Candidates are drawn from a ring. A replica
that cannot accept a conversation is set aside until an event on it, until its timer, or until there are so many
conversations that its part has grown.
"""

from __future__ import annotations

import hashlib
import heapq
import math
import random
import struct
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain

from camel.models.replica import Replica, Session

IDLE = 30.0
"""Seconds without a call after which an unreleased conversation counts as ended."""
REMEMBERED = 65_536
"""Maximum number of conversations whose replica is remembered."""
POINTS = 48
"""Points of each replica. More of them make the parts of the ring more even."""
DRAWS = 8
"""Candidates per conversation."""
LEAST_BUSY = 8
"""Number of replicas of which a call without a session gets the least busy one."""


class HashRing:
    """A consistent hash of conversations to replicas, the same in every process.

    Each replica has some points on a ring, and each draw is a hash of the conversation's name, which stands for the next point.
    So a replica that comes or goes moves only its own conversations.
    """

    def __init__(self, replicas: Iterable[Replica] = ()) -> None:
        self._owners: dict[int, Replica] = {point: one for one in replicas for point in _points(one.url)}
        self._places = sorted(self._owners)

    def draw(self, name: str) -> Iterator[Replica]:
        """Yield candidates for a name, best first. Some may be repeated."""
        places, owners = self._places, self._owners
        if not places:
            return
        digest = hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=8 * DRAWS).digest()
        for place in struct.iter_unpack(">Q", digest):
            yield owners[places[bisect_right(places, place[0]) % len(places)]]


@lru_cache(8_192)
def _points(url: str) -> tuple[int, ...]:
    digest = hashlib.shake_128(url.encode("utf-8", "replace")).digest(8 * POINTS)
    return struct.unpack(f">{POINTS}Q", digest)


class Placement:
    """The replicas of a pool on which conversations can start."""

    def __init__(self, load: float) -> None:
        """`load` is the maximum number of conversations on a replica, as a multiple of its fair part."""
        self._load = load
        self.replicas: list[Replica] = []
        self._ring: HashRing | None = None
        """Made when it is first needed."""
        self._ready: dict[Replica, None] = {}
        """Replicas that may accept a new conversation."""
        self._full: list[tuple[float, int, Replica]] = []
        """Replicas with their part of the conversations, and the total at which they can accept more (a heap)."""
        self._timers: list[tuple[float, int, Replica]] = []
        """Replicas to look at again, with the time (a heap)."""
        self.healthy, self._open, self._weight = 0, 0, 0.0
        """Number, open conversations and weight of the healthy replicas."""

    @property
    def next_timer(self) -> float:
        """Time at which a replica has to be looked at again."""
        return self._timers[0][0] if self._timers else math.inf

    def set(self, replicas: Iterable[Replica]) -> None:
        """Use these replicas."""
        self.replicas = list(replicas)
        counted: list[Replica] = []
        for replica in self.replicas:
            replica.counted = not replica.until
            if replica.counted:
                counted.append(replica)
        self.healthy, self._weight = len(counted), sum(replica.weight for replica in counted)
        self._open = sum(replica.open for replica in counted)
        self._ring, self._ready, self._full = None, dict.fromkeys(self.replicas), []

    def candidates(self, name: str) -> Iterator[Replica]:
        """Yield all replicas for a conversation that has to move, the preferred ones first."""
        return chain(self._draw(name), self.replicas)

    def _draw(self, name: str) -> Iterator[Replica]:
        if self._ring is None:
            self._ring = HashRing(self.replicas)
        return self._ring.draw(name)

    def bound(self, replica: Replica) -> int:
        """Return how many conversations may be open on a replica."""
        if not replica.counted:
            return replica.open + 1  # on a break: it gets one probe at a time
        fair = (self._open + 1) * replica.weight / self._weight
        return max(math.ceil(fair - 1e-9), math.floor(self._load * fair + 1e-9))

    def start(self, name: str, now: float, guess: float) -> Replica | None:
        """Return the best replica that can accept a new conversation now, or None."""
        if not self._ready:
            return None
        if name:
            preferred: Iterable[Replica] = self._draw(name)
        else:
            some = self.replicas
            if len(some) > LEAST_BUSY:
                some = random.sample(some, LEAST_BUSY)
            preferred = sorted(some, key=lambda one: one.governor.in_flight)
        for replica in preferred:
            if replica in self._ready and self._can_start(replica, now, guess):
                return replica
        while self._ready:
            replica = next(iter(self._ready))
            if self._can_start(replica, now, guess):
                return replica
        return None

    def _can_start(self, replica: Replica, now: float, guess: float) -> bool:
        """Return whether a replica can accept a new conversation. If not, set it aside until that may have changed."""
        wait = replica.governor.wait(now, guess) if replica.usable(now) else math.inf
        if wait <= 0 and replica.open < min(self.bound(replica), replica.room.most):
            return True
        self._ready.pop(replica, None)
        if 0 < wait < math.inf:
            self.wake(replica, now + wait)
        elif wait <= 0 and replica.counted:
            fair = min(replica.open + 1e-6, (replica.open + 1) / self._load)
            heapq.heappush(self._full, (fair * self._weight / replica.weight - 1, id(replica), replica))
        return False

    def add_open(self, replica: Replica, more: int) -> None:
        """Count a conversation that begins or ends on a replica."""
        replica.open += more
        if replica.counted:
            self._open += more
        if more < 0:
            self.mark_ready(replica)
        while self._full and self._full[0][0] <= self._open:
            self.mark_ready(heapq.heappop(self._full)[2])

    def recount(self, replica: Replica) -> None:
        """Update the totals after a change of a replica's health."""
        counts = replica.inside and not replica.gone and not replica.until
        if counts != replica.counted:
            replica.counted, sign = counts, 1 if counts else -1
            self.healthy += sign
            self._open += sign * replica.open
            self._weight += sign * replica.weight
            for _, _, one in self._full:
                self.mark_ready(one)
            self._full.clear()

    def mark_ready(self, replica: Replica) -> None:
        """Note that a replica may accept a conversation again."""
        if replica.inside and not replica.gone:
            self._ready[replica] = None

    def wake(self, replica: Replica, at: float) -> None:
        """Look at a replica again at a time."""
        if at < replica.wakes:
            replica.wakes = at
            heapq.heappush(self._timers, (at, id(replica), replica))

    def due(self, now: float) -> list[Replica]:
        """Return the replicas that have to be looked at again now."""
        due: list[Replica] = []
        while self._timers and self._timers[0][0] <= now:
            at, _, replica = heapq.heappop(self._timers)
            if at == replica.wakes:
                replica.wakes = math.inf
                due.append(replica)
        return due


class OpenSessions:
    """The conversations of a pool. One without calls for a while counts as ended, so that its replica can accept another one."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self.open: OrderedDict[str, Session] = OrderedDict()
        """Open conversations, least recently used first."""
        self.ended: OrderedDict[str, Session] = OrderedDict()
        """Ended conversations, whose replica is remembered in case they continue."""

    @property
    def next_end(self) -> float:
        """Time at which the next conversation may count as ended."""
        return next(iter(self.open.values())).used_at + IDLE if self.open else math.inf

    def find(self, name: str) -> Session | None:
        """Return a conversation that has begun."""
        return (self.open.get(name) or self.ended.get(name)) if name else None

    def use(self, session: Session, now: float) -> None:
        """Count a call of a conversation that begins."""
        session.busy += 1
        session.used_at = now
        if session.open:
            self.open.move_to_end(session.name)
        else:
            self.ended.pop(session.name, None)
            session.open = True
            self._placement.add_open(session.replica, 1)
            self.open[session.name] = session
            self.sweep(now)

    def release(self, name: str) -> Session | None:
        """Forget a conversation. Return it if it was open."""
        self.ended.pop(name, None)
        session = self.open.pop(name, None)
        if session is not None:
            session.open = False
            self._placement.add_open(session.replica, -1)
        return session

    def sweep(self, now: float) -> None:
        """Treat conversations that have been idle for too long as ended."""
        for _ in range(len(self.open)):
            name, session = next(iter(self.open.items()))
            full = len(self.open) > REMEMBERED
            if not full and session.used_at > now - IDLE:
                break
            if session.busy:
                session.used_at = now
                self.open.move_to_end(name)
                continue
            self.release(name)
            self.ended[name] = session
            if len(self.ended) > REMEMBERED:
                self.ended.popitem(last=False)
