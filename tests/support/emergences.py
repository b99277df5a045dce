"""A chain of models and an endpoint in which it is known who is to win: the paper's own Table 2, planted."""

from __future__ import annotations

import json
import re

from camel.models.simulator import Facts
from camel.training.emergence.results import PAPER

CHAIN = ("llama-7b", "society-7b", "code-7b", "math-7b", "camel-7b")
"""Asked at the endpoint, by how many datasets they have seen."""
EVIL = "</div><script>alert(1)</script> | **x**"
SUBJECTS = {
    "mathematics": ("math", 0),
    "physics": ("science", 0),
    "chemistry": ("science", 20),
    "biology": ("science", 40),
}
_CASE = re.compile(r"Case (\d+) of (\w+)")


def outcome(seen: tuple[int, int], domain: str, number: int) -> str:
    """What is planted for a question: who wins, or which kind of draw it is."""
    draws, one, two = PAPER.get(seen, PAPER[0, 1])[domain]
    number %= draws + one + two
    if number < two:
        return "after"
    if number < two + one:
        return "before"
    # A judge that goes by the place has no opinion: in both orders together that is a draw.
    return ("equal", "first", "second", "first")[number % 4]


def answer(asked: str, model: str) -> str:
    """What the endpoint says."""
    if wanted := re.match(r"List (\d+) ", asked):
        there = len(re.findall(r"^\d+\. ", asked, re.MULTILINE))
        subject = re.search(r"questions in (\w+)", asked)
        name = subject[1] if subject else "code" if "programming" in asked else "society"
        cases = range(there, there + int(wanted[1]))
        return "\n".join(f"{n + 1}. Case {n} of {name} {EVIL}" for n in cases)
    if not asked.startswith("You are an impartial judge"):
        return f"It is {model} who answers {'at length ' * (len(asked) % 5)}{EVIL}"
    case = _CASE.search(asked)
    said = re.findall(r"^> It is (\S+) who", asked, re.MULTILINE)
    assert case
    assert len(said) == 2
    domain, offset = SUBJECTS.get(case[2], (case[2], 0))
    first, second = map(CHAIN.index, said)
    kind = outcome((min(first, second), max(first, second)), domain, int(case[1]) + offset)
    later = 1 if first > second else 2
    better = {"after": later, "before": 3 - later, "equal": 0, "first": 1, "second": 2}[kind]
    scores = [[6, 6], [8, 5], [5, 8]][better]
    return json.dumps({"reason": f"It is {kind}. {EVIL}", "scores": scores, "better": better})


def author(facts: Facts) -> str:
    """The same as an author of the simulated endpoint."""
    return answer(facts.messages[0].text, facts.model)


def config(*, ends: bool = True, repeats: int = 5, more: str = "") -> str:
    """The paper's chain, all of it served by the endpoint."""
    names = ("AI Society", "Code", "Math", "Science")
    steps = [
        f'[[steps]]\nname = "{name}"\nmodel = "{model}"\n'
        for name, model in zip(names, CHAIN[1:], strict=True)
    ]
    head = f'base = "{CHAIN[0]}"\njudges = ["judge"]\nlists = "asked"\nrepeats = {repeats}\nends = {str(ends).lower()}\n{more}'
    return head + "".join(steps)
