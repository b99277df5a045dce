"""Prepares a transcript for its page: the seats, the parts of each message, and the findings of detectors.

The one decision to know: a message is shown in the parts of the instruction grammar. Only markers are dropped
("Instruction:", "Solution:", "Next request.", an input of "None"); text between the parts is shown as prose.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import msgspec

from camel.core.grammar import DONE_TOKEN, parse
from camel.core.message import Message
from camel.core.plugins import PluginFailed
from camel.core.transcript import Transcript
from camel.detectors import DETECTORS, detect
from camel.explorer.colors import Mark, seats

_MARKER = re.compile(
    r"[\s>*_#\-.\d)]{0,20}\b(instruction|input|solution)s?\b[\s*_#\d]*[:：]?[\s*_]*", re.IGNORECASE
)
_NONE = re.compile(r"[\s*_]*+(?:none|n/?a)?[\s.*_]*+", re.IGNORECASE)
_NEXT = re.compile(r"[*_]{0,3}next request[\s.!?…*_]*\Z", re.IGNORECASE)
_DONE = re.compile(rf"^[ \t]*{re.escape(DONE_TOKEN)}[ \t]*$", re.MULTILINE)
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\s\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")

WIDTH = 1248.0
"""The width of the drawing of a conversation's bars, in its own units. The page scales it."""
FULL = 200
"""Number of words of a message whose pulse column has full height. It is fixed, so that pulses can be compared."""


class MessagePart(msgspec.Struct, frozen=True):
    """A piece of a message."""

    kind: str
    """`instruction`, `input`, `solution` or `prose`."""
    text: str


class Found(msgspec.Struct, frozen=True):
    """A finding of a detector, as the page shows it next to the message."""

    name: str
    title: str
    reason: str
    evidence: str = ""
    confirmed: bool | None = None


class ShownMessage(msgspec.Struct, frozen=True):
    """A message as the page shows it."""

    message: Message
    seat: Mark
    asks: bool
    """Whether the message is an instruction of a user to an assistant. Instructions are set in a heavier font."""
    words: int
    parts: list[MessagePart]
    found: list[Found] = []


def shown_messages(
    transcript: Transcript, found: Mapping[int, list[Found]] | None = None
) -> list[ShownMessage]:
    """Return all messages of a conversation as the page shows them, with the findings in each."""
    marks = marks_of(transcript)
    found = findings(transcript) if found is None else found
    interview = "user" in marks and "assistant" in marks
    return [
        ShownMessage(
            message,
            marks[message.speaker],
            interview and message.speaker == "user",
            count_words(message.content),
            parts_of(message.content),
            found.get(number, []),
        )
        for number, message in enumerate(transcript.messages)
    ]


def marks_of(transcript: Transcript) -> dict[str, Mark]:
    """Return the color and sign of each seat of a conversation."""
    return seats([one.name for one in transcript.speakers] + [one.speaker for one in transcript.messages])


def count_words(text: str) -> int:
    """Return the number of words of a text. In scripts without spaces, each character counts as a word."""
    return sum(1 for _ in _WORD.finditer(text))


@lru_cache(maxsize=512)
def parts_of(text: str) -> list[MessagePart]:
    """Split a message into its parts (instruction, input, solution, prose), in order."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    move = parse(text)
    text = _DONE.sub(f"`{DONE_TOKEN}`", text)
    if text.lstrip().startswith(("```", "~~~")):  # the whole message is code
        return [MessagePart("prose", text)]
    wanted = [
        (kind, content)
        for kind, content in (
            ("instruction", move.instruction),
            ("input", move.input),
            ("solution", move.solution),
        )
        if content
    ]
    placed = _placed(text, wanted)
    if placed is None:
        return [MessagePart("prose", text)]
    parts: list[MessagePart] = []
    at = 0
    for start, end, kind in placed:
        parts += _between(text[at:start], before=kind)
        parts.append(MessagePart(kind, text[start:end]))
        at = end
    rest = text[at:]
    if move.next_request:
        rest = rest[:-60] + _NEXT.sub("", rest[-60:])
    # A message that is nothing but markers is shown as it is.
    return parts + _between(rest) or ([MessagePart("prose", text)] if text.strip() else [])


def _placed(text: str, wanted: Iterable[tuple[str, str]]) -> list[tuple[int, int, str]] | None:
    """Return the start, end and kind of each wanted part in the text. Return None if parts overlap or are not literally in
    it."""
    placed: list[tuple[int, int, str]] = []
    for kind, content in wanted:
        # The same words may occur elsewhere: take the place right after the marker.
        marker = re.compile(rf"\b{kind}s?\b[\s*_#\d]*[:：]?[\s*_]*", re.IGNORECASE)
        at = next((m.end() for m in marker.finditer(text) if text.startswith(content, m.end())), -1)
        at = at if at >= 0 else text.find(content)
        if at < 0:
            return None
        placed.append((at, at + len(content), kind))
    placed.sort()
    if any(first[1] > second[0] for first, second in pairwise(placed)):
        return None
    return placed


def _between(text: str, before: str = "") -> list[MessagePart]:
    """Return the text between two parts as prose, without the words that introduce a part and without an input of "None"."""
    if not text.strip(" \n\t*_"):
        return []
    markers = list(_MARKER.finditer(text))
    if not markers:
        return [MessagePart("prose", text.strip())]
    last = markers[-1]
    kind, lead, tail = last[1].lower(), text[: last.start()], text[last.end() :]
    introduces = kind == before and not tail.strip()
    if introduces or (_NONE.fullmatch(tail) and last.group().rstrip("*_ \t\n").endswith((":", "："))):
        return [MessagePart("prose", lead.strip())] if lead.strip(" \n\t*_") else []
    return [MessagePart("prose", text.strip())]


def findings(transcript: Transcript) -> dict[int, list[Found]]:
    """Return the findings of the detectors by index of the message. Index -1 has those about the whole conversation."""
    shown: dict[int, list[Found]] = {}
    for name in DETECTORS:
        try:
            found, title = detect(transcript, [name]), DETECTORS[name].title
        except PluginFailed as error:
            # A broken plugin must not make the conversation unreadable.
            shown.setdefault(-1, []).append(Found(name, name, str(error)))
            continue
        for one in found:
            made = Found(name, title, one.reason, one.evidence, one.confirmed)
            shown.setdefault(one.index, []).append(made)
    return shown


def terms_of(text: str) -> Sequence[str]:
    """Return the words of a search that are marked on the page. Quoted phrases stay whole, and operators are dropped."""
    phrases = re.findall(r'"([^"]+)"', text)
    words = re.sub(r'"[^"]*"?', " ", text).split()
    plain = [
        word.strip("()+*?~^:")
        for word in words
        if word not in ("AND", "OR", "NOT") and not word.startswith("-")
    ]
    return [term for term in [*phrases, *plain] if len(term) > 1 or not term.isascii()][:20]


# --- drawn as bars -------------------------------------------------------------------------------------------------


class ScoreSegment(NamedTuple):
    """The bar of one message: as wide as its words, in the row of its seat. Below it is a tick per finding, tool call and so
    on.
    """

    message: ShownMessage
    x: float
    y: float
    width: float
    height: float
    ticks: list[tuple[str, float]]
    """The CSS class and the horizontal position of each tick."""


def score(messages: Sequence[ShownMessage]) -> list[ScoreSegment]:
    """Return the drawing of a conversation: one bar per message, from left to right."""
    rows = sorted(
        dict.fromkeys(one.seat.css for one in messages),
        key=lambda css: (css != "s-user", css != "s-assistant"),
    )
    high, gap = 18 / max(2, len(rows)) - 1, min(3.0, WIDTH / (4 * max(1, len(messages))))
    unit = (WIDTH - gap * (len(messages) - 1)) / max(1, sum(max(1, one.words) for one in messages))
    made: list[ScoreSegment] = []
    x = 0.0
    for one in messages:
        wide = unit * max(1, one.words)
        noticed = ["tick"] * (bool(one.message.reasoning) + len(one.message.actions))
        noticed += ["s-critic"] * bool(one.message.deliberation) + ["e-repeated"] * bool(one.found)
        ticks = [(css, x + min(6.0 * place, max(0.0, wide - 3))) for place, css in enumerate(noticed)]
        made.append(ScoreSegment(one, x, rows.index(one.seat.css) * (high + 2), wide, high, ticks))
        x += wide + gap
    return made


def pulse(transcript: Transcript) -> list[tuple[str, bool, float]]:
    """Return a column per message: CSS class, whether it points up, and height. Those of the user or first speaker point up."""
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
