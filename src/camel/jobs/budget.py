"""Budgets: what a job has used, and when to stop paying."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from typing import Any, NamedTuple

import msgspec

from camel.core.errors import InputError, ModelError, RateLimited
from camel.core.message import Usage
from camel.core.model import Model, Reply, Request, WrappedModel
from camel.engine.halt import Halt, Halted
from camel.jobs.failures import Failures
from camel.models.catalogue import ModelPrice

UNTOLD = 20
"""Replies without a count of tokens, and none with one, after which a budget that needs it is given up."""


NEEDS_PRICE = "budget.money needs the model's price: give it as model.price, or limit tokens"


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the whole run may use; reaching a limit stops new calls and leaves a run that can be resumed."""

    money: float | None = None
    """US dollars."""
    tokens: int | None = None
    calls: int | None = None
    hours: float | None = None
    """Of this start, by the clock."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value: Any = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not value > 0):
                raise InputError(f"budget.{name} must be above zero, not {value!r}")


class Grant(NamedTuple):
    """As much of a shared budget as one process may have used in all, since its start."""

    calls: float = math.inf
    tokens: float = math.inf
    money: float = math.inf


class Meter:
    """Counts what is used and halts the run at a limit."""

    def __init__(
        self, budget: Budget, price: ModelPrice | None, halt: Halt, failures: Failures | None = None
    ) -> None:
        if budget.money is not None and price is None:
            raise InputError(NEEDS_PRICE)
        self.budget, self.price, self.halt = budget, price, halt
        self.failures = failures or Failures(halt)
        self._limited = budget != Budget()
        self._counts_tokens = budget.money is not None or budget.tokens is not None
        self.before = Usage()
        """Used by earlier starts of the run."""
        self.dearer = 0.0
        """Dollars that earlier starts have paid beyond what it would be at today's price."""
        self.usage = Usage()
        """Used since this start."""
        self.started = time.monotonic()
        self.in_flight = 0
        self.errors: Counter[str] = Counter()
        self.rate_limited = 0
        """Attempts that were answered 429, of calls that were served in the end and of those given up."""
        self.retries = 0
        """Attempts beyond the first, of whatever calls."""
        self.grant: Grant | None = None
        """What this process may use of a budget that it shares; None: it shares none."""
        self.starved = 0
        """Calls that wait for a larger grant."""

    @property
    def money(self) -> float | None:
        """Dollars used by the whole run; None where the price is not known."""
        return None if self.price is None else self.price.cost(self.before + self.usage) + self.dearer

    def over_budget(self) -> str:
        """Which limit has been reached, in words; empty while there is room."""
        if not self._limited:  # asked before every call
            return ""
        counted, budget, money = self.before + self.usage, self.budget, self.money
        total = counted.filled()
        if money and counted.total:
            money *= total.total / counted.total
        if budget.money is not None and money is not None and money >= budget.money:
            return f"the budget of ${budget.money:,.2f} is used up"
        if self._counts_tokens and total.unknown >= UNTOLD:
            return (
                "the endpoint does not say how many tokens its replies took, so that no budget of tokens or money can be "
                "kept: limit the calls instead ([budget] calls, or --max-calls)"
            )
        if budget.tokens is not None and total.total >= budget.tokens:
            return f"the budget of {budget.tokens:,} tokens is used up"
        if budget.calls is not None and total.calls + self.in_flight >= budget.calls:
            return f"the budget of {budget.calls:,} calls is used up"
        if budget.hours is not None and time.monotonic() - self.started >= budget.hours * 3600:
            return f"the budget of {budget.hours:g} hours is used up"
        return ""

    def within_grant(self) -> bool:
        """Whether there is room for a call in what this process was granted."""
        if self.grant is None:
            return True
        usage, grant = self.usage.filled(), self.grant
        money = 0.0 if self.price is None else self.price.cost(usage)
        return (
            usage.calls + self.in_flight < grant.calls and usage.total < grant.tokens and money < grant.money
        )

    async def wait_for_grant(self) -> None:
        """Return when a call is within what was granted, or the run is halted."""
        self.starved += 1
        try:
            # What is waited for comes with a heartbeat, about once a second
            while not self.halt.reason and not self.within_grant():  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        finally:
            self.starved -= 1

    def begin(self) -> None:
        """Ask to make a call; raises `Halted` when there is no room for it."""
        if reason := self.halt.reason or self.over_budget():
            self.halt.set(reason)
            raise Halted(self.halt.reason)
        self.in_flight += 1

    def end(self, reply: Reply | None, error: ModelError | None) -> None:
        """Note how a call ended."""
        self.in_flight -= 1
        if reply is not None:
            self.usage += reply.usage
            self.retries += reply.attempts - 1
            self.rate_limited += reply.limited
        if error is not None:
            self.errors[type(error).__name__] += 1
            self.retries += error.attempts - 1
            self.rate_limited += max(error.limited, isinstance(error, RateLimited))


class MeteredModel(WrappedModel):
    """A model whose calls are counted and stopped at a budget."""

    def __init__(self, model: Model, meter: Meter) -> None:
        super().__init__(model)
        self._meter = meter

    async def reply(self, request: Request) -> Reply:
        """Make the call if there is room for it, as often as the failure policy says."""
        return await self._meter.failures.handled(self._send, request)

    async def _send(self, request: Request) -> Reply:
        if not self._meter.within_grant():
            await self._meter.wait_for_grant()
        self._meter.begin()
        reply = error = None
        try:
            reply = await self.inner.reply(request)
            return reply
        except ModelError as failed:
            error = failed
            raise
        finally:
            self._meter.end(reply, error)
