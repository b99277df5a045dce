"""Budgets: what a job has used of its models, and when to stop paying."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Collection
from typing import Any

import msgspec
from msgspec.structs import replace

from camel.core.errors import InputError, ModelError, RateLimited
from camel.core.message import Usage
from camel.core.model import Model, Price, Reply, Request, WrappedModel
from camel.engine.halt import Halt, Halted
from camel.engine.notices import Tell, ignore_notice
from camel.engine.site import Grant, ModelReport, WorkerReport
from camel.jobs.failures import PATIENCE, Failures
from camel.reports.numbers import money

UNCOUNTED = 20
"""Replies without a count of tokens, and none with one, after which a budget that needs it is given up."""


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a whole job may use; reaching a limit stops new calls and leaves a run that can be resumed."""

    usd: float | None = None
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

    @property
    def counts(self) -> bool:
        """Whether it limits what calls use, and not only the time."""
        return (self.usd, self.tokens, self.calls) != (None, None, None)


class ModelMeter:
    """What a job has had of one model since this start."""

    def __init__(self, meter: Meter, name: str, price: Price | None, failures: Failures) -> None:
        self.meter, self.name, self.price, self.failures = meter, name, price, failures
        self.usage = Usage()
        self.before = Usage()
        """Of earlier starts, where the job has several models."""
        self.errors: Counter[str] = Counter()
        self.rate_limited = 0
        """Attempts that were answered 429, of calls that were served in the end and of those given up."""
        self.retries = 0
        """Attempts beyond the first, of whatever calls."""

    def priced(self, usage: Usage) -> Usage:
        """A usage with what it costs today; 0 dollars where the price is not known."""
        return usage if self.price is None else replace(usage, usd=self.price.cost(usage))

    def end(self, reply: Reply | None, error: ModelError | None) -> None:
        """Note how a call ended."""
        self.meter.in_flight -= 1
        if reply is not None:
            self.usage += reply.usage
            self.retries += reply.attempts - 1
            self.rate_limited += reply.limited
        if error is not None:
            self.errors[type(error).__name__] += 1
            self.retries += error.attempts - 1
            self.rate_limited += max(error.limited, isinstance(error, RateLimited))

    def report(self) -> ModelReport:
        """The same, as a worker of a cluster tells it."""
        failures = self.failures
        return ModelReport(
            self.usage,
            dict(self.errors),
            self.retries,
            self.rate_limited,
            failures.served,
            failures.rejected,
            failures.answered,
            failures.down(),
            failures.words,
        )

    def take(self, told: ModelReport) -> None:
        """Take over what the workers of a cluster tell."""
        self.usage, self.errors = told.usage, Counter(told.errors)
        self.retries, self.rate_limited = told.retries, told.rate_limited
        self.failures.served, self.failures.rejected = told.served, told.rejected
        self.failures.words = told.words


class Meter:
    """Counts what a job uses of all its models and halts it at a limit."""

    def __init__(
        self,
        budget: Budget,
        halt: Halt,
        *,
        patience: float = PATIENCE,
        shared: bool = False,
        tell: Tell = ignore_notice,
    ) -> None:
        """`shared` is a worker of a cluster, where others decide whether the run stops."""
        self.budget, self.halt = budget, halt
        self._patience, self._shared, self._tell = patience, shared, tell
        self._limited = budget != Budget()
        self._counts_tokens = budget.usd is not None or budget.tokens is not None
        self.models: dict[str, ModelMeter] = {}
        self.before = Usage()
        """Used by earlier starts."""
        self.started = time.monotonic()
        self.in_flight = 0
        self.limits: dict[str, tuple[Collection[str], Budget]] = {}
        """By what it is called, a further budget of some of the models."""
        self.grant: Grant | None = None
        """What this process may use of a budget that it shares; None: it shares none."""
        self.starved = 0
        """Calls that wait for a larger grant."""

    def model(self, name: str, price: Price | None) -> ModelMeter:
        """The meter of one model; the same for the same name."""
        if name not in self.models:
            if self.budget.usd is not None and price is None:
                raise InputError(
                    f"the price of {name} is not known, and a budget in dollars needs it: give model.price, or limit calls "
                    "or tokens"
                )
            failures = Failures(self.halt, patience=self._patience, shared=self._shared, tell=self._tell)
            self.models[name] = ModelMeter(self, name, price, failures)
        return self.models[name]

    @property
    def usage(self) -> Usage:
        """Used since this start."""
        return sum((one.usage for one in self.models.values()), Usage())

    @property
    def errors(self) -> Counter[str]:
        """Failed calls since this start, by class."""
        return sum((one.errors for one in self.models.values()), Counter[str]())

    @property
    def money(self) -> float | None:
        """Dollars used by all starts; None where a price is not known."""
        if not self.models or any(one.price is None for one in self.models.values()):
            return None
        return (self.before + self.usage).usd

    def over_budget(self) -> str:
        """Which limit has been reached, in words; empty while there is room."""
        if not self._limited and not self.limits:  # asked before every call
            return ""
        for what, (names, limit) in self.limits.items():
            models = [self.models[name] for name in names if name in self.models]
            used = sum((one.before + one.usage for one in models), Usage())
            if not self._shared and (over := _over(limit, used.filled(), of=f" of {what}")):
                return over
        total, budget = (self.before + self.usage).filled(), self.budget
        if self._counts_tokens and total.unknown >= UNCOUNTED:
            return (
                "the endpoint does not say how many tokens its replies took, so that no budget of tokens or dollars can be "
                "kept: limit the calls instead ([budget] calls, or --budget-calls)"
            )
        return _over(budget, total, self.in_flight) or self.out_of_time()

    def room(self) -> float:
        """Calls that the budget has room for, by what calls took so far; 100 until that is known."""
        budget, used = self.budget, (self.before + self.usage).filled()
        rooms = [math.inf if budget.calls is None else budget.calls - used.calls]
        for most, spent in ((budget.tokens, used.total), (budget.usd, self.money)):
            if most is not None:
                rooms.append(used.calls * (most / spent - 1) if spent else 100)
        return min(rooms)

    def out_of_time(self) -> str:
        """Whether the hours are over, in words."""
        hours = self.budget.hours
        if hours is not None and time.monotonic() - self.started >= hours * 3600:
            return used_up("hours", hours)
        return ""

    def within_grant(self) -> bool:
        """Whether there is room for a call in what this process was granted."""
        grant = self.grant
        if grant is None:
            return True
        # By the same figures as in the report of this process: else it may wait for what the coordinator thinks it has.
        usage = self.usage.filled()
        return (
            usage.calls + self.in_flight < grant.calls
            and usage.total < grant.tokens
            and usage.usd < grant.usd
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

    def restart(self, halt: Halt) -> None:
        """Obey another halt from now on: what stopped calls before is over."""
        self.halt = halt
        for one in self.models.values():
            one.failures.halt = halt

    def begin(self) -> None:
        """Ask to make a call; raises `Halted` when there is no room for it."""
        if reason := self.halt.reason or self.over_budget():
            self.halt.set(reason)
            raise Halted(self.halt.reason)
        self.in_flight += 1

    def rejected(self) -> str:
        """Why nothing can be had of one of the models; empty where each was served, or has not been asked."""
        reasons = (one.failures.all_rejected() for one in self.models.values())
        return next(filter(None, reasons), "")

    def take(self, report: WorkerReport) -> None:
        """Take over what the workers of a cluster tell."""
        self.in_flight = report.in_flight
        for name, told in report.models.items():
            if name in self.models:
                self.models[name].take(told)


class MeteredModel(WrappedModel):
    """A model whose calls are counted and stopped at a budget."""

    def __init__(self, model: Model, meter: ModelMeter) -> None:
        super().__init__(model)
        self._model_meter, self._meter, self._failures = meter, meter.meter, meter.failures

    async def reply(self, request: Request) -> Reply:
        """Make the call if there is room for it, as often as the failure policy says."""
        return await self._failures.handled(self._send, request)

    async def _send(self, request: Request) -> Reply:
        if not self._meter.within_grant():
            await self._meter.wait_for_grant()
        self._meter.begin()
        reply = error = None
        try:
            reply = await self.inner.reply(request)
            model = self._model_meter
            by = model.name if len(self._meter.models) > 1 else ""
            reply = replace(reply, usage=model.priced(reply.usage), by=by)
            return reply
        except ModelError as failed:
            error = failed
            raise
        finally:
            self._model_meter.end(reply, error)


def _over(budget: Budget, used: Usage, in_flight: int = 0, of: str = "") -> str:
    """Which limit of a budget is reached, in words; the hours are not looked at."""
    if budget.usd is not None and used.usd >= budget.usd:
        return used_up("usd", budget.usd, of)
    if budget.tokens is not None and used.total >= budget.tokens:
        return used_up("tokens", budget.tokens, of)
    if budget.calls is not None and used.calls + in_flight >= budget.calls:
        return used_up("calls", budget.calls, of)
    return ""


def used_up(name: str, total: float, of: str = "") -> str:
    """That a budget is used up, in words; `of` says whose it is, where it is not the run's."""
    amount = f"{total:g} hours" if name == "hours" else f"{total:,.0f} {name}"
    amount = money(total) if name == "usd" else amount
    return f"the budget of {amount}{of} is used up"
