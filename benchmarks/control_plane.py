"""What it costs to coordinate workers and replicas, and what workers get of an endpoint that is too small for them.

    python -m benchmarks.control_plane            # 10 and 200 workers, 100 and 2,000 replicas; about 4 minutes
    python -m benchmarks.control_plane --short    # under a minute, for CI
    python -m benchmarks.control_plane --ray      # also with the coordinator as a real Ray actor

The coordinator, the division of endpoints, the workers' sites with their pools, and the messages are the real ones. Workers
are simulated: 23,000 conversations make 4,600 calls per second, which a list of replicas serves. Time is virtual, but the
coordinator needs the CPU time that its methods really take, with pickling as Ray does it, and heartbeats wait for one another.
So the figures do not depend on what else the machine does. With `--ray`, time is real.

Scarce endpoints refuse what exceeds their slots, and clients wait and retry as CAMEL's client does. A conversation counts as
given up if a call fails for good.
"""

from __future__ import annotations

import argparse
import asyncio
import pickle
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from statistics import median, quantiles
from types import SimpleNamespace
from typing import Any

import psutil

from camel.core.errors import DeadlineExceeded, RateLimited
from camel.core.history import History
from camel.core.message import Usage
from camel.core.model import Request
from camel.engine import cluster_worker
from camel.engine.coordinator import Coordinator
from camel.engine.halt import Halt
from camel.engine.site import Divider, Heartbeat, HeartbeatReply, Turn, WorkerShare
from camel.jobs.budget import Budget, Meter
from camel.jobs.cluster import JobSite
from camel.jobs.ledger import Tally
from camel.jobs.shares import Shares
from camel.models.discovery import Given
from camel.models.governor import Rates
from camel.models.pool import Pool
from camel.models.replica import PoolSettings, Slot
from camel.models.sharing import Outbox
from tests.support.virtual_time import now, run_virtual

MODEL = "simulated"
CONVERSATIONS, CALLS_PER_SECOND = 23_000, 4_600
SIZES = ((10, 100), (200, 100), (10, 2_000), (200, 2_000))
BEFORE = {
    # The same, before workers had subsets and heartbeats only changes: KB up, ms of a tick, cores, ms for a conversation.
    (10, 100): ("70", "18-34", "0.05-0.1", "270"),
    (200, 100): ("-", "380", "1.1", "270"),
    (10, 2_000): ("-", "-", "-", "4,800"),
    (200, 2_000): ("1,420", "17,000", "55", "4,800"),
}
GOALS = {"bytes": 20_000.0, "tick": 50.0, "core": 0.2, "late": 1.0, "choose": 25.0}
USAGE = Usage(1_000, 100, 900, 1)
HISTORY = History("Be brief.")
DEADLINE = 600.0
"""Of a call, as CAMEL's client has it."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--ray", action="store_true")
    args = parser.parse_args()
    good = True
    print(
        "| workers x replicas | heartbeat up, bytes: median, most | down | share tick, ms: median, most | ",
        end="",
    )
    print("core | slowest heartbeat, ms | choosing, µs | before: KB up, tick ms, cores, choosing µs |")
    print("|---|---|---|---|---|---|---|---|")
    for workers, replicas in SIZES:
        seconds = 12.0 if args.short else 40.0
        steady = run_virtual(_steady(workers, replicas, seconds))
        choose = _choosing(replicas)
        print(_row(f"{workers} x {replicas:,}", steady, choose, BEFORE[workers, replicas]), flush=True)
        good = good and steady.core <= GOALS["core"] and max(steady.ticks) <= GOALS["tick"]
        good = good and max(steady.late) <= GOALS["late"] and choose <= GOALS["choose"]
        good = good and (workers < 200 or max(steady.up) <= GOALS["bytes"])
    if args.ray:
        for replicas in (100, 2_000):
            steady = _on_ray(200, replicas, 12.0 if args.short else 40.0)
            print(_row(f"200 x {replicas:,}, Ray actor", steady, 0.0, ("", "", "", "")), flush=True)
    print(f"\ngoals: {GOALS}\n")
    print(
        "| scarce endpoints, 200 workers | refused after 10 s | capacity used | longest wait, s | given up | before |"
    )
    print("|---|---|---|---|---|---|")
    for endpoints, slots, conversations, before in (
        (5 if args.short else 20, 32, 1_600 if args.short else 6_400, "88% refused, 94-98% used"),
        (1, 8, 400, "98% refused, one worker halts the run"),
    ):
        scarce = run_virtual(
            _scarce(endpoints, slots, conversations, 60 if args.short and endpoints > 1 else 120)
        )
        refused, used = scarce.refused / max(1, scarce.refused + scarce.served), scarce.used
        print(
            f"| {endpoints} with {slots} slots, {conversations:,} conversations | {refused:.1%} | {used:.1%} | "
            f"{scarce.longest:.0f} | {scarce.given_up} | {before} |",
            flush=True,
        )
        good = good and refused <= 0.05 and used >= 0.95 and not scarce.given_up
    return 0 if good else 1


@dataclass
class Steady:
    """What was measured once all workers had joined."""

    up: list[int] = field(default_factory=list)
    down: list[int] = field(default_factory=list)
    ticks: list[float] = field(default_factory=list)
    """Milliseconds."""
    late: list[float] = field(default_factory=list)
    """Seconds until a heartbeat was answered."""
    busy: float = 0.0
    seconds: float = 0.0

    @property
    def core(self) -> float:
        return self.busy / self.seconds


def _row(name: str, steady: Steady, choose: float, before: tuple[str, ...]) -> str:
    up, down, ticks = steady.up, steady.down, steady.ticks or [0.0]
    return (
        f"| {name} | {median(up):,.0f}, {max(up):,} | {median(down):,.0f}, {max(down):,} | {median(ticks):.1f}, "
        f"{max(ticks):.1f} | {steady.core:.1%} | {max(steady.late) * 1e3:.0f} | {choose:.1f} | {', '.join(before)} |"
    )


# ---------------------------------------------------------------- workers


class SimulatedSite(JobSite):
    """A job's site with a pool, but without a job."""

    def __init__(self, urls: list[str], rates: Rates) -> None:
        self.halt = Halt()
        self._share, self._account, self._apart = WorkerShare(), None, False
        self._meter = Meter(Budget(), self.halt, shared=True)
        self._meter.model(MODEL, None)
        self._current: Any = SimpleNamespace(tallies={"conversations": Tally(10**6)})
        self._outbox = Outbox()
        self.pool = Pool(Given(urls), PoolSettings(rates=rates))
        self.pool.join()
        self._pools = {MODEL: self.pool}


class SimulatedWorker:
    """Sends heartbeats as `ClusterWorker` does."""

    def __init__(self, name: str, urls: list[str], call: Callable[..., Any]) -> None:
        self.name, self.site, self._call = name, SimulatedSite(urls, Rates(start=32)), call
        self.apart = 0.0

    async def beat(self) -> None:
        reply = await self._call("beat", Heartbeat(self.name, 1, self.site.report()))
        self.site.apply_share(reply.share)
        self.apart = reply.apart

    async def keep_beating(self) -> None:
        while True:
            await self.beat()
            apart = max(cluster_worker.BEAT_EVERY, self.apart * random.uniform(0.75, 1.25))
            end = asyncio.get_running_loop().time() + apart
            while (left := end - asyncio.get_running_loop().time()) > 0:
                await asyncio.sleep(min(left, cluster_worker.SOON))
                if self.site.has_freed_slots:
                    break


def _urls(count: int) -> list[str]:
    return [f"http://10.0.{number // 250}.{number % 250}:8000/v1" for number in range(count)]


def _requests(prefix: str) -> Iterator[Request]:
    number = 0
    while True:
        number += 1
        yield Request(HISTORY, session=f"{prefix}-{number}")


def _choosing(replicas: int) -> float:
    """Microseconds of CPU to choose a replica for a new conversation, in a process that uses all replicas."""
    pool, requests = Pool(Given(_urls(replicas))), _requests("c")
    rounds: list[float] = []
    for _ in range(5):
        batch = [next(requests) for _ in range(2_000)]
        started = time.process_time()
        slots = [pool.take(request, b"") for request in batch]
        rounds.append((time.process_time() - started) / len(batch) * 1e6)
        for slot in slots:
            assert slot is not None
            pool.served(slot, USAGE)
    return min(rounds)


# ---------------------------------------------------------------- without scarcity


class Line:
    """The way to a coordinator that answers one call after the other, in the CPU time that each needs."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator, self._free_at = coordinator, 0.0
        self.steady: Steady | None = None

    async def __call__(self, method: str, *args: Any) -> Any:
        sent, data = now(), pickle.dumps((method, args))
        # In the order in which they come.
        started = time.process_time()
        name, given = pickle.loads(data)
        answer = pickle.dumps(getattr(self._coordinator, name)(*given))
        cpu = time.process_time() - started
        self._free_at = max(self._free_at, sent) + cpu
        if self.steady is not None:
            self.steady.busy += cpu
            if method == "beat":
                self.steady.up.append(len(data))
                self.steady.down.append(len(answer))
                self.steady.late.append(self._free_at - sent)
        await asyncio.sleep(self._free_at - sent)
        return pickle.loads(answer)


class TimedShares(Shares):
    """Shares whose ticks are timed."""

    steady: Steady | None = None

    def tick(self, *args: Any) -> str:
        started = time.process_time()
        halt = super().tick(*args)
        if self.steady is not None:
            self.steady.ticks.append((time.process_time() - started) * 1e3)
        return halt


async def _steady(workers: int, replicas: int, seconds: float) -> Steady:
    """Let workers join, and measure what they and the coordinator do afterwards."""
    shares = TimedShares(Budget(), {MODEL: Rates(start=32)}, now=now)
    coordinator = Coordinator(CONVERSATIONS, share=shares, now=now)
    coordinator.begin(Turn(1, (0,)), 10, ())
    line, urls = Line(coordinator), _urls(replicas)
    crew = [SimulatedWorker(f"w{number}", urls, line) for number in range(workers)]
    measured = Steady(seconds=seconds)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_look(line, workers))]
        for worker in crew:
            tasks.append(group.create_task(worker.keep_beating()))
            tasks.append(group.create_task(_talk(worker, workers)))
            await asyncio.sleep(5.0 / workers)
        await asyncio.sleep(10.0)
        line.steady = shares.steady = measured
        await asyncio.sleep(seconds)
        line.steady = None
        for task in tasks:
            task.cancel()
    opened: Counter[str] = Counter()
    for worker in crew:
        opened.update({url: report.open for url, report in worker.site.pool.report().items()})
    fullest = max(opened.values()) / (opened.total() / replicas)
    print(
        f"<!-- fullest replica: {fullest:.2f} times the mean of {opened.total() / replicas:.1f} conversations -->"
    )
    return measured


async def _look(line: Line, workers: int) -> None:
    while True:
        await line("look", 0, workers)
        await asyncio.sleep(0.25)


async def _talk(worker: SimulatedWorker, workers: int) -> None:
    """Hold a worker's part of the conversations: calls begin and end all the time."""
    pool, requests = worker.site.pool, _requests(worker.name)
    talking: list[Request] = []
    in_flight: list[Slot] = []
    while True:
        await asyncio.sleep(0.5)
        while len(talking) < CONVERSATIONS // workers:
            talking.append(next(requests))
        for slot in in_flight:
            pool.served(slot, USAGE)
        in_flight.clear()
        for number in random.sample(range(len(talking)), CALLS_PER_SECOND // workers // 2):
            if random.random() < 0.05:
                pool.release(talking[number].session)
                talking[number] = next(requests)
            if (slot := pool.take(talking[number], b"")) is not None:
                in_flight.append(slot)


# ---------------------------------------------------------------- scarce endpoints


@dataclass
class Scarce:
    """What endpoints counted."""

    served: int = 0
    refused: int = 0
    busy: float = 0.0
    given_up: int = 0
    longest: float = 0.0
    """Longest time that a call waited."""
    used: float = 0.0


class SmallEndpoint:
    """Serves so many calls at once, and refuses the others."""

    def __init__(self, slots: int, counts: Scarce) -> None:
        self._slots, self._counts, self._inside = slots, counts, 0

    async def call(self) -> None:
        await asyncio.sleep(0.01)
        if self._inside >= self._slots:
            self._counts.refused += 1
            raise RateLimited("HTTP 429")
        self._inside += 1
        started = now()
        try:
            await asyncio.sleep(random.lognormvariate(0.5, 0.5))
        finally:
            self._inside -= 1
            self._counts.served += 1
            self._counts.busy += now() - max(started, self.since)

    since = 0.0


async def _scarce(endpoints: int, slots: int, conversations: int, seconds: float) -> Scarce:
    """200 workers on endpoints that are too small for them."""
    counts = Scarce()
    servers = {url: SmallEndpoint(slots, counts) for url in _urls(endpoints)}
    shares = Shares(Budget(), {MODEL: Rates(start=32)}, now=now)
    coordinator = Coordinator(conversations, share=shares, now=now)
    coordinator.begin(Turn(1, (0,)), 10, ())

    async def call(method: str, *args: Any) -> HeartbeatReply:
        await asyncio.sleep(0.005)
        return getattr(coordinator, method)(*args)

    crew = [SimulatedWorker(f"w{number}", list(servers), call) for number in range(200)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_look(call, 200))]  # type: ignore[arg-type]
        for worker in crew:
            tasks.append(group.create_task(worker.keep_beating()))
            names = [f"{worker.name}-{number}" for number in range(conversations // 200)]
            tasks += [group.create_task(_converse(worker, name, servers, counts)) for name in names]
        await asyncio.sleep(10)
        counts.served = counts.refused = 0
        counts.busy = 0.0
        SmallEndpoint.since = begun = now()
        await asyncio.sleep(seconds)
        counts.used = counts.busy / (endpoints * slots * (now() - begun))
        for task in tasks:
            task.cancel()
    return counts


async def _converse(
    worker: SimulatedWorker, name: str, servers: dict[str, SmallEndpoint], counts: Scarce
) -> None:
    """One conversation after the other, each of 20 calls."""
    pool = worker.site.pool
    for number in range(10**6):
        request = Request(HISTORY, session=f"{name}-{number}")
        for _ in range(20):
            try:
                await _call(pool, request, servers, counts)
            except (RateLimited, DeadlineExceeded):
                counts.given_up += 1
                break
        pool.release(request.session)


async def _call(pool: Pool, request: Request, servers: dict[str, SmallEndpoint], counts: Scarce) -> None:
    """What CAMEL's client does for a call."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + DEADLINE
    for attempt in count(1):
        asked = loop.time()
        slot = pool.take(request, b"") or await pool.wait(request, b"", deadline)
        counts.longest = max(counts.longest, loop.time() - asked)
        try:
            await servers[slot.replica.url].call()
            pool.served(slot, USAGE)
            return
        except RateLimited as error:
            pool.failed(slot, error)
            wait = random.uniform(0, min(30.0, 0.5 * 2 ** min(attempt, 6)))
            if loop.time() + wait >= deadline:
                raise
            await asyncio.sleep(wait)
        except BaseException:
            pool.left(slot)
            raise


# ---------------------------------------------------------------- on Ray


def _on_ray(workers: int, replicas: int, seconds: float) -> Steady:
    """The same without scarcity, with the coordinator as an actor. Time is real, and only real."""
    from camel.engine.ray.connect import connected

    with connected("local", workers=1):
        return asyncio.run(_steady_on_ray(workers, replicas, seconds))


async def _steady_on_ray(workers: int, replicas: int, seconds: float) -> Steady:
    import ray

    from benchmarks.scale import _cpu, _process
    from camel.engine.ray.actors import CoordinatorActor, call_remotely

    share: Divider = Shares(Budget(), {MODEL: Rates(start=32)})
    actor: Any = ray.remote(num_cpus=0, enable_task_events=False)(CoordinatorActor)
    coordinator = actor.options(max_concurrency=1000).remote(CONVERSATIONS, 10.0, share, "benchmark")
    call = partial(call_remotely, coordinator)
    await call("begin", Turn(1, (0,)), 10, ())
    measured, urls, measuring = Steady(seconds=seconds), _urls(replicas), False

    async def timed(method: str, *args: Any) -> Any:
        started = time.perf_counter()
        answer = await call(method, *args)
        if measuring and method == "beat":
            measured.late.append(time.perf_counter() - started)
            measured.up.append(len(pickle.dumps(args)))
            measured.down.append(len(pickle.dumps(answer)))
        return answer

    crew = [SimulatedWorker(f"w{number}", urls, timed) for number in range(workers)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_look(timed, workers))]  # type: ignore[arg-type]
        for worker in crew:
            tasks.append(group.create_task(worker.keep_beating()))
            tasks.append(group.create_task(_talk(worker, workers)))
            await asyncio.sleep(5.0 / workers)
        await asyncio.sleep(8.0)
        process: psutil.Process = _process("CoordinatorActor")
        before, measuring = _cpu(process), True
        await asyncio.sleep(seconds)
        measuring = False
        measured.busy = _cpu(process) - before
        for task in tasks:
            task.cancel()
    late = quantiles(measured.late, n=100)
    print(f"<!-- heartbeats with Ray: median {late[49] * 1e3:.0f} ms, p99 {late[98] * 1e3:.0f} ms -->")
    return measured


if __name__ == "__main__":
    from benchmarks import (
        control_plane,
    )  # what is sent to actors must be found there by name, and `__main__` is not

    sys.exit(control_plane.main())
