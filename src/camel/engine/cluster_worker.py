"""A worker of a cluster: gets passes from the coordinator, works on leased shards, and renews its lease.

The one decision to know: the lease counts from when a heartbeat was *sent*, so a worker stops calling before another
worker can take over its shards. It needs no message for that: `Halt` checks the clock before every step.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any, Literal

import msgspec

from camel.core.errors import CamelError
from camel.engine.halt import LEASE_LOST, Halted, clock
from camel.engine.nodes import NodeFault, disk_fault
from camel.engine.site import WAIT, CallCoordinator, CoordinatorGone, Heartbeat, HeartbeatReply, Site
from camel.engine.stage import ShardTable, Workload
from camel.engine.worker import Window, run_worker

BEAT_EVERY = 1.0
PATIENCE = 2.0
"""Seconds after which an unanswered heartbeat is sent again."""
SOON = 0.2
"""Seconds between two heartbeats if other workers wait for what this one has stopped using."""
PAUSE = 0.2
"""Seconds before a worker without a shard asks again."""
OUT, GONE = "the coordinator counts this worker as dead", "the driver has stopped"
UNFIT = "this node cannot work"
_OWN = (LEASE_LOST, OUT, GONE, UNFIT)
"""Reasons to stop that affect only this worker."""


class WorkerEnd(msgspec.Struct, frozen=True):
    """How a worker ended."""

    how: Literal["dismissed", "out", "failed"]
    why: str = ""
    fault: NodeFault | None = None
    """What is wrong with its node, if that is the reason."""


class ClusterWorker:
    """The main loop of one worker."""

    def __init__(self, name: str, site: Site, call: CallCoordinator, node: str = "") -> None:
        self._name, self._site, self._call, self._node = name, site, call, node
        self._halt = site.halt
        self._window = Window(0)
        self._turn, self._table = -1, ShardTable(())
        self._committed: list[int] = []
        self._left: list[int] = []
        self._ended = True
        self._leases = 0
        """Number of requests for shards. A repeated request has the same number, so it does not lease a second shard."""
        self._apart = 0.0
        self._ordered = ""
        """The coordinator's reason to halt."""
        self._fault: NodeFault | None = None
        self._pass: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._one_beat = asyncio.Lock()

    async def live(self) -> WorkerEnd:
        """Work until nothing remains, or until this worker must stop."""
        try:
            await self._tell()
            async with asyncio.TaskGroup() as group:
                beating = group.create_task(self._keep_beating())
                try:
                    await self._work()
                finally:
                    beating.cancel()
            await self._tell()
        except ExceptionGroup as errors:
            error = errors.exceptions[0]
            self._diagnose(error)
            if not self._fault and not isinstance(error, CamelError):
                raise error from None
            # A worker without a lease reports no errors: others have its shards now.
            if self._halt.reason not in _OWN:
                return WorkerEnd("failed", str(error))
        finally:
            await self._site.aclose()
        if self._fault:
            return WorkerEnd("failed", self._fault.why, self._fault)
        return WorkerEnd("out", self._halt.reason) if self._halt.reason in _OWN else WorkerEnd("dismissed")

    async def _work(self) -> None:
        with contextlib.suppress(Halted, CoordinatorGone):
            while (turn := await self._ask("turn", self._name)) is not None:
                if turn.number == self._turn or not turn.step:
                    if self._halt.reason in _OWN:
                        return
                    await self._pause()
                    continue
                failed = None
                self._turn, self._ended = turn.number, False
                # On a thread: preparing the step may read files, and the lease must be renewed meanwhile.
                found = await asyncio.to_thread(self._site.workloads, turn.step, turn.attempt)
                self._table = ShardTable(found)
                self._pass = asyncio.ensure_future(
                    run_worker(
                        self._site.folder,
                        self._lease,
                        concurrency=self._window,
                        halt=self._halt,
                        committed=self._note_committed,
                        left=self._note_left,
                        failed=self._diagnose,
                    )
                )
                try:
                    await self._pass
                except asyncio.CancelledError:
                    if not self._fault:
                        raise
                except Exception as error:
                    failed = error
                    self._diagnose(error)
                self._ended = True
                await self._tell()
                if failed is not None:
                    raise failed

    def _diagnose(self, error: Exception) -> None:
        """Find out whether an error concerns only this node. If so, abandon all calls, so that others can have the shards."""
        if self._halt.reason not in _OWN and (why := disk_fault(error, self._site.folder)):
            self._fault = NodeFault(self._node, "disk", why)
            self._halt.revoke(UNFIT)
            if self._pass:
                self._pass.cancel()

    async def _lease(self) -> tuple[Workload, int] | None:
        with contextlib.suppress(Halted, CoordinatorGone):
            self._leases += 1
            while True:
                shard = await self._ask("lease", self._name, self._turn, self._leases)
                if shard != WAIT:
                    return None if shard is None else self._table[shard]
                await self._pause()
        return None

    async def _ask(self, *question: Any) -> Any:
        """Ask the coordinator and return its answer. Repeat the request as long as the lease is valid."""
        while True:
            answer = asyncio.ensure_future(self._call(*question))
            while not answer.done():
                if self._halt.reason in _OWN:
                    answer.cancel()
                    raise Halted(self._halt.reason)
                await asyncio.wait({answer}, timeout=PAUSE)
            try:
                return answer.result()
            except TimeoutError:
                await asyncio.sleep(PAUSE)

    async def _pause(self) -> None:
        await asyncio.sleep(max(PAUSE, _about(self._apart)))

    def _note_committed(self, stage: Workload, shard: int) -> None:
        self._committed.append(self._table.number(stage.name, shard))
        self._site.committed(stage.name, shard)
        self._news.set()

    def _note_left(self, stage: Workload, shard: int) -> None:
        self._left.append(self._table.number(stage.name, shard))
        self._news.set()

    async def _tell(self) -> None:
        """Send a heartbeat with all news. Repeat it until the coordinator answers or is gone."""
        while self._halt.reason not in _OWN:
            try:
                await self._beat()
                return
            except TimeoutError:
                await asyncio.sleep(PAUSE)  # avoid a busy loop if the error comes at once
            except CoordinatorGone:
                self._halt.revoke(GONE)
                return  # even if it had another reason to stop

    async def _keep_beating(self) -> None:
        while self._halt.reason not in _OWN:
            self._news.clear()
            await self._tell()
            end = clock() + max(BEAT_EVERY, _about(self._apart))
            while (left := end - clock()) > 0 and not self._news.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left, SOON)):
                        await self._news.wait()
                if self._site.has_freed_slots:
                    break

    async def _beat(self) -> None:
        async with self._one_beat:
            committed, left = tuple(self._committed), tuple(self._left)
            wish = self._halt.reason
            beat = Heartbeat(
                self._name,
                self._turn,
                self._site.report(),
                committed,
                left,
                self._ended,
                "" if wish in _OWN or wish == self._ordered else wish,
                max(self._window.taken, self._window.size),
                self._node,
            )
            sent = clock()
            async with asyncio.timeout(PATIENCE):
                orders = await self._call("beat", beat)
            self._follow(orders, sent)
            del self._committed[: len(committed)], self._left[: len(left)]

    def _follow(self, orders: HeartbeatReply, sent: float) -> None:
        if orders.out:
            self._halt.revoke(OUT)
            return
        self._halt.lease(sent + orders.ttl)
        self._halt.paused = orders.paused
        if orders.halt:
            self._ordered = orders.halt
            self._halt.set(orders.halt)
        self._window.resize(orders.window)
        self._site.apply_share(orders.share)
        if orders.copied:
            self._site.copy_journals()
        self._apart = orders.apart


def _about(seconds: float) -> float:
    """Return `seconds` with jitter, so that workers that start together do not stay in step."""
    return seconds * random.uniform(0.75, 1.25)  # noqa: S311 - not a secret
