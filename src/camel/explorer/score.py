"""Conversations drawn as bars: the score above a conversation, and the pulse in a list.

This is their geometry; the templates write it as SVG, so that colors follow the theme and no style is inline.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from camel.core.transcript import Transcript
from camel.explorer.reading import ShownMessage, count_words, marks_of

WIDTH = 1248.0
"""Of a score, in units of its drawing; the page stretches it."""
FULL = 200
"""Words of a message whose column in a pulse has the full height: the same in all lists, so that pulses compare."""


class Segment(NamedTuple):
    """A message in a score: a bar as wide as its words, in the row of its seat, and below it a tick per thing to notice."""

    message: ShownMessage
    x: float
    y: float
    width: float
    height: float
    ticks: list[tuple[str, float]]
    """Class and place."""


def score(messages: Sequence[ShownMessage]) -> list[Segment]:
    """A segment per message, from left to right."""
    rows = sorted(
        dict.fromkeys(one.seat.css for one in messages),
        key=lambda css: (css != "s-user", css != "s-assistant"),
    )
    high, gap = 18 / max(2, len(rows)) - 1, min(3.0, WIDTH / (4 * max(1, len(messages))))
    unit = (WIDTH - gap * (len(messages) - 1)) / max(1, sum(max(1, one.words) for one in messages))
    made: list[Segment] = []
    x = 0.0
    for one in messages:
        wide = unit * max(1, one.words)
        noticed = ["tick"] * (bool(one.message.reasoning) + len(one.message.actions))
        noticed += ["s-critic"] * bool(one.message.deliberation) + ["e-repeated"] * bool(one.found)
        ticks = [(css, x + min(6.0 * place, max(0.0, wide - 3))) for place, css in enumerate(noticed)]
        made.append(Segment(one, x, rows.index(one.seat.css) * (high + 2), wide, high, ticks))
        x += wide + gap
    return made


def pulse(transcript: Transcript) -> list[tuple[str, bool, float]]:
    """A column per message: its class, whether it goes upwards (the user's, or the first speaker's), and its height."""
    marks = marks_of(transcript)
    above = "user" if "user" in marks else next(iter(marks), "")
    return [
        (
            marks[one.speaker].css,
            one.speaker == above,
            max(2.0, 11 * min(1.0, math.sqrt(count_words(one.content) / FULL))),
        )
        for one in transcript.messages
    ]
