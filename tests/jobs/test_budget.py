"""The meter: what it counts, and when it stops a run."""

from __future__ import annotations

import pytest

from camel import Choice, InputError, Reply, Request, Usage
from camel.core.errors import ContextOverflow
from camel.core.history import History
from camel.core.model import Model
from camel.engine.halt import Halt, Halted
from camel.generation.campaign import totals_of, usage_of
from camel.jobs.budget import Budget, Grant, Meter, MeteredModel
from camel.models.catalogue import ModelPrice

PRICE = ModelPrice(input=1.0, output=2.0, cached=0.1)


def reply(prompt: int = 100, completion: int = 10, cached: int = 0, attempts: int = 1) -> Reply:
    return Reply((Choice("hello"),), Usage(prompt, completion, cached, 1), attempts=attempts)


def spend(meter: Meter, answer: Reply) -> None:
    meter.begin()
    meter.end(answer, None)


def test_it_counts_all_starts():
    meter = Meter(Budget(), PRICE, Halt())
    meter.before = Usage(1_000_000, 0, 500_000, 7)
    spend(meter, reply(500_000, 100_000, attempts=3))
    assert meter.usage == Usage(500_000, 100_000, 0, 1)
    assert meter.money == pytest.approx(0.5 + 0.05 + 0.5 + 0.2)
    assert meter.retries == 2
    assert meter.in_flight == 0


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (Budget(calls=3), "3 calls"),
        (Budget(tokens=330), "330 tokens"),
        (Budget(money=0.00036), "$0.00"),
        (Budget(hours=1e-9), "hours"),
    ],
)
def test_a_limit_stops_new_calls(budget: Budget, words: str):
    halt = Halt()
    meter = Meter(budget, PRICE, halt)
    while not meter.over_budget():
        spend(meter, reply())
    with pytest.raises(Halted, match="budget"):
        meter.begin()
    assert words in halt.reason
    assert meter.usage.calls <= 3
    assert meter.in_flight == 0


def test_calls_in_flight_count_towards_the_limit_of_calls():
    meter = Meter(Budget(calls=2), None, Halt())
    meter.begin()
    meter.begin()
    with pytest.raises(Halted):
        meter.begin()
    assert meter.in_flight == 2


def test_earlier_starts_count():
    meter = Meter(Budget(tokens=100), None, Halt())
    meter.before = Usage(90, 10, 0, 1)
    with pytest.raises(Halted):
        meter.begin()


def test_money_needs_a_price():
    with pytest.raises(InputError, match=r"model\.price"):
        Meter(Budget(money=1), None, Halt())


class _Fails(Model):
    async def reply(self, request: Request) -> Reply:
        raise ContextOverflow("too long", attempts=6)


async def test_a_metered_model_passes_errors_on():
    meter = Meter(Budget(), None, Halt())
    with pytest.raises(ContextOverflow):
        await MeteredModel(_Fails(), meter).reply(Request(History()))
    assert meter.in_flight == 0
    assert meter.retries == 5
    assert meter.errors == {"ContextOverflow": 1}


def test_calls_without_a_count_are_taken_for_as_large_as_the_others():
    meter = Meter(Budget(tokens=110 * 100), PRICE, Halt())
    untold = Reply((Choice("hello"),), Usage(calls=1, unknown=1))
    while not meter.over_budget():
        spend(meter, reply())
        spend(meter, untold)
    assert meter.usage.calls == 100
    assert meter.usage.total == 110 * 50, "what is shown is what was counted"
    meter = Meter(Budget(), PRICE, Halt())
    meter.grant = Grant(tokens=1_100)
    while meter.within_grant():
        spend(meter, reply())
        spend(meter, untold)
    assert meter.usage.calls == 10


def test_what_was_not_counted_is_not_forgotten_by_a_marker():
    used = Usage(30, 10, 5, calls=8, unknown=6)
    assert usage_of(totals_of(used)) == used
    assert "unknown" not in totals_of(Usage(30, 10, 5, calls=8))
    later = Meter(Budget(tokens=1_000_000), PRICE, Halt())
    later.before = usage_of(totals_of(Usage(calls=500, unknown=500)))
    assert "--max-calls" in later.over_budget()


@pytest.mark.parametrize("budget", [Budget(tokens=1_000_000), Budget(money=5)])
def test_where_nothing_is_counted_no_budget_of_tokens_can_be_kept(budget: Budget):
    meter, free = Meter(budget, PRICE, Halt()), Meter(Budget(calls=1_000), PRICE, Halt())
    untold = Reply((Choice("hello"),), Usage(calls=1, unknown=1))
    while not (why := meter.over_budget()):
        spend(meter, untold)
        spend(free, untold)
        assert meter.usage.calls < 100
    assert "--max-calls" in why
    assert not free.over_budget()
