"""Findings of a conversation in the compact form of the index and of findings files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from camel.core.errors import CamelError
from camel.core.transcript import Transcript
from camel.detectors import DETECTORS, Finding, detect


class Mark(NamedTuple):
    """A finding in a conversation."""

    detector: str
    message: int
    """Index of the message, from 0; -1 for the whole conversation."""
    seat: str
    """The speaker of the message."""


STAGE = "findings-"
"""Prefix of a stage's name; a hash of the detectors' versions follows."""
LAYOUT = 1
"""Version of the files; increased when their contents change."""


def versions() -> dict[str, int]:
    """Return the versions of all detectors."""
    return {name: detector.version for name, detector in DETECTORS.items()}


def looked_by() -> str:
    """Return an identifier of all detectors and their versions."""
    told = [LAYOUT, sorted(versions().items())]
    return STAGE + hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:12]


def marks_of(transcript: Transcript) -> list[Mark]:
    """Return what the detectors find in a conversation, for an index."""
    seats = [message.speaker for message in transcript.messages]
    return [mark_of(one.detector, one.index, seats) for one in find_in(transcript, list(DETECTORS))]


def mark_of(detector: str, index: int, seats: Sequence[str]) -> Mark:
    """Return a finding for an index; `seats` are the speakers of all messages."""
    return Mark(detector, index, seats[index] if 0 <= index < len(seats) else "")


def find_in(transcript: Transcript, names: Sequence[str]) -> list[Finding]:
    """Return what some detectors find in a conversation; an exception becomes an error that names the conversation."""
    try:
        return detect(transcript, names)
    except CamelError:
        raise
    except Exception as error:
        raise CamelError(f"a detector failed on conversation {transcript.id}: {error!r}") from error
