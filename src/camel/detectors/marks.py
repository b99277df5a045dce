"""What detectors found in a conversation, as its index and findings keep it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from camel.core.errors import CamelError
from camel.core.transcript import Transcript
from camel.detectors import DETECTORS, Finding, detect


class Mark(NamedTuple):
    """Something that was found in a conversation."""

    detector: str
    message: int
    """From 0; -1 for the whole conversation."""
    seat: str
    """Who said it."""


STAGE = "findings-"
"""Begins the name of a stage; a hash of the detectors' versions ends it."""
LAYOUT = 1
"""Of the files; raised when they hold something else."""


def versions() -> dict[str, int]:
    """Of all detectors."""
    return {name: detector.version for name, detector in DETECTORS.items()}


def looked_by() -> str:
    """The name of these detectors in these versions."""
    told = [LAYOUT, sorted(versions().items())]
    return STAGE + hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:12]


def marks_of(transcript: Transcript) -> list[Mark]:
    """What the detectors find in a conversation, for an index."""
    seats = [message.speaker for message in transcript.messages]
    return [mark_of(one.detector, one.index, seats) for one in find_in(transcript, list(DETECTORS))]


def mark_of(detector: str, index: int, seats: Sequence[str]) -> Mark:
    """A finding as an index keeps it; `seats` are the speakers of all messages."""
    return Mark(detector, index, seats[index] if 0 <= index < len(seats) else "")


def find_in(transcript: Transcript, names: Sequence[str]) -> list[Finding]:
    """What some detectors find in a conversation; what a detector raises becomes an error that names the conversation."""
    try:
        return detect(transcript, names)
    except CamelError:
        raise
    except Exception as error:
        raise CamelError(f"a detector fails on conversation {transcript.id}: {error!r}") from error
