"""A run's budget and endpoints among workers: never more than there is, and none of it idle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel.core.message import Usage
from camel.engine.site import WorkerReport
from camel.jobs.budget import Budget
from camel.jobs.shares import ENDPOINT, Shares, allowed, granted
from camel.models.catalogue import ModelPrice
from camel.models.governor import Rates
from camel.models.sharing import flat

URL = "http://127.0.0.1:1/v1"


class Worker:
    """Uses all that it is allowed, and says so."""

    def __init__(self) -> None:
        self.calls = self.tokens = 0
        self.share: dict[str, float] = {}

    def work(self, calls: int) -> None:
        grant = granted(self.share)
        for _ in range(calls if self.share else 0):  # a worker begins with a heartbeat
            if grant and (self.calls >= grant.calls or self.tokens >= grant.tokens):
                return
            self.calls, self.tokens = self.calls + 1, self.tokens + 10

    def report(self, busy: int = 5) -> WorkerReport:
        grant = granted(self.share)
        starved = bool(grant and (self.calls >= grant.calls or self.tokens >= grant.tokens))
        endpoints = allowed(self.share)
        ceiling = endpoints[URL].ceiling if endpoints else 0.0
        endpoint = {"in_flight": 0.0, "waiting": float(busy), "allowed": ceiling}
        gauges = {"starved": float(starved), **{ENDPOINT + k: v for k, v in flat({URL: endpoint}).items()}}
        return WorkerReport({"calls": float(self.calls), "prompt": float(self.tokens)}, gauges)


def shares(budget: Budget, before: Usage | None = None) -> Shares:
    clock = iter(range(10**6))
    return Shares(
        budget,
        ModelPrice(input=1.0, output=1.0),
        before or Usage(),
        Rates(ceiling=16),
        now=lambda: float(next(clock)),
    )


@given(
    st.integers(1, 400),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30), st.booleans()), max_size=40),
)
def test_a_budget_of_calls_is_never_passed_whoever_dies(total: int, moves: list[tuple[int, int, bool]]):
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
        given_out, _ = share(reports, live)
        for worker, its in given_out.items():
            workers[worker].share = dict(its)
    assert sum(worker.calls for worker in workers.values()) <= total


def test_a_budget_is_used_to_the_end_and_then_the_run_halts():
    share, workers = shares(Budget(calls=100), Usage(calls=40)), {f"w{n}": Worker() for n in range(4)}
    halt = ""
    for _ in range(60):
        given_out, halt = share({name: worker.report() for name, worker in workers.items()}, list(workers))
        for name, worker in workers.items():
            worker.share = dict(given_out[name])
            worker.work(7)
        if halt:
            break
    assert "calls" in halt
    assert sum(worker.calls for worker in workers.values()) == pytest.approx(60, abs=4)


def test_endpoints_are_divided_and_the_parts_of_the_dead_are_given_away():
    share, workers = shares(Budget()), {f"w{n}": Worker() for n in range(4)}

    def ceilings(live: list[str], rounds: int) -> dict[str, float]:
        for _ in range(rounds):
            reports = {name: workers[name].report(busy=20) for name in live}
            given_out, halt = share(reports, live)
            assert not halt
            assert sum(allowed(its)[URL].ceiling for its in given_out.values()) <= 16
            for name in live:
                workers[name].share = dict(given_out[name])
        return {name: allowed(workers[name].share)[URL].ceiling for name in live}

    assert set(ceilings(list(workers), 8).values()) == {4.0}
    assert set(ceilings(["w0", "w1"], 8).values()) == {8.0}


def test_without_limits_nothing_is_granted_but_endpoints():
    worker = Worker()
    given_out, halt = shares(Budget())({"w": worker.report()}, ["w"])
    assert granted(given_out["w"]) is None
    assert allowed(given_out["w"])[URL].ceiling == 16
    assert not halt
