"""Where exactly a budget ends: the last call that fits and the first that does not."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from camel import Choice, Reply, Request, Usage
from camel.core.errors import ModelError, RateLimited, ServerFailed
from camel.core.history import History
from camel.core.model import Model
from camel.engine.halt import Halt, Halted
from camel.engine.site import Grant, ModelReport, WorkerReport, WorkerShare
from camel.jobs import budget as module
from camel.jobs.budget import UNCOUNTED, Budget, Meter, MeteredModel, ModelMeter
from camel.jobs.shares import Shares
from camel.models.governor import EndpointReport, Rates, Share
from camel.models.prices import ModelPrice
from camel.models.sharing import RENEWED
from tests.support.sharing import divide

PRICE = ModelPrice(input=1.0, output=2.0)
MODEL, URL = "simulated", "http://127.0.0.1:1/v1"


def metered(budget: Budget, used: Usage = Usage(), price: ModelPrice | None = PRICE) -> Meter:  # noqa: B008 - frozen
    """The meter of a job with one model, which has used so much."""
    meter = Meter(budget, Halt())
    model = meter.model(MODEL, price)
    model.usage = model.priced(used)
    return meter


# --- the meter -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "within", "reached"),
    [
        (Budget(tokens=100), Usage(90, 9, 0, 1), Usage(90, 10, 0, 1)),
        (Budget(calls=3), Usage(calls=2), Usage(calls=3)),
        (Budget(usd=3.0), Usage(1_000_000, 999_999, 0, 1), Usage(1_000_000, 1_000_000, 0, 1)),
        (
            Budget(tokens=100),
            Usage(calls=UNCOUNTED - 1, unknown=UNCOUNTED - 1),
            Usage(calls=UNCOUNTED, unknown=UNCOUNTED),
        ),
        (
            Budget(usd=3.0),
            Usage(calls=UNCOUNTED - 1, unknown=UNCOUNTED - 1),
            Usage(calls=UNCOUNTED, unknown=UNCOUNTED),
        ),
    ],
)
def test_a_limit_is_reached_at_its_value_and_not_before(budget: Budget, within: Usage, reached: Usage):
    assert metered(budget, within).over_budget() == ""
    assert metered(budget, reached).over_budget()


def test_hours_count_from_the_start_of_this_process(monkeypatch: pytest.MonkeyPatch):
    now = 1_000.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    meter = Meter(Budget(hours=2), Halt())
    now += 2 * 3600 - 1
    assert meter.over_budget() == ""
    now += 1
    assert "2 hours" in meter.over_budget()


def test_a_budget_of_some_models_is_looked_at_by_the_process_that_holds_the_run():
    for shared in (False, True):
        meter = Meter(Budget(), Halt(), shared=shared)
        for name in ("one", "two"):
            model = meter.model(name, PRICE)
            model.usage = model.priced(Usage(90, 10, 0, 1))
        meter.limits = {"the critic": (["two"], Budget(tokens=101))}
        assert meter.over_budget() == ""
        meter.limits = {"the critic": (["two"], Budget(tokens=100))}
        assert ("the critic" in meter.over_budget()) is not shared


def test_a_budget_names_its_unit():
    assert "1.5 hours" in module.used_up("hours", 1.5)
    assert "1,500 tokens" in module.used_up("tokens", 1_500)
    assert "$1.50" in module.used_up("usd", 1.5)


def test_money_counts_calls_whose_size_is_unknown():
    """Two calls, one of them without a count: the other one's price is taken twice."""
    used = Usage(1_000_000, 0, 0, calls=2, unknown=1)
    assert metered(Budget(usd=2.01), used).over_budget() == ""
    assert metered(Budget(usd=2.0), used).over_budget()
    assert metered(Budget(usd=2.0), used).money == pytest.approx(1.0), "what is shown is what was counted"


def test_money_of_earlier_attempts_counts_at_the_price_they_paid():
    meter = metered(Budget(usd=10.0), Usage(1_000_000))
    meter.before = Usage(0, 1_000_000, usd=6.0)
    assert meter.money == pytest.approx(1.0 + 6.0), "4 dollars more than it would cost today"
    assert meter.over_budget() == ""
    meter.before = Usage(0, 1_000_000, usd=9.0)
    assert "$10.00" in meter.over_budget()


def test_without_a_price_there_is_no_sum():
    assert metered(Budget(tokens=5), Usage(1), price=None).money is None
    assert Meter(Budget(), Halt()).money is None


@pytest.mark.parametrize("budget", [Budget(), Budget(calls=1000), Budget(hours=5)])
def test_replies_without_a_count_matter_only_to_budgets_of_tokens(budget: Budget):
    assert metered(budget, Usage(calls=500, unknown=500)).over_budget() == ""


@pytest.mark.parametrize(
    ("grant", "within"),
    [
        (None, True),
        (Grant(), True),
        (Grant(calls=4), True),
        (Grant(calls=3), False),
        (Grant(tokens=31), True),
        (Grant(tokens=30), False),
        (Grant(usd=50e-6), True),
        (Grant(usd=40e-6), False),
        (Grant(calls=3, tokens=31), False),
        (Grant(calls=4, tokens=30), False),
    ],
)
def test_a_call_needs_room_in_every_part_of_a_grant(grant: Grant | None, within: bool):
    meter = metered(Budget(), Usage(20, 10, 0, 1))
    meter.in_flight = 2
    meter.grant = grant
    assert meter.within_grant() is within


def test_a_grant_needs_no_price():
    meter = metered(Budget(tokens=1000), Usage(20, 10, 0, 1), price=None)
    meter.grant = Grant(tokens=100)
    assert meter.within_grant()


class Answers(Model):
    """Answers everything, and counts."""

    context_tokens = 4096

    def __init__(self) -> None:
        self.asked = 0

    async def reply(self, request: Request) -> Reply:
        self.asked += 1
        return Reply((Choice("a"),), Usage(20, 10, 0, 1))


async def wait_until_starved(meter: Meter) -> None:
    async with asyncio.timeout(60):
        while not meter.starved:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_call_waits_for_its_grant():
    model, meter = Answers(), metered(Budget(tokens=1000))
    meter.grant = Grant(tokens=0)
    call = asyncio.create_task(MeteredModel(model, meter.models[MODEL]).reply(Request(History())))
    await wait_until_starved(meter)
    assert (meter.starved, model.asked, meter.in_flight) == (1, 0, 0)
    meter.grant = Grant(tokens=1)
    async with asyncio.timeout(60):
        assert (await call).content == "a"
    assert (meter.starved, model.asked, meter.in_flight) == (0, 1, 0)
    assert meter.usage == Usage(20, 10, 0, 1, usd=4e-05)


async def test_a_halted_run_waits_for_no_grant():
    model, meter = Answers(), metered(Budget(tokens=1000))
    meter.grant = Grant(tokens=0)
    call = asyncio.create_task(MeteredModel(model, meter.models[MODEL]).reply(Request(History())))
    await wait_until_starved(meter)
    meter.halt.set("enough")
    async with asyncio.timeout(60):
        with pytest.raises(Halted, match="enough"):
            await call
    assert (meter.starved, model.asked, meter.in_flight) == (0, 0, 0)


def test_a_halted_run_makes_no_call_even_within_its_budget():
    meter = Meter(Budget(), Halt())
    meter.halt.set("enough")
    with pytest.raises(Halted, match="enough"):
        meter.begin()
    assert meter.in_flight == 0


def test_a_metered_model_has_the_window_of_its_model():
    meter = Meter(Budget(), Halt()).model(MODEL, None)
    assert MeteredModel(Answers(), meter).context_tokens == 4096

    class Plain(Model):
        async def reply(self, request: Request) -> Reply:
            raise NotImplementedError

    assert MeteredModel(Plain(), meter).context_tokens is None


def failed(model: ModelMeter, error: ModelError, *, attempts: int = 1, limited: int = 0) -> None:
    error.attempts, error.limited = attempts, limited
    model.meter.begin()
    model.end(None, error)


def test_attempts_that_were_rate_limited_are_counted_once():
    model = Meter(Budget(), Halt()).model(MODEL, None)
    failed(model, ServerFailed("down"), attempts=6, limited=4)
    assert (model.retries, model.rate_limited) == (5, 4)
    failed(model, RateLimited("slow"), attempts=2, limited=2)
    assert (model.retries, model.rate_limited) == (6, 6)
    failed(model, RateLimited("slow"))
    assert (model.retries, model.rate_limited) == (6, 7)
    model.meter.begin()
    model.end(Reply((Choice("a"),), Usage(1, 1, 0, 1), attempts=3, limited=2), None)
    assert (model.retries, model.rate_limited) == (8, 9)
    assert (model.report().retries, model.report().rate_limited) == (8, 9)


def test_a_budget_of_tokens_is_not_given_up_for_a_few_replies_without_a_count():
    assert 5 <= UNCOUNTED <= 100


# --- the shares of workers -------------------------------------------------------------------------------------------


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def shares(budget: Budget, before: Usage | None = None, **changes: object) -> Shares:
    settings: dict[str, object] = {"now": Clock(), **changes}
    return Shares(budget, {MODEL: Rates(ceiling=16)}, before=before or Usage(), **settings)  # type: ignore[arg-type]


def used(calls: int = 0, prompt: int = 0, *, in_flight: int = 0, starved: int = 0) -> WorkerReport:
    """What a worker reports that has used so much; it does not say which offer it follows."""
    usage = Usage(prompt, 0, 0, calls)
    models = {MODEL: ModelReport(replace(usage, usd=PRICE.cost(usage)))}
    return WorkerReport(models, in_flight=in_flight, starved=starved)


def grant_of(share: WorkerShare) -> Grant:
    assert share.grant is not None
    return share.grant


def test_a_worker_gets_a_part_of_every_budget_there_is():
    share = shares(Budget(calls=100, tokens=1000, usd=8.0), Usage(500_000, 250_000, 0, 20, usd=2.0))
    given_out, halt = divide(share, {"w": used()}, ["w"])
    grant = grant_of(given_out["w"])
    assert grant.calls == pytest.approx(40, abs=1), "half of what is left of the calls"
    assert grant.tokens == 0, "more tokens were used before than there are"
    assert grant.usd == pytest.approx(3.0, abs=0.01), "half of 8 without the 2 that were paid before"
    assert not halt


@pytest.mark.parametrize(
    ("before", "left"), [(Usage(500_000, 250_000, 0, 20), 7), (Usage(100, 0, 0, 20, 10), 6)]
)
def test_earlier_attempts_count_with_what_they_paid(before: Usage, left: float):
    """They paid 1 dollar, or 2 where half of their calls came without a count."""
    share = shares(Budget(usd=8.0), replace(before, usd=1.0))
    grant = grant_of(divide(share, {"w": used()}, ["w"])[0]["w"])
    assert grant.usd == pytest.approx(left / 2, abs=0.01)


def test_the_run_continues_while_there_is_a_call_left_to_give():
    share = shares(Budget(calls=3))
    given_out, halt = divide(share, {"w": used(starved=1)}, ["w"])
    assert (grant_of(given_out["w"]).calls, halt) == (2, ""), "the third call can still be given"
    given_out, halt = divide(share, {"w": used(2, starved=1)}, ["w"])
    assert (grant_of(given_out["w"]).calls, halt) == (3, ""), "and can be made"
    assert "calls" in divide(share, {"w": used(3, starved=1)}, ["w"])[1]


@pytest.mark.parametrize(
    ("budget", "words"), [(Budget(tokens=100), "100 tokens"), (Budget(usd=100e-6), "$0.00")]
)
def test_budgets_that_are_used_up_halt_the_run_when_a_worker_needs_more(budget: Budget, words: str):
    """100 tokens, which cost 100 millionths of a dollar."""
    share = shares(budget)
    for spent in (0, 50, 90):
        assert divide(share, {"w": used(1, spent)}, ["w"])[1] == ""
    assert divide(share, {"w": used(1, 100)}, ["w"])[1] == "", "nobody waits"
    halt = divide(share, {"w": used(1, 100, starved=1)}, ["w"])[1]
    assert words in halt


def test_calls_in_flight_are_used():
    share = shares(Budget(calls=100))
    first = grant_of(divide(share, {"w": used()}, ["w"])[0]["w"])
    again = grant_of(divide(share, {"w": used(in_flight=45)}, ["w"])[0]["w"])
    assert again.calls > first.calls, "what is in flight is topped up"


def test_a_starved_worker_is_no_reason_to_halt_while_there_is_room():
    share = shares(Budget(calls=100))
    assert divide(share, {"w": used(50, starved=1)}, ["w"])[1] == ""


def test_the_last_call_of_a_budget_is_given():
    share = shares(Budget(calls=2), Usage(calls=1))
    given_out, halt = divide(share, {"w": used(starved=1)}, ["w"])
    assert (grant_of(given_out["w"]).calls, halt) == (1, "")
    assert "calls" in divide(share, {"w": used(1, starved=1)}, ["w"])[1]


def test_a_worker_without_a_report_gets_its_part():
    given_out, _ = divide(shares(Budget(calls=100)), {}, ["new"])
    assert grant_of(given_out["new"]).calls >= 1


def endpoint(in_flight: int = 0, waiting: int = 20, has: int = 0) -> WorkerReport:
    return WorkerReport(endpoints={MODEL: {URL: EndpointReport(in_flight, waiting, has)}})


def part_of(share: WorkerShare) -> Share:
    """A worker's part of the endpoint."""
    part = share.endpoints[MODEL].shares[URL]
    assert part is not None
    return part


def test_a_silent_worker_keeps_its_part_until_its_lease_has_expired():
    share = shares(Budget())
    silent = endpoint(has=16)
    first, _ = divide(share, {"a": silent}, ["a"])
    assert part_of(first["a"]).ceiling == 16
    reports = {"a": silent, "b": endpoint()}
    share.hear("b", reports["b"])
    share.tick(reports, ["a", "b"], 2)
    assert part_of(share.share("b")).ceiling == 0, "all of it is still with the silent one"
    third, _ = divide(share, reports, ["b"])
    assert part_of(third["b"]).ceiling == 16


def test_a_part_says_how_long_it_holds_and_what_is_not_limited():
    given_out, _ = divide(shares(Budget()), {"w": endpoint()}, ["w"])
    part = part_of(given_out["w"])
    assert (part.ceiling, part.rpm, part.tpm, part.seconds) == (16, None, None, RENEWED)


def test_rates_are_divided_with_the_calls():
    share = Shares(Budget(), {MODEL: Rates(ceiling=16, rpm=60, tpm=6000)})
    given_out, _ = divide(share, {"a": endpoint(), "b": endpoint()}, ["a", "b"])
    parts = [part_of(given_out[worker]) for worker in "ab"]
    assert [(part.rpm, part.tpm) for part in parts] == [(30, 3000), (30, 3000)]


def test_a_report_sums_up_what_was_used_of_all_models():
    big, small = ModelReport(Usage(20, 10, 5, 3, 1, usd=0.5)), ModelReport(Usage(1, 1, 0, 1, usd=0.25))
    assert WorkerReport({"big": big, "small": small}).usage == Usage(21, 11, 5, 4, 1, usd=0.75)
    assert WorkerReport().usage == Usage()
