"""Fifty problems of GSM8K, and a simulated model that solves 90 % of them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from camel.models.simulator.authors import Facts

FOLDER = Path(__file__).parents[1] / "data" / "gsm8k"
AUTHOR = f"{__name__}:solve"
"""The name of the author, for the simulator's settings."""
SOLVED = 45
"""The number of problems that it solves."""


@cache
def problems() -> tuple[tuple[str, str], ...]:
    """The questions and their numbers."""
    rows = map(json.loads, (FOLDER / "problems.jsonl").read_text("utf-8").splitlines())
    return tuple((row["question"], row["answer"].split("#### ")[-1]) for row in rows)


def solve(facts: Facts) -> str:
    """Answer the problem in the prompts. Every tenth answer is wrong, and all differ from turn to turn."""
    heard = "\n".join([facts.system, *(message.text for message in facts.messages)])
    for number, (question, answer) in enumerate(problems()):
        if question in heard:
            given = "-1" if number % 10 == 9 else answer
            return f"This is step {facts.turns + 1} of {facts.draw % 1000}.\n#### {given}"
    return "There is no problem."
