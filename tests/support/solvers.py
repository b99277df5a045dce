"""A simulated model that solves 90 % of the problems of GSM8K and of HumanEval+."""

from __future__ import annotations

from functools import cache, lru_cache

from camel.evaluation.cooperation.exercises import read_exercises
from camel.evaluation.humaneval.problems import problems as programs
from camel.models.simulator.authors import Facts
from tests.support import gsm8k

AUTHOR = f"{__name__}:solve"
"""The name of the author, for the simulator's settings."""


@cache
def _known() -> dict[str, str]:
    known = dict(gsm8k.problems()) | {one.question: one.answer for one in read_exercises("gsm8k")}
    known = {question: f"#### {answer}" for question, answer in known.items()}
    return known | {one.prompt.rstrip(): f"```python\n{one.plus_solution}\n```" for one in programs()}


def solve(facts: Facts) -> str:
    """Answer the problem in the prompts. All answers differ from turn to turn."""
    given = _answer("\n".join([facts.system, *(message.text for message in facts.messages[:2])]))
    return f"This is step {facts.turns + 1} of {facts.draw % 1000}.\n{given}"


@lru_cache(10_000)
def _answer(asked: str) -> str:
    for number, (question, answer) in enumerate(_known().items()):
        if question in asked:
            return "#### -1" if number % 10 == 9 else answer
    return "There is no problem."
