"""A run's budget and endpoints among workers: never more than there is, and none of it idle."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from camel.core.message import Usage
from camel.core.model import Choice, Reply
from camel.engine.halt import Halt
from camel.engine.site import ModelReport, WorkerReport, WorkerShare
from camel.jobs.budget import Budget, Meter
from camel.jobs.shares import Claim, SharedBudget, Shares, _BudgetPiece
from camel.models.governor import EndpointReport, Rates, Share
from camel.models.prices import ModelPrice
from tests.support.sharing import divide

MODEL, URL = "simulated", "http://127.0.0.1:1/v1"


def ceiling_of(share: WorkerShare, model: str = MODEL) -> float:
    part = share.endpoints[model].shares[URL]
    assert part is not None
    return part.ceiling


class Worker:
    """Uses all that it is allowed, and says so."""

    def __init__(self) -> None:
        self.calls = self.tokens = 0
        self.share: WorkerShare | None = None
        """None: a worker begins with a heartbeat."""

    @property
    def starved(self) -> bool:
        grant = self.share.grant if self.share else None
        return bool(grant and (self.calls >= grant.calls or self.tokens >= grant.tokens))

    def work(self, calls: int) -> None:
        for _ in range(calls if self.share else 0):
            if self.starved:
                return
            self.calls, self.tokens = self.calls + 1, self.tokens + 10

    def report(self, busy: int = 5) -> WorkerReport:
        parts = self.share.endpoints if self.share else {}
        part = parts[MODEL].shares.get(URL) if parts else None
        ceiling = int(part.ceiling) if part else 0
        return WorkerReport(
            {MODEL: ModelReport(Usage(prompt=self.tokens, calls=self.calls))},
            endpoints={MODEL: {URL: EndpointReport(0, busy, ceiling)}},
            starved=int(self.starved),
        )


def shares(budget: Budget, before: Usage | None = None) -> Shares:
    clock = iter(range(10**6))
    return Shares(
        budget, {MODEL: Rates(ceiling=16)}, before=before or Usage(), now=lambda: float(next(clock))
    )


@given(
    st.integers(1, 400),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30), st.booleans()), max_size=40),
)
def test_a_budget_of_calls_is_never_exceeded_when_workers_die(total: int, moves: list[tuple[int, int, bool]]):
    share = shares(Budget(calls=total))
    workers = {f"w{n}": Worker() for n in range(6)}
    reports: dict[str, WorkerReport] = {}
    dead: set[str] = set()
    for number, calls, dies in moves:
        name = f"w{number}"
        if name in dead:
            continue
        workers[name].work(calls)
        if dies:
            dead.add(name)
        else:
            reports[name] = workers[name].report()
        live = [worker for worker in workers if worker not in dead]
        given_out, _ = divide(share, reports, live)
        for worker, its in given_out.items():
            workers[worker].share = its
    assert sum(worker.calls for worker in workers.values()) <= total


def test_a_budget_is_used_to_the_end_and_then_the_run_halts():
    share, workers = shares(Budget(calls=100), Usage(calls=40)), {f"w{n}": Worker() for n in range(4)}
    halt = ""
    for _ in range(60):
        given_out, halt = divide(
            share, {name: worker.report() for name, worker in workers.items()}, list(workers)
        )
        for name, worker in workers.items():
            worker.share = given_out[name]
            worker.work(7)
        if halt:
            break
    assert "calls" in halt
    assert sum(worker.calls for worker in workers.values()) == pytest.approx(60, abs=4)


def test_endpoints_are_divided_and_the_parts_of_the_dead_are_given_away():
    share, workers = shares(Budget()), {f"w{n}": Worker() for n in range(4)}

    def ceilings(live: list[str], rounds: int) -> dict[str, float]:
        given_out: Mapping[str, WorkerShare] = {}
        for _ in range(rounds):
            reports = {name: workers[name].report(busy=20) for name in live}
            given_out, halt = divide(share, reports, live)
            assert not halt
            assert sum(map(ceiling_of, given_out.values())) <= 16
            for name in live:
                workers[name].share = given_out[name]
        return {name: ceiling_of(given_out[name]) for name in live}

    assert set(ceilings(list(workers), 8).values()) == {4.0}
    assert set(ceilings(["w0", "w1"], 8).values()) == {8.0}


def test_without_limits_nothing_is_granted_but_endpoints():
    worker = Worker()
    given_out, halt = divide(shares(Budget()), {"w": worker.report()}, ["w"])
    assert given_out["w"].grant is None
    assert ceiling_of(given_out["w"]) == 16
    assert not halt


def test_each_model_has_limits_of_its_own_at_the_same_address():
    share = Shares(Budget(), {"small": Rates(ceiling=16, rpm=60), "big": Rates(ceiling=4)}, now=lambda: 0.0)
    busy: dict[str, EndpointReport | None] = {URL: EndpointReport(waiting=20)}
    reports = {
        "a": WorkerReport(endpoints={"small": busy, "big": busy}),
        "b": WorkerReport(endpoints={"small": busy}),
    }
    given_out, _ = divide(share, reports, ["a", "b"])
    assert [ceiling_of(given_out[worker], "small") for worker in "ab"] == [8, 8]
    rates = [given_out[worker].endpoints["small"].shares[URL] for worker in "ab"]
    assert [one.rpm for one in rates if one] == [30, 30]
    assert ceiling_of(given_out["a"], "big") == 4
    assert "big" not in given_out["b"].endpoints


@given(st.lists(st.sampled_from(["", "reply lost", "arrives"]), max_size=20))
def test_shares_that_did_not_arrive_are_sent_again(fates: list[str]):
    """Only what has changed is sent, and a worker whose last reply arrived has the coordinator's present state."""
    share = Shares(Budget(), {MODEL: Rates(rpm=600)}, now=lambda: 0.0)
    known: Share | None = None
    received, number = 0, 0
    for others, fate in enumerate([*fates, "arrives"]):
        number += 1
        mine: dict[str, dict[str, EndpointReport | None]] = {MODEL: {URL: EndpointReport(1)}}
        share.hear("w", WorkerReport(endpoints=mine, number=number, received=received))
        share.hear(f"other{others}", WorkerReport(endpoints=mine, number=1))
        share.tick({}, ["w", *(f"other{before}" for before in range(others + 1))], 1)
        if not fate:
            continue
        sent = share.share("w")
        assert sent.heard == number
        if fate == "arrives":
            received = sent.number
            known = sent.endpoints[MODEL].shares.get(URL, known)
            assert known is not None
            assert known.rpm == pytest.approx(600 / (others + 2))
    share.hear("w", WorkerReport(number=number + 1, received=received))
    assert share.share("w").endpoints[MODEL].shares == {}, "what has arrived is not sent again"
    share.hear("w", WorkerReport(endpoints={MODEL: {URL: EndpointReport(9)}}, number=1))
    assert share.endpoints()[MODEL][URL] == EndpointReport(len(fates) + 2), "a late report changes nothing"


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.integers(1, 3), st.integers(1, 1_000))
def test_a_worker_and_the_coordinator_agree_on_when_a_budget_of_dollars_is_used_up(
    counted: list[bool], workers: int, tokens: int
):
    """Of two models at different prices, some replies come without a count."""
    budget = 3e-4 * tokens
    share, halt = Shares(Budget(usd=budget), {}), ""
    meters = {f"w{number}": Meter(Budget(), Halt(), shared=True) for number in range(workers)}
    offers = dict.fromkeys(meters, 0)
    prices = {"cheap": ModelPrice(1.0, 1.0), "dear": ModelPrice(7.0, 7.0)}
    replies = cycle(
        Reply((Choice("yes"),), Usage(tokens, 0, 0, 1) if known else Usage(calls=1, unknown=1))
        for known in (True, True, *counted)
    )
    for _ in range(300):
        reports = {
            worker: WorkerReport(
                {name: one.report() for name, one in meter.models.items()},
                starved=int(not meter.within_grant()),
                follows=offers[worker],
            )
            for worker, meter in meters.items()
        }
        given_out, halt = divide(share, reports, list(meters))
        if halt:
            break
        for worker, meter in meters.items():
            meter.grant, offers[worker] = given_out[worker].grant, given_out[worker].offer
            for name, price in prices.items():
                if meter.within_grant():
                    meter.begin()
                    model, reply = meter.model(name, price), next(replies)
                    model.end(replace(reply, usage=model.priced(reply.usage)), None)
    assert "is used up" in halt, "a worker waits forever for what the coordinator thinks it has"


def test_a_worker_that_has_not_heard_of_the_last_piece_may_still_use_it():
    budget = SharedBudget(1, spent=0, least=1)
    claims = {name: Claim(0, starved=True, follows=0) for name in ("one", "other")}
    assert not budget.divide(claims, 1)
    assert [budget.pieces[name].offered for name in claims] == [1, 0]


@pytest.mark.parametrize(("used", "offered"), [(30, 40), (31, 51)])
def test_a_piece_is_topped_up_when_less_than_half_of_it_is_unused(used: int, offered: int):
    budget = SharedBudget(80, spent=0, least=1)
    budget.divide({"one": Claim(0, starved=False, follows=0)}, 1)
    assert budget.pieces["one"].offered == 40
    budget.divide({"one": Claim(used, starved=False, follows=1)}, 2)
    assert budget.pieces["one"].offered == offered


def test_the_last_call_of_a_worker_that_does_not_need_it_is_taken_back():
    budget = SharedBudget(3, spent=0, least=1)
    budget.pieces["idle"] = _BudgetPiece(offered=3, granted=3, used=2, raised=1, follows=1)
    claims = {"idle": Claim(2, starved=False, follows=1), "waits": Claim(0, starved=True, follows=1)}
    assert not budget.divide(claims, 2)
    assert budget.pieces["idle"].offered == 2
