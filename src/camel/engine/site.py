"""What passes between a driver and the workers of a cluster: where a worker works, what it tells and what it is told.

The one decision to know: no function travels. A worker is sent a *factory*, a small value that makes the stages in the
worker's own process, so that what runs there is the same code that would run here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

import msgspec

from camel.engine.halt import Halt
from camel.engine.stage import Stage
from camel.runs.run import RunFolder


class WorkerReport(msgspec.Struct, frozen=True):
    """Figures of one worker, named by whoever made the site. The engine only sums them."""

    counters: dict[str, float] = {}
    """Since the worker's start; they only grow, and count even after its death."""
    gauges: dict[str, float] = {}
    """At the moment; gone with the worker."""
    words: str = ""
    """Why calls fail at the moment, if they do."""


class Site(Protocol):
    """A worker's place of work, made there by its factory."""

    folder: RunFolder
    halt: Halt

    def stage(self, name: str, attempt: int) -> Stage:
        """The stage to work on from now on, gone through `attempt` times before."""
        ...

    def committed(self, stage: str, shard: int) -> None:
        """Take note of a shard that this worker has finished."""
        ...

    def report(self) -> WorkerReport:
        """The figures as they stand. Asked about once a second, so it must be cheap."""
        ...

    def obey(self, share: Mapping[str, float]) -> None:
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
    ) -> tuple[Mapping[str, Mapping[str, float]], str]:
        """What each living worker may use from now on, and why the run has to stop, if it has to.

        `reports` are the last of every worker that ever was. Asked about once a second; may remember what it gave.
        """
        ...


def equal_share(
    reports: Mapping[str, WorkerReport], live: Collection[str]
) -> tuple[Mapping[str, Mapping[str, float]], str]:
    """No limits."""
    return {}, ""


class Turn(msgspec.Struct, frozen=True):
    """What all workers are at: one pass over a stage."""

    number: int
    stage: str = ""
    attempt: int = 0
    fingerprint: str = ""


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
    share: dict[str, float] = {}
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
