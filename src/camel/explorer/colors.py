"""The color and sign of each seat and ending, on pages and in plots. No other module sets them.

Pages use the class (`css`) and the shape (`sign`); plots use `color`, the light value of the same color in
`look/tokens.css`, which the style sheet replaces in the dark theme.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from camel.index.build import UNFINISHED

PALETTE = ["#0f4299", "#9c521d", "#8462d5", "#06797c", "#a58a00", "#8a0703", "#4a94ba", "#6b385e"]
BLUE, ORANGE, VIOLET, TEAL, GOLD, BRICK, SKY, PLUM = PALETTE
GRAY, INK = "#7c7f83", "#1b1c1e"


class Mark(NamedTuple):
    """The appearance of a seat or of a stop reason: a CSS class, a shape and a color."""

    title: str
    css: str
    sign: str
    """The name of the shape in `icons.html`."""
    color: str


SEATS = {
    "user": Mark("user", "s-user", "user", BLUE),
    "assistant": Mark("assistant", "s-assistant", "assistant", ORANGE),
    "critic": Mark("critic", "s-critic", "critic", VIOLET),
}
ENDINGS = {
    "done": Mark("done", "e-done", "done", TEAL),
    "agreed": Mark("agreed", "e-done", "done", TEAL),
    "goal": Mark("goal reached", "e-done", "done", TEAL),
    "goodbye": Mark("goodbye", "e-done", "done", TEAL),
    "max_messages": Mark("message limit", "e-limit", "limit", GOLD),
    "max_rounds": Mark("round limit", "e-limit", "limit", GOLD),
    "token_limit": Mark("token limit", "e-limit", "limit", GOLD),
    "message_loop": Mark("repeated", "e-repeated", "repeated", BRICK),
    "user_no_instruction": Mark("no instruction", "e-repeated", "repeated", BRICK),
    "assistant_instructs": Mark("assistant instructs", "e-repeated", "repeated", BRICK),
    "rejected": Mark("rejected", "e-repeated", "repeated", BRICK),
    "error": Mark("failed", "e-failed", "failed", INK),
    "stopped": Mark("stopped", "c-0", "stopped", GRAY),
    UNFINISHED: Mark("unfinished", "c-0", "open", GRAY),
}
"""Marks by stop reason: done is teal, limits are gold, conversations that went wrong brick, failures ink, the rest gray."""


def ending(reason: str) -> Mark:
    """Return the mark of a stop reason. Stop reasons of custom rules are gray."""
    return ENDINGS.get(reason) or Mark(reason.replace("_", " ") or "none", "c-0", "open", GRAY)


def ending_order(reason: str) -> int:
    """Return the position of an ending in bars and keys: done, limits, conversations that went wrong, failures, the rest."""
    return ("e-done", "e-limit", "e-repeated", "e-failed", "c-0").index(ending(reason).css)


def seats(names: Iterable[str]) -> dict[str, Mark]:
    """Return a mark for each seat of a conversation. Members of societies get the remaining colors in order, then gray."""
    given = list(dict.fromkeys(names))
    taken = [SEATS[name].color for name in given if name in SEATS]
    free = [n for n, color in enumerate(PALETTE, 1) if color not in taken] + [0] * len(given)
    others = zip((name for name in given if name not in SEATS), free, strict=False)
    members = {name: Mark(name, f"c-{n}", f"member-{n}", [GRAY, *PALETTE][n]) for name, n in others}
    return {name: SEATS.get(name) or members[name] for name in given}
