"""The coordinator: leases shards to workers, receives their heartbeats and adds up their figures.

It has no state that is not in the run's folder: a new coordinator continues from the markers. The one decision to know:
leases depend on the driver. A lease is renewed only while the driver itself was heard from recently. So once a driver has
been dead for the length of a lease, none of its workers is running, whatever the network looks like.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace

from camel.engine.halt import clock
from camel.engine.leases import Leases
from camel.engine.nodes import NodeFault, Routes
from camel.engine.site import (
    WAIT,
    Divider,
    Heartbeat,
    HeartbeatReply,
    Turn,
    WorkerReport,
    WorkerShare,
    summed,
)

SHARE_EVERY = 0.5
"""Seconds between two divisions of the shared limits among workers."""
QUESTIONS = 100.0
"""Target rate per second of requests and heartbeats without news, over all workers; 1,000 of either occupy a core."""


class Totals(msgspec.Struct, frozen=True):
    """The overall state of a run, for the driver."""

    turn: int
    over: bool
    """Whether the turn is over and no worker has anything in flight in it."""
    committed: tuple[int, ...]
    """Shards finished in this turn since the last call."""
    report: WorkerReport
    """The sum over all workers."""
    live: tuple[str, ...]
    shards: dict[str, float]
    halt: str = ""
    silent: dict[str, list[int]] = {}
    """Workers whose lease has expired since the last call, with their shards."""
    faults: tuple[NodeFault, ...] = ()
    """Nodes that have no route to an endpoint and are not retired."""


class Coordinator:
    """Leases and figures of one run. Not thread-safe; no method blocks."""

    def __init__(
        self,
        concurrency: int,
        *,
        ttl: float = 10.0,
        share: Divider | None = None,
        now: Callable[[], float] = clock,
    ) -> None:
        self._concurrency, self._share, self._now, self._ttl = concurrency, share or Divider(), now, ttl
        self._leases = Leases(0, ttl=ttl)
        self._turn = Turn(0)
        self._closed = False
        self._halt = ""
        self._paused = False
        self._expected = 1
        self._driver = now()
        """Time of the driver's last call."""
        self._at_work: set[str] = set()
        """Workers with leases in this turn that have not reported its end."""
        self._leased: dict[str, tuple[int, int, int]] = {}
        """The last lease of each worker: turn, number of the request, shard."""
        self._committed: list[int] = []
        self._silent: dict[str, list[int]] = {}
        """Workers with an expired lease, until `look` reports them to the driver."""
        self._reports: dict[str, WorkerReport] = {}
        self._windows: dict[str, int] = {}
        """Maximum number of items in flight of each worker, or the actual number if that is higher."""
        self._sharing: set[str] = set()
        """Workers of the last division of the shared limits."""
        self._shared = -SHARE_EVERY
        self._routes = Routes()
        self._node: dict[str, str] = {}
        """The node of each live worker."""
        self._retired: set[str] = set()
        """Nodes whose workers must exit."""
        self._copied = False
        """Whether a worker has reported another folder for journals than the driver's."""

    # --- for the driver ----------------------------------------------------------------------------------------------

    def begin(self, turn: Turn, shards: int, done: Iterable[int]) -> None:
        """Start a turn, which is one pass over a step. `done` has the numbers of the shards that are committed."""
        self._turn, self._leases = turn, self._leases.begin(shards, done)
        self._at_work.clear()
        self._committed.clear()

    def halt(self, reason: str) -> None:
        """Ask all workers to stop after their calls in flight."""
        self._halt = self._halt or reason

    def pause(self, paused: bool) -> None:
        """Pause or continue all workers: a paused worker takes no new steps."""
        self._paused = paused

    def close(self) -> None:
        """Ask all workers to exit."""
        self._closed = True

    def lost(self, worker: str) -> list[int]:
        """Free the shards of a dead worker, so that others can lease them at once. Return these shards."""
        self._gone(worker)
        return self._leases.lost(worker)

    def mark_unreachable(self, worker: str) -> None:
        """Handle an unreachable worker that may be alive: its shards become free when its lease expires."""
        self._leases.mark_unreachable(worker)

    def retire(self, node: str) -> list[str]:
        """Ask the workers on a node to exit; their shards become free. Return these workers."""
        self._retired.add(node)
        return [worker for worker, its in self._node.items() if its == node]

    def look(self, seen: int, expected: int) -> Totals:
        """Return the overall state.

        `seen` is the number of committed shards of this turn that the driver already knows, `expected` the number of
        workers that will be there soon.
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
            report=replace(summed(self._reports, live), endpoints=self._share.endpoints()),
            live=tuple(live),
            shards={"done": done, "held": held, "waiting": leases.shards - done - held},
            halt=self._halt,
            silent=silent,
            faults=tuple(one for node, one in self._routes.faults.items() if node not in self._retired),
        )

    # --- for the workers ---------------------------------------------------------------------------------------------

    def turn(self, worker: str) -> Turn | None:
        """Return the current turn; None if no work will come."""
        return None if self._closed else self._turn

    def lease(self, worker: str, turn: int, number: int) -> int | None:
        """Return a shard, `WAIT`, or None if the turn is over. A request with the same `number` gets the same shard."""
        if turn != self._turn.number or self._closed or self._halt:
            return None
        self._expire()
        if (last := self._leased.get(worker)) is not None and last[:2] == (turn, number):
            return last[2]  # the previous answer was lost
        # A worker without room for items gets no shard.
        ready = self._windows.get(worker) and not self._routes.is_held(worker, self._now())
        shard = self._leases.lease(worker, self._now()) if ready else None
        if shard is None:
            return None if self._leases.over else WAIT
        self._at_work.add(worker)
        self._leased[worker] = turn, number, shard
        return shard

    def beat(self, beat: Heartbeat) -> HeartbeatReply:
        """Process a heartbeat and renew the worker's lease."""
        now, worker = self._now(), beat.worker
        self._reports[worker] = beat.report
        self._copied |= beat.report.apart
        if beat.turn == self._turn.number:
            # A committed shard counts, even if the worker has no lease any more.
            self._committed += [shard for shard in beat.committed if self._leases.finish(shard)]
        held = self._leases.held_by(worker)
        if not self._leases.beat(worker, now):
            if worker not in self._leases.live:
                self._gone(worker)
                if held:  # its lease had expired unnoticed
                    self._silent[worker] = held
            return HeartbeatReply(out=True)
        self._node[worker] = beat.node
        self._routes.note(worker, beat.node, self._reports[worker].models, now)
        if beat.node in self._retired or self._routes.passes_on(worker, now, self._idle):
            self.lost(worker)  # it takes no step after this reply, so others can have its shards at once
            return HeartbeatReply(out=True)
        if beat.halted:
            self.halt(beat.halted)
        if beat.turn == self._turn.number:
            for shard in beat.left:
                self._leases.leave(worker, shard)
            if beat.ended:
                self._leases.leave_all(worker)
                self._at_work.discard(worker)
        return HeartbeatReply(
            ttl=min(self._ttl, self._driver + self._ttl - now),
            halt=self._halt,
            paused=self._paused,
            window=self._window(worker, beat.open),
            share=self._share_of(worker, now),
            apart=min(len(self._leases.live) / QUESTIONS, self._ttl / 4),
            copied=self._copied,
        )

    def _idle(self) -> list[str]:
        """Return the live workers without a shard."""
        return [worker for worker in self._leases.live if not self._leases.held_by(worker)]

    def _window(self, worker: str, inside: int) -> int:
        """Return how many items a worker may have in flight: an equal part, less if other workers still exceed theirs."""
        others = sum(taken for name, taken in self._windows.items() if name != worker)
        live = sorted(self._leases.live)
        fair, rest = divmod(self._concurrency, max(self._expected, len(live)))
        fair += live.index(worker) < rest
        window = max(0, min(fair, self._concurrency - others))
        self._windows[worker] = max(window, inside)
        return window

    def _share_of(self, worker: str, now: float) -> WorkerShare:
        self._share.hear(worker, self._reports[worker])
        if now - self._shared >= SHARE_EVERY or worker not in self._sharing:
            live = self._leases.live
            self._sharing, self._shared = set(live), now
            if halt := self._share.tick(self._reports, live, self._expected):
                self.halt(halt)
        return self._share.share(worker)

    def _expire(self) -> None:
        for worker, shards in self._leases.expired(self._now()).items():
            self._gone(worker)
            self._silent[worker] = shards

    def _gone(self, worker: str) -> None:
        self._at_work.discard(worker)
        self._windows.pop(worker, None)
        self._leased.pop(worker, None)
        self._node.pop(worker, None)
        self._routes.forget(worker)
