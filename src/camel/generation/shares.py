"""What each worker of a cluster may use: its piece of the run's budget, and its part of every endpoint.

Computed in the coordinator about once a second, from the workers' reports; goes back to them with the heartbeat. The one
decision to know: both parts fail safe. A piece of the budget counts as used once it is given, and a part of an endpoint
expires at the worker; who is out of the coordinator's leases has stopped calling, and only then is its part given away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from camel.core.message import Usage
from camel.engine.site import Report
from camel.jobs.budget import Budget, Grant
from camel.models.catalogue import Entry
from camel.models.governor import Rates, Share
from camel.models.pool import Pool
from camel.models.sharing import Grants, flat, nested, share_out

USED = ("calls", "prompt", "completion", "cached", "unknown")
"""Counters of a report that make up what a worker has used."""
BUDGET, ENDPOINT = "budget.", "endpoint."
"""Begin the names, in shares and reports, of what belongs to the budget and to endpoints."""


class Shares:
    """Divides a run's budget and its endpoints among the workers there are."""

    def __init__(
        self,
        budget: Budget,
        price: Entry | None,
        before: Usage,
        rates: Rates,
        *,
        dearer: float = 0.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`before` is what earlier starts have used, for `dearer` more dollars than it would cost today; `rates` hold for
        each endpoint and all workers together.
        """
        self._price, self._limits, self._now = price, {"*": rates}, now
        before = before.filled()
        known = {"calls": float(before.calls), "tokens": float(before.total)}
        known |= {} if price is None else {"money": price.cost(before) + dearer}
        # A piece is worth giving when it pays for a call; of tokens and dollars, for a thousandth of the whole.
        least = {"calls": 1.0, "tokens": (budget.tokens or 0) / 1e3, "money": (budget.money or 0.0) / 1e3}
        self._budgets = {
            name: Grants(float(total), used=used, piece=least[name])
            for name, used in known.items()
            if (total := getattr(budget, name)) is not None
        }
        self._heard: dict[str, tuple[Report, float]] = {}
        self._given: dict[str, dict[str, Share]] = {}
        self._tick = 0

    def __call__(
        self, reports: Mapping[str, Report], live: Collection[str]
    ) -> tuple[Mapping[str, Mapping[str, float]], str]:
        """What each living worker may use from now on, and why the run has to stop, if it has to."""
        now, mine = self._now(), {worker: reports.get(worker, Report()) for worker in live}
        self._heard = {
            worker: heard if (heard := self._heard.get(worker)) and heard[0] is report else (report, now)
            for worker, report in mine.items()
        }
        shares: dict[str, dict[str, float]] = {worker: {} for worker in live}
        halt = ""
        for name, grants in self._budgets.items():
            halt = self._grant(name, grants, mine, shares) or halt
        self._divide(mine, shares, now)
        return shares, halt

    def _grant(
        self, name: str, grants: Grants, mine: Mapping[str, Report], shares: Mapping[str, dict[str, float]]
    ) -> str:
        """Give pieces of one budget; says when it is used up."""
        for gone in [worker for worker in grants.open if worker not in mine]:
            grants.dead(gone)  # how much of its last piece it has used, its journal tells the next start
        for worker, report in mine.items():
            shares[worker][BUDGET + name] = grants.grant(worker, self._used(name, report), len(mine))
        starved = any(report.gauges.get("starved") for report in mine.values())
        return f"the budget of {name} is used up" if starved and grants.left < grants.piece else ""

    def _divide(self, mine: Mapping[str, Report], shares: Mapping[str, dict[str, float]], now: float) -> None:
        """Divide the endpoints."""
        endpoints = {
            worker: {
                url: {**figures, "age": now - self._heard[worker][1]}
                for url, figures in nested(under(ENDPOINT, report.gauges)).items()
            }
            for worker, report in mine.items()
        }
        self._tick += 1
        given = share_out(self._limits, endpoints, self._given, self._tick)
        # Who is silent keeps what it has, until it expires there.
        self._given = {worker: {**self._given.get(worker, {}), **given[worker]} for worker in mine}
        for worker, its in given.items():
            for url, share in its.items():
                figures = {
                    "ceiling": share.ceiling,
                    "rpm": share.rpm,
                    "tpm": share.tpm,
                    "seconds": share.seconds,
                }
                told = {name: value for name, value in figures.items() if value is not None}
                shares[worker].update(_named(ENDPOINT, flat({url: told})))

    def _used(self, name: str, report: Report) -> float:
        usage = used_by(report.counters).filled()
        if name == "money":
            return self._price.cost(usage) if self._price else 0.0
        return float(usage.calls + report.gauges.get("in_flight", 0) if name == "calls" else usage.total)


def granted(share: Mapping[str, float]) -> Grant | None:
    """A worker's piece of the budget, in its share; None where there is no budget."""
    budget = under(BUDGET, share)
    return Grant(**budget) if budget else None


def allowed(share: Mapping[str, float]) -> dict[str, Share]:
    """A worker's parts of the endpoints, in its share."""
    return {url: Share(**figures) for url, figures in nested(under(ENDPOINT, share)).items()}


def told_of(pool: Pool) -> dict[str, float]:
    """What a worker reports of its endpoints."""
    return _named(ENDPOINT, flat(pool.report()))


def used_by(counters: Mapping[str, float]) -> Usage:
    """What was used, in the counters of reports."""
    return Usage(**{name: int(counters.get(name, 0)) for name in USED})


def under(prefix: str, figures: Mapping[str, float]) -> dict[str, float]:
    """The figures whose names begin with `prefix`, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in figures.items() if name.startswith(prefix)}


def _named(prefix: str, figures: Mapping[str, float]) -> dict[str, float]:
    return {prefix + name: value for name, value in figures.items()}
