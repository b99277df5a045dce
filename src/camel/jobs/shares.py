"""The share of each worker of a cluster: its piece of the run's budget, and its part of every endpoint.

The coordinator computes shares twice a second from the workers' reports and returns what has changed with the heartbeat.
The one decision to know: both are fail-safe. A piece of the budget counts as spent until its worker reports that it uses a
smaller one, or until the worker is dead and its account shows what it spent. A part of an endpoint is given to others only
when its worker has reported that it does not use it any more, or when its lease has expired and it has stopped calling.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from camel.core.message import Usage
from camel.engine.site import Divider, Grant, WorkerReport, WorkerShare
from camel.jobs.account import read_account
from camel.jobs.budget import Budget, used_up
from camel.jobs.failures import PATIENCE, ClusterFailures
from camel.models.governor import EndpointReport, Rates, Share
from camel.models.sharing import Outbox, SharedEndpoints
from camel.models.subsets import Subset


class Claim(NamedTuple):
    """A worker's report on its piece of a budget."""

    used: float
    """Total usage of the worker, including calls in flight."""
    starved: bool
    """Whether a call waits for a larger piece of any budget."""
    follows: int | None
    """The number of the offer that the worker uses. None: unknown, so nothing can be taken back."""


@dataclass(slots=True)
class _BudgetPiece:
    """One worker's piece of a budget; all sums count from the worker's start."""

    offered: float = 0.0
    """The total that the worker is offered."""
    granted: float = 0.0
    """The total that the worker may still use. It exceeds the offer until the worker has received a lower one."""
    used: float = 0.0
    raised: int = 0
    """The number of the last offer that increased it."""
    lowered: int = 0
    """The number of the last offer that decreased it."""
    follows: int = 0

    @property
    def spare(self) -> float:
        return self.offered - self.used

    @property
    def held(self) -> float:
        """The amount that other workers cannot use."""
        return max(self.granted, self.used)

    @property
    def returns(self) -> bool:
        """Whether the worker has yet to confirm a decrease."""
        return self.granted > max(self.offered, self.used)

    @property
    def is_unheard(self) -> bool:
        """Whether the worker has yet to receive the last increase."""
        return self.follows < self.raised


class SharedBudget:
    """A budget of one quantity (calls, tokens or dollars) in pieces.

    A worker may start a call while its usage is below its piece, so the sum can exceed the budget only by calls in
    flight.
    """

    def __init__(self, total: float, *, spent: float, least: float) -> None:
        """`spent` is the usage so far; `least` is the smallest useful piece, for example the cost of a call."""
        self.total, self.spent, self.least = total, spent, least
        """Usage so far, including that of dead workers."""
        self.pieces: dict[str, _BudgetPiece] = {}

    @property
    def left(self) -> float:
        """The amount that is neither spent nor assigned to a worker."""
        return max(0.0, self.total - self.spent - sum(piece.held for piece in self.pieces.values()))

    def settle(self, worker: str, used: float | None) -> None:
        """Settle the piece of a dead worker. If `used` is None, the whole piece counts as spent."""
        piece = self.pieces.pop(worker)
        self.spent += piece.held if used is None else used

    def divide(self, claims: Mapping[str, Claim], number: int) -> bool:
        """Update the offers to workers. Return True if a worker waits and nothing of the budget remains."""
        for worker, claim in claims.items():
            self._note(self.pieces.setdefault(worker, _BudgetPiece()), claim)
        pieces = self.pieces
        waiting = [worker for worker, claim in claims.items() if claim.starved and pieces[worker].spare <= 0]
        left = self.left
        # The last pieces go to workers that wait for one.
        takers = waiting if left < 2 * len(claims) * self.least else list(claims)
        for worker in takers:
            left -= self._top_up(pieces[worker], left, len(takers), number)
        if left >= self.least or all(pieces[worker].spare > 0 for worker in waiting):
            return False
        for worker, claim in claims.items():
            if worker not in waiting and claim.follows is not None:
                self._take_back(pieces[worker], number)
        # The budget is used up only after the worker with the last piece has received and used it.
        return not any(pieces[worker].returns or pieces[worker].is_unheard for worker in claims)

    def _note(self, piece: _BudgetPiece, claim: Claim) -> None:
        if claim.follows is None:
            piece.used, piece.raised = max(piece.used, claim.used), 0
        elif claim.follows >= piece.follows:  # otherwise an old report that arrived late
            piece.used, piece.follows = claim.used, claim.follows
            if claim.follows >= piece.lowered:
                piece.granted = piece.offered

    def _top_up(self, piece: _BudgetPiece, left: float, takers: int, number: int) -> float:
        """Raise a piece to an equal part of half of the rest, so that pieces shrink with the budget. Return the increase."""
        spare, wanted = max(0.0, piece.spare), max(self.least, left / (2 * takers))
        if left <= 0 or spare >= wanted / 2:
            return 0.0
        before = piece.held
        more = math.ceil((wanted - spare) / self.least) * self.least  # no piece that is too small to use
        piece.offered, piece.raised = max(piece.offered, piece.used) + min(left, more), number
        piece.granted = max(piece.granted, piece.offered)
        return piece.held - before

    def _take_back(self, piece: _BudgetPiece, number: int) -> None:
        """Take back half of the unused part of a piece. A slow worker keeps the other half."""
        if piece.spare > 0 and not piece.returns:
            keeps = math.floor(piece.spare / 2 / self.least) * self.least
            piece.offered, piece.lowered = piece.used + keeps, number


class Shares(Divider):
    """Divides a job's budget and its endpoints among the workers, and decides when the run stops. Runs in the coordinator."""

    def __init__(
        self,
        budget: Budget,
        rates: Mapping[str, Rates],
        *,
        before: Usage = Usage(),  # noqa: B008 - frozen
        accounts: Path | None = None,
        patience: float = PATIENCE,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`rates` are those of each model's endpoints, for all workers together; `before` is the usage of earlier processes.
        `accounts` is the folder of the run, where workers write their accounts. `patience` is the maximum length of an outage.
        """
        self._rates, self._now, self._accounts = rates, now, accounts
        self._failures = ClusterFailures(patience)
        known = {name: _amount_of(name, before) for name in ("calls", "tokens", "usd")}
        # The smallest piece is one call, or a thousandth of the tokens or dollars.
        least = {"calls": 1.0, "tokens": (budget.tokens or 0) / 1e3, "usd": (budget.usd or 0.0) / 1e3}
        self._budgets = {
            name: SharedBudget(float(total), spent=used, least=least[name])
            for name, used in known.items()
            if (total := getattr(budget, name)) is not None
        }
        self._boxes: dict[str, Outbox[tuple[str, str], Share | Subset]] = {}
        """What has changed for each worker, by model and address."""
        self._heard: dict[str, int] = {}
        """The number of each worker's last report."""
        self._models: dict[str, SharedEndpoints] = {}
        self._tick = 0

    def hear(self, worker: str, report: WorkerReport) -> None:
        """Take a report of a live worker."""
        if worker not in self._boxes:
            self._boxes[worker] = Outbox()
        elif report.number < self._heard[worker]:
            return  # late
        self._heard[worker] = report.number
        self._boxes[worker].acknowledge(report.received)
        for name in {*report.endpoints, *report.lists}:
            if (model := self._models.get(name)) is None:
                model = SharedEndpoints(name, self._rates.get(name, Rates()), self._boxes)
                self._models[name] = model
            model.hear(worker, report.endpoints.get(name, {}), report.lists.get(name))

    def tick(self, reports: Mapping[str, WorkerReport], live: Collection[str], expected: int) -> str:
        """Divide the limits. Return the reason to stop the run, if there is one."""
        now, mine = self._now(), {worker: reports.get(worker, WorkerReport()) for worker in live}
        self._tick += 1
        halt = ""
        for worker in self._boxes.keys() - mine.keys():
            for model in self._models.values():
                model.leave(worker)
            del self._boxes[worker], self._heard[worker]
        known = {worker for budget in self._budgets.values() for worker in budget.pieces}
        for worker in sorted(known.difference(mine)):
            self._settle(worker, reports.get(worker, WorkerReport()))
        for name, budget in self._budgets.items():
            claims = {worker: self._claim(name, report) for worker, report in mine.items()}
            if budget.divide(claims, self._tick):
                halt = used_up(name, budget.total)
        for model in self._models.values():
            model.tick(now, expected)
        return self._failures(reports, live) or halt

    def share(self, worker: str) -> WorkerShare:
        """Return the share of a worker that has just reported."""
        box, now = self._boxes[worker], self._now()
        parts = {
            name: model.share(worker, now) for name, model in self._models.items() if model.is_used_by(worker)
        }
        number, changes = box.message()
        for (name, url), change in changes.items():
            if isinstance(change, Subset):
                parts[name] = replace(parts[name], subset=change)
            else:
                parts[name].shares[url] = change
        offered = {name: budget.pieces[worker].offered for name, budget in self._budgets.items()}
        grant = Grant(**offered) if offered else None
        return WorkerShare(self._tick, grant, parts, number, self._heard[worker])

    def endpoints(self) -> dict[str, dict[str, EndpointReport | None]]:
        """Return the sums of the reports on endpoints, by model name and address."""
        return {name: {**model.sums} for name, model in self._models.items()}

    def _claim(self, name: str, report: WorkerReport) -> Claim:
        used = _amount_of(name, report.usage)
        if name == "calls":
            used += report.in_flight
        return Claim(used, report.starved > 0, report.follows)

    def _settle(self, worker: str, report: WorkerReport) -> None:
        """Free what a worker with an expired lease has not spent. Such a worker makes no more calls."""
        spent = read_account(self._accounts, worker) if self._accounts else None
        if spent is not None and (report.account is None or spent.number < report.account):
            spent = None  # older than its last report: its machine lost later writes
        for name, budget in self._budgets.items():
            if worker in budget.pieces:
                budget.settle(worker, None if spent is None else _amount_of(name, spent.usage))


def _amount_of(name: str, usage: Usage) -> float:
    filled = usage.filled()
    return filled.usd if name == "usd" else float(usage.calls if name == "calls" else filled.total)
