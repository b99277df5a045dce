"""What a call costs in a society of 1,000, compared with the same call between two speakers.

    python -m benchmarks.society            # 7 rounds of measurement
    python -m benchmarks.society --short    # for make thorough

Each variant runs in a process of its own against one simulated endpoint at zero latency, in alternating rounds; the
figure is CPU time (user and system) per LLM call, the least of the rounds, because noise only adds. The endpoint's
ledger counts the calls. Connections are opened before the clock starts. Compared are cases of the same message size
and of prompts of about the same length, as the ledger counts them:

- `two`: 300 conversations between two, 20 messages each, against `neighbors`: one society of 1,000, each heard by the
  next three, who all speak at the same time, 6 rounds.
- `two, apart`: conversations between two, one after the other, against `in turn`: a society that speaks one after the
  other. With a single call in flight each costs more, as nothing is done for several at once.
- `two, long prompts`: 1,000 conversations between two with prompts as long as those of `everyone`: 1,000 who all hear
  each other, 3 rounds of one sentence each. Half of what is sent is new in every call of either.
- `two, long and few`: 60 conversations of 20 messages with prompts as long, of which nearly nothing is new in a call.

The column `x others` holds the last two societies against the two-speaker cases that they are least like: `two` with
300 calls in flight for `in turn`, `two, long and few` for `everyone`. The goal is not on these.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import time
from typing import NamedTuple

from benchmarks import recorded
from camel.models.simulator import SimulatorSettings, spawn

SPEAKERS = 1_000
GOAL = 1.5
MOST = 1.9
"""Beyond this the run fails: above the goal, because on a busy machine the ratio of two short runs moves by a fifth."""
MOST_MB = {"neighbors": 250, "in turn": 250, "everyone": 1_500}
PROMPT = "You are <NAME>. " + "You listen, and you say what you think of the task. " * 20 + "<TASK>"


class Variant(NamedTuple):
    conversations: int
    speakers: int
    rounds: int
    words: float
    like: str = ""
    """The variant of two that it is held against."""
    other: str = ""
    """Another one, less like it, for comparison only."""
    reach: int = 0
    """By how many each is heard; 0 is everybody."""
    together: bool = False
    more: int = 0
    """Characters by which its prompts are longer."""
    apart: bool = False
    """Whether its conversations follow each other."""


VARIANTS = {
    "two": Variant(300, 2, 10, 60),
    "neighbors": Variant(1, SPEAKERS, 6, 60, "two", reach=3, together=True),
    "two, apart": Variant(100, 2, 10, 60, apart=True),
    "in turn": Variant(1, SPEAKERS, 2, 60, "two, apart", "two", reach=9),
    "two, long prompts": Variant(1_000, 2, 2, 8, more=92_000),
    "two, long and few": Variant(60, 2, 10, 8, more=92_000),
    "everyone": Variant(1, SPEAKERS, 3, 8, "two, long prompts", "two, long and few", together=True),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--child", choices=tuple(VARIANTS))
    parser.add_argument("--url", default="")
    recorded.option(parser)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(asyncio.run(_child(VARIANTS[args.child], args.url))))
        return 0
    rounds = args.rounds or (3 if args.short else 7)
    measured = compare(rounds)
    print(f"\nCPU per LLM call, {rounds} rounds\n")
    print(
        "| variant | speakers | calls | tokens a prompt | least, ms | median, ms | x two | x others | peak MB |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    fine = True
    over: dict[str, float] = {}
    for name, variant in VARIANTS.items():
        results = measured[name]
        cpu = [result["cpu"] / result["calls"] for result in results]
        ratios = [
            min(cpu) / min(r["cpu"] / r["calls"] for r in measured[two]) if two else None
            for two in (variant.like, variant.other)
        ]
        peak = max(result["peak_mb"] for result in results)
        if ratios[0] is not None:
            over[f"{name.replace(' ', '_')}_x"] = ratios[0]
            fine = fine and ratios[0] <= MOST and peak <= MOST_MB[name]
        held = " | ".join("" if ratio is None else f"{ratio:.2f}" for ratio in ratios)
        print(
            f"| {name} | {variant.speakers:,} | {results[0]['calls']:,.0f} | {results[0]['prompt']:,.0f} "
            f"| {min(cpu) * 1e3:.3f} | {statistics.median(cpu) * 1e3:.3f} | {held} | {peak:.0f} |"
        )
    print(f"\ngoal {GOAL}, fails beyond {MOST}; memory fails beyond {MOST_MB}")
    if args.record:
        recorded.record("society", over)
    return 0 if fine else 1


def compare(rounds: int) -> dict[str, list[dict[str, float]]]:
    """Run all variants in alternation."""
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in VARIANTS}
    for words in sorted({variant.words for variant in VARIANTS.values()}):
        with spawn(SimulatorSettings(words=words, length=None)) as endpoint:
            for _ in range(rounds):
                for name in [name for name, variant in VARIANTS.items() if variant.words == words]:
                    endpoint.reset()
                    command = [sys.executable, "-m", "benchmarks.society", "--child", name]
                    command += ["--url", endpoint.base_url]
                    done = subprocess.run(command, check=True, capture_output=True, text=True)
                    result = json.loads(done.stdout)
                    ledger = endpoint.ledger()
                    assert ledger.served == result["calls"] + result["warm"], (ledger, result)
                    measured[name].append(result)
    return measured


async def _child(variant: Variant, url: str) -> dict[str, float]:
    from camel import ChatModel

    async with ChatModel("simulated", base_url=url, api_key="") as model:
        # Everything imported and compiled, and the connections open.
        warm, _ = await _run(variant._replace(rounds=1), model)
        before = time.process_time()
        calls, prompt = await _run(variant, model)
        cpu = time.process_time() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"cpu": cpu, "calls": calls, "prompt": prompt / calls, "peak_mb": peak, "warm": warm}


async def _run(variant: Variant, model: object) -> tuple[int, int]:
    """Hold the conversations of a variant; how many calls they took, and how many tokens were sent."""
    from camel.core.graphs import Everyone, Ring
    from camel.core.member import Member
    from camel.core.society import Ending, Society
    from camel.core.turns import RoundRobin, Rounds

    society = Society(
        members=tuple(Member(f"Speaker {number}") for number in range(variant.speakers)),
        prompt=PROMPT + "x" * variant.more,
        turns=Rounds() if variant.together else RoundRobin(),
        hears=Ring(variant.reach) if variant.reach else Everyone(),
        stop=Ending(max_rounds=variant.rounds),
    )
    plays = [
        society.play(model, task=f"Task {number}", id=f"c{number}")  # type: ignore[arg-type]
        for number in range(variant.conversations)
    ]
    if variant.apart:
        for play in plays:
            await play.finish()
    else:
        async with asyncio.TaskGroup() as group:
            for play in plays:
                group.create_task(play.finish())
    for play in plays:
        stop = play.transcript.stop
        assert stop, play.transcript
        assert stop.reason == "max_rounds", stop
        assert len(play.transcript.messages) == variant.speakers * variant.rounds
    usages = [play.transcript.usage for play in plays]
    return sum(usage.calls for usage in usages), sum(usage.prompt for usage in usages)


if __name__ == "__main__":
    sys.exit(main())
