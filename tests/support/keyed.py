"""A simulated model for conversations with a planted message: whether it says yes depends on what was said before."""

from __future__ import annotations

import random

from camel.models.simulator.authors import Facts

AUTHOR = f"{__name__}:answer"
"""The name of the author, for the simulator's settings."""
LENGTH = 12
"""Number of messages of a conversation. The last one decides."""
KEY = "Here is the key."
STEP = "One step further."


def chance(said: str) -> float:
    """The chance of success: 0.8 after the key and 0.2 before it, and without a key a little more with each step."""
    if STEP in said:
        return said.count(STEP) / (LENGTH - 1)
    return 0.8 if KEY in said else 0.2


def answer(facts: Facts) -> str:
    """Say yes or no, by the chance of success."""
    said = "\n".join(message.text for message in facts.messages)
    return "yes" if random.Random(facts.draw).random() < chance(said) else "no"
