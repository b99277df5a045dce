"""The texts of a map: the task of each conversation, or every instruction in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, get_args

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.core.role_playing import USER
from camel.core.transcript import Transcript

Of = Literal["tasks", "instructions"]
KINDS: tuple[str, ...] = get_args(Of)
MOST_CHARS = 2_000
"""Maximum number of characters of a text, more than small embedding models read."""


class MapText(NamedTuple):
    """One text, and the message or task that it comes from."""

    row: int
    """Index of the text's conversation in the input."""
    message: int
    """Index of the text's message, from 0. -1 for the task."""
    text: str


def checked(of: Any) -> Of:
    """Return `of` if it is a valid kind of texts. Otherwise raise an `InputError`."""
    if of not in KINDS:
        raise InputError(f"a map must be of {' or '.join(KINDS)}, not {shown(of)}")
    return of


def texts_of(transcripts: Sequence[Transcript], of: Of) -> Iterator[MapText]:
    """Yield the texts of all conversations, in order. Empty texts are skipped."""
    for row, transcript in enumerate(transcripts):
        if of == "tasks":
            found = [(-1, transcript.task.text)]
        else:
            found = [(n, _instruction(one)) for n, one in enumerate(transcript.messages)]
        for message, text in found:
            if clean := text.strip()[:MOST_CHARS]:
                yield MapText(row, message, clean)


def _instruction(message: Any) -> str:
    """Return a message's instruction with its input, because the same instruction with other input is a different text."""
    move = message.move
    if message.speaker != USER or not move.instruction:
        return ""
    return f"{move.instruction}\n{move.input}" if move.input else move.instruction
