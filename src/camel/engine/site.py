"""What passes between a driver and the workers of a cluster: where a worker works, what it tells and what it is told.

The one decision to know: no function travels. A worker is sent a *factory*, a small value that makes the workloads in the
worker's own process, so that what runs there is the same code that would run here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from camel.core.message import Usage
from camel.engine.halt import Halt
from camel.engine.stage import Workload
from camel.models.governor import EndpointReport, Share
from camel.runs.run import RunFolder


class ModelReport(msgspec.Struct, frozen=True):
    """What a worker has had of one model, since it began."""

    usage: Usage = Usage()
    errors: dict[str, int] = {}
    """Failed calls, by class."""
    retries: int = 0
    rate_limited: int = 0
    served: int = 0
    rejected: int = 0
    answered: bool = False
    """Whether its endpoint was ever reached."""
    down: float = 0.0
    """Seconds for which nobody has been answered."""
    words: str = ""
    """Why calls fail at the moment, if they do."""


class StageReport(msgspec.Struct, frozen=True):
    """How far a worker is with a stage, in shards that are not committed."""

    open: int = 0
    finished: int = 0
    failed: int = 0
    counts: dict[str, int] = {}
    """What the stage counts of its records, by name."""


class WorkerReport(msgspec.Struct, frozen=True):
    """How a worker stands. What is counted since it began counts even after its death; the rest is gone with it."""

    models: dict[str, ModelReport] = {}
    stages: dict[str, StageReport] = {}
    endpoints: dict[str, dict[str, EndpointReport]] = {}
    """By model and address."""
    in_flight: int = 0
    starved: int = 0
    """Calls that wait for a larger part of the budget."""
    follows: int | None = None
    """The number of the offer that it follows; None: it does not say, so that nothing can be taken back."""
    account: int | None = None
    """How often its account was written; None: it has none."""

    @property
    def usage(self) -> Usage:
        """Of all models."""
        return sum((one.usage for one in self.models.values()), Usage())


def summed(reports: Mapping[str, WorkerReport], live: Collection[str]) -> WorkerReport:
    """One report of all workers: what all of them had, and how the living stand."""
    models: dict[str, list[ModelReport]] = {}
    for report in reports.values():
        for name, one in report.models.items():
            models.setdefault(name, []).append(one)
    stages: dict[str, list[StageReport]] = {}
    endpoints: dict[tuple[str, str], list[EndpointReport]] = {}
    there = [reports[worker] for worker in live if worker in reports]
    for report in there:
        for name, stage in report.stages.items():
            stages.setdefault(name, []).append(stage)
        for model, its in report.endpoints.items():
            for url, endpoint in its.items():
                endpoints.setdefault((model, url), []).append(endpoint)
    places: dict[str, dict[str, EndpointReport]] = {}
    for (model, url), all in endpoints.items():
        places.setdefault(model, {})[url] = EndpointReport.summed(all)
    return WorkerReport(
        {name: _summed_model(all) for name, all in models.items()},
        {
            name: StageReport(
                sum(one.open for one in all),
                sum(one.finished for one in all),
                sum(one.failed for one in all),
                _counted(one.counts for one in all),
            )
            for name, all in stages.items()
        },
        places,
        sum(one.in_flight for one in there),
        sum(one.starved for one in there),
    )


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
    """As much of a shared budget as one process may have used in all, since its start."""

    calls: float = math.inf
    tokens: float = math.inf
    usd: float = math.inf


class WorkerShare(msgspec.Struct, frozen=True):
    """What a worker may use from now on."""

    offer: int = 0
    """Its number, which the worker repeats in its reports."""
    grant: Grant | None = None
    """None: there is no budget."""
    endpoints: dict[str, dict[str, Share]] = {}
    """By model and address."""


class Site(Protocol):
    """A worker's place of work, made there by its factory."""

    halt: Halt

    @property
    def folder(self) -> RunFolder:
        """The folder of what is being worked on."""
        ...

    def workloads(self, step: tuple[int, ...], attempt: int) -> Sequence[Workload]:
        """What to work on from now on, gone through `attempt` times before."""
        ...

    def committed(self, stage: str, shard: int) -> None:
        """Take note of a shard that this worker has finished."""
        ...

    def report(self) -> WorkerReport:
        """The figures as they stand. Asked about once a second, so it must be cheap."""
        ...

    def obey(self, share: WorkerShare) -> None:
        """Take over this worker's share of what the cluster as a whole may use."""
        ...

    async def aclose(self) -> None:
        """Let go of everything."""
        ...


class Factory(Protocol):
    """Makes a site. It is pickled and kept by the cluster in clear: it must hold no secret."""

    async def __call__(self, worker: str) -> Site:
        """Make the site of that worker in this process."""
        ...


class Divide(Protocol):
    """Divides among the workers what the cluster as a whole may use: rates, budgets. Runs in the coordinator."""

    def __call__(
        self, reports: Mapping[str, WorkerReport], live: Collection[str]
    ) -> tuple[Mapping[str, WorkerShare], str]:
        """What each living worker may use from now on, and why the run has to stop, if it has to.

        `reports` are the last of every worker that ever was. Asked about once a second; may remember what it gave.
        """
        ...


def no_limits(
    reports: Mapping[str, WorkerReport], live: Collection[str]
) -> tuple[Mapping[str, WorkerShare], str]:
    """Everybody may use what they like."""
    return {}, ""


class Turn(msgspec.Struct, frozen=True):
    """What all workers are at: one pass over a step of the job."""

    number: int
    step: tuple[int, ...] = ()
    """Which step: its place in the job, and in the jobs within; empty: there is nothing to do yet."""
    attempt: int = 0


class Beat(msgspec.Struct, frozen=True):
    """A worker's sign of life, with all that is new. Sent again unchanged when no answer came."""

    worker: str
    turn: int
    report: WorkerReport
    committed: tuple[int, ...] = ()
    left: tuple[int, ...] = ()
    ended: bool = False
    """Whether the worker has nothing in work in its turn any more."""
    halted: str = ""
    """Why this worker wants the whole run to stop."""
    open: int = 0
    """Items in flight, or that may be before the answer is heard."""


class Orders(msgspec.Struct, frozen=True):
    """The answer."""

    ttl: float = 0.0
    """Seconds for which the lease holds, from when the beat was sent."""
    out: bool = False
    """The lease was lost: end what is in flight and leave."""
    halt: str = ""
    paused: bool = False
    """Take no new steps for now."""
    window: int = 0
    """Items that this worker may have in flight."""
    share: WorkerShare = WorkerShare()
    apart: float = 0.0
    """Seconds to leave between two questions or beats without news: the more workers, the more."""


class Desk(Protocol):
    """The coordinator, as a worker reaches it. Every method may be called twice for the same thing.

    Raises `TimeoutError` when no answer came, and `DeskGone` when none will.
    """

    async def turn(self, worker: str) -> Turn | None:
        """What to work on; None when there will be nothing any more."""
        ...

    async def lease(self, worker: str, turn: int, number: int) -> int | None:
        """A shard; `WAIT` while others may still give one back; None when the turn is over.

        `number` counts the shards that the worker has asked for: the same number gets the same shard.
        """
        ...

    async def beat(self, beat: Beat) -> Orders:
        """Give a sign of life."""
        ...


class DeskGone(Exception):
    """The coordinator is dead; nobody will renew a lease."""


WAIT = -1
