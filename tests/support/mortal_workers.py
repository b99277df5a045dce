"""A cluster of simulated workers that die, with the real coordinator, budget, meters and accounts.

A clock of its own and one list of events: a seed is a whole history. The ledger counts calls as an endpoint would bill
them, when they are sent, whatever happens to the sender.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Literal, NamedTuple

from camel.core.message import Usage
from camel.core.model import Choice, Price, Reply
from camel.engine.coordinator import Coordinator
from camel.engine.halt import Halt
from camel.engine.site import Heartbeat, HeartbeatReply, Turn, WorkerReport
from camel.jobs.account import ACCOUNTS, Account
from camel.jobs.budget import Budget, Meter
from camel.jobs.shares import Shares
from camel.models.governor import EndpointReport, Rates

MODEL = "simulated"
URL = "http://127.0.0.1:1/v1"
TTL = 5.0
Death = Literal["killed", "silent", "frozen", "power cut"]
"""Killed: the cluster says so at once. Silent: its lease runs out. Frozen: so it does, and then it wakes up. Power cut:
silent, and its account is the one that was there some seconds before."""


class Ledger(NamedTuple):
    """What the endpoint would bill."""

    calls: int
    tokens: int
    deaths: int


class MortalCluster:
    """Runs until the budget is used up."""

    def __init__(
        self,
        seed: int,
        root: Path,
        budget: Budget,
        *,
        workers: int,
        window: int,
        ceiling: int,
        deaths: int,
        kinds: tuple[Death, ...],
        idle: float = 0.0,
        price: Price | None = None,
    ) -> None:
        """`window` and `ceiling` are conversations and calls in flight of all workers together; `idle` is the part of
        workers that have nothing to do once they have made some calls.
        """
        self.chance, self.root, self.kinds, self.idle = random.Random(seed), root, kinds, idle
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()
        self._names = count()
        rates = {MODEL: Rates(ceiling=ceiling)}
        shares = Shares(budget, rates, accounts=root, now=lambda: self.now)
        self.coordinator = Coordinator(window, ttl=TTL, share=shares, now=lambda: self.now)
        self.coordinator.begin(Turn(1, (0,)), 1000, ())
        self.wanted, self.deaths, self.died = workers, deaths, 0
        self.budget, self.price = budget, price
        self.calls = self.tokens = 0
        self.living: list[SimulatedWorker] = []
        self.halted = ""

    def at(self, seconds: float, event: Callable[[], object]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), event))

    def run(self, most: float = 3600.0) -> Ledger:
        """Run to the end, which must come within `most` seconds of its clock."""
        for _ in range(self.wanted):
            self.start()
        self._look()
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            assert self.now < most, "the budget is never used up"
            event()
        assert "is used up" in self.halted
        return Ledger(self.calls, self.tokens, self.died)

    def start(self) -> None:
        if not self.halted:
            worker = SimulatedWorker(self, f"w{next(self._names)}")
            self.living.append(worker)
            worker.beat()

    def bill(self, tokens: int) -> None:
        """A call arrives at the endpoint."""
        self.calls, self.tokens = self.calls + 1, self.tokens + tokens
        part = self._part_used()
        # Spread over the whole run, the last shortly before its end.
        while self.died < self.deaths and self.living and self.died < part * self.deaths / 0.98:
            self.kill(self.chance.choice(self.living))

    def _part_used(self) -> float:
        budget, money = self.budget, self.price.cost(Usage(self.tokens)) if self.price else 0.0
        return max(
            self.calls / (budget.calls or math.inf),
            self.tokens / (budget.tokens or math.inf),
            money / (budget.usd or math.inf),
        )

    def kill(self, worker: SimulatedWorker) -> None:
        self.died += 1
        self.living.remove(worker)
        kind = self.chance.choice(self.kinds)
        worker.asleep = kind == "frozen"
        worker.alive = worker.asleep
        if kind == "killed":
            self.at(self.chance.uniform(0, 0.5), lambda: self.coordinator.lost(worker.name))
        elif kind == "frozen":
            self.at(TTL + self.chance.uniform(-1, 5), worker.wake)
        elif kind == "power cut":
            path = self.root / ACCOUNTS / worker.name
            path.write_bytes(worker.old_account)
        self.at(self.chance.uniform(0.5, 2), self.start)

    def _look(self) -> None:
        self.halted = self.coordinator.look(0, self.wanted).halt
        if not self.halted or any(worker.sent for worker in self.living):
            self.at(0.5, self._look)


class SimulatedWorker:
    """Has a call in flight for each conversation of its window, as far as it may."""

    def __init__(self, cluster: MortalCluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.alive, self.asleep = True, False
        self.replies: list[int] = []
        """What has come while it was asleep."""
        self.halt = Halt()
        self.meter = Meter(Budget(), self.halt, shared=True)
        self.model = self.meter.model(MODEL, cluster.price)
        self.account = Account(cluster.root, name)
        self.old_account = (cluster.root / ACCOUNTS / name).read_bytes()
        self.lease, self.offer = 0.0, 0
        self.window = self.open = self.ceiling = self.waiting = self.sent = 0
        self.speed = cluster.chance.lognormvariate(0, 0.7)
        others = any(worker.wishes > 30 for worker in cluster.living)
        idle = others and cluster.chance.random() < cluster.idle
        self.wishes = cluster.chance.randint(1, 30) if idle else 10**9
        """Calls that it makes before it has nothing to do; one of the living always has something."""

    def report(self) -> WorkerReport:
        return WorkerReport(
            {MODEL: self.model.report()},
            endpoints={MODEL: {URL: EndpointReport(self.sent, self.waiting, self.ceiling)}},
            in_flight=self.meter.in_flight,
            starved=self.meter.starved,
            follows=self.offer,
            account=self.account.number,
        )

    def beat(self) -> None:
        if not self.alive or self.asleep:
            return
        cluster, chance = self.cluster, self.cluster.chance
        if chance.random() < 0.2:
            self.old_account = (cluster.root / ACCOUNTS / self.name).read_bytes()
        sent = cluster.now
        beat = Heartbeat(self.name, 1, self.report(), open=max(self.open, self.window))
        orders = cluster.coordinator.beat(beat)
        if chance.random() < 0.97:  # else the answer is lost
            cluster.at(chance.uniform(0.001, 0.05), lambda: self.follow(orders, sent))
        if not cluster.halted or self.sent:
            cluster.at(chance.uniform(0.8, 1.2), self.beat)

    def follow(self, orders: HeartbeatReply, sent: float) -> None:
        if orders.out:
            self.alive = False
        if (
            not self.alive or self.asleep
        ):  # what comes while it sleeps is lost: the answer is not waited for that long
            return
        self.lease = sent + orders.ttl
        if orders.halt:
            self.halt.set(orders.halt)
        self.window = orders.window
        share = orders.share
        self.meter.grant, self.offer = share.grant, share.offer
        part = share.endpoints[MODEL].shares.get(URL)
        self.ceiling = int(part.ceiling) if part else 0
        self.meter.starved = 0  # all of them look again
        self.go_on()

    def go_on(self) -> None:
        """Begin what may be begun."""
        meter = self.meter
        while self.open < self.window and self.wishes > 0 and not self.halt.reason:
            if not meter.within_grant():
                meter.starved = self.window - self.open
                break
            meter.begin()
            self.open, self.waiting, self.wishes = self.open + 1, self.waiting + 1, self.wishes - 1
        while self.waiting and self.sent < self.ceiling:
            self.waiting, self.sent = self.waiting - 1, self.sent + 1
            self.send()

    def send(self) -> None:
        """What the gate does, and the call itself."""
        cluster = self.cluster
        self.account.write(self.meter.usage, self.sent)
        if self.lease < cluster.now:
            self.open, self.sent = self.open - 1, self.sent - 1
            self.model.end(None, None)
            return
        tokens = cluster.chance.randint(50, 150)
        seconds = self.speed * cluster.chance.lognormvariate(-1.5, 0.8)
        cluster.at(seconds, lambda: self.end(tokens))
        cluster.bill(tokens)

    def end(self, tokens: int) -> None:
        if not self.alive or self.asleep:
            self.replies.append(tokens)
            return
        self.open, self.sent = self.open - 1, self.sent - 1
        self.model.end(Reply((Choice(""),), self.model.priced(Usage(prompt=tokens, calls=1))), None)
        self.go_on()

    def wake(self) -> None:
        """Continue after the lease has expired, without noticing it."""
        self.asleep = False
        replies, self.replies = self.replies, []
        for tokens in replies:
            self.end(tokens)
        self.go_on()
        self.beat()
