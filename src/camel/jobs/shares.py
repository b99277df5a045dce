"""What each worker of a cluster may use: its piece of the run's budget, and its part of every endpoint.

Computed in the coordinator about once a second, from the workers' reports; goes back to them with the heartbeat. The one
decision to know: both parts fail safe. A piece of the budget counts as spent from when it is given until its worker says
that it follows a smaller one, or is dead and its account says what it has spent. A part of an endpoint expires at the
worker; who is out of the coordinator's leases has stopped calling, and only then is its part given away.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from camel.core.message import Usage
from camel.engine.site import WorkerReport
from camel.jobs.account import read_account
from camel.jobs.budget import Budget, Grant
from camel.models.catalogue import ModelPrice
from camel.models.governor import Rates, Share
from camel.models.pool import Pool
from camel.models.sharing import flat, nested, share_out

USED = ("calls", "prompt", "completion", "cached", "unknown")
"""Counters of a report that make up what a worker has used."""
BUDGET, ENDPOINT = "budget.", "endpoint."
"""Begin the names, in shares and reports, of what belongs to the budget and to endpoints."""
OFFER, ACCOUNT = "offer", "account.number"
"""In a share its number, which a worker repeats in its reports; in a report how often its account was written."""


class Claim(NamedTuple):
    """What a worker says of its piece of a budget."""

    used: float
    """Since it began, with what is in flight."""
    starved: bool
    """Whether a call waits for a larger piece of any budget."""
    follows: float | None
    """The number of the offer that it follows; None: it does not say, so that nothing can be taken back."""


@dataclass(slots=True)
class _BudgetPiece:
    """One worker's piece of a budget; sums since the worker began."""

    offered: float = 0.0
    """What it is told that it may use in all."""
    granted: float = 0.0
    """What it may believe that it may use: more than is offered until it follows the offer."""
    used: float = 0.0
    lowered: float = 0.0
    """The number of the offer that took something back last."""
    follows: float = 0.0

    @property
    def spare(self) -> float:
        return self.offered - self.used

    @property
    def held(self) -> float:
        """What nobody else may use."""
        return max(self.granted, self.used)

    @property
    def returns(self) -> bool:
        """Whether something is still to come back."""
        return self.granted > max(self.offered, self.used)


class SharedBudget:
    """A budget of one quantity (calls, tokens or dollars) in pieces.

    A worker may begin a call while what it has used is below its piece, so that the sum can exceed the budget by what is
    in flight, and by nothing else.
    """

    def __init__(self, total: float, *, spent: float, least: float) -> None:
        """`spent` was spent before; `least` is the smallest piece that is worth giving, e.g. what a call costs."""
        self.total, self.spent, self.least = total, spent, least
        """`spent`: before, or by workers that are dead."""
        self.pieces: dict[str, _BudgetPiece] = {}

    @property
    def left(self) -> float:
        """What is neither spent nor held by a worker."""
        return max(0.0, self.total - self.spent - sum(piece.held for piece in self.pieces.values()))

    def settle(self, worker: str, used: float | None) -> None:
        """A worker is dead. Where it is not known what it used, all that it could have used counts."""
        piece = self.pieces.pop(worker)
        self.spent += piece.held if used is None else used

    def divide(self, claims: Mapping[str, Claim], number: int) -> bool:
        """Change what is offered to each worker; true when one waits and there is nothing more to give."""
        for worker, claim in claims.items():
            self._note(self.pieces.setdefault(worker, _BudgetPiece()), claim)
        pieces = self.pieces
        waiting = [worker for worker, claim in claims.items() if claim.starved and pieces[worker].spare <= 0]
        left = self.left
        # The last pieces go to workers that wait for one.
        takers = waiting if left < 2 * len(claims) * self.least else list(claims)
        for worker in takers:
            left -= self._top_up(pieces[worker], left, len(takers))
        if not waiting or left >= self.least:
            return False
        for worker, claim in claims.items():
            if worker not in waiting and claim.follows is not None:
                self._take_back(pieces[worker], number)
        return not any(piece.returns for piece in pieces.values())

    def _note(self, piece: _BudgetPiece, claim: Claim) -> None:
        if claim.follows is None:
            piece.used = max(piece.used, claim.used)
        elif claim.follows >= piece.follows:  # else an old report that comes late
            piece.used, piece.follows = claim.used, claim.follows
            if claim.follows >= piece.lowered:
                piece.granted = piece.offered

    def _top_up(self, piece: _BudgetPiece, left: float, takers: int) -> float:
        """Top up to an equal part of half of what is left, so that pieces shrink as the budget does; returns how much."""
        spare, wanted = max(0.0, piece.spare), max(self.least, left / (2 * takers))
        if spare >= wanted / 2:
            return 0.0
        before = piece.held
        more = math.ceil((wanted - spare) / self.least) * self.least  # no crumbs, which nobody could use
        piece.offered = max(piece.offered, piece.used) + min(left, more)
        piece.granted = max(piece.granted, piece.offered)
        return piece.held - before

    def _take_back(self, piece: _BudgetPiece, number: int) -> None:
        """Take back half of what a worker does not use, so that one that is only slow still has something."""
        if piece.spare > 0 and not piece.returns:
            keeps = math.floor(piece.spare / 2 / self.least) * self.least
            piece.offered, piece.lowered = piece.used + keeps, number


class Shares:
    """Divides a run's budget and its endpoints among the workers there are."""

    def __init__(
        self,
        budget: Budget,
        price: ModelPrice | None,
        before: Usage,
        rates: Rates,
        *,
        dearer: float = 0.0,
        accounts: Path | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`before` is what earlier starts have used, for `dearer` more dollars than it would cost today; `rates` hold for
        each endpoint and all workers together. `accounts` is the folder of the run, where workers leave their accounts.
        """
        self._price, self._limits, self._now, self._accounts = price, {"*": rates}, now, accounts
        before = before.filled()
        known = {"calls": float(before.calls), "tokens": float(before.total)}
        known |= {} if price is None else {"money": price.cost(before) + dearer}
        # A piece is worth giving when it pays for a call; of tokens and dollars, for a thousandth of the whole.
        least = {"calls": 1.0, "tokens": (budget.tokens or 0) / 1e3, "money": (budget.money or 0.0) / 1e3}
        self._budgets = {
            name: SharedBudget(float(total), spent=used, least=least[name])
            for name, used in known.items()
            if (total := getattr(budget, name)) is not None
        }
        self._heard: dict[str, tuple[WorkerReport, float]] = {}
        self._given: dict[str, dict[str, Share]] = {}
        self._tick = 0

    def __call__(
        self, reports: Mapping[str, WorkerReport], live: Collection[str]
    ) -> tuple[Mapping[str, Mapping[str, float]], str]:
        """What each living worker may use from now on, and why the run has to stop, if it has to."""
        now, mine = self._now(), {worker: reports.get(worker, WorkerReport()) for worker in live}
        self._tick += 1
        self._heard = {
            worker: heard if (heard := self._heard.get(worker)) and heard[0] is report else (report, now)
            for worker, report in mine.items()
        }
        shares: dict[str, dict[str, float]] = {worker: {} for worker in live}
        halt = ""
        if self._budgets:
            known = {worker for budget in self._budgets.values() for worker in budget.pieces}
            for worker in sorted(known.difference(mine)):
                self._settle(worker, reports.get(worker, WorkerReport()))
            for share in shares.values():
                share[OFFER] = float(self._tick)
        for name, budget in self._budgets.items():
            claims = {worker: self._claim(name, report) for worker, report in mine.items()}
            if budget.divide(claims, self._tick):
                halt = _used_up(name, budget.total)
            for worker in mine:
                shares[worker][BUDGET + name] = budget.pieces[worker].offered
        self._divide(mine, shares, now)
        return shares, halt

    def _claim(self, name: str, report: WorkerReport) -> Claim:
        gauges = report.gauges
        used = self._amount_of(name, used_by(report.counters))
        if name == "calls":
            used += gauges.get("in_flight", 0.0)
        return Claim(used, gauges.get("starved", 0.0) > 0, gauges.get(OFFER))

    def _settle(self, worker: str, report: WorkerReport) -> None:
        """A worker is out of its lease, and can send nothing any more: what it has not spent is free."""
        spent = read_account(self._accounts, worker) if self._accounts else None
        if spent is not None and spent.number < report.gauges.get(ACCOUNT, math.inf):
            spent = None  # from before its last report: its machine has lost what was written after
        for name, budget in self._budgets.items():
            if worker in budget.pieces:
                budget.settle(worker, None if spent is None else self._amount_of(name, spent.usage))

    def _amount_of(self, name: str, usage: Usage) -> float:
        usage = usage.filled()
        if name == "money":
            return self._price.cost(usage) if self._price else 0.0
        return float(usage.calls if name == "calls" else usage.total)

    def _divide(
        self, mine: Mapping[str, WorkerReport], shares: Mapping[str, dict[str, float]], now: float
    ) -> None:
        """Divide the endpoints."""
        endpoints = {
            worker: {
                url: {**figures, "age": now - self._heard[worker][1]}
                for url, figures in nested(under(ENDPOINT, report.gauges)).items()
            }
            for worker, report in mine.items()
        }
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


def _used_up(name: str, total: float) -> str:
    budget = f"money budget of ${total:,.2f}" if name == "money" else f"budget of {total:,.0f} {name}"
    return f"the {budget} is used up"


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
