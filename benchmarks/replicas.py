"""Replicas of different speed that join, leave and stop answering while a run on a Ray cluster uses them.

    python -m benchmarks.replicas             # 4 nodes, 20 replicas, 20,000 conversations; about 15 minutes
    python -m benchmarks.replicas --short     # 2 nodes, 6 replicas, 400 conversations

The run reads its replicas from a watched file. When a fifth of the conversations are committed, a quarter as many replicas
join; later as many leave the file; later a few hang: they accept requests and never answer. Each replica has its own ledger,
and all figures come from the ledgers:

- load: busy seconds per slot and second in the list, for each replica while nothing is hurt; the largest over the mean;
- affinity: the share of calls that went to the same replica as the call before them in the conversation;
- prompt tokens: what the replicas computed, over what conversations that never moved compute for as many tokens;
- calls billed twice, all of which must have been lost in a replica that hung or left.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from benchmarks import recorded
from camel import Run
from camel.models.simulator import Constant, LedgerRow, Simulator, SimulatorSettings
from camel.models.simulator.ledger import read_rows
from tests.support import cluster

SECONDS = (0.4, 0.6, 0.8, 1.2, 1.6)
"""Latencies of the replicas, in turn."""
SLOTS = 16
TRY = 8.0
"""Timeout of one attempt."""
LIMITS = {"load": 1.25, "affinity": 0.95, "tokens": 1.1}


class Size(NamedTuple):
    """How large everything is."""

    nodes: int
    replicas: int
    more: int
    """Replicas that join, and that leave."""
    hung: int
    conversations: int
    messages: int
    window: int
    shard: int


FULL = Size(4, 20, 5, 3, 20_000, 6, 240, 50)
SHORT = Size(2, 6, 2, 1, 400, 6, 48, 10)


# ---------------------------------------------------------------- the replicas, in a process of their own


async def serve(folder: Path, count: int, messages: int) -> None:
    """Serve replicas until standard input closes. A number on standard input makes that replica hang."""
    async with contextlib.AsyncExitStack() as stack:
        replicas = [
            await stack.enter_async_context(
                Simulator(
                    SimulatorSettings(
                        length=Constant(messages),
                        latency=Constant(SECONDS[number % len(SECONDS)]),
                        prefix_cache=1_000_000,
                        capacity=SLOTS,
                        ledger_path=str(folder / f"{number}.jsonl"),
                    )
                )
            )
            for number in range(count)
        ]
        print(json.dumps([replica.base_url for replica in replicas]), flush=True)
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        while line := await reader.readline():
            _hang(replicas[int(line)])


def _hang(replica: Any) -> None:
    planner = replica._planner
    plan = planner._serve

    def never(*args: Any) -> Any:
        return plan(*args)._replace(delay=1e9)

    planner._serve = never


# ---------------------------------------------------------------- the run


@dataclass
class Replica:
    """One replica, and when it was in the list."""

    url: str
    seconds: float
    spans: list[list[float]] = field(default_factory=list[list[float]])
    hung_at: float = float("inf")
    rows: list[LedgerRow] = field(default_factory=list[LedgerRow])

    @property
    def listed(self) -> bool:
        return bool(self.spans) and self.spans[-1][1] == float("inf")


class Replicas:
    """The replicas, and the file that lists them."""

    def __init__(self, folder: Path, size: Size, child: subprocess.Popen[str]) -> None:
        assert child.stdin
        assert child.stdout
        self.folder, self.size, self._stdin = folder, size, child.stdin
        urls = json.loads(child.stdout.readline())
        self.all = [Replica(url, SECONDS[number % len(SECONDS)]) for number, url in enumerate(urls)]
        self.list = folder / "replicas.txt"
        self.set(self.all[: size.replicas])

    def set(self, wanted: list[Replica]) -> None:
        """List these replicas and no others."""
        now = time.time()
        for replica in self.all:
            if replica in wanted and not replica.listed:
                replica.spans.append([now, float("inf")])
            elif replica not in wanted and replica.listed:
                replica.spans[-1][1] = now
        file = self.list.with_suffix(".new")
        file.write_text("\n".join(replica.url for replica in wanted) + "\n")
        file.replace(self.list)

    def join(self) -> None:
        self.set(self.all)

    def leave(self) -> None:
        self.set(self.all[self.size.more :])

    def hang(self) -> None:
        for replica in self.all[self.size.more : self.size.more + self.size.hung]:
            replica.hung_at = time.time()
            self._stdin.write(f"{self.all.index(replica)}\n")
        self._stdin.flush()

    def read(self) -> None:
        """Read the ledgers. The replicas must have ended."""
        for number, replica in enumerate(self.all):
            replica.rows = read_rows(self.folder / f"{number}.jsonl")


@contextlib.contextmanager
def running(folder: Path, size: Size) -> Generator[Replicas]:
    """Run the replicas in a child process."""
    command = [sys.executable, "-m", "benchmarks.replicas", "--serve", str(folder)]
    command += [str(size.replicas + size.more), str(size.messages)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as child:
        assert child.stdin
        replicas = Replicas(folder, size, child)
        try:
            yield replicas
        finally:
            child.stdin.close()
            child.wait(60)
    replicas.read()


def generate(replicas: Replicas, address: str, environment: dict[str, str]) -> float:
    """Make the run, and hurt it on the way. Return its seconds."""
    size, folder = replicas.size, replicas.folder
    roles, tasks = _counts(size.conversations)
    (folder / "run.toml").write_text(
        f'scenario = "ai_society"\nout = "run"\nlists = "asked"\nshard_size = {size.shard}\n'
        f"counts = {{ assistant_role = {roles}, user_role = {roles}, task = {tasks} }}\n"
        f"[run]\nconcurrency = {size.window}\n"
        f'[model]\nname = "simulated"\nbase_url = "{replicas.list.as_uri()}"\nattempt_timeout = {TRY}\n'
    )
    script = str(Path(sys.executable).with_name("camel"))
    command = [script, "generate", "run.toml", "--address", address, "--workers", str(size.nodes)]
    started = time.monotonic()
    # Joining first, so that there is a stretch with all of them.
    steps = iter([(0.2, replicas.join), (0.45, replicas.leave), (0.7, replicas.hang)])
    share, act = next(steps)
    with (
        (folder / "out.txt").open("w+") as out,
        subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=out) as child,
    ):
        while child.poll() is None:
            time.sleep(0.5)
            with contextlib.suppress(FileNotFoundError):
                shards = len(os.listdir(folder / "run" / "committed" / "conversations"))  # noqa: PTH208
                if shards * size.shard >= share * size.conversations:
                    act()
                    share, act = next(steps, (2.0, act))
    if child.returncode:
        raise SystemExit(
            f"camel generate ended with {child.returncode}:\n{(folder / 'out.txt').read_text()[-3000:]}"
        )
    return time.monotonic() - started


def _counts(conversations: int) -> tuple[int, int]:
    """Numbers of roles and of tasks per pair that make this number of conversations."""
    roles = max(n for n in range(1, 21) if conversations % (n * n) == 0)
    return roles, conversations // roles**2


# ---------------------------------------------------------------- the figures


def figures(replicas: Replicas, seconds: float) -> dict[str, float]:
    """Compute all figures from the ledgers."""
    size = replicas.size
    calls: dict[str, list[tuple[LedgerRow, Replica]]] = defaultdict(list)
    for replica in replicas.all:
        for row in replica.rows:
            if row.session:
                calls[row.session].append((row, replica))
    followed = stayed = 0
    computed = asked = still_computed = still_asked = 0
    for found in calls.values():
        found.sort(key=lambda one: one[0].time)
        served = [(row, replica) for row, replica in found if row.outcome == "served"]
        same = [one is other for (_, one), (_, other) in itertools.pairwise(served)]
        followed, stayed = followed + len(same), stayed + sum(same)
        new = sum(row.prompt_tokens - row.cached_tokens for row, _ in served)
        every = sum(row.prompt_tokens for row, _ in served)
        computed, asked = computed + new, asked + every
        if all(same):
            still_computed, still_asked = still_computed + new, still_asked + every
    repeats = _repeats(calls)
    unexplained = [said for said in repeats if said]
    print("\n".join(unexplained[:20]))
    run = Run(replicas.folder / "run")
    ids = [conversation.id for conversation in run]
    return {
        "load": _worst_load(replicas),
        "affinity": stayed / followed,
        "tokens": computed / asked / (still_computed / still_asked),
        "conversations": len(ids),
        "missing": size.conversations - len(set(ids)),
        "refused": sum(row.status == 429 for replica in replicas.all for row in replica.rows),
        "calls": sum(row.billed for replica in replicas.all for row in replica.rows),
        "repeats": len(repeats),
        "unexplained repeats": len(unexplained),
        "seconds": seconds,
    }


def _worst_load(replicas: Replicas) -> float:
    """Return the largest load of a replica over the mean, over the time in which it was listed and answered."""
    rows = [row for replica in replicas.all for row in replica.rows]
    times = sorted(row.time for row in rows)
    # Without the lists at the start and the last conversations, when few calls are in flight.
    begin, end = times[len(times) // 50], times[-len(times) // 50]
    loads: list[float] = []
    for replica in replicas.all:
        spans = [(max(begin, start), min(end, stop, replica.hung_at)) for start, stop in replica.spans]
        length = sum(max(0.0, stop - start) for start, stop in spans)
        busy = sum(
            row.delay
            for row in replica.rows
            if row.outcome == "served" and any(start <= row.time < stop for start, stop in spans)
        )
        if length > 0.1 * (end - begin):
            loads.append(busy / length / SLOTS)
    return max(loads) / (sum(loads) / len(loads))


def _repeats(calls: dict[str, list[tuple[LedgerRow, Replica]]]) -> list[str]:
    """Return for each call that was billed again an empty text if the one before was lost in a replica that hung or left.
    Otherwise, return what is known about it."""
    found: list[str] = []
    for rows in calls.values():
        before: dict[str, tuple[LedgerRow, Replica]] = {}
        for row, replica in rows:
            if not row.billed:
                continue
            if row.hash in before:
                last, where = before[row.hash]
                lost = last.time + 2 * TRY > where.hung_at or not where.listed
                said = f"{last.outcome} at {last.time:.1f} by {where.url}, again at {row.time:.1f} by {replica.url}; listed "
                said += f"{where.spans}, hung at {where.hung_at:.1f}: {row.session}"
                found.append("" if lost and last.outcome != "served" else said)
            before[row.hash] = row, replica
    return found


def measure(folder: Path, size: Size, ray: cluster.RayCluster) -> dict[str, float]:
    """Make the run on a cluster, and return the figures."""
    with running(folder, size) as replicas:
        seconds = generate(replicas, ray.address, {**ray.environment, "OPENAI_API_KEY": "none"})
    return figures(replicas, seconds)


def failures(found: dict[str, float]) -> Iterator[str]:
    """Yield what does not hold."""
    for name, limit in LIMITS.items():
        if (found[name] < limit) if name == "affinity" else (found[name] > limit):
            yield f"{name}: {found[name]:.3f} (limit {limit})"
    for name in ("missing", "unexplained repeats"):
        if found[name]:
            yield f"{name}: {found[name]:.0f}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--serve", nargs=3, metavar=("FOLDER", "COUNT", "MESSAGES"), help=argparse.SUPPRESS)
    recorded.option(parser)
    args: Any = parser.parse_args()
    if args.serve:
        asyncio.run(serve(Path(args.serve[0]), int(args.serve[1]), int(args.serve[2])))
        return 0
    size = SHORT if args.short else FULL
    with tempfile.TemporaryDirectory() as folder, cluster.start(nodes=size.nodes) as ray:
        found = measure(Path(folder), size, ray)
    print(
        f"\n{size.conversations:,} conversations, {size.nodes} nodes, {size.replicas} replicas; {size.more} join, ",
        end="",
    )
    print(f"{size.more} leave, {size.hung} hang\n\n| what | figure | limit |\n|---|---|---|")
    for name, value in found.items():
        print(f"| {name} | {msgspec.json.encode(round(value, 3)).decode()} | {LIMITS.get(name, '')} |")
    wrong = list(failures(found))
    print("\n" + ("\n".join(wrong) or "all limits hold"))
    if args.record:
        recorded.record("replicas", {**found, **size._asdict()})
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
