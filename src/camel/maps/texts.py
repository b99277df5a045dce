"""Which texts of a run become points: the task of each conversation, or every instruction that was given in it."""

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
"""Of a text; what small embedding models read ends well before that."""


class MapText(NamedTuple):
    """One text, and where it stands."""

    row: int
    """Of its conversation among those it was read with."""
    message: int
    """Its message in the conversation, from 0; -1 for the task."""
    text: str


def checked(of: Any) -> Of:
    """What a map is to be of."""
    if of not in KINDS:
        raise InputError(f"a map is of {' or '.join(KINDS)}, not of {shown(of)}")
    return of


def texts_of(transcripts: Sequence[Transcript], of: Of) -> Iterator[MapText]:
    """The texts of conversations, in order; empty ones are left out."""
    for row, transcript in enumerate(transcripts):
        if of == "tasks":
            found = [(-1, transcript.task.text)]
        else:
            found = [(n, _instruction(one)) for n, one in enumerate(transcript.messages)]
        for message, text in found:
            if clean := text.strip()[:MOST_CHARS]:
                yield MapText(row, message, clean)


def _instruction(message: Any) -> str:
    """What a message asks for, with its input: the same words over other data are another instruction."""
    move = message.move
    if message.speaker != USER or not move.instruction:
        return ""
    return f"{move.instruction}\n{move.input}" if move.input else move.instruction
