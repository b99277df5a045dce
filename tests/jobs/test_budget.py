"""The meter: what it counts of one model and of several, and when it stops a run."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from camel import Choice, InputError, Reply, Request, Usage
from camel.core.errors import ContextOverflow, ServerFailed
from camel.core.history import History
from camel.core.model import Model
from camel.engine.halt import Halt, Halted
from camel.engine.site import Grant, ModelReport, WorkerReport
from camel.jobs.budget import Budget, Meter, MeteredModel, ModelMeter
from camel.jobs.ledger import MONEY, Counted, totals_of, usage_of
from camel.models.prices import ModelPrice
from camel.runs.markers import Marker

PRICE = ModelPrice(input=1.0, output=2.0, cached=0.1)


def reply(prompt: int = 100, completion: int = 10, cached: int = 0, attempts: int = 1) -> Reply:
    return Reply((Choice("hello"),), Usage(prompt, completion, cached, 1), attempts=attempts)


def metered(budget: Budget, price: ModelPrice | None = PRICE) -> tuple[Meter, ModelMeter]:
    """A meter, and that of its only model."""
    meter = Meter(budget, Halt())
    return meter, meter.model("simulated", price)


def spend(model: ModelMeter, answer: Reply) -> None:
    model.meter.begin()
    model.end(replace(answer, usage=model.priced(answer.usage)), None)


def test_it_counts_all_starts():
    meter, model = metered(Budget())
    meter.before = model.priced(Usage(1_000_000, 0, 500_000, 7))
    spend(model, reply(500_000, 100_000, attempts=3))
    assert meter.usage == model.priced(Usage(500_000, 100_000, 0, 1))
    assert meter.money == pytest.approx(0.5 + 0.05 + 0.5 + 0.2)
    assert model.retries == 2
    assert meter.in_flight == 0


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (Budget(calls=3), "3 calls"),
        (Budget(tokens=330), "330 tokens"),
        (Budget(usd=0.00036), "$0.00"),
        (Budget(hours=1e-9), "hours"),
    ],
)
def test_a_limit_stops_new_calls(budget: Budget, words: str):
    meter, model = metered(budget)
    while not meter.over_budget():
        spend(model, reply())
    with pytest.raises(Halted, match="budget"):
        meter.begin()
    assert words in meter.halt.reason
    assert meter.usage.calls <= 3
    assert meter.in_flight == 0


def test_calls_in_flight_count_towards_the_limit_of_calls():
    meter, _ = metered(Budget(calls=2), None)
    meter.begin()
    meter.begin()
    with pytest.raises(Halted):
        meter.begin()
    assert meter.in_flight == 2


def test_earlier_starts_count():
    meter, _ = metered(Budget(tokens=100), None)
    meter.before = Usage(90, 10, 0, 1)
    with pytest.raises(Halted):
        meter.begin()


def test_money_needs_a_price():
    with pytest.raises(InputError, match=r"model\.price"):
        metered(Budget(usd=1), None)


class _Fails(Model):
    async def reply(self, request: Request) -> Reply:
        raise ContextOverflow("too long", attempts=6)


async def test_a_metered_model_passes_errors_on():
    meter, model = metered(Budget(), None)
    with pytest.raises(ContextOverflow):
        await MeteredModel(_Fails(), model).reply(Request(History()))
    assert meter.in_flight == 0
    assert model.retries == 5
    assert meter.errors == model.errors == {"ContextOverflow": 1}


def test_calls_without_a_count_are_taken_for_as_large_as_the_others():
    meter, model = metered(Budget(tokens=110 * 100))
    uncounted = Reply((Choice("hello"),), Usage(calls=1, unknown=1))
    while not meter.over_budget():
        spend(model, reply())
        spend(model, uncounted)
    assert meter.usage.calls == 100
    assert meter.usage.total == 110 * 50, "what is shown is what was counted"
    meter, model = metered(Budget())
    meter.grant = Grant(tokens=1_100)
    while meter.within_grant():
        spend(model, reply())
        spend(model, uncounted)
    assert meter.usage.calls == 10


def test_what_was_not_counted_is_not_forgotten_by_a_marker():
    used = Usage(30, 10, 5, calls=8, unknown=6)
    assert usage_of(totals_of(used)) == used
    assert "unknown" not in totals_of(Usage(30, 10, 5, calls=8))
    later, _ = metered(Budget(tokens=1_000_000))
    later.before = usage_of(totals_of(Usage(calls=500, unknown=500)))
    assert "--budget-calls" in later.over_budget()


def test_a_marker_that_does_not_say_what_it_cost_counts_at_the_price_of_today():
    used, counted = Usage(1_000_000, 0, 0, 3), Counted()
    for shard, money in enumerate((None, 5.0, 0.0)):
        totals = totals_of(replace(used, usd=money or 0.0), priced=money is not None)
        assert (MONEY in totals) is (money is not None)
        counted.add(
            Marker("conversations", shard, "data/conversations/0", 1, "", "f", totals),
            lambda usage: replace(usage, usd=PRICE.cost(usage)),
        )
    assert counted.usage == Usage(3_000_000, 0, 0, 9, usd=1.0 + 5.0 + 0.0)


@pytest.mark.parametrize("budget", [Budget(tokens=1_000_000), Budget(usd=5)])
def test_where_nothing_is_counted_no_budget_of_tokens_can_be_kept(budget: Budget):
    (meter, model), (free, model_of_free) = metered(budget), metered(Budget(calls=1_000))
    uncounted = Reply((Choice("hello"),), Usage(calls=1, unknown=1))
    while not (why := meter.over_budget()):
        spend(model, uncounted)
        spend(model_of_free, uncounted)
        assert meter.usage.calls < 100
    assert "--budget-calls" in why
    assert not free.over_budget()


# --- several models --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("uncounted", [0, 1])
def test_the_models_together_keep_within_the_money(uncounted: int):
    meter = Meter(Budget(usd=10.0), Halt())
    models = [meter.model(name, ModelPrice(2e6, 0.0)) for name in ("a", "b")]  # two dollars for one token
    replies = [Reply((Choice("yes"),), Usage(1, 0, 0, 1))] * 2
    if uncounted:  # of every two replies, one does not say what it took
        replies[1] = Reply((Choice("yes"),), Usage(calls=1, unknown=1))
    calls = 0

    def call() -> None:
        nonlocal calls
        spend(models[calls % 2], replies[calls % 2])
        calls += 1

    while not meter.over_budget():
        call()
        assert calls < 100
    with pytest.raises(Halted, match=r"\$10\.00"):
        call()
    assert calls in (5, 6)
    assert meter.halt.reason


def test_each_model_has_its_price_and_its_counts():
    meter = Meter(Budget(), Halt())
    assert meter.money is None, "nothing is known of a job without a model"
    cheap, dear = meter.model("cheap", PRICE), meter.model("dear", ModelPrice(input=10.0, output=20.0))
    assert meter.model("cheap", None) is cheap, "the same for the same name"
    for model in (cheap, dear, dear):
        spend(model, reply(1_000_000, 0, attempts=2))
    meter.begin()
    dear.end(None, ServerFailed("down"))
    assert (meter.usage, cheap.usage.calls, dear.usage.calls) == (Usage(3_000_000, 0, 0, 3, usd=21.0), 1, 2)
    assert (meter.errors, cheap.errors, dear.errors) == ({"ServerFailed": 1}, {}, {"ServerFailed": 1})
    assert (cheap.retries, dear.retries, meter.in_flight) == (1, 2, 0)
    assert meter.money == pytest.approx(1.0 + 20.0)
    meter.model("unknown", None)
    assert meter.money is None


def test_a_grant_counts_each_model_at_its_price():
    meter = Meter(Budget(), Halt())
    cheap, dear = meter.model("cheap", PRICE), meter.model("dear", ModelPrice(input=10.0, output=20.0))
    spend(cheap, reply(1_000_000, 0))
    spend(dear, reply(1_000_000, 0))
    spend(dear, Reply((Choice("hello"),), Usage(calls=1, unknown=1)))
    meter.grant = Grant(usd=16.51)
    assert meter.within_grant()
    meter.grant = Grant(usd=16.5)
    assert not meter.within_grant(), "two calls for 11 dollars, and one without a count"


def test_a_budget_in_dollars_needs_the_price_of_each_model():
    meter = Meter(Budget(usd=1), Halt())
    meter.model("known", PRICE)
    with pytest.raises(InputError, match=r"\bodd\b.*model\.price"):
        meter.model("odd", None)


def test_a_model_that_serves_nobody_is_named_though_another_serves():
    meter = Meter(Budget(), Halt())
    for name, served, rejected in (("good", 5, 1), ("unasked", 0, 0), ("bad", 0, 3)):
        assert meter.rejected() == ""
        failures = meter.model(name, None).failures
        failures.served, failures.rejected, failures.words = served, rejected, f"no such model: {name}"
    assert "no such model: bad" in meter.rejected()


def test_a_driver_takes_over_what_its_workers_report():
    meter, model = metered(Budget(calls=100))
    told = model.report()
    assert told.usage == Usage()
    told = ModelReport(Usage(10, 5, 0, 30), {"ServerFailed": 2}, 3, 4, 28, 2, True, 0.0, "down")
    meter.take(WorkerReport({"simulated": told, "other": told}, in_flight=7))
    assert (meter.usage, meter.errors, meter.in_flight) == (Usage(10, 5, 0, 30), {"ServerFailed": 2}, 7)
    assert (model.retries, model.rate_limited) == (3, 4)
    assert (model.failures.served, model.failures.rejected, model.failures.words) == (28, 2, "down")
    assert list(meter.models) == ["simulated"], "what is not the job's is not counted"
    meter.take(WorkerReport({"simulated": told}, in_flight=70))
    assert "100 calls" in meter.over_budget()
