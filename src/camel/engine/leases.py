"""Leases: which worker holds which shard, and until when.

The one decision to know: a lease is a worker's, not a shard's. One deadline covers all that a worker holds, and each
heartbeat moves it; a worker that is silent for longer has lost everything at once and is out for good. Time is whatever
the caller says it is, so that the whole table can be tested on a clock of one's own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

PENDING, HELD, DONE, LEFT = range(4)
"""What a shard can be; LEFT: somebody worked on it and could not finish it, so that it waits for the next pass."""


class Leases:
    """The shards of one pass over a stage. A byte a shard, and what is held by name."""

    def __init__(self, shards: int, done: Iterable[int] = (), *, ttl: float = 10.0) -> None:
        self.ttl = ttl
        self._state = bytearray(shards)
        for shard in done:
            self._state[shard] = DONE
        self._cursor = 0
        self._returned: deque[int] = deque()
        """What those who are out have held, in the order in which it came back: leased before anything new."""
        self._held: dict[str, set[int]] = {}
        self._deadline: dict[str, float] = {}
        self._out: set[str] = set()
        self._open = self._state.count(PENDING)
        """Shards that are neither done nor left."""

    @property
    def live(self) -> list[str]:
        """The workers that have a lease."""
        return list(self._deadline)

    @property
    def over(self) -> bool:
        """Whether nobody has anything to do any more in this pass."""
        return self._open == 0

    @property
    def held(self) -> int:
        """How many shards are being worked on."""
        return sum(map(len, self._held.values()))

    @property
    def done(self) -> int:
        """How many shards are finished."""
        return self._state.count(DONE)

    @property
    def shards(self) -> int:
        """How many there are."""
        return len(self._state)

    def held_by(self, worker: str) -> list[int]:
        """The shards that a worker is at."""
        return sorted(self._held.get(worker, ()))

    def is_done(self, shard: int) -> bool:
        """Whether a shard is finished."""
        return self._state[shard] == DONE

    def beat(self, worker: str, now: float) -> bool:
        """A sign of life; False when the worker is out and has to leave."""
        if worker in self._out:
            return False
        if now > self._deadline.get(worker, now):
            self.lost(worker)  # it comes too late, though nobody has noticed yet
            return False
        self._deadline[worker] = now + self.ttl
        return True

    def lease(self, worker: str, now: float) -> int | None:
        """The next shard for a worker, or None while there is none; who has no lease of life gets none."""
        if worker in self._out or now > self._deadline.get(worker, -1.0):
            return None
        shard = self._next()
        if shard is not None:
            self._state[shard] = HELD
            self._held.setdefault(worker, set()).add(shard)
        return shard

    def finish(self, shard: int) -> bool:
        """A shard is committed, by whomever: its marker exists. False when that was known."""
        state = self._state[shard]
        if state == DONE:
            return False
        self._open -= state != LEFT
        self._state[shard] = DONE
        for held in self._held.values():
            held.discard(shard)
        return True

    def leave(self, worker: str, shard: int) -> None:
        """A worker has come to the end of a shard and could not finish it."""
        held = self._held.get(worker, set())
        if shard in held:
            held.discard(shard)
            self._state[shard] = LEFT
            self._open -= 1

    def leave_all(self, worker: str) -> None:
        """A worker ends its part in this pass; what it still holds waits for the next."""
        for shard in sorted(self._held.get(worker, ())):
            self.leave(worker, shard)

    def lost(self, worker: str) -> list[int]:
        """A worker is out: all that it held can be leased again."""
        self._out.add(worker)
        self._deadline.pop(worker, None)
        shards = sorted(self._held.pop(worker, ()))
        for shard in shards:
            self._state[shard] = PENDING
        self._returned.extend(shards)
        return shards

    def shun(self, worker: str) -> None:
        """A worker may be alive where nobody reaches it: it is out, and keeps what it holds until its time is over."""
        self._out.add(worker)

    def expired(self, now: float) -> dict[str, list[int]]:
        """The workers that have been silent for too long, with what they held; they are out from now on."""
        silent = [worker for worker, deadline in self._deadline.items() if now > deadline]
        return {worker: self.lost(worker) for worker in silent}

    def begin(self, shards: int, done: Iterable[int] = ()) -> Leases:
        """The table of the next pass, or of the next stage, for the same workers."""
        after = Leases(shards, done, ttl=self.ttl)
        after._deadline, after._out = self._deadline, self._out
        return after

    def _next(self) -> int | None:
        while self._returned:
            shard = self._returned.popleft()
            if self._state[shard] == PENDING:
                return shard
        # Past what is held, done or left; what comes back before the cursor is in the queue.
        self._cursor = self._state.find(PENDING, self._cursor)
        if self._cursor < 0:
            self._cursor = len(self._state)
            return None
        return self._cursor
