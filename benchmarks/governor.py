"""What the governor makes of an endpoint whose capacity falls to a quarter and comes back.

    python -m benchmarks.governor                 # 20, 20 and 30 s at 100, 25 and 100 calls in flight; then 4 clients
    python -m benchmarks.governor --short         # for CI
    python -m benchmarks.governor --clients 4     # that many processes that share the endpoint

A simulated endpoint takes 0.2 s a call and answers 429 with `Retry-After: 1` to whatever arrives above its capacity. Clients
know nothing of it: each process keeps more calls wanting than the endpoint ever takes. Several clients are coordinated as the
workers of a cluster are: each reports twice a second, and `SharedEndpoint` learns one limit and divides it.

An oracle runs at the same time against an endpoint of its own. It is a client that receives every new capacity and is never
refused. Goodput is what was served as a part of what the oracle was served, from the moment that the clients have adapted to
the end of the phase, so that a busy machine slows both; capacity / latency, which nobody quite reaches, is shown too.
Everything is counted by the endpoints' ledgers.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from dataclasses import dataclass, field
from itertools import count, pairwise

import msgspec
from msgspec import structs

from camel.models.governor import EndpointReport, Rates, Share
from camel.models.sharing import PoolShare, SharedEndpoint
from camel.models.simulator import CapacityChange, Constant, SimulatorProcess, SimulatorSettings, spawn

LATENCY, CAPACITIES = 0.2, (100, 25, 100)
WANTED = 200
"""Calls that would be in flight if the endpoint took them, in all."""
BIN = 0.5
GOAL_GOODPUT, GOAL_REFUSED, GOAL_SECONDS = 0.9, 0.01, 30.0
LEAST_GOODPUT, MOST_REFUSED = 0.8, 0.08
"""Beyond these a short run fails: neighbors disturb it, and the two changes weigh more in a third of the calls."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--clients", type=int, default=0)
    parser.add_argument("--child", metavar="URL", default="", help=argparse.SUPPRESS)
    parser.add_argument("--wanted", type=int, default=WANTED, help=argparse.SUPPRESS)
    parser.add_argument("--shared", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--oracle", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        rates = Rates() if args.oracle else Rates(ceiling=args.wanted, start=8)
        asyncio.run(_child(args.child, args.wanted, args.shared, rates))
        return 0
    lengths = (6.0, 4.0, 11.0) if args.short else (20.0, 20.0, 30.0)
    clients = [args.clients] if args.clients else [1] if args.short else [1, 4]
    return max(_report(measure(number, lengths), args.short) for number in clients)


@dataclass
class Phase:
    capacity: int
    length: float
    served: list[int] = field(default_factory=list[int])
    """By bins of time."""
    oracle: list[int] = field(default_factory=list[int])

    @property
    def adapted(self) -> float | None:
        """Seconds until a second's goodput is at least nine tenths of what is possible."""
        for at in range(len(self.served) - 1):
            # Not while the oracle itself is still starting.
            possible = max(sum(self.oracle[at : at + 2]), 0.3 * 2 * BIN * self.capacity / LATENCY)
            if sum(self.served[at : at + 2]) >= 0.9 * possible:
                return at * BIN
        return None

    @property
    def goodput(self) -> float:
        if self.adapted is None:
            return 0.0
        begin = int(self.adapted / BIN)
        return sum(self.served[begin:]) / max(1, sum(self.oracle[begin:]))

    @property
    def used(self) -> float:
        return sum(self.served) / (self.length * self.capacity / LATENCY)


@dataclass
class Measured:
    clients: int
    phases: list[Phase]
    calls: int
    refused: int
    shares: list[float]
    """Calls of each client, as parts of the whole."""


def measure(clients: int, lengths: tuple[float, ...]) -> Measured:
    """Run the phases with so many client processes."""
    starts = [sum(lengths[:number]) for number in range(len(lengths))]
    schedule = tuple(
        CapacityChange(at=start, capacity=capacity)
        for start, capacity in zip(starts, CAPACITIES, strict=True)
    )
    settings = SimulatorSettings(
        length=None, words=5, latency=Constant(LATENCY), capacity_schedule=schedule, retry_after=1
    )
    with spawn(settings) as endpoint, spawn(structs.replace(settings, capacity_schedule=())) as other:
        phases = [Phase(*pair) for pair in zip(CAPACITIES, lengths, strict=True)]
        return asyncio.run(_coordinate(endpoint, other, clients, phases))


async def _coordinate(
    endpoint: SimulatorProcess, other: SimulatorProcess, clients: int, phases: list[Phase]
) -> Measured:
    """Start the clients, hand out shares once a second, and count what was served."""
    arguments = [
        "-m",
        "benchmarks.governor",
        "--child",
        endpoint.base_url,
        "--wanted",
        str(WANTED // clients),
    ]
    if clients > 1:
        arguments.append("--shared")
    oracle = ["-m", "benchmarks.governor", "--child", other.base_url, "--shared", "--oracle"]
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable, *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for command in [*[arguments] * clients, oracle]
    ]
    reports: dict[str, dict[str, EndpointReport]] = {}
    shared = SharedEndpoint(Rates())
    for child in children:
        assert child.stdout
        assert (await child.stdout.readline()) == b"ready\n"
    endpoint.reset()
    other.reset()
    started = time.monotonic()
    total = sum(phase.length for phase in phases)
    bins: list[tuple[float, int]] = [(0.0, 0)]
    oracle_bins: list[tuple[float, int]] = [(0.0, 0)]

    async def listen(name: str, child: asyncio.subprocess.Process) -> None:
        assert child.stdout
        while line := await child.stdout.readline():
            reports[name] = msgspec.json.decode(line, type=dict[str, EndpointReport])
            if clients > 1 and int(name) < clients:
                for url, report in reports[name].items():
                    shared.hear(name, report)
                    await tell(child, {url: shared.share(name, time.monotonic())})

    async def tell(child: asyncio.subprocess.Process, shares: dict[str, Share | None]) -> None:
        assert child.stdin
        child.stdin.write(msgspec.json.encode(shares) + b"\n")
        await child.stdin.drain()

    async with asyncio.TaskGroup() as group:
        listeners = [group.create_task(listen(str(n), child)) for n, child in enumerate(children)]
        for child in children[:-1]:
            await tell(child, {})
        await tell(children[-1], {other.base_url: Share(ceiling=phases[0].capacity)})
        for tick in count(1):
            await asyncio.sleep(max(0.0, started + tick * BIN - time.monotonic()))
            bins.append((time.monotonic() - started, (await asyncio.to_thread(endpoint.ledger)).served))
            oracle_bins.append((time.monotonic() - started, (await asyncio.to_thread(other.ledger)).served))
            begun = [p for n, p in enumerate(phases) if sum(q.length for q in phases[:n]) <= tick * BIN]
            await tell(children[-1], {other.base_url: Share(ceiling=begun[-1].capacity)})
            shared.tick(time.monotonic())
            if time.monotonic() - started >= total:
                break
        for child in children:
            child.kill()
            await child.wait()
        for listener in listeners:
            listener.cancel()
    ledger = endpoint.ledger()
    end = 0.0
    for phase in phases:
        start, end = end, end + phase.length
        phase.served, phase.oracle = _binned(bins, start, end), _binned(oracle_bins, start, end)
    reports.pop(str(clients), None)
    calls = [sum(its.calls for its in report.values()) for _, report in sorted(reports.items())]
    whole = sum(calls) or 1
    return Measured(
        clients, phases, ledger.requests, ledger.outcomes.get("capacity", 0), [one / whole for one in calls]
    )


def _binned(seen: list[tuple[float, int]], start: float, end: float) -> list[int]:
    """Served calls in bins of equal length, between readings that came at uneven times."""

    def at(moment: float) -> float:
        for (t0, n0), (t1, n1) in pairwise(seen):
            if t0 <= moment <= t1:
                return n0 + (n1 - n0) * (moment - t0) / max(1e-9, t1 - t0)
        return seen[-1][1]

    edges = [start + BIN * number for number in range(int((end - start) / BIN) + 1)]
    return [round(at(after) - at(before)) for before, after in pairwise(edges)]


async def _child(url: str, wanted: int, shared: bool, rates: Rates) -> None:
    """Call as fast as the governor allows; tell the parent how it goes, and take its shares."""
    from camel import ChatModel
    from camel.core.history import History
    from camel.core.model import Request
    from camel.models.replica import PoolSettings

    async with ChatModel(
        "simulated", base_url=url, api_key="", pool=PoolSettings(rates=rates), max_attempts=100
    ) as model:
        history = History("Be brief.")
        history.add("user", "Say something.")
        if shared:
            model.pool.join()
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        print("ready", flush=True)
        await reader.readline()

        async def talk(name: str) -> None:
            for number in count():
                await model.reply(Request(history, session=f"{name}-{number // 20}"))
                if number % 20 == 19:
                    model.release(f"{name}-{number // 20}")

        async def report() -> None:
            while True:
                print(msgspec.json.encode(model.pool.report()).decode(), flush=True)
                await asyncio.sleep(0.5)

        async def apply_share() -> None:
            while line := await reader.readline():
                model.pool.allow(PoolShare(msgspec.json.decode(line, type=dict[str, Share | None])))

        async with asyncio.TaskGroup() as group:
            group.create_task(report())
            group.create_task(apply_share())
            for number in range(wanted):
                group.create_task(talk(f"c{number}"))


def _report(measured: Measured, short: bool) -> int:
    refused = measured.refused / max(1, measured.calls)
    print(f"\n{measured.clients} client{'s' if measured.clients > 1 else ''}, {LATENCY:g} s a call\n")
    print(
        "| capacity | goodput, of the oracle's | adapted after | of capacity / latency | served, by half seconds |"
    )
    print("|---|---|---|---|---|")
    for phase in measured.phases:
        after = "never" if phase.adapted is None else f"{phase.adapted:.1f} s"
        print(
            f"| {phase.capacity} | {phase.goodput:.1%} | {after} | {phase.used:.0%} | `{_plot(phase.served)}` |"
        )
    print(f"\n{measured.refused:,} of {measured.calls:,} calls were answered 429: {refused:.2%}")
    if measured.clients > 1:
        print("parts of the clients: " + ", ".join(f"{part:.0%}" for part in measured.shares))
    least = LEAST_GOODPUT if short else GOAL_GOODPUT
    good = all(
        phase.goodput >= least and phase.adapted is not None and phase.adapted <= GOAL_SECONDS
        for phase in measured.phases
    )
    print(
        f"goals: goodput {GOAL_GOODPUT:.0%} (fails below {least:.0%}), 429s at most {GOAL_REFUSED:.0%}, adapted within {GOAL_SECONDS:g} s"
    )
    return 0 if good and refused <= (MOST_REFUSED if short else GOAL_REFUSED) else 1


def _plot(bins: list[int]) -> str:
    most = max(CAPACITIES) / LATENCY * BIN
    return "".join("▁▂▃▄▅▆▇█"[min(7, int(8 * value / most))] for value in bins)


if __name__ == "__main__":
    sys.exit(main())
