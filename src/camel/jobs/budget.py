"""Budgets: counts what a job uses of its models, and stops it at a limit."""

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
from camel.engine.halt import Halt, Halted, Tell, ignore_notice
from camel.engine.site import Grant, ModelReport, ToolUse, WorkerReport
from camel.jobs.failures import PATIENCE, Failures
from camel.reports.numbers import money

UNCOUNTED = 20
"""Number of replies without a token count after which a budget in tokens or dollars stops the run, if no reply has a count."""


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Limits of a whole job. Reaching one stops new calls; the run can be resumed."""

    usd: float | None = None
    """US dollars."""
    tokens: int | None = None
    calls: int | None = None
    hours: float | None = None
    """Wall-clock hours of this process."""
    tool_calls: int | None = None
    tool_seconds: float | None = None
    """Duration of all tool calls together."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value: Any = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not value > 0):
                raise InputError(f"budget.{name} must be above zero, not {value!r}")

    @property
    def counts(self) -> bool:
        """Whether it limits calls, tokens or dollars, and not only time."""
        return any(getattr(self, name) is not None for name in self.__struct_fields__ if name != "hours")


class ModelMeter:
    """Usage and failures of one model in this process."""

    def __init__(self, meter: Meter, name: str, price: Price | None, failures: Failures) -> None:
        self.meter, self.name, self.price, self.failures = meter, name, price, failures
        self.usage = Usage()
        self.before = Usage()
        """Usage in earlier processes, if the job has several models."""
        self.errors: Counter[str] = Counter()
        self.rate_limited = 0
        """Number of attempts that got a 429, in successful and failed calls."""
        self.retries = 0
        """Number of retries in all calls."""

    def priced(self, usage: Usage) -> Usage:
        """Return the usage with its cost at current prices. Unchanged if the price is unknown."""
        return usage if self.price is None else replace(usage, usd=self.price.cost(usage))

    def end(self, reply: Reply | None, error: ModelError | None) -> None:
        """Record the end of a call."""
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
        """Return the figures as a worker reports them."""
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
            failures.unreached,
        )

    def take(self, told: ModelReport) -> None:
        """Replace the counts by those that the workers of a cluster report."""
        self.usage, self.errors = told.usage, Counter(told.errors)
        self.retries, self.rate_limited = told.retries, told.rate_limited
        self.failures.served, self.failures.rejected = told.served, told.rejected
        self.failures.words = told.words


class Meter:
    """Counts a job's use of all its models and halts it at a limit."""

    def __init__(
        self,
        budget: Budget,
        halt: Halt,
        *,
        patience: float = PATIENCE,
        shared: bool = False,
        tell: Tell = ignore_notice,
    ) -> None:
        """If `shared` is true, this process is a worker of a cluster, where the coordinator decides whether the run stops."""
        self.budget, self.halt = budget, halt
        self._patience, self._shared, self._tell = patience, shared, tell
        self._limited = budget != Budget()
        self._counts_tokens = budget.usd is not None or budget.tokens is not None
        self.models: dict[str, ModelMeter] = {}
        self.before = Usage()
        """Usage in earlier processes."""
        self.tools = self.tools_before = ToolUse()
        """Tool calls in this process, and in earlier ones."""
        self.started = time.monotonic()
        self.in_flight = 0
        self.limits: dict[str, tuple[Collection[str], Budget]] = {}
        """Further budgets of some of the models, by the budget's name."""
        self.grant: Grant | None = None
        """This process's part of a shared budget; None: not shared."""
        self.starved = 0
        """Number of calls that wait for a larger grant."""

    def model(self, name: str, price: Price | None) -> ModelMeter:
        """Return the meter of one model. The same name always returns the same meter."""
        if name not in self.models:
            if self.budget.usd is not None and price is None:
                raise InputError(
                    f"the price of '{name}' is unknown, and a budget in dollars needs it: set model.price, or limit calls or "
                    "tokens instead"
                )
            failures = Failures(self.halt, patience=self._patience, shared=self._shared, tell=self._tell)
            self.models[name] = ModelMeter(self, name, price, failures)
        return self.models[name]

    @property
    def usage(self) -> Usage:
        """The usage in this process."""
        return sum((one.usage for one in self.models.values()), Usage())

    @property
    def errors(self) -> Counter[str]:
        """Number of failed calls in this process, by class of the error."""
        return sum((one.errors for one in self.models.values()), Counter[str]())

    @property
    def money(self) -> float | None:
        """Dollars spent by all processes so far, or None if a price is unknown."""
        if not self.models or any(one.price is None for one in self.models.values()):
            return None
        return (self.before + self.usage).usd

    def over_budget(self) -> str:
        """Return a text that names the limit that is reached, or an empty string."""
        if not self._limited and not self.limits:  # asked before every call
            return ""
        for what, (names, limit) in self.limits.items():
            models = [self.models[name] for name in names if name in self.models]
            used = sum((one.before + one.usage for one in models), Usage())
            if not self._shared and (over := reached(limit, used.filled(), of=f" of {what}")):
                return over
        total, budget = (self.before + self.usage).filled(), self.budget
        if self._counts_tokens and total.unknown >= UNCOUNTED:
            return (
                "the endpoint does not report token counts, so a budget of tokens or dollars cannot be enforced: limit "
                "the calls instead ([budget] calls, or --budget-calls)"
            )
        tools = self.tools_before + self.tools
        return reached(budget, total, self.in_flight, tools) or self.out_of_time()

    def room(self) -> float:
        """Return how many more calls fit into the budget, at the average usage so far. 100 until that is known."""
        budget, used = self.budget, (self.before + self.usage).filled()
        rooms = [math.inf if budget.calls is None else budget.calls - used.calls]
        for most, spent in ((budget.tokens, used.total), (budget.usd, self.money)):
            if most is not None:
                rooms.append(used.calls * (most / spent - 1) if spent else 100)
        return min(rooms)

    def out_of_time(self) -> str:
        """Return a text if the budget of hours is used up, otherwise an empty string."""
        hours = self.budget.hours
        if hours is not None and time.monotonic() - self.started >= hours * 3600:
            return used_up("hours", hours)
        return ""

    def within_grant(self) -> bool:
        """Return whether another call fits into this process's grant."""
        grant = self.grant
        if grant is None:
            return True
        # Use the same figures as this process reports, or it may wait for what the coordinator thinks it already has.
        usage = self.usage.filled()
        return (
            usage.calls + self.in_flight < grant.calls
            and usage.total < grant.tokens
            and usage.usd < grant.usd
        )

    async def wait_for_grant(self) -> None:
        """Wait until a call fits into the grant, or the run is halted."""
        self.starved += 1
        try:
            # A new grant comes with a heartbeat, about once a second
            while not self.halt.reason and not self.within_grant():  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        finally:
            self.starved -= 1

    def restart(self, halt: Halt) -> None:
        """Use another `Halt` from now on, because the previous one is over."""
        self.halt = halt
        for one in self.models.values():
            one.failures.halt = halt

    def begin(self) -> None:
        """Start a call; raises `Halted` if the budget has no room for it."""
        self._check()
        self.in_flight += 1

    def begin_tool(self) -> None:
        """Start a tool call; raises `Halted` if the budget has no room for it."""
        self._check()
        self.tools += ToolUse(1)

    def _check(self) -> None:
        if reason := self.halt.reason or self.over_budget():
            self.halt.set(reason)
            raise Halted(self.halt.reason)

    def rejected(self) -> str:
        """Return why a model has rejected all its calls, or an empty string if there is no such model."""
        reasons = (one.failures.all_rejected() for one in self.models.values())
        return next(filter(None, reasons), "")

    def take(self, report: WorkerReport) -> None:
        """Replace the counts by those that the workers of a cluster report."""
        self.in_flight, self.tools = report.in_flight, report.tools
        for name, told in report.models.items():
            if name in self.models:
                self.models[name].take(told)


class MeteredModel(WrappedModel):
    """A model that counts its calls and stops at a budget."""

    def __init__(self, model: Model, meter: ModelMeter) -> None:
        super().__init__(model)
        self._model_meter, self._meter, self._failures = meter, meter.meter, meter.failures

    async def reply(self, request: Request) -> Reply:
        """Make the call within the budget, with retries by the failure policy."""
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


def reached(budget: Budget, used: Usage, in_flight: int = 0, tools: ToolUse = ToolUse(), of: str = "") -> str:  # noqa: B008 - frozen
    """Return a text that names the limit of `budget` that is reached, or an empty string. Hours are not checked."""
    for name, most, amount in (
        ("tool calls", budget.tool_calls, tools.calls),
        ("seconds of tools", budget.tool_seconds, tools.seconds),
        ("usd", budget.usd, used.usd),
        ("tokens", budget.tokens, used.total),
        ("calls", budget.calls, used.calls + in_flight),
    ):
        if most is not None and amount >= most:
            return used_up(name, most, of)
    return ""


def used_up(name: str, total: float, of: str = "") -> str:
    """Return a text that a budget is used up. `of` names its owner, such as a seat, unless it is the run's."""
    amount = f"{total:g} hours" if name == "hours" else f"{total:,.0f} {name}"
    amount = money(total) if name == "usd" else amount
    return f"the budget of {amount}{of} is used up"
