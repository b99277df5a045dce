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
from typing import Any, Literal

import msgspec
from ray.exceptions import ActorUnavailableError, RayActorError

from camel.core.errors import CamelError
from camel.engine.cluster_worker import ClusterWorker, WorkerEnd
from camel.engine.collector import YOUNG
from camel.engine.coordinator import Coordinator
from camel.engine.nodes import NodeFault, disk_fault, release
from camel.engine.ray.metrics import Metrics
from camel.engine.site import CallCoordinator, CoordinatorGone, Divider, Factory

ray: Any = import_module("ray")  # its types are incomplete


class WorkerOrder(msgspec.Struct, frozen=True):
    """What a worker gets when it starts."""

    worker: str
    factory: Factory
    release: str = msgspec.field(default_factory=release)


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
        if job.release != release():
            return _unfit(
                "code",
                f"the driver has camel {job.release}, and {_address()} has camel {release()}; all nodes need the same",
            )
        for name, value in environment.items():
            os.environ.setdefault(name, value)
        _settle()
        return asyncio.run(_live(job, partial(call_remotely, coordinator)))


async def _live(job: WorkerOrder, call: CallCoordinator) -> WorkerEnd:
    try:
        site = await job.factory(job.worker)
    except Exception as error:
        kind = "disk" if disk_fault(error) else "start"
        if kind == "start" and not isinstance(error, CamelError | ImportError):
            raise  # for example, a file of the user does not exist: no node could work
        return _unfit(kind, f"{error} (on {_address()})")
    return await ClusterWorker(job.worker, site, call, _node()).live()


def _unfit(kind: Literal["disk", "code", "start"], why: str) -> WorkerEnd:
    return WorkerEnd("failed", why, NodeFault(_node(), kind, why))


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
    return str(ray.get_runtime_context().get_node_id())


def _address() -> str:
    return str(ray.util.get_node_ip_address())
