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
from msgspec.structs import asdict
from ray.exceptions import ActorUnavailableError, RayActorError
from ray.util.metrics import Counter, Gauge

from camel.core.errors import CamelError
from camel.engine.cluster_worker import ClusterWorker, WorkerEnd
from camel.engine.coordinator import Coordinator, Totals
from camel.engine.nodes import NodeFault, disk_fault, release
from camel.engine.site import CallCoordinator, CoordinatorGone, Divider, Factory
from camel.engine.worker import YOUNG
from camel.models.replica import ReplicaState, ReplicaTotals, worst_replicas

ray: Any = import_module("ray")  # its types are incomplete
USED = ("calls", "prompt", "completion", "cached", "unknown")
"""Published fields of a usage."""


class Metrics:
    """Counters and gauges, created at first use."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._made: dict[str, Any] = {}
        self._before: dict[str, float] = {}
        """The counters as published."""
        self._shown: set[str] = set()
        """The gauges as last published."""

    def show(self, totals: Totals) -> None:
        """Publish the counts. Unchanged gauges are set, too, because Ray only exports recently set ones."""
        counters, gauges = figures(totals)
        for name, value in counters.items():
            if (more := value - self._before.get(name, 0.0)) > 0:
                self._before[name] = value
                self._metric(Counter, name).inc(more, tags=self._tags(name))
        for name, value in gauges.items():
            self._metric(Gauge, name).set(value, tags=self._tags(name))
        for name in self._shown - gauges.keys():  # zero once, and then no longer exported
            self._metric(Gauge, name).set(0.0, tags=self._tags(name))
        self._shown = set(gauges)

    def _metric(self, kind: type[Any], name: str) -> Any:
        name = "camel_" + name.partition(".")[0]
        if name not in self._made:
            about = name.removeprefix("camel_").replace("_", " ")
            self._made[name] = kind(name, description=f"CAMEL: {about}", tag_keys=("run", "kind"))
        return self._made[name]

    def _tags(self, name: str) -> dict[str, str]:
        return {"run": self._run, "kind": name.partition(".")[2]}


def figures(totals: Totals) -> tuple[dict[str, float], dict[str, float]]:
    """Return counters and gauges by name. The part of a name after a dot, as in `errors.RateLimited`, becomes a label."""
    report = totals.report
    counters = {name: float(getattr(report.usage, name)) for name in USED}
    gauges = {"workers": float(len(totals.live)), "in_flight": float(report.in_flight)}
    counters["retries"] = counters["rate_limited"] = 0.0
    for model in report.models.values():
        counters["retries"] += model.retries
        counters["rate_limited"] += model.rate_limited
        for kind, times in model.errors.items():
            counters[f"errors.{kind}"] = counters.get(f"errors.{kind}", 0.0) + times
    for name, stage in report.stages.items():
        gauges |= {f"open.{name}": stage.open, f"finished.{name}": stage.finished}
        gauges |= {f"failed.{name}": stage.failed, **stage.counts}
    gauges |= {f"shards.{state}": count for state, count in totals.shards.items()}
    states = [
        ReplicaState.from_report(url, one)
        for its in report.endpoints.values()
        for url, one in its.items()
        if one
    ]
    gauges |= {f"endpoints.{name}": count for name, count in asdict(ReplicaTotals.of(states)).items()}
    gauges |= {f"endpoint.{one.url}": one.in_flight for one in worst_replicas(states)}
    return counters, gauges


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
