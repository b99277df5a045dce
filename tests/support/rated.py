"""Planted quality: an author for the simulated endpoint that makes good and bad conversations, and a judge with noise."""

from __future__ import annotations

import re

from camel.core.transcript import Transcript
from camel.models.simulator import Facts
from camel.models.simulator.authors import society
from camel.models.simulator.settings import fraction, mix

BAD = "To be honest, I have no idea what this is about."
NOISE = 0.05
_NUMBER = re.compile(r"row (\d+)")


def is_bad(number: int) -> bool:
    """Whether the conversation about a row is planted as a bad one."""
    return mix(number, 7) % 4 == 0


def is_wrong(number: int) -> bool:
    """Whether the judge errs about the conversation of a row."""
    return fraction(mix(number, 8)) < NOISE


def number_of(transcript: Transcript) -> int:
    """The row of a conversation."""
    return int(transcript.inputs["number"])


def author(facts: Facts) -> str:
    """Write a conversation, with one bad sentence in a bad one. As a judge, look for that sentence, and sometimes err."""
    asked = facts.messages[-1].text
    row = _NUMBER.search(facts.system or asked)
    number = int(row[1]) if row else 0
    if asked.startswith("You rate a conversation."):
        good = (BAD not in asked) != is_wrong(number)
        return f"{5 if good else 1}. {'It helps.' if good else 'It does not help.'}"
    text = society(facts)
    return f"Solution: {BAD}\n\nNext request." if text.startswith("Solution:") and is_bad(number) else text
