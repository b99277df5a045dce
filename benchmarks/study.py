"""`camel study` on real conversations of the small model and on 25,000 simulated ones: wall clock, CPU and memory.

    python -m benchmarks.study real FOLDER              # 240 conversations of up to 6 messages; half an hour, resumable
    python -m benchmarks.study real FOLDER --minutes 4  # a portion of them
    python -m benchmarks.study simulated FOLDER         # 25,000 of the simulated endpoint; ten minutes
    python -m benchmarks.study measure RUN              # study it, and say what that took
    python -m benchmarks.study coverage                 # how many intervals hold the true share; a minute

Half of the real conversations are held to the instruction format and half are free, so that behaviors occur.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import numpy as np

from camel import ChatModel, LocalServer, Sampling
from camel.core.model import Model, Reply, Request
from camel.generation.config import GenerateConfig, RunSection
from camel.jobs.budget import Budget
from camel.jobs.runner import Outcome
from camel.models.local import ALIAS, running
from camel.models.simulator import SimulatorSettings, spawn
from camel.models.spec import ModelSpec
from camel.reports.intervals import Clusters
from tests.support.jobs import generation

SCENARIO = """\
title = "Neighbors"

[[levels]]
name = "assistant_role"
items = ["Python Programmer", "Chef", "Gardener", "Lawyer", "Doctor", "Travel Agent", "Historian", "Accountant"]

[[levels]]
name = "user_role"
items = ["Student", "Shop Owner", "Retired Teacher", "Journalist", "Parent", "Musician"]

[[levels]]
name = "task"
items = [
    "Plan a weekend festival for the neighborhood",
    "Write a short guide for newcomers to the town",
    "Find out why sales have fallen and what to do about it",
    "Write a small program that keeps a list of birthdays",
    "Prepare a lesson on healthy food for children",
]

[role_play]
assistant = "<ASSISTANT_ROLE>"
user = "<USER_ROLE>"
task = "<TASK>"
assistant_prompt = "assistant.txt"
user_prompt = "user.txt"
specify = false
max_messages = 6
"""
# Shorter than the paper's: reading prompts is most of the time that this model takes.
PROMPTS = {
    "assistant": """\
You are a <ASSISTANT_ROLE> and I am a <USER_ROLE>. Never instruct me! Our task: <TASK>.
Always answer with: Solution: <YOUR_SOLUTION>
Be specific. Always end with: Next request.
""",
    "user": """\
You are a <USER_ROLE> and I am a <ASSISTANT_ROLE>. Always instruct me. Our task: <TASK>.
Always write: Instruction: <YOUR_INSTRUCTION>
Input: <YOUR_INPUT> or None
When the task is completed, reply only with <CAMEL_TASK_DONE>.
""",
}
MOST_MB = 500


class Mixed(Model):
    """A model that holds every other conversation to the format."""

    def __init__(self, free: ChatModel, guided: ChatModel) -> None:
        self._models = free, guided
        self.name, self.context_tokens = ALIAS, free.context_tokens

    async def reply(self, request: Request) -> Reply:
        """Ask the one or the other, by the conversation's number."""
        return await self._models[int(request.session.replace("_", "")) % 2].reply(request)


async def real(folder: Path, minutes: float) -> Outcome:
    """Continue the real conversations for so many minutes."""
    scenario = folder / "neighbors"
    scenario.mkdir(parents=True, exist_ok=True)
    (scenario / "scenario.toml").write_text(SCENARIO)
    for name, text in PROMPTS.items():
        (scenario / f"{name}.txt").write_text(text)
    config = GenerateConfig(
        scenario=str(scenario),
        model=ModelSpec(ALIAS),
        out=str(folder / "run"),
        sampling=Sampling(temperature=0.8, max_tokens=48),
        seed=1,
        run=RunSection(concurrency=8),
        budget=Budget(hours=minutes / 60),
    )
    # Two servers of one thread each: the threads of one wait for each other when the machine is busy (models/local.py).
    with (
        running(LocalServer(parallel=4, threads=1)) as one,
        running(LocalServer(parallel=4, threads=1)) as two,
    ):
        urls = [one.base_url, two.base_url]
        shared = {"base_url": urls, "api_key": "", "context_tokens": one.context_tokens}
        async with ChatModel(ALIAS, **shared) as free, ChatModel(ALIAS, guided="llama.cpp", **shared) as held:
            return await generation(config, Mixed(free, held)).run()


async def simulated(folder: Path, url: str, counts: dict[str, int]) -> Outcome:
    """The paper's AI Society, of the simulated endpoint."""
    config = GenerateConfig(
        scenario="ai_society",
        model=ModelSpec("simulated", base_url=url),
        out=str(folder),
        counts=counts,
        run=RunSection(concurrency=128),
    )
    async with ChatModel("simulated", base_url=url, api_key="") as model:
        return await generation(config, model).run()


def measure(run: Path, out: Path) -> int:
    """Study a run in a process of its own, and print what it took; then again, when everything is known."""
    for what in ("first", "again"):
        started = time.monotonic()
        child = subprocess.Popen(
            [sys.executable, "-m", "camel", "study", str(run), "--out", str(out)], stdout=subprocess.DEVNULL
        )
        most = 0.0
        while child.poll() is None:
            most = max(most, _memory(child.pid))
            time.sleep(0.1)
        wall = time.monotonic() - started
        usage = os.times()
        print(
            f"{what}: {wall:.1f} s wall, {usage.children_user + usage.children_system:.1f} s CPU so far, {most:.0f} MB at most"
        )
        if child.returncode or most > MOST_MB:
            return 1
    return 0


def coverage(studies: int = 1_500) -> int:
    """Draw conversations whose own share varies, and count the intervals for the share of messages that hold the true one."""
    chance = np.random.default_rng(3)
    least = 1.0
    print(
        "| conversations | share | correlation within | intervals that hold it | mean width |\n|---|---|---|---|---|"
    )
    kinds = product((30, 120, 240, 1_000), (0.005, 0.02, 0.1, 0.5), (0.0, 0.1, 0.33, 0.6, 0.9))
    for conversations, share, within in kinds:
        shape = studies, conversations
        sizes = chance.integers(2, 12, shape)
        spread = 1 / within - 1 if within else 0.0
        own = chance.beta(share * spread, (1 - share) * spread, shape) if within else np.full(shape, share)
        counts = chance.binomial(sizes, own)
        sums = [counts, sizes, counts**2, sizes**2, counts * sizes]
        rows = np.stack([values.sum(axis=1) for values in sums], axis=1).tolist()
        rates = [Clusters(conversations, *row).rate() for row in rows]
        held = sum(rate.low <= share <= rate.high for rate in rates) / studies
        width = sum(rate.high - rate.low for rate in rates) / studies
        print(f"| {conversations:,} | {share} | {within} | {held:.3f} | {width:.3f} |")
        least = min(least, held)
    print(f"\nthe least: {least:.3f}")
    return 1 if least < 0.93 else 0


def _memory(pid: int) -> float:
    """Megabytes of a process and its children, what they share counted once."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    total = 0.0
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += float(line.split()[1]) / 1024
        return total + sum(_memory(int(child)) for child in children.read_text().split())
    except (FileNotFoundError, ProcessLookupError):
        return total


def main() -> int:
    """Parse and do."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["real", "simulated", "measure", "coverage"])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("runs/study"))
    parser.add_argument("--minutes", type=float, default=240)
    parser.add_argument("--short", action="store_true")
    parser.add_argument(
        "--out", type=Path, help="For `measure`: a folder for the study (default: one next to the run)."
    )
    args = parser.parse_args()
    if args.what == "coverage":
        return coverage()
    if args.what == "real":
        print(asyncio.run(real(args.folder, args.minutes)))
        return 0
    if args.what == "simulated":
        counts = {"assistant_role": 5, "user_role": 5} if args.short else {}
        with spawn(SimulatorSettings(words=60, prefix_cache=200_000)) as endpoint:
            print(asyncio.run(simulated(args.folder, endpoint.base_url, counts)))
        return 0
    out = args.out or args.folder.parent / f"{args.folder.name}-study"
    shutil.rmtree(out, ignore_errors=True)
    return measure(args.folder, out)


if __name__ == "__main__":
    sys.exit(main())
