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
    """A finding in a conversation, reduced to what the index of a run stores."""

    detector: str
    message: int
    """Index of the message, from 0. -1 for the whole conversation."""
    seat: str
    """The speaker of the message."""


STAGE = "findings-"
"""Prefix of a stage's name. A hash of the detectors' versions follows."""
LAYOUT = 1
"""Version of the file format, increased when the contents of the files change."""


def versions() -> dict[str, int]:
    """Return the version of each detector, by name."""
    return {name: detector.version for name, detector in DETECTORS.items()}


def looked_by() -> str:
    """Return the name of the stage that stores findings. It contains a hash of all detectors and their versions."""
    told = [LAYOUT, sorted(versions().items())]
    return STAGE + hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:12]


def marks_of(transcript: Transcript) -> list[Mark]:
    """Run all detectors on a conversation, and return the findings for the index of a run."""
    seats = [message.speaker for message in transcript.messages]
    return [mark_of(one.detector, one.index, seats) for one in find_in(transcript, list(DETECTORS))]


def mark_of(detector: str, index: int, seats: Sequence[str]) -> Mark:
    """Return a finding as a `Mark`. `index` is that of the message, and `seats` are the speakers of all messages."""
    return Mark(detector, index, seats[index] if 0 <= index < len(seats) else "")


def find_in(transcript: Transcript, names: Sequence[str]) -> list[Finding]:
    """Run the named detectors on a conversation. If one of them fails, raise an error that names the conversation."""
    try:
        return detect(transcript, names)
    except CamelError:
        raise
    except Exception as error:
        raise CamelError(f"a detector failed on conversation {transcript.id}: {error!r}") from error
