"""Conversations drawn as bars: the score above a conversation, and the pulse in a list.

Both are geometry only; the templates write it as SVG, so that colors follow the theme and no style is inline.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from camel.core.transcript import Transcript
from camel.explorer.reading import ShownMessage, count_words, marks_of

WIDTH = 1248.0
"""Of a score, in units of its drawing; the page stretches it."""
FULL = 200
"""Words of a message whose column in a pulse has the full height: the same in all lists, so that pulses compare."""
_UP, _STEP, _LONGEST = 11.0, 3.2, 128.0


class Rect(NamedTuple):
    """A bar, with the class of its color."""

    css: str
    x: float
    y: float
    width: float
    height: float


class Segment(NamedTuple):
    """A message in a score."""

    message: ShownMessage
    bar: Rect
    ticks: list[Rect]


def score(messages: Sequence[ShownMessage], width: float = WIDTH) -> list[Segment]:
    """One bar per message, as wide as its words, in the row of its seat; below it a tick for each thing to notice."""
    if not messages:
        return []
    rows = list(dict.fromkeys(message.seat.css for message in messages))
    rows.sort(key=lambda css: (css != "s-user", css != "s-assistant"))
    high = 18 / max(2, len(rows)) - 1
    gap = min(3.0, width / (4 * len(messages)))
    unit = (width - gap * (len(messages) - 1)) / sum(max(1, message.words) for message in messages)
    made: list[Segment] = []
    x = 0.0
    for message in messages:
        wide = unit * max(1, message.words)
        bar = Rect(
            message.seat.css,
            round(x, 1),
            round(rows.index(message.seat.css) * (high + 2), 1),
            round(wide, 1),
            high,
        )
        noticed = ["tick"] * (bool(message.message.reasoning) + len(message.message.actions))
        noticed += ["s-critic"] * bool(message.message.deliberation) + ["e-repeated"] * bool(message.found)
        ticks = [
            Rect(css, round(x + min(6 * place, max(0.0, wide - 3)), 1), 20, 3, 4)
            for place, css in enumerate(noticed)
        ]
        made.append(Segment(message, bar, ticks))
        x += wide + gap
    return made


def pulse(transcript: Transcript) -> dict[str, Any]:
    """One column per message, as high as its words: the user's (or the first speaker's) upwards, all others downwards."""
    marks = marks_of(transcript)
    above = "user" if "user" in marks else next(iter(marks), "")
    step = min(_STEP, _LONGEST / max(1, len(transcript.messages)))
    columns: list[Rect] = []
    for place, message in enumerate(transcript.messages):
        high = round(max(2.0, 13 * min(1.0, math.sqrt(count_words(message.content) / FULL))), 1)
        up = message.speaker == above
        high = min(high, _UP) if up else high
        columns.append(
            Rect(
                marks[message.speaker].css,
                round(place * step, 1),
                _UP - high if up else 12.0,
                round(0.75 * step, 1),
                high,
            )
        )
    return {"width": max(1, math.ceil(step * len(columns))), "columns": columns}
