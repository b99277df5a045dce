"""What the permanent loss of a node with its disk costs, and what it costs to be prepared.

    python -m benchmarks.node_loss                 # 20 losses
    python -m benchmarks.node_loss --losses 3
    python -m benchmarks.node_loss --short         # 3 losses, 2 rounds

The run is in an S3 server of the tests, and its journals are copied there. A process with a folder of its own is a node: it
is killed with SIGKILL, its folder is deleted, and another one with an empty folder continues. The endpoint's ledger is the
witness. A call was lost if its reply had been sent before the kill and it was paid for again afterwards; calls in flight are
not counted. Seconds are the age of the oldest lost reply, bytes those of the journals that were not in the store.

Then the same conversations are generated with copies and without, in interleaved rounds: CPU time of the process and wall
time, the lowest of each. The S3 server runs on the same machine and is not counted as CPU time.

Exits with 1 if the run is not complete, a loss exceeds the bound, or copies cost more than 5 % of the CPU time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import msgspec

from benchmarks import recorded
from camel.engine import fence
from camel.generation.config import CONVERSATIONS, GenerateConfig, RunSection
from camel.library.run import Run
from camel.models.simulator import Constant, LogNormal, SimulatorProcess, SimulatorSettings, spawn
from camel.models.simulator.ledger import read_rows
from camel.models.spec import ModelSpec
from camel.runs import copies
from camel.runs.copies import CopyLimits
from camel.runs.run import JOURNALS, RunFolder
from camel.storage.store import BucketStore
from tests.support import s3_faults
from tests.support.jobs import generation

MESSAGES, WINDOW = 20, 16
LATENCY = LogNormal(0.15, 0.6)
CALLS_PER_LIFE = 250
MOST = 0.05


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--losses", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--node", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--copy", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--impatient", action="store_true", help=argparse.SUPPRESS)
    recorded.option(parser)
    given = parser.parse_args()
    if given.node:
        return _node(given.node, given.copy, given.impatient)
    losses, rounds = (3, 2) if given.short else (given.losses, given.rounds)
    with tempfile.TemporaryDirectory() as scratch, s3_faults.spawn() as store:
        os.environ.update(store.environment)
        sound = not losses or _lose(Path(scratch), store, losses, random.Random(given.seed), given.record)
        cheap = not rounds or _compare(Path(scratch), store, rounds, given.record)
    return int(not (sound and (cheap or given.short)))


def _node(file: Path, copy: bool, impatient: bool) -> int:
    """Be a node: work on the run until it is complete."""
    if impatient:  # a node need not wait for the one that the benchmark has killed
        fence.STALE, fence.RENEW_EVERY, copies.RESCUE = 0.5, 0.25, 0.0
    runner = generation(msgspec.json.decode(file.read_bytes(), type=GenerateConfig))
    runner.copying = copy
    cpu, wall = time.process_time(), time.monotonic()
    outcome = asyncio.run(runner.run())
    print(json.dumps({"cpu": time.process_time() - cpu, "wall": time.monotonic() - wall}), flush=True)
    return outcome.exit_status


def _start(file: Path, journals: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.node_loss", "--node", str(file), *options]
    return subprocess.Popen(command, env=os.environ | {JOURNALS: str(journals)}, stdout=subprocess.PIPE)


def _config(file: Path, endpoint: SimulatorProcess, out: str, conversations: int, window: int) -> Path:
    counts = {"assistant_role": 1, "user_role": 1, "task": conversations}
    model = ModelSpec("simulated", base_url=endpoint.base_url)
    run = RunSection(concurrency=window)
    config = GenerateConfig("ai_society", model, out=out, counts=counts, shard_size=16, run=run)
    file.write_bytes(msgspec.json.encode(config))
    return file


def _lose(scratch: Path, store: s3_faults.Server, losses: int, chance: random.Random, record: bool) -> bool:
    """Lose one node after the other."""
    rows, place, limits = scratch / "rows.jsonl", store.address("lost"), CopyLimits()
    conversations = max(16, losses * CALLS_PER_LIFE // MESSAGES)
    settings = SimulatorSettings(length=Constant(MESSAGES), latency=LATENCY, ledger_path=str(rows))
    kills: list[float] = []
    uncopied: list[int] = []
    with spawn(settings) as endpoint:
        file = _config(scratch / "lost.json", endpoint, place, conversations, WINDOW)
        while True:
            journals = scratch / f"node{len(kills)}"
            child = _start(file, journals, "--copy", "--impatient")
            until = endpoint.ledger().requests + chance.randint(CALLS_PER_LIFE // 4, CALLS_PER_LIFE)
            while child.poll() is None and (len(kills) >= losses or endpoint.ledger().requests < until):
                time.sleep(0.01)
            if child.poll() is not None:
                break
            child.kill()
            kills.append(time.time())
            child.wait()
            uncopied.append(_uncopied(journals, place))
            shutil.rmtree(journals)
        status = child.returncode
        endpoint.flush()
    os.environ[JOURNALS] = str(scratch / "reader")
    complete = status == 0 and len(Run(place)) == conversations
    ages: dict[int, list[float]] = defaultdict(list)
    sent: dict[str, list[float]] = defaultdict(list)
    done: dict[tuple[str, int], float] = {}
    for row in read_rows(rows):
        if row.billed:
            done[row.hash, len(sent[row.hash])] = row.time + row.delay
            sent[row.hash].append(row.time)
    for hash, times in sent.items():
        for number, (first, again) in enumerate(pairwise(times)):
            loss = next(loss for loss, at in enumerate(kills) if first <= at <= again)
            if (age := kills[loss] - done[hash, number]) > 0:
                ages[loss].append(age)
    worst, most = max((age for each in ages.values() for age in each), default=0.0), max(uncopied, default=0)
    calls = sum(map(len, sent.values()))
    print(f"{len(kills)} losses, {calls:,} calls, complete: {complete}")
    print(f"paid for again after their reply: {sum(map(len, ages.values()))} calls")
    print(f"worst loss: {worst:.2f} s, {most:,} bytes (bound: {limits.seconds:g} s, {limits.bytes:,} bytes)")
    if record:
        figures = {"losses": len(kills), "worst_s": round(worst, 2), "worst_bytes": most}
        recorded.record("node_loss", {name: float(value) for name, value in figures.items()})
    return complete and worst <= limits.seconds and most <= limits.bytes


def _uncopied(journals: Path, place: str) -> int:
    """Return the largest number of bytes of a journal that are not in the store."""
    store = BucketStore(place)
    copier = RunFolder(journals, store).copier
    assert copier is not None
    found = [0]
    for path in journals.rglob(f"journal/{CONVERSATIONS}/*-*"):
        shard, _, attempt = path.name.partition("-")
        there = copier.listed(CONVERSATIONS, int(shard)).get(attempt)
        if not store.exists(f"committed/{CONVERSATIONS}/{shard}.json"):
            found.append(path.stat().st_size - (there.size if there else 0))
    return max(found)


def _compare(scratch: Path, store: s3_faults.Server, rounds: int, record: bool) -> bool:
    """Generate the same conversations with copies and without."""
    figures: dict[bool, list[dict[str, float]]] = {True: [], False: []}
    for number in range(rounds):
        for copy in (True, False) if number % 2 else (False, True):
            name = f"round{number}-{copy}"
            settings = SimulatorSettings(length=Constant(MESSAGES), latency=LATENCY)
            with spawn(settings) as endpoint:
                file = _config(scratch / f"{name}.json", endpoint, store.address(name), 64, 32)
                child = _start(file, scratch / name, *["--copy"] * copy)
                out, _ = child.communicate()
            assert child.returncode == 0
            figures[copy].append(json.loads(out.splitlines()[-1]))
    lowest = {
        what: {copy: min(one[what] for one in each) for copy, each in figures.items()}
        for what in ("cpu", "wall")
    }
    cost = {what: each[True] / each[False] - 1 for what, each in lowest.items()}
    for what, each in lowest.items():
        print(f"{what}: {each[False]:.2f} s without copies, {each[True]:.2f} s with: {cost[what]:+.1%}")
    if record:
        recorded.record("node_loss", {f"{what}_cost": round(value, 3) for what, value in cost.items()})
    return cost["cpu"] <= MOST


if __name__ == "__main__":
    sys.exit(main())
