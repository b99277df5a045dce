"""A transcript as the page shows it: who is who, what each message does, what was found in it.

The one decision to know: a message is shown in the parts of the instruction grammar, and nothing of it is left out. The
parts are found again in the text; what stands between them is shown as prose unless it is only the marker itself.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise

import msgspec

from camel.core.grammar import parse
from camel.core.message import Message
from camel.core.plugins import PluginFailed
from camel.core.transcript import Transcript
from camel.detectors import DETECTORS, detect

HUES = 6
"""Colours for roles; the style sheet has them, chosen to be told apart by the colour-blind too."""
_CLOSE = {(0, 5), (5, 0), (1, 4), (4, 1), (3, 5), (5, 3)}
"""Colours that should not stand side by side in one conversation."""

_MARKER = re.compile(
    r"[\s>*_#\-.\d)]{0,20}\b(instruction|input|solution)s?\b[\s*_#\d]*[:：]?[\s*_]*", re.IGNORECASE
)
_NONE = re.compile(r"[\s*_]*+(?:none|n/?a)?[\s.*_]*+", re.IGNORECASE)
_NEXT = re.compile(r"[*_]{0,3}next request[\s.!?…*_]*\Z", re.IGNORECASE)


class MessagePart(msgspec.Struct, frozen=True):
    """A piece of a message."""

    kind: str
    """`instruction`, `input`, `solution`, `prose`, or `empty` for a marker around nothing."""
    text: str
    label: str = ""


class Found(msgspec.Struct, frozen=True):
    """A finding as shown at its message."""

    name: str
    title: str
    reason: str
    evidence: str = ""
    confirmed: bool | None = None


class Bubble(msgspec.Struct, frozen=True):
    """A message with what the page says about it."""

    message: Message
    hue: int
    side: str
    """`left` or `right`."""
    parts: list[MessagePart]
    next_request: bool = False
    done: bool = False
    found: list[Found] = []


def hues(transcript: Transcript) -> dict[str, int]:
    """A colour for each role, by its name: the same wherever it speaks, unless two of one conversation would share it."""
    return hues_of([s.role for s in transcript.speakers] + [message.role for message in transcript.messages])


def hues_of(roles: Iterable[str]) -> dict[str, int]:
    """A colour for each of the roles that stand side by side, whatever their order."""
    given: dict[str, int] = {}
    for role in sorted(set(roles)):
        taken = set(given.values())
        ring = [(hue_of(role) + step) % HUES for step in range(HUES)]
        apart = [
            one for one in ring if one not in taken and not any((one, other) in _CLOSE for other in taken)
        ]
        free = [one for one in ring if one not in taken]
        given[role] = (apart or free or ring)[0]
    return given


def hue_of(role: str) -> int:
    """The colour of a role by its name alone."""
    return zlib.crc32(role.encode("utf-8", "replace")) % HUES


def bubbles(transcript: Transcript) -> list[Bubble]:
    """The messages, ready to be shown."""
    colours = hues(transcript)
    found = findings(transcript)
    seats = list(
        dict.fromkeys([s.name for s in transcript.speakers] + [m.speaker for m in transcript.messages])
    )
    # The one who asks is at the left, whoever answers at the right.
    left = "user" if "user" in seats else seats[0] if seats else ""
    shown: list[Bubble] = []
    for number, message in enumerate(transcript.messages):
        move = parse(message.content)
        shown.append(
            Bubble(
                message,
                colours[message.role],
                "left" if message.speaker == left else "right",
                parts_of(message.content),
                move.next_request,
                move.done,
                found.get(number, []),
            )
        )
    return shown


@lru_cache(maxsize=512)
def parts_of(text: str) -> list[MessagePart]:
    """A message in its parts, in the order in which they stand."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    move = parse(text)
    if text.lstrip().startswith(("```", "~~~")):  # all of it is code, or looks like it
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
        parts.append(MessagePart(kind, text[start:end], kind.capitalize()))
        at = end
    rest = text[at:]
    if move.next_request:
        rest = rest[:-60] + _NEXT.sub("", rest[-60:])
    return parts + _between(rest)


def _placed(text: str, wanted: Iterable[tuple[str, str]]) -> list[tuple[int, int, str]] | None:
    """Where the parts stand; None where they overlap or cannot be found, as when a fence around it all was taken off."""
    placed: list[tuple[int, int, str]] = []
    for kind, content in wanted:
        # What a part says may also stand elsewhere: the place right after its marker is meant.
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
    """What stands between two parts: prose, or a marker, which the next part's label replaces."""
    if not text.strip(" \n\t*_"):
        return []
    markers = list(_MARKER.finditer(text))
    if not markers:
        return [MessagePart("prose", text.strip())]
    last = markers[-1]
    kind, lead, tail = last[1].lower(), text[: last.start()], text[last.end() :]
    if kind == before and not tail.strip():
        return [MessagePart("prose", lead.strip())] if lead.strip(" \n\t*_") else []
    if _NONE.fullmatch(tail) and last.group().rstrip("*_ \t\n").endswith((":", "：")):
        shown = [MessagePart("prose", lead.strip())] if lead.strip(" \n\t*_") else []
        return [*shown, MessagePart("empty", tail.strip() or "None", kind.capitalize())]
    return [MessagePart("prose", text.strip())]


def findings(transcript: Transcript) -> dict[int, list[Found]]:
    """What the detectors find, by message; -1 holds what concerns the whole."""
    shown: dict[int, list[Found]] = {}
    for name in DETECTORS:
        try:
            found, title = detect(transcript, [name]), DETECTORS[name].title
        except PluginFailed as error:
            # A broken plug-in must not keep anybody from reading.
            shown.setdefault(-1, []).append(Found(name, name, str(error)))
            continue
        for one in found:
            made = Found(name, title, one.reason, one.evidence, one.confirmed)
            shown.setdefault(one.index, []).append(made)
    return shown


def terms_of(text: str) -> Sequence[str]:
    """The words of a search, for marking: phrases in quotation marks stay whole, operators are none."""
    phrases = re.findall(r'"([^"]+)"', text)
    words = re.sub(r'"[^"]*"?', " ", text).split()
    plain = [
        word.strip("()+*?~^:")
        for word in words
        if word not in ("AND", "OR", "NOT") and not word.startswith("-")
    ]
    return [term for term in [*phrases, *plain] if len(term) > 1 or not term.isascii()][:20]
