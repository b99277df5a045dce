"""Leases: which worker holds which shard, and until when.

The one decision to know: a lease belongs to a worker, not to a shard. One deadline covers all shards of a worker, and each
heartbeat moves it. A worker that is silent for longer loses all of them and is never accepted again. The caller passes
the time, so the table can be tested with a virtual clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

PENDING, HELD, DONE, LEFT = range(4)
"""The states of a shard. LEFT: a worker could not finish it, so it waits for the next pass."""


class Leases:
    """The shards of one pass over a stage: one byte per shard, and the shards of each worker."""

    def __init__(self, shards: int, done: Iterable[int] = (), *, ttl: float = 10.0) -> None:
        self.ttl = ttl
        self._state = bytearray(shards)
        self.done = 0
        """Number of finished shards."""
        for shard in done:
            self.done += self._state[shard] != DONE
            self._state[shard] = DONE
        self._cursor = 0
        self._returned: deque[int] = deque()
        """Shards of workers that lost their lease, in order; leased before new ones."""
        self._held: dict[str, set[int]] = {}
        self._holder: dict[int, str] = {}
        """The worker of each leased shard."""
        self._deadline: dict[str, float] = {}
        self._out: set[str] = set()
        self._open = self._state.count(PENDING)
        """Number of shards that are neither finished nor postponed to the next pass."""

    @property
    def live(self) -> list[str]:
        """The workers that have a lease."""
        return list(self._deadline)

    @property
    def over(self) -> bool:
        """Whether no work remains in this pass."""
        return self._open == 0

    @property
    def held(self) -> int:
        """Number of leased shards."""
        return len(self._holder)

    @property
    def shards(self) -> int:
        """Number of shards."""
        return len(self._state)

    def held_by(self, worker: str) -> list[int]:
        """Return the shards leased to a worker."""
        return sorted(self._held.get(worker, ()))

    def beat(self, worker: str, now: float) -> bool:
        """Process a heartbeat; returns False if the worker has lost its lease and must exit."""
        if worker in self._out:
            return False
        if now > self._deadline.get(worker, now):
            self.lost(worker)  # its lease had expired unnoticed
            return False
        self._deadline[worker] = now + self.ttl
        return True

    def lease(self, worker: str, now: float) -> int | None:
        """Lease the next shard to a worker, or return None. A worker without a heartbeat gets no new shard."""
        if worker in self._out or now > self._deadline.get(worker, -1.0):
            return None
        shard = self._next()
        if shard is not None:
            self._state[shard] = HELD
            self._held.setdefault(worker, set()).add(shard)
            self._holder[shard] = worker
        return shard

    def finish(self, shard: int) -> bool:
        """Record a committed shard. Return False if it was recorded before."""
        state = self._state[shard]
        if state == DONE:
            return False
        self._open -= state != LEFT
        self._state[shard] = DONE
        self.done += 1
        if (worker := self._holder.pop(shard, None)) is not None:
            self._held[worker].discard(shard)
        return True

    def leave(self, worker: str, shard: int) -> None:
        """Record that a worker could not finish a shard, which waits for the next pass."""
        held = self._held.get(worker, set())
        if shard in held:
            held.discard(shard)
            del self._holder[shard]
            self._state[shard] = LEFT
            self._open -= 1

    def leave_all(self, worker: str) -> None:
        """Record that a worker could not finish its leased shards, which wait for the next pass."""
        for shard in sorted(self._held.get(worker, ())):
            self.leave(worker, shard)

    def lost(self, worker: str) -> list[int]:
        """Take all shards from a worker, so that they can be leased again. Return these shards."""
        self._out.add(worker)
        self._deadline.pop(worker, None)
        shards = sorted(self._held.pop(worker, ()))
        for shard in shards:
            self._state[shard] = PENDING
            del self._holder[shard]
        self._returned.extend(shards)
        return shards

    def mark_unreachable(self, worker: str) -> None:
        """Accept no more heartbeats of a worker that may be alive; it keeps its shards until its lease expires."""
        self._out.add(worker)

    def expired(self, now: float) -> dict[str, list[int]]:
        """Take the shards from workers with an expired lease. Return these shards by worker."""
        silent = [worker for worker, deadline in self._deadline.items() if now > deadline]
        return {worker: self.lost(worker) for worker in silent}

    def begin(self, shards: int, done: Iterable[int] = ()) -> Leases:
        """Return the leases of the next pass or stage, with the same workers."""
        after = Leases(shards, done, ttl=self.ttl)
        after._deadline, after._out = self._deadline, self._out
        return after

    def _next(self) -> int | None:
        while self._returned:
            shard = self._returned.popleft()
            if self._state[shard] == PENDING:
                return shard
        # Skip leased, done and left shards. Shards before the cursor that come back are in the queue.
        self._cursor = self._state.find(PENDING, self._cursor)
        if self._cursor < 0:
            self._cursor = len(self._state)
            return None
        return self._cursor
