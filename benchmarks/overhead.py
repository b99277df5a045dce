"""What a Ray cluster costs, and how near its schedule comes to a perfect one, compared with the same job in other tools.

    python -m benchmarks.overhead              # about 20 minutes
    python -m benchmarks.overhead --short      # for CI
    python -m benchmarks.overhead --only zero --only tail --camel-ai PYTHON
    python -m benchmarks.overhead --only tail --slots 24     # fewer, where two cores carry endpoint and workers alike

Three questions, each answered by the endpoint's ledger (when calls arrived, how long the model took over each):

zero     conversations a second of one worker at zero latency, on Ray over without Ray, in alternating rounds;
tail     with latencies of a long tail (log-normal, median 100 ms, 99th percentile 1 s), the wall time over the lower bound
         of a perfect schedule with the same slots: all the model's seconds over the slots, or the longest conversation;
scale    calls a second of 1, 2 and 4 workers against a slow endpoint, over linear.

Compared with `tail`: Ray Data's `map_batches`, and camel-ai's own RolePlaying (`--camel-ai`: the Python of an environment with
`pip install camel-ai==0.2.90 "mcp<2"`), each as people would write it and with the same slots, on fewer conversations.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks import recorded
from benchmarks.orchestration import ROLES, TASK, bots
from camel.models.simulator import LogNormal, SimulatorSettings, spawn
from camel.models.simulator.ledger import read_rows
from camel.models.simulator.settings import Constant

MESSAGES = 12
TAIL = LogNormal(median=0.1, p99=1.0)
GOALS = {"zero": 0.95, "tail": 1.05, "scale": 0.95}
FAILS = {"zero": 0.7, "tail": 1.6, "scale": 0.85}
"""Beyond this the run fails: in short form one long conversation at the end counts for much, and two cores carry endpoint, driver, coordinator, workers and Ray's own processes."""


class Seen(NamedTuple):
    """What the endpoint saw of a job."""

    calls: int
    wall: float
    """From the first request's arrival to the last reply."""
    rate: float
    """Calls a second between the first and the last fifth of them."""
    bound: float
    """Seconds of a perfect schedule, for the slots given."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", action="append", choices=("zero", "tail", "scale"))
    parser.add_argument("--slots", type=int, help="of `tail`; 64, or 32 with --short")
    parser.add_argument("--camel-ai", metavar="PYTHON", default="")
    parser.add_argument("--child", nargs="+", default=[])
    recorded.option(parser)
    args = parser.parse_args()
    if args.child:
        _child(*args.child)
        return 0
    parts = args.only or (["zero", "tail"] if args.short else ["zero", "tail", "scale"])
    failed: list[str] = []
    for part in parts:
        figure = (
            {"zero": zero, "scale": scale}[part](args.short)
            if part != "tail"
            else tail(args.short, args.camel_ai, slots=args.slots, record=args.record)
        )
        worse = figure > FAILS[part] if part == "tail" else figure < FAILS[part]
        print(f"{part}: {figure:.3f} (goal {GOALS[part]}, fails beyond {FAILS[part]})\n", flush=True)
        failed += [part] * worse
        if args.record and part != "tail":
            recorded.record("overhead", {{"zero": "one_worker", "scale": "linear"}[part]: figure})
    return 1 if failed else 0


def zero(short: bool) -> float:
    """One worker on Ray compared with one without: conversations per second at zero latency."""
    conversations, rounds = (200, 2) if short else (600, 5)
    rates: dict[str, list[float]] = {"here": [], "ray": []}
    for _ in range(rounds):
        for variant in rates:
            seen = run(variant, conversations, slots=64, workers=1, latency=None)
            rates[variant].append(seen.rate / MESSAGES)
    print(f"one worker, zero latency, {conversations} conversations of {MESSAGES} messages, {rounds} rounds")
    print("| variant | conversations/s, median | best |\n|---|---|---|")
    for variant, found in rates.items():
        print(
            f"| {'on Ray' if variant == 'ray' else 'in process'} | {median(found):.1f} | {max(found):.1f} |"
        )
    return median(rates["ray"]) / median(rates["here"])


def tail(short: bool, camel_ai: str, *, slots: int | None = None, record: bool = False) -> float:
    """How near a perfect schedule: wall time over its lower bound."""
    conversations, fewer = (300, 0) if short else (5_000, 640)
    slots = slots or (32 if short else 64)
    jobs = [("ray", conversations, "camel generate on Ray, 2 workers")]
    if fewer:
        jobs += [
            ("here", fewer, "camel generate in process"),
            ("ray_data", fewer, "Ray Data map_batches, 2 actors"),
        ]
        jobs += [("camel_ai", fewer, "camel-ai RolePlaying, threads")] if camel_ai else []
    print(f"latency log-normal, median 100 ms, 99th percentile 1 s; {slots} slots, {MESSAGES} messages each")
    print("| job | conversations | wall, s | perfect, s | x perfect |\n|---|---|---|---|---|")
    ratios: dict[str, float] = {}
    for variant, count, label in jobs:
        seen = run(variant, count, slots=slots, workers=2, latency=TAIL, python=camel_ai)
        ratios[variant] = seen.wall / seen.bound
        print(
            f"| {label} | {count:,} | {seen.wall:.1f} | {seen.bound:.1f} | {ratios[variant]:.2f} |",
            flush=True,
        )
    if record:
        recorded.record("overhead", {f"{variant}_x": ratio for variant, ratio in ratios.items()})
    return ratios["ray"]


def scale(short: bool) -> float:
    """Workers against an endpoint that takes a second: calls a second, over linear."""
    each, slots = (64, 16) if short else (160, 16)
    print(f"latency 0.5 s, {slots} slots a worker")
    print("| workers | calls/s | over linear |\n|---|---|---|")
    rates: dict[int, float] = {}
    for workers in (1, 2) if short else (1, 2, 4):
        seen = run("ray", each * workers, slots=slots * workers, workers=workers, latency=Constant(0.5))
        rates[workers] = seen.rate
        print(f"| {workers} | {seen.rate:.1f} | {seen.rate / rates[1] / workers:.3f} |", flush=True)
    return min(rate / rates[1] / workers for workers, rate in rates.items())


def run(
    variant: str,
    conversations: int,
    *,
    slots: int,
    workers: int,
    latency: Constant | LogNormal | None,
    python: str = "",
) -> Seen:
    """One job in a process of its own against an endpoint of its own."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder, "ledger.jsonl")
        settings = SimulatorSettings(words=60, length=None, latency=latency, ledger_path=str(ledger))
        with spawn(settings) as endpoint:
            if variant == "camel_ai":
                command = [python, str(Path(__file__).with_name("camel_ai_job.py"))]
            else:
                command = [sys.executable, "-m", "benchmarks.overhead", "--child", variant]
            command += [endpoint.base_url, str(conversations), str(slots), str(workers), folder]
            # camel-ai's package has our name: it must not find ours.
            own = os.environ | ({"PYTHONPATH": ""} if variant == "camel_ai" else {})
            done = subprocess.run(command, capture_output=True, text=True, env=own)
            if done.returncode:
                raise SystemExit(f"{variant} failed:\n{done.stderr[-3000:]}")
            endpoint.flush()
        return _seen(ledger, conversations, slots)


def _seen(ledger: Path, conversations: int, slots: int) -> Seen:
    rows = [row for row in read_rows(ledger) if row.outcome == "served"]
    assert len(rows) == conversations * MESSAGES, (len(rows), conversations * MESSAGES)
    times = sorted(row.time for row in rows)
    first, last = len(times) // 5, 4 * len(times) // 5
    each: Counter[str] = Counter()
    for row in rows:
        each[row.session] += row.delay  # type: ignore[assignment]
    longest = (
        max(each.values()) if len(each) == conversations else 0.0
    )  # who sends no session tells no conversations apart
    end = max(row.time + row.delay for row in rows)
    wall, bound = end - times[0], max(sum(each.values()) / slots, longest)
    return Seen(len(rows), wall, (last - first) / max(1e-9, times[last] - times[first]), bound)


def _child(variant: str, url: str, conversations: str, slots: str, workers: str, folder: str) -> None:
    job = {"ray": _on_ray, "here": _in_process, "ray_data": _through_ray_data}[variant]
    job(url, int(conversations), int(slots), int(workers), Path(folder))


def _config(url: str, conversations: int, slots: int, folder: Path):
    from camel import Sampling
    from camel.generation.config import GenerateConfig, RunSection
    from camel.models.spec import ModelSpec

    scenario = bots(folder / "bots", conversations, MESSAGES)
    return GenerateConfig(
        scenario=str(scenario),
        model=ModelSpec("simulated", base_url=url),
        out=str(folder / "run"),
        sampling=Sampling(temperature=0.2),
        shard_size=max(1, min(64, slots // 2)),
        run=RunSection(concurrency=slots),
    )


def _in_process(url: str, conversations: int, slots: int, workers: int, folder: Path) -> None:
    from camel import ChatModel
    from tests.support.jobs import generation

    async def work() -> None:
        async with ChatModel("simulated", base_url=url, api_key="") as model:
            outcome = await generation(_config(url, conversations, slots, folder), model).run()
            assert outcome.complete, outcome

    asyncio.run(work())


def _on_ray(url: str, conversations: int, slots: int, workers: int, folder: Path) -> None:
    from camel.jobs.cluster import Cluster
    from tests.support.jobs import generation

    runner = generation(_config(url, conversations, slots, folder))
    with Cluster(runner, "local", workers=workers):
        outcome = asyncio.run(runner.run())
    assert outcome.complete, outcome


def _through_ray_data(url: str, conversations: int, slots: int, workers: int, folder: Path) -> None:
    """As Ray's own guide to batch inference has it: a class whose instances take batches; in a batch, all at once."""
    import ray
    from ray.data import DataContext

    from camel import ChatModel, RolePlaying, paper_rules

    class Converse:
        def __call__(self, batch):
            async def converse() -> list[str]:
                async with ChatModel("simulated", base_url=url, api_key="") as model:
                    rules = paper_rules(max_messages=MESSAGES)
                    plays = [
                        RolePlaying(
                            **ROLES,
                            task=TASK.format(number),
                            model=model,
                            specifier=None,
                            rules=rules,
                            id=f"c{number}",
                        )
                        for number in batch["id"]
                    ]
                    await asyncio.gather(*(play.finish() for play in plays))
                    return [play.transcript.messages[-1].content for play in plays]

            batch["last"] = asyncio.run(converse())
            return batch

    ray.init(num_cpus=workers + 2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    DataContext.get_current().enable_progress_bars = False
    size = slots // workers
    rows = ray.data.range(conversations, override_num_blocks=max(1, conversations // size))
    rows.map_batches(Converse, concurrency=workers, batch_size=size).write_parquet(str(folder / "out"))


if __name__ == "__main__":
    started = time.monotonic()
    status = main()
    if "--child" not in sys.argv:
        print(f"{time.monotonic() - started:.0f} s")
    sys.exit(status)
