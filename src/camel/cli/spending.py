"""What is said of costs before anything is paid, and one budget for several models, each with its own price."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from camel.cli.panel import money, say, short, table
from camel.core.errors import InputError, ModelError
from camel.core.message import Usage
from camel.core.model import Reply
from camel.engine.halt import Halt
from camel.jobs.budget import Budget, Meter
from camel.models.catalogue import ModelPrice, find

if TYPE_CHECKING:
    from camel.evaluation.agents import StepNeed


class Purse(Meter):
    """What all models together have used and may use."""

    def __init__(self, budget: Budget, halt: Halt) -> None:
        super().__init__(budget, ModelPrice(0.0, 0.0), halt)  # the prices are those of the shares
        self.shares: dict[str, ModelShare] = {}

    def share(self, model: str, price: ModelPrice | None) -> ModelShare:
        """The meter of one model; the same for the same name."""
        _check_price(self.budget, model, price)
        return self.shares.setdefault(model, ModelShare(self, price))

    @property
    def money(self) -> float | None:
        """Dollars used by all; None where one price is not known."""
        spent = [one.money for one in self.shares.values()]
        return None if None in spent else sum(one or 0.0 for one in spent)

    @property
    def parts(self) -> list[str]:
        """Calls, tokens, money and errors so far, each in words, for a line of progress."""
        said = [f"{self.usage.calls:,} calls, {short(self.usage.total)} tokens"]
        said += [money(self.money)] if self.money else []
        return said + ([f"{sum(self.errors.values()):,} errors"] if self.errors else [])

    def rejected(self) -> str:
        """Why nothing can be had of one of the models; empty where each was served, or has not been asked."""
        reasons = (share.failures.all_rejected() for share in self.shares.values())
        return next(filter(None, reasons), "")

    def earlier(self, used: dict[str, Usage]) -> None:
        """Take over what earlier starts have used, by model."""
        for model, usage in used.items():
            if model in self.shares:
                self.shares[model].before = usage
        self.before = sum(used.values(), Usage())


class ModelShare(Meter):
    """Meters one model, within the limits of the whole."""

    def __init__(self, purse: Purse, price: ModelPrice | None) -> None:
        super().__init__(Budget(), price, purse.halt)
        self._purse = purse

    def begin(self) -> None:
        """Ask to make a call; raises `Halted` when there is no room for it."""
        self._purse.begin()
        self.in_flight += 1

    def end(self, reply: Reply | None, error: ModelError | None) -> None:
        """Note how a call ended."""
        super().end(reply, error)
        self._purse.end(reply, error)


def metered(budget: Budget, model: str, halt: Halt) -> Meter:
    """The meter of a command that asks one model, which sets `halt` at a limit."""
    price = find(model)
    _check_price(budget, model, price)
    return Meter(budget, price, halt)


def _check_price(budget: Budget, model: str, price: ModelPrice | None) -> None:
    if budget.money is not None and price is None:
        raise InputError(f"the price of {model} is not known, and --max-money needs it: give --max-calls")


def expect(console: Console, word: str, model: str, need: Usage, price: ModelPrice | None) -> None:
    """Say before the first call what a step will take and cost, about."""
    cost = "price unknown" if price is None else money(price.cost(need))
    say(console, f"{word:<6}  {need.calls:,} calls of {model}, about {short(need.total)} tokens, {cost}")


def announce_needs(console: Console, steps: Sequence[tuple[str, StepNeed]], purse: Purse) -> None:
    """Say what each step, by its name, will take and cost."""
    needs = [need for _, need in steps]
    if not needs:
        say(console, "everything has been asked before")
        return
    rows: list[tuple[str, ...]] = []
    total = [0.0, 0.0, 0.0]
    known = True
    for name, need in steps:
        price = purse.shares[need.model].price
        cost = [
            price.cost(Usage(prompt, completion)) if price else 0.0
            for prompt, completion in zip(need.prompt, need.completion, strict=True)
        ]
        known = known and price is not None
        total = [one + more for one, more in zip(total, cost, strict=True)]
        shown = money(cost[1]) if price else "price unknown"
        rows.append(
            (
                name,
                need.model,
                f"{need.calls:,}",
                short(need.prompt[1]),
                short(need.completion[1]),
                shown,
            )
        )
    table(
        console,
        ("step", "model", "calls", "prompt tokens", "completion tokens", "money"),
        rows,
        right=range(2, 6),
    )
    calls = sum(need.calls for need in needs)
    tokens = [sum(need.prompt[at] + need.completion[at] for need in needs) for at in range(3)]
    cost = f", {money(total[1])} ({money(total[0])} to {money(total[2])})" if known else ""
    say(
        console,
        f"about {calls:,} calls, {short(tokens[1])} tokens ({short(tokens[0])} to {short(tokens[2])}){cost}",
    )
