"""A run of 300 million conversations on a virtual clock: hours, dollars, repeated calls and put requests, with faults.

    python -m benchmarks.simulated_run            # 300 million conversations, without faults and with them: minutes
    python -m benchmarks.simulated_run --short    # 3 million

The cluster is that of docs/operations.md, by `plan_cluster`. Coordinator, leases and windows are the real ones. Workers are
simulated and lease as the real worker does: the next shard as soon as the last item of the one before has started. Every
conversation is simulated: its calls take a gamma-distributed time together. Nodes die with their disks and are replaced, the
endpoint has outages, and the run is stopped for upgrades. Conversations continue from their journals; calls in flight on a dead
node, and replies that were not copied yet, are paid for again.

A perfect schedule keeps all slots busy until the end of each stage. Put requests are counted in each hundredth shard, by the
times of its calls: one for each half of `copy_every` in which its journal grew. `benchmarks.scale` measures the memory of
driver and coordinator, and `benchmarks.control_plane` the cost of heartbeats, which are rare here.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from camel import GenerateConfig, ModelSpec, plan_cluster
from camel.engine.coordinator import Coordinator
from camel.engine.site import WAIT, Heartbeat, Turn, WorkerReport
from camel.generation.capacity import ClusterPlan
from camel.generation.config import Assumptions
from camel.generation.plan import StagePlan

HOUR, DAY = 3600.0, 86_400.0
SPREAD = 0.66
"""Standard deviation of a call's seconds, as a part of their mean."""
NOTICED, REPLACED = 10.0, 600.0
"""Seconds until the shards of a dead node are free, and until another node has taken its place."""
OUTAGE, RESTART = 1_200.0, 120.0
"""Seconds of an outage of the endpoint, and from the stop of a run until its workers call again."""
BEAT = 1_200.0
"""Seconds between two heartbeats; the real rate would need 250 million of them."""
EVERY = {"node": 30 * DAY, "endpoint": 7 * DAY, "upgrade": 10 * DAY}
"""Seconds between two faults: of each node, of the endpoint, and of the run as a whole."""
SAMPLED = 100

Times = NDArray[np.float64]


@dataclass
class Open:
    """A shard in progress."""

    starts: Times
    ends: Times


@dataclass
class Worker:
    name: str
    node: int
    slots: list[float] = field(default_factory=list[float])
    """When each slot is free, as a heap."""
    shards: dict[int, Open] = field(default_factory=dict[int, Open])
    requests: int = 0
    dead: bool = False


@dataclass
class Figures:
    """What a simulated run came to."""

    seconds: float = 0.0
    perfect: float = 0.0
    calls: float = 0.0
    repaid: float = 0.0
    puts: float = 0.0
    copies: float = 0.0
    faults: dict[str, int] = field(default_factory=dict[str, int])
    cpu: float = 0.0
    """CPU seconds of the coordinator for leases, commits and the driver's looks."""


class Simulation:
    """All stages of a run, one after the other."""

    def __init__(self, plan: ClusterPlan, *, faults: bool, copy_every: float, seed: int) -> None:
        self.plan, self.copy_every, self.random = plan, copy_every, np.random.default_rng(seed)
        self.now, self.figures = 0.0, Figures()
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order, self._names = itertools.count(), itertools.count()
        self._workers: dict[str, Worker] = {}
        self._turn = 0
        self._coordinator = self._new_coordinator()
        for number in range(plan.workers):
            self._join(number % plan.nodes)
        if faults:
            for kind, every in EVERY.items():
                self._next_fault(kind, every / plan.nodes if kind == "node" else every)

    def run(self) -> Figures:
        for stage in self.plan.plan.stages:
            self._stage(stage)
        self.figures.seconds = self.now
        return self.figures

    # --- a stage -------------------------------------------------------------------------------------------------

    def _stage(self, stage: StagePlan) -> None:
        self._shards = stage.shards
        self._size, self._items = stage.shard_size, stage.items
        self._calls = stage.need.likely.calls / stage.items
        self._left: dict[int, Times] = {}
        """Seconds of the unfinished conversations of shards whose worker died or stopped."""
        self._done: set[int] = set()
        self._begin()
        started = self.now
        for worker in list(self._workers.values()):
            self._at(self.now, self._lease, worker, self._turn)
        while len(self._done) < self._shards:
            when, _, act, args = heapq.heappop(self._events)
            self.now = max(self.now, when)
            act(*args)
        work = stage.items * self._calls * self.plan.seconds_per_call
        # Fewer items than slots: the longest one counts, and its mean is close enough for lists.
        slots = min(self.plan.concurrency, stage.items)
        self.figures.perfect += max(work / slots, self._calls * self.plan.seconds_per_call)
        self.figures.calls += stage.items * self._calls
        name = f"{stage.name}: {(self.now - started) / HOUR:,.1f} h"
        print(f"<!-- {name}, {self._shards:,} shards -->", flush=True)

    def _begin(self) -> None:
        self._turn += 1
        self._ask("begin", Turn(self._turn, (0,)), self._shards, self._done)
        self._beat_all()

    def _lease(self, worker: Worker, turn: int) -> None:
        if worker.dead or turn != self._turn:
            return
        worker.requests += 1
        shard = self._ask("lease", worker.name, self._turn, worker.requests)
        if shard is None or shard == WAIT:
            if len(self._done) < self._shards:
                self._at(self.now + 10.0, self._lease, worker, turn)
            return
        numbers = min(self._size, self._items - shard * self._size)
        mean, shape = self._calls * self.plan.seconds_per_call, self._calls / SPREAD**2
        known = self._left.pop(shard, None)
        seconds = self.random.gamma(shape, mean / shape, numbers) if known is None else known
        slots, now = worker.slots, self.now
        ends: list[float] = []
        replace, keep = heapq.heapreplace, ends.append
        for each in seconds.tolist():
            free = slots[0]
            end = (free if free > now else now) + each
            replace(slots, end)
            keep(end)
        found = Open(np.array(ends) - seconds, np.array(ends))
        worker.shards[shard] = found
        self._at(float(found.starts[-1]) if len(ends) else now, self._lease, worker, turn)
        self._at(float(found.ends.max()) if len(ends) else now, self._commit, worker, shard)

    def _commit(self, worker: Worker, shard: int) -> None:
        if worker.dead or shard not in worker.shards:
            return
        opened = worker.shards[shard]
        if len(opened.ends) and (last := float(opened.ends.max())) > self.now + 1e-6:
            self._at(last, self._commit, worker, shard)  # an outage moved its end
            return
        del worker.shards[shard]
        self._done.add(shard)
        if shard % SAMPLED == 0:
            self.figures.copies += SAMPLED * self._copies(opened)
        self._beat(worker, (shard,))

    def _copies(self, opened: Open) -> int:
        calls = max(1, round(self._calls))
        parts = (np.arange(calls) + 1) / calls
        times = opened.starts[:, None] + (opened.ends - opened.starts)[:, None] * parts
        return len(np.unique((times / (self.copy_every / 2)).astype(np.int64)))

    # --- workers -------------------------------------------------------------------------------------------------

    def _join(self, node: int) -> None:
        worker = Worker(f"w{next(self._names)}", node)
        self._workers[worker.name] = worker
        window = self._beat(worker)
        worker.slots = [self.now] * window
        self._at(self.now + BEAT, self._keep_beating, worker)
        if self._turn:
            self._at(self.now, self._lease, worker, self._turn)

    def _beat(self, worker: Worker, committed: tuple[int, ...] = ()) -> int:
        report = WorkerReport(in_flight=len(worker.slots))
        reply = self._ask(
            "beat", Heartbeat(worker.name, self._turn, report, committed, open=len(worker.slots))
        )
        assert not reply.out, worker.name
        return int(reply.window)

    def _beat_all(self) -> None:
        self._ask("look", 0, self.plan.workers)
        for worker in self._workers.values():
            self._beat(worker)

    def _keep_beating(self, worker: Worker) -> None:
        if not worker.dead:
            self._ask("look", 0, self.plan.workers)
            self._beat(worker)
            self._at(self.now + BEAT, self._keep_beating, worker)

    def _stop(self, worker: Worker, *, lost: bool) -> None:
        """End a worker, and keep how much of its shards' conversations is left. If its node is lost, some of it again."""
        worker.dead = True
        del self._workers[worker.name]
        each, uncopied = self.plan.seconds_per_call, min(1.0, self.copy_every / self.plan.seconds_per_call)
        for shard, opened in worker.shards.items():
            waiting = opened.starts >= self.now
            running = (opened.ends > self.now) & ~waiting
            again = opened.ends[running] - self.now
            if lost:
                replies = self.random.random(len(again)) < uncopied
                self.figures.repaid += len(again) + int(replies.sum())
                again += each * (self.random.random(len(again)) + replies)
            self._left[shard] = np.concatenate([again, (opened.ends - opened.starts)[waiting]])

    # --- faults --------------------------------------------------------------------------------------------------

    def _next_fault(self, kind: str, every: float) -> None:
        # Upgrades are planned, the others come at any time.
        wait = every if kind == "upgrade" else self.random.exponential(every)
        self._at(self.now + wait, self._fault, kind, every)

    def _fault(self, kind: str, every: float) -> None:
        self.figures.faults[kind] = self.figures.faults.get(kind, 0) + 1
        self._next_fault(kind, every)
        if kind == "node":
            self._lose_node(int(self.random.integers(self.plan.nodes)))
        elif kind == "endpoint":
            self._delay(OUTAGE)
        else:
            workers = list(self._workers.values())
            for worker in workers:
                self._stop(worker, lost=False)  # its calls in flight end and are kept
            self.now += RESTART
            self._coordinator = self._new_coordinator()
            self._begin()
            for worker in workers:
                self._join(worker.node)

    def _lose_node(self, node: int) -> None:
        for worker in [one for one in self._workers.values() if one.node == node]:
            self._stop(worker, lost=True)
            self._at(self.now + NOTICED, self._ask, "lost", worker.name)
            self._at(self.now + REPLACED, self._join, worker.node)

    def _delay(self, seconds: float) -> None:
        """Let the endpoint answer nobody for a while."""
        for worker in self._workers.values():
            worker.slots = [max(end, self.now) + seconds for end in worker.slots]
            for opened in worker.shards.values():
                opened.ends[opened.ends > self.now] += seconds
                opened.starts[opened.starts > self.now] += seconds

    # --- time ----------------------------------------------------------------------------------------------------

    def _at(self, when: float, act: Callable[..., Any], *args: Any) -> None:
        heapq.heappush(self._events, (when, next(self._order), act, args))

    def _new_coordinator(self) -> Coordinator:
        made = Coordinator(self.plan.concurrency, ttl=3 * BEAT, now=lambda: self.now)
        made.look(0, self.plan.workers)
        return made

    def _ask(self, method: str, *args: Any) -> Any:
        started = time.process_time()
        answer = getattr(self._coordinator, method)(*args)
        self.figures.cpu += time.process_time() - started
        return answer


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    model = ModelSpec("gpt-4.1-mini")
    sizes = {
        "assistant_role": 500 if args.short else 5_000,
        "user_role": 600 if args.short else 6_000,
        "task": 10,
    }
    config = GenerateConfig(
        scenario="ai_society", model=model, counts=sizes, shard_size=4_096,
        plan=Assumptions(messages=40, message_tokens=200, cached=0.95, seconds_per_call=5),
    )  # fmt: skip
    plan = plan_cluster(config, hours=7.2 if args.short else 720, token_rate=5_000, gpu_price=2)
    print(
        f"{plan.plan.items:,} conversations, {plan.workers} workers on {plan.nodes} nodes, {plan.replicas.likely:,.0f} replicas"
    )
    print(
        "| | hours | of a perfect schedule | calls paid twice | put requests | model, $ | GPUs, $ | faults |"
    )
    print("|---|---|---|---|---|---|---|---|")
    good = True
    money = plan.plan.money.likely if plan.plan.money else 0.0
    for faults in (False, True):
        started = time.process_time()
        found = Simulation(plan, faults=faults, copy_every=config.run.copy_every, seed=args.seed).run()
        hours, ratio = found.seconds / HOUR, found.seconds / found.perfect
        gpus = plan.replicas.likely * hours * 2
        said = ", ".join(f"{count} {kind}" for kind, count in sorted(found.faults.items())) or "none"
        print(
            f"| {'with faults' if faults else 'without faults'} | {hours:,.1f} | {ratio:.3f} | {found.repaid:,.0f} of "
            f"{found.calls:,.0f} | {plan.shard_puts + found.copies:,.0f} | {money * (1 + found.repaid / found.calls):,.0f} | "
            f"{gpus:,.0f} | {said} |"
        )
        print(
            f"<!-- coordinator {found.cpu:.0f} s of CPU, simulation {time.process_time() - started:.0f} s -->",
            flush=True,
        )
        good = good and (faults or ratio <= 1.05)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
