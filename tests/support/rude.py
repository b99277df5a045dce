"""An author for the simulated endpoint whose every reply tries to act on the terminal, in wide characters."""

from __future__ import annotations

from camel.models.simulator import Facts

ATTACK = "\x1b]0;owned\x07\x1b[2J\x1b[31m\r\x9b5A\u202e"


def speak(facts: Facts) -> str:
    if "You will always instruct me" in facts.system:
        return f"Instruction: 写一首诗 {ATTACK} number {facts.turns}.\nInput: None"
    return f"Solution: 好的 {ATTACK} 1 │ number {facts.turns}, 各位。\n 9 │ I am an option\nNext request."
