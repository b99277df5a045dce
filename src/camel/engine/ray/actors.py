"""The two kinds of processes on the cluster: a coordinator and workers. Only carries calls; what they do is elsewhere.

The one decision to know: nothing secret is an argument of an actor's *creation*, which the cluster keeps. What a worker
needs of the driver's environment comes as an argument of a call to it, which goes from process to process and lives in
memory alone.
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
from camel.engine.site import Beat, Desk, DeskGone, Divide, Factory, Orders, Turn

ray: Any = import_module("ray")  # whose types say little that holds


class WorkerOrder(msgspec.Struct, frozen=True):
    """What a worker is told when it starts."""

    worker: str
    factory: Factory
    version: str = __version__


class CoordinatorActor:
    """The coordinator in a process of its own."""

    def __init__(self, concurrency: int, ttl: float, share: Divide, run: str) -> None:
        _settle()
        gc.set_threshold(YOUNG)
        self._coordinator = Coordinator(concurrency, ttl=ttl, share=share)
        self._metrics = Metrics(run)

    async def begin(self, turn: Turn, shards: int, done: Iterable[int]) -> None:
        """Start a pass over a stage."""
        self._coordinator.begin(turn, shards, done)

    async def halt(self, reason: str) -> None:
        """Have everybody stop."""
        self._coordinator.halt(reason)

    async def pause(self, paused: bool) -> None:
        """Have nobody take new steps for now, or go on."""
        self._coordinator.pause(paused)

    async def close(self) -> None:
        """Send everybody home."""
        self._coordinator.close()

    async def lost(self, worker: str) -> list[int]:
        """A worker is dead; returns the shards that it held."""
        return self._coordinator.lost(worker)

    async def shun(self, worker: str) -> None:
        """A worker cannot be reached."""
        self._coordinator.shun(worker)

    async def look(self, seen: int, expected: int) -> Totals:
        """How everything stands."""
        totals = self._coordinator.look(seen, expected)
        self._metrics.show(totals)
        return totals

    async def turn(self, worker: str) -> Turn | None:
        """What a worker is to work on."""
        return self._coordinator.turn(worker)

    async def lease(self, worker: str, turn: int, number: int) -> int | None:
        """A shard for a worker."""
        return self._coordinator.lease(worker, turn, number)

    async def beat(self, beat: Beat) -> Orders:
        """A worker's sign of life."""
        return self._coordinator.beat(beat)


class WorkerActor:
    """A worker in a process of its own: one call that lasts for its life, on the main thread and a loop of its own.

    No method may be async, or Ray would run it on a loop of Ray's.
    """

    def run(self, job: WorkerOrder, coordinator: Any, environment: dict[str, str]) -> WorkerEnd:
        """Work. `environment` is what this process needs of the driver's, where it has not its own."""
        if job.version != __version__:
            return WorkerEnd(
                "failed",
                f"camel is {job.version} where you started it and {__version__} on {_node()}: "
                "install the same version on every node",
            )
        for name, value in environment.items():
            os.environ.setdefault(name, value)
        _settle()
        return asyncio.run(_live(job, _RemoteDesk(coordinator)))


async def _live(job: WorkerOrder, desk: Desk) -> WorkerEnd:
    try:
        site = await job.factory(job.worker)
    except CamelError as error:
        return WorkerEnd("failed", f"{error} (on {_node()})")
    return await ClusterWorker(job.worker, site, desk).live()


class _RemoteDesk:
    """The coordinator as its workers reach it."""

    def __init__(self, coordinator: Any) -> None:
        self._coordinator = coordinator

    async def turn(self, worker: str) -> Turn | None:
        return await self._call("turn", worker)

    async def lease(self, worker: str, turn: int, number: int) -> int | None:
        return await self._call("lease", worker, turn, number)

    async def beat(self, beat: Beat) -> Orders:
        return await self._call("beat", beat)

    async def _call(self, method: str, *args: Any) -> Any:
        try:
            return await getattr(self._coordinator, method).remote(*args)
        except ActorUnavailableError:
            raise TimeoutError from None
        except RayActorError:
            raise DeskGone from None


def _settle() -> None:
    """Ray brings a great many objects that never go: the collector need not look at them again and again."""
    gc.collect()
    gc.freeze()


def _node() -> str:
    return str(ray.util.get_node_ip_address())
