"""The Ray actors of the coordinator and the workers; they only forward calls.

The one decision to know: no secret is an argument of an actor's *creation*, which the cluster stores. A worker gets the
driver's environment variables as an argument of a call, which is only in memory.
"""

from __future__ import annotations

import asyncio
import gc
import os
from functools import partial
from importlib import import_module
from typing import Any

import msgspec
from ray.exceptions import ActorUnavailableError, RayActorError

from camel._version import __version__
from camel.core.errors import CamelError
from camel.engine.cluster_worker import ClusterWorker, WorkerEnd
from camel.engine.collector import YOUNG
from camel.engine.coordinator import Coordinator
from camel.engine.ray.metrics import Metrics
from camel.engine.site import CallCoordinator, CoordinatorGone, Divider, Factory

ray: Any = import_module("ray")  # its types are incomplete


class WorkerOrder(msgspec.Struct, frozen=True):
    """What a worker gets when it starts."""

    worker: str
    factory: Factory
    version: str = __version__


class CoordinatorActor:
    """The coordinator in its own process."""

    def __init__(self, concurrency: int, ttl: float, share: Divider, run: str) -> None:
        _settle()
        gc.set_threshold(YOUNG)
        self._coordinator = Coordinator(concurrency, ttl=ttl, share=share)
        self._metrics = Metrics(run)

    async def call(self, method: str, *args: Any) -> Any:
        """Call a method of the coordinator. Async, so that Ray makes all calls on one thread."""
        answer = getattr(self._coordinator, method)(*args)
        if method == "look":
            self._metrics.show(answer)
        return answer


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
        return asyncio.run(_live(job, partial(call_remotely, coordinator)))


async def _live(job: WorkerOrder, call: CallCoordinator) -> WorkerEnd:
    try:
        site = await job.factory(job.worker)
    except CamelError as error:
        return WorkerEnd("failed", f"{error} (on {_node()})")
    return await ClusterWorker(job.worker, site, call).live()


async def call_remotely(coordinator: Any, method: str, *args: Any) -> Any:
    """Call a method of the coordinator from a worker."""
    try:
        return await coordinator.call.remote(method, *args)
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
