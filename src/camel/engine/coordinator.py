"""The coordinator: hands out shards, hears the workers' heartbeats and sums up their figures.

It holds nothing that the run's folder does not: whoever starts a new one goes on from the markers. The one decision to
know: leases hang on the driver. A lease is renewed only as far as the driver itself was heard of, so that once a driver
has been dead for as long as a lease, no worker of its is at work, whoever could reach whom.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from camel.engine.halt import clock
from camel.engine.leases import Leases
from camel.engine.site import (
    WAIT,
    Beat,
    Divide,
    Orders,
    Turn,
    WorkerReport,
    WorkerShare,
    no_limits,
    summed,
)

SHARE_EVERY = 0.5
"""Seconds between two divisions of what may be used."""
QUESTIONS = 200.0
"""Questions and beats without news a second, from all workers together: 1,000 of either are a busy core."""


class Totals(msgspec.Struct, frozen=True):
    """How everything stands, for the driver."""

    turn: int
    over: bool
    """Whether the turn is over, and nobody has anything in flight in it."""
    committed: tuple[int, ...]
    """Shards that were finished in this turn, those that were told of before left out."""
    report: WorkerReport
    """Of all workers."""
    live: tuple[str, ...]
    shards: dict[str, float]
    halt: str = ""
    silent: dict[str, list[int]] = {}
    """Workers that were out of time since the last look, with the shards that they held."""


class Coordinator:
    """Leases and figures of one run. Not thread-safe, and nothing in it waits."""

    def __init__(
        self,
        concurrency: int,
        *,
        ttl: float = 10.0,
        share: Divide = no_limits,
        now: Callable[[], float] = clock,
    ) -> None:
        self._concurrency, self._share, self._now, self._ttl = concurrency, share, now, ttl
        self._leases = Leases(0, ttl=ttl)
        self._turn = Turn(0)
        self._closed = False
        self._halt = ""
        self._paused = False
        self._expected = 1
        self._driver = now()
        """When the driver was last heard of."""
        self._at_work: set[str] = set()
        """Who has leased something in this turn and not said that it ended."""
        self._leased: dict[str, tuple[int, int, int]] = {}
        """The last lease of each worker: turn, number, shard."""
        self._committed: list[int] = []
        self._silent: dict[str, list[int]] = {}
        """Workers that were out of time, until the driver has heard of it."""
        self._reports: dict[str, WorkerReport] = {}
        self._windows: dict[str, int] = {}
        """What each worker has of the window, or has in flight where that is more."""
        self._shares: dict[str, WorkerShare] = {}
        self._shared = -SHARE_EVERY

    # --- for the driver ----------------------------------------------------------------------------------------------

    def begin(self, turn: Turn, shards: int, done: Iterable[int]) -> None:
        """Start a pass over a step, with the numbers of the shards that are done."""
        self._turn, self._leases = turn, self._leases.begin(shards, done)
        self._at_work.clear()
        self._committed.clear()

    def halt(self, reason: str) -> None:
        """Have everybody stop; calls in flight end."""
        self._halt = self._halt or reason

    def pause(self, paused: bool) -> None:
        """Have nobody take new steps for now, or go on."""
        self._paused = paused

    def close(self) -> None:
        """Send everybody home."""
        self._closed = True

    def lost(self, worker: str) -> list[int]:
        """A worker's process is known to be dead: what it held, which is returned, can be leased at once."""
        self._gone(worker)
        return self._leases.lost(worker)

    def shun(self, worker: str) -> None:
        """A worker cannot be reached, and may be alive: what it holds is free once its lease has run out."""
        self._leases.shun(worker)

    def look(self, seen: int, expected: int) -> Totals:
        """How everything stands.

        `seen` is how many committed shards of this turn the driver knows of already, `expected` how many workers there
        will be in a moment.
        """
        self._driver, self._expected = self._now(), max(1, expected)
        self._expire()
        leases = self._leases
        live = leases.live
        done, held = leases.done, leases.held
        silent, self._silent = self._silent, {}
        over = not self._at_work and (leases.over or bool(self._halt))
        return Totals(
            turn=self._turn.number,
            over=over,
            committed=tuple(self._committed[seen:]),
            report=summed(self._reports, live),
            live=tuple(live),
            shards={"done": done, "held": held, "waiting": leases.shards - done - held},
            halt=self._halt,
            silent=silent,
        )

    # --- for the workers ---------------------------------------------------------------------------------------------

    def turn(self, worker: str) -> Turn | None:
        """What to work on; None when there will be nothing any more."""
        return None if self._closed else self._turn

    def lease(self, worker: str, turn: int, number: int) -> int | None:
        """A shard, `WAIT`, or None when the turn is over; the same shard for the same number."""
        if turn != self._turn.number or self._closed or self._halt:
            return None
        self._expire()
        if (last := self._leased.get(worker)) is not None and last[:2] == (turn, number):
            return last[2]  # the answer was lost on its way
        # Who has no room for items yet takes no shard: others have.
        shard = self._leases.lease(worker, self._now()) if self._windows.get(worker) else None
        if shard is None:
            return None if self._leases.over else WAIT
        self._at_work.add(worker)
        self._leased[worker] = turn, number, shard
        return shard

    def beat(self, beat: Beat) -> Orders:
        """Take note of a worker and renew its lease."""
        now, worker = self._now(), beat.worker
        self._reports[worker] = beat.report
        if beat.turn == self._turn.number:
            # What is committed is committed, whoever says so.
            self._committed += [shard for shard in beat.committed if self._leases.finish(shard)]
        held = self._leases.held_by(worker)
        if not self._leases.beat(worker, now):
            if worker not in self._leases.live:
                self._gone(worker)
                if held:  # it comes too late, and nobody had noticed
                    self._silent[worker] = held
            return Orders(out=True)
        if beat.halted:
            self.halt(beat.halted)
        if beat.turn == self._turn.number:
            for shard in beat.left:
                self._leases.leave(worker, shard)
            if beat.ended:
                self._leases.leave_all(worker)
                self._at_work.discard(worker)
        return Orders(
            ttl=min(self._ttl, self._driver + self._ttl - now),
            halt=self._halt,
            paused=self._paused,
            window=self._window(worker, beat.open),
            share=self._share_of(worker, now),
            apart=min(len(self._leases.live) / QUESTIONS, self._ttl / 4),
        )

    def _window(self, worker: str, inside: int) -> int:
        """A worker's part of the window: an equal one, as far as the others have no items in it that are still open."""
        others = sum(taken for name, taken in self._windows.items() if name != worker)
        live = sorted(self._leases.live)
        fair, rest = divmod(self._concurrency, max(self._expected, len(live)))
        fair += live.index(worker) < rest
        window = max(0, min(fair, self._concurrency - others))
        self._windows[worker] = max(window, inside)
        return window

    def _share_of(self, worker: str, now: float) -> WorkerShare:
        if now - self._shared >= SHARE_EVERY or worker not in self._shares:
            shares, halt = self._share(self._reports, self._leases.live)
            self._shares = dict(shares)
            self._shared = now
            if halt:
                self.halt(halt)
        return self._shares.get(worker, WorkerShare())

    def _expire(self) -> None:
        for worker, shards in self._leases.expired(self._now()).items():
            self._gone(worker)
            self._silent[worker] = shards

    def _gone(self, worker: str) -> None:
        self._at_work.discard(worker)
        self._windows.pop(worker, None)
        self._leased.pop(worker, None)
