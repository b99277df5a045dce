"""The table of customers, and the author of the simulated replies.

A score depends only on the customer's name, which each message of a customer contains. All systems must keep the same rows.
"""

from __future__ import annotations

import csv
import json
import re
from hashlib import sha256
from pathlib import Path

from camel.models.simulator.authors import Facts, society

CUSTOMERS = 500
MESSAGES = 4
BAR = 3
"""The lowest score of a conversation that is kept."""
CALLS = CUSTOMERS * (MESSAGES + 1)
"""One call per message and one per score: the fewest that the job needs."""

_FIRST = [
    "Ada",
    "Ben",
    "Chen",
    "Dora",
    "Emil",
    "Fay",
    "Gus",
    "Hana",
    "Ivo",
    "Jun",
    "Kai",
    "Lena",
    "Milo",
    "Nora",
    "Omar",
    "Pia",
    "Quin",
    "Rosa",
    "Sami",
    "Tara",
    "Uma",
    "Vera",
    "Wim",
    "Xena",
    "Yuri",
]
_LAST = "Abbott Baker Costa Duarte Evans Fischer Garcia Hansen Ito Jones Khan Lopez Moreau Novak Okafor Patel Reyes Silva Tanaka Weber"
_PERSONAS = (
    "You are in a hurry.",
    "You are patient and precise.",
    "You are annoyed.",
    "You know nothing about technology.",
)
_ISSUES = (
    "It does not turn on.",
    "It arrived late.",
    "The invoice is wrong.",
    "You want to return it.",
    "A part is missing.",
)
_PRODUCTS = ("a kettle", "a bicycle", "a phone", "a desk lamp", "a printer", "a tent", "a coffee machine")


def names() -> list[str]:
    """Return the names of all customers, each one once."""
    return [f"{first} {last}" for last in _LAST.split() for first in _FIRST][:CUSTOMERS]


def write_table(path: Path) -> None:
    """Write the table, the same one each time."""
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["name", "persona", "issue", "product"])
        for number, name in enumerate(names()):
            table.writerow(
                [name, *(values[number % len(values)] for values in (_PERSONAS, _ISSUES, _PRODUCTS))]
            )


def score(name: str) -> int:
    """Return the score of a customer's conversation, from 1 to 5."""
    return sha256(name.encode()).digest()[0] % 5 + 1


_CUSTOMER = re.compile(r"You are (\w+ \w+), a customer")
_SIGNED = re.compile(r"This is (\w+ \w+)\.")


def reply(facts: Facts) -> str:
    """Write the next message of a customer or an agent, or a judge's answer in the format that the prompt describes."""
    texts = [message.text for message in facts.messages]
    prompt = "\n".join([facts.system, *texts])
    if prompt.strip() == "Jason is 25 years old.":  # curator tests whether the endpoint has structured output
        return json.dumps({"name": "Jason", "age": 25})
    signed = _SIGNED.search(prompt)
    if "Rate how well" in prompt and signed:
        value, reason = score(signed[1]), f"The agent answers {signed[1]}."
        if "helpful" in prompt and "```json" in prompt:  # the judge column of DataDesigner
            return f"```json\n{json.dumps({'helpful': {'reasoning': reason, 'score': value}})}\n```"
        if "Answer with a number from" in prompt:  # CAMEL
            return f"{value}. {reason}"
        return json.dumps({"reason": reason, "score": value})
    text = society(facts._replace(words=40))
    customer = _CUSTOMER.search(prompt)
    return f"This is {customer[1]}. {text}" if customer else text
