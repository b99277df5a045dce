"""What a tool call costs in a durable run, above the call of the function itself.

    python -m benchmarks.tools [--conversations N] [--rounds N]

Two runs differ only in the number of calls in a reply. The difference in CPU time of the process, divided by the number of
further calls, is the cost of one call: checked arguments, a thread, two entries in the journal, and the record.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import camel
from camel import Model, Reply, Request, RolePlaying, Toolbox, ToolLimits, tool
from camel.core.message import ToolCall, Usage
from camel.core.model import Choice

FEW, MANY = 1, 9
"""Calls in a reply."""
GOAL = 0.2
"""Milliseconds of CPU per call."""


def add(first: int, second: int = 1) -> int:
    """Add two numbers."""
    return first + second


class Caller(Model):
    """Calls the tool a number of times before each message of the assistant."""

    name = "caller"

    def __init__(self, calls: int) -> None:
        self.calls = calls

    async def reply(self, request: Request) -> Reply:
        """Return an instruction, calls, or a solution."""
        usage = Usage(10, 5, calls=1)
        if request.speaker == "user":
            return Reply((Choice("Instruction: Add.\nInput: None"),), usage)
        if request.history.entries[-1].role == "tool":
            return Reply((Choice("Solution: Added.\nNext request."),), usage)
        calls = (ToolCall("", "add", json.dumps({"first": one})) for one in range(self.calls))
        return Reply((Choice("", calls=tuple(calls)),), usage)


def seconds_of(calls: int, conversations: int, *, read_only: bool) -> float:
    """Return the CPU seconds of a run."""
    box = Toolbox([tool(read_only=read_only)(add)], limits=ToolLimits(per_message=MANY, calls=10_000))
    play = RolePlaying(
        "Add <number>", assistant="Adder", user="Asker", specify=False, max_messages=4, assistant_tools=box
    )
    rows = [{"number": number} for number in range(conversations)]
    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()
        camel.generate(play, model=Caller(calls), inputs=rows, out=Path(folder) / "run", progress=False)
        return time.process_time() - started


def cost_of_a_call(conversations: int, rounds: int, *, read_only: bool) -> float:
    """Return the median cost of a call in milliseconds, above that of the function."""
    further = (MANY - FEW) * 2 * conversations
    found = [
        seconds_of(MANY, conversations, read_only=read_only)
        - seconds_of(FEW, conversations, read_only=read_only)
        for _ in range(rounds)
    ]
    started = time.process_time()
    for one in range(further):
        add(first=one)
    return 1e3 * (statistics.median(found) - (time.process_time() - started)) / further


def main() -> int:
    """Print the cost of both kinds of tools."""
    parser = argparse.ArgumentParser(description="CPU per tool call in a durable run.")
    parser.add_argument("--conversations", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    seconds_of(FEW, 2, read_only=True)
    costs = {
        kind: cost_of_a_call(given.conversations, given.rounds, read_only=kind == "read_only")
        for kind in ("read_only", "once")
    }
    for kind, cost in costs.items():
        print(f"{kind:<9}  {cost:.3f} ms of CPU per call above the bare call (goal: at most {GOAL} ms)")
    return int(any(cost > GOAL for cost in costs.values()))


if __name__ == "__main__":
    raise SystemExit(main())
