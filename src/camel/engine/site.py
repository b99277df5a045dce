"""Messages between the driver, the coordinator and the workers of a cluster, and the interface of a worker's site.

The one decision to know: no function is sent. A worker gets a *factory*, a small value that creates the workloads in the
worker's own process, so that the same code runs there as here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from camel.core.message import Usage
from camel.engine.halt import Halt
from camel.engine.stage import Workload
from camel.models.governor import EndpointReport
from camel.models.sharing import PoolShare
from camel.models.subsets import ReplicaList
from camel.runs.run import RunFolder

T = TypeVar("T")


class ModelReport(msgspec.Struct, frozen=True):
    """A worker's use of one model since the worker started."""

    usage: Usage = Usage()
    errors: dict[str, int] = {}
    """Number of failed calls by class of the error."""
    retries: int = 0
    rate_limited: int = 0
    served: int = 0
    rejected: int = 0
    answered: bool = False
    """Whether the model's endpoint was ever reached."""
    down: float = 0.0
    """Seconds since the last successful reply."""
    words: str = ""
    """Why calls currently fail; empty if they do not."""
    unreached: int = 0
    """Number of calls in a row, one after the other, that could not reach the endpoint."""


class ToolUse(msgspec.Struct, frozen=True):
    """Executed tool calls and their duration."""

    calls: int = 0
    seconds: float = 0.0

    def __add__(self, other: ToolUse) -> ToolUse:
        return ToolUse(self.calls + other.calls, self.seconds + other.seconds)


class StageReport(msgspec.Struct, frozen=True):
    """A worker's progress in a stage. It counts only shards that are not committed."""

    open: int = 0
    finished: int = 0
    failed: int = 0
    counts: dict[str, int] = {}
    """Number of records by the names that the stage counts."""


class WorkerReport(msgspec.Struct, frozen=True):
    """The state of a worker. Totals since its start still count after its death, the other fields do not."""

    models: dict[str, ModelReport] = {}
    stages: dict[str, StageReport] = {}
    endpoints: dict[str, dict[str, EndpointReport | None]] = {}
    """Changed reports on endpoints, by model name and address. `None`: the worker does not use it any more."""
    lists: dict[str, ReplicaList] = {}
    """The replicas of models that have many."""
    number: int = 0
    """The number of this report, which the next share repeats."""
    received: int = 0
    """The number of the last share that the worker has."""
    in_flight: int = 0
    starved: int = 0
    """Number of calls that wait for a larger share of the budget."""
    follows: int | None = None
    """The number of the `WorkerShare` that the worker uses. None: unknown, so nothing can be taken back."""
    account: int | None = None
    """Number of times the worker's account was written. None: it has no account."""
    tools: ToolUse = ToolUse()
    apart: bool = False
    """Whether the worker's folder for journals is not the driver's, so that journals must be copied to the store."""

    @property
    def usage(self) -> Usage:
        """The usage of all models."""
        return sum((one.usage for one in self.models.values()), Usage())


def summed(reports: Mapping[str, WorkerReport], live: Collection[str]) -> WorkerReport:
    """Combine reports: sum the totals over all workers, and the current state over the live ones. Without endpoints."""
    there = [reports[worker] for worker in live if worker in reports]
    return WorkerReport(
        {name: _summed_model(all) for name, all in _by_name(one.models for one in reports.values()).items()},
        {
            name: StageReport(
                sum(one.open for one in all),
                sum(one.finished for one in all),
                sum(one.failed for one in all),
                _counted(one.counts for one in all),
            )
            for name, all in _by_name(one.stages for one in there).items()
        },
        in_flight=sum(one.in_flight for one in there),
        starved=sum(one.starved for one in there),
        tools=sum((one.tools for one in reports.values()), ToolUse()),
        apart=any(one.apart for one in there),
    )


def _by_name(given: Iterable[Mapping[str, T]]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for one in given:
        for name, value in one.items():
            found.setdefault(name, []).append(value)
    return found


def _summed_model(reports: Sequence[ModelReport]) -> ModelReport:
    return ModelReport(
        sum((one.usage for one in reports), Usage()),
        _counted(one.errors for one in reports),
        sum(one.retries for one in reports),
        sum(one.rate_limited for one in reports),
        sum(one.served for one in reports),
        sum(one.rejected for one in reports),
        any(one.answered for one in reports),
        max(one.down for one in reports),
        next((one.words for one in reports if one.words), ""),
    )


def _counted(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return dict(total)


class Grant(NamedTuple):
    """The part of a shared budget that one process may use in total since its start."""

    calls: float = math.inf
    tokens: float = math.inf
    usd: float = math.inf


class WorkerShare(msgspec.Struct, frozen=True):
    """A worker's current share of the shared limits."""

    offer: int = 0
    """The number of this share. The worker repeats it in its reports."""
    grant: Grant | None = None
    """The worker's part of the budget. None: there is no budget."""
    endpoints: dict[str, PoolShare] = {}
    """The worker's part of endpoints, by model name."""
    number: int = 0
    """The number of these changes of endpoints. The worker repeats it in its next report."""
    heard: int = 0
    """The number of the last report that the coordinator has."""


class Site(Protocol):
    """A worker's environment, created in its process by a factory."""

    halt: Halt

    @property
    def folder(self) -> RunFolder:
        """The folder of the current job."""
        ...

    def workloads(self, step: tuple[int, ...], attempt: int) -> Sequence[Workload]:
        """Return the workloads of a step. `attempt` is the number of earlier passes over the step."""
        ...

    def committed(self, stage: str, shard: int) -> None:
        """Handle a shard that this worker has committed."""
        ...

    def report(self) -> WorkerReport:
        """Return the current figures. Called about once a second, so it must be cheap."""
        ...

    def apply_share(self, share: WorkerShare) -> None:
        """Apply this worker's share of the cluster's limits."""
        ...

    def copy_journals(self) -> None:
        """Copy journals to the store from now on. May be called again."""
        ...

    @property
    def has_freed_slots(self) -> bool:
        """Whether other workers wait for what this worker has stopped using, so that its next heartbeat should come soon."""
        ...

    async def aclose(self) -> None:
        """Free all resources."""
        ...


Factory = Callable[[str], Awaitable[Site]]
"""Creates the site of a worker, given by name, in this process. The cluster stores the factory as plain pickle, so it must
not contain secrets."""


class Divider:
    """Divides the cluster's limits (rates, budgets) among the workers. Runs in the coordinator. This one divides nothing."""

    def hear(self, worker: str, report: WorkerReport) -> None:
        """Take a report of a live worker."""

    def tick(self, reports: Mapping[str, WorkerReport], live: Collection[str], expected: int) -> str:
        """Divide the limits, about twice a second. Return the reason to stop the run, if there is one.

        `expected` is the number of workers that will be there soon. `reports` has the last report of every worker, including
        dead ones. Of endpoints, it has only the last changes.
        """
        return ""

    def share(self, worker: str) -> WorkerShare:
        """Return the share of a worker that has just reported."""
        return WorkerShare()

    def endpoints(self) -> dict[str, dict[str, EndpointReport | None]]:
        """Return the sums of the reports on endpoints, by model name and address."""
        return {}


class Turn(msgspec.Struct, frozen=True):
    """One pass over a step of the job, for all workers."""

    number: int
    step: tuple[int, ...] = ()
    """The index of the step in the job and in nested jobs. Empty: nothing to do yet."""
    attempt: int = 0


class Heartbeat(msgspec.Struct, frozen=True):
    """A worker's heartbeat with everything that is new. It is repeated unchanged if no answer comes."""

    worker: str
    turn: int
    report: WorkerReport
    committed: tuple[int, ...] = ()
    left: tuple[int, ...] = ()
    ended: bool = False
    """Whether the worker has no open items in its turn."""
    halted: str = ""
    """This worker's reason to stop the whole run."""
    open: int = 0
    """Number of items in flight, including those that may start before the reply arrives."""
    node: str = ""
    """The id of the worker's node."""


class HeartbeatReply(msgspec.Struct, frozen=True):
    """The coordinator's reply to a heartbeat."""

    ttl: float = 0.0
    """Seconds for which the lease is valid, counted from when the heartbeat was sent."""
    out: bool = False
    """Whether the worker has lost its lease. It must finish its calls in flight and exit."""
    halt: str = ""
    paused: bool = False
    """Whether the worker must take no new steps for now."""
    window: int = 0
    """Maximum number of items that this worker may have in flight."""
    share: WorkerShare = WorkerShare()
    apart: float = 0.0
    """Seconds between two requests or heartbeats without news. Grows with the number of workers."""
    copied: bool = False
    """Whether journals must be copied to the store, because a worker has another folder than the driver."""


CallCoordinator = Callable[..., Awaitable[Any]]
"""Calls a method of the coordinator by its name: `turn`, `lease` or `beat`. A worker repeats calls, so these are idempotent.
Raises `TimeoutError` if no answer came, and `CoordinatorGone` if none will come."""


class CoordinatorGone(Exception):
    """The coordinator is dead, so no lease will be renewed."""


WAIT = -1
