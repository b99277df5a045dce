"""A summary of many replicas: their sums, and those that need attention."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import nsmallest

import msgspec

from camel.models.replica import ReplicaState

WORST = 20
"""Maximum number of replicas that a log, a status or a metric names."""


class ReplicaTotals(msgspec.Struct, frozen=True):
    """Sums over all replicas of a run's models."""

    count: int = 0
    healthy: int = 0
    in_flight: int = 0
    waiting: int = 0
    open: int = 0
    calls: int = 0
    refused: int = 0
    failed: int = 0

    @staticmethod
    def of(states: Iterable[ReplicaState]) -> ReplicaTotals:
        """Return the sums over these replicas."""
        all = list(states)
        names = ReplicaTotals.__struct_fields__[2:]
        sums = (sum(getattr(one, name) for one in all) for name in names)
        return ReplicaTotals(len(all), sum(one.state == "closed" for one in all), *sums)


def worst_replicas(states: Sequence[ReplicaState]) -> Sequence[ReplicaState]:
    """Return the replicas with most failures, and then with the highest load. If there are few, return all as they are."""
    return states if len(states) <= WORST else nsmallest(WORST, states, key=_badness)


def _badness(one: ReplicaState) -> tuple[bool, int, int, int, str]:
    return one.state == "closed", -one.failing, -one.failed, -(one.in_flight + one.waiting), one.url
