"""The Ray actors of the coordinator and the workers; they only forward calls.

The one decision to know: no secret is an argument of an actor's *creation*, which the cluster stores. A worker gets the
driver's environment variables as an argument of a call, which is only in memory.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import msgspec
from ray.exceptions import ActorUnavailableError, RayActorError

from camel._version import __version__
from camel.core.errors import CamelError
from camel.engine.cluster_worker import ClusterWorker, WorkerEnd
from camel.engine.collector import YOUNG
from camel.engine.coordinator import Coordinator, Totals
from camel.engine.ray.metrics import Metrics
from camel.engine.site import (
    CoordinatorClient,
    CoordinatorGone,
    Divide,
    Factory,
    Heartbeat,
    HeartbeatReply,
    Turn,
)

ray: Any = import_module("ray")  # its types are incomplete


class WorkerOrder(msgspec.Struct, frozen=True):
    """What a worker gets when it starts."""

    worker: str
    factory: Factory
    version: str = __version__


class CoordinatorActor:
    """The coordinator in its own process."""

    def __init__(self, concurrency: int, ttl: float, share: Divide, run: str) -> None:
        _settle()
        gc.set_threshold(YOUNG)
        self._coordinator = Coordinator(concurrency, ttl=ttl, share=share)
        self._metrics = Metrics(run)

    async def begin(self, turn: Turn, shards: int, done: Iterable[int]) -> None:
        """Start a pass over a stage."""
        self._coordinator.begin(turn, shards, done)

    async def halt(self, reason: str) -> None:
        """Ask all workers to stop."""
        self._coordinator.halt(reason)

    async def pause(self, paused: bool) -> None:
        """Pause or continue all workers."""
        self._coordinator.pause(paused)

    async def close(self) -> None:
        """Ask all workers to exit."""
        self._coordinator.close()

    async def lost(self, worker: str) -> list[int]:
        """Handle a dead worker; returns its shards."""
        return self._coordinator.lost(worker)

    async def mark_unreachable(self, worker: str) -> None:
        """Handle an unreachable worker."""
        self._coordinator.mark_unreachable(worker)

    async def look(self, seen: int, expected: int) -> Totals:
        """Return the overall state."""
        totals = self._coordinator.look(seen, expected)
        self._metrics.show(totals)
        return totals

    async def turn(self, worker: str) -> Turn | None:
        """Return the current turn."""
        return self._coordinator.turn(worker)

    async def lease(self, worker: str, turn: int, number: int) -> int | None:
        """Lease a shard to a worker."""
        return self._coordinator.lease(worker, turn, number)

    async def beat(self, beat: Heartbeat) -> HeartbeatReply:
        """Process a worker's heartbeat."""
        return self._coordinator.beat(beat)


class WorkerActor:
    """A worker in its own process: one long call on the main thread, with its own event loop.

    No method may be async, because Ray would run it on Ray's event loop.
    """

    def run(self, job: WorkerOrder, coordinator: Any, environment: dict[str, str]) -> WorkerEnd:
        """Run the worker. `environment` has the driver's variables, used if this process does not set its own."""
        if job.version != __version__:
            return WorkerEnd(
                "failed",
                f"the driver has camel {job.version}, and {_node()} has camel {__version__}: "
                "install the same version on every node",
            )
        for name, value in environment.items():
            os.environ.setdefault(name, value)
        _settle()
        return asyncio.run(_live(job, _RemoteCoordinator(coordinator)))


async def _live(job: WorkerOrder, desk: CoordinatorClient) -> WorkerEnd:
    try:
        site = await job.factory(job.worker)
    except CamelError as error:
        return WorkerEnd("failed", f"{error} (on {_node()})")
    return await ClusterWorker(job.worker, site, desk).live()


class _RemoteCoordinator:
    """The coordinator as seen by a worker."""

    def __init__(self, coordinator: Any) -> None:
        self._coordinator = coordinator

    async def turn(self, worker: str) -> Turn | None:
        return await self._call("turn", worker)

    async def lease(self, worker: str, turn: int, number: int) -> int | None:
        return await self._call("lease", worker, turn, number)

    async def beat(self, beat: Heartbeat) -> HeartbeatReply:
        return await self._call("beat", beat)

    async def _call(self, method: str, *args: Any) -> Any:
        try:
            return await getattr(self._coordinator, method).remote(*args)
        except ActorUnavailableError:
            raise TimeoutError from None
        except RayActorError:
            raise CoordinatorGone from None


def _settle() -> None:
    """Exclude Ray's many permanent objects from garbage collection."""
    gc.collect()
    gc.freeze()


def _node() -> str:
    return str(ray.util.get_node_ip_address())
