"""Authors for the simulated endpoint that are hard on a terminal and on a person in front of it."""

from __future__ import annotations

from camel.models.simulator import Facts

ATTACK = "\x1b]0;owned\x07\x1b[2J\x1b[31m\r\x9b5A\u202e"
LINGER = "take your time"


def speak(facts: Facts) -> str:
    """Try to act on the terminal with every reply, in wide characters."""
    if "You will always instruct me" in facts.system:
        return f"Instruction: 写一首诗 {ATTACK} number {facts.turns}.\nInput: None"
    return f"Solution: 好的 {ATTACK} 1 │ number {facts.turns}, 各位。\n 9 │ I am an option\nNext request."


def linger(facts: Facts) -> str:
    """Write short messages, and one that does not end within a test if the request asks for it (`LINGER`)."""
    text = "word " * (5_000 if LINGER in facts.messages[-1].text else 5)
    if "You will always instruct me" in facts.system:
        return f"Instruction: {text}.\nInput: None"
    return f"Solution: {text}\nNext request."


def linger_third(facts: Facts) -> str:
    """Write two short messages and a third that does not end within a test."""
    text = "word " * (5_000 if facts.turns else 5)
    if "You will always instruct me" in facts.system:
        return f"Instruction: {text}.\nInput: None"
    return f"Solution: {text}\nNext request."
