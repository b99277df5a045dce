"""An author for the simulated endpoint whose programs pass or fail as planted, each saying in a comment which it is."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from functools import cache

from camel.evaluation.humaneval.problems import Problem, problems
from camel.models.simulator import Facts
from camel.models.simulator.settings import fraction, mix

HUMANEVAL_ONLY = {
    f"HumanEval/{n}" for n in (22, 44, 64, 76, 91, 95, 97, 111, 122, 123, 124, 125, 132, 140, 150)
}
"""Problems whose own reference is wrong for an input of HumanEval+, and says so quickly."""
_MARK = re.compile(r"planted (\w+) (\w+)")


@cache
def _by_prompt() -> dict[str, tuple[int, Problem]]:
    return {problem.prompt.rstrip(): (place, problem) for place, problem in enumerate(problems())}


def author(facts: Facts) -> str:
    """Answer a problem: right as often as is planted for it, and in one of the ways in which chat models write."""
    asked = facts.messages[-1].text
    place, problem = _by_prompt()[asked.partition("```python\n")[2].rpartition("\n```")[0]]
    share = (place * 37 % 101) / 100
    if fraction(mix(facts.draw, 1)) < share:
        if problem.name in HUMANEVAL_ONLY and mix(facts.draw, 2) % 3 == 0:
            return _fenced("# planted yes no\n" + problem.prompt + problem.solution, facts.draw)
        return _fenced("# planted yes yes\n" + problem.plus_solution, facts.draw)
    return _wrong(problem, mix(facts.draw, 3) % 4, facts.draw)


def _wrong(problem: Problem, way: int, draw: int) -> str:
    head = "# planted no no\n" + problem.prompt.rstrip()
    if way == 0:
        return f"I am sorry, I do not know how to write {problem.entry}. (planted no no)"
    body = {1: "return 'planted'", 2: "raise RuntimeError('planted')", 3: "import os\nos._exit(0)"}[way]
    return _fenced(f"{head}\n{textwrap.indent(body, '    ')}\n", draw)


def _fenced(code: str, draw: int) -> str:
    way = mix(draw, 4) % 4
    if way == 0:
        return f"```python\n{code}\n```"
    if way == 1:
        return f"Sure! Here is the function:\n\n```py\n{code}\n```\n\nIt loops over the input and returns the result."
    if way == 2:
        return code
    return f"Here you are:\n\n```\n{code}\n```\n```\nexample output\n```"


def planted(answers: Iterable[str]) -> tuple[int, int]:
    """How many of the answers were planted to pass HumanEval, and HumanEval+."""
    found = [_MARK.search(answer) for answer in answers]
    assert all(found)
    return sum(one[1] == "yes" for one in found if one), sum(one[2] == "yes" for one in found if one)
