"""What whoever publishes must declare, and what labelled rows carry because of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from camel.core.errors import InputError, shown
from camel.core.transcript import Transcript

RESTRICTED = frozenset({"misalignment"})
"""Labels of what simulates malicious use."""


@dataclass(frozen=True, slots=True)
class Release:
    """What whoever publishes declares."""

    acknowledge: bool = False
    """Rows with a restricted label are meant to be in it, and whoever gets it will know."""
    canary: str = ""
    """A GUID that lets others find, and keep out of training, what came from here. Restricted rows need one."""


class Written(NamedTuple):
    """What an export came to."""

    path: Path
    conversations: int
    rows: int


def published(transcripts: Iterable[Transcript], release: Release) -> Iterator[Transcript]:
    """The transcripts that an export has: those that failed are left out, and what the release does not acknowledge is refused."""
    for transcript in transcripts:
        if not transcript.failed:
            marks(transcript, release)
            yield transcript


def marks(transcript: Transcript, release: Release) -> dict[str, Any]:
    """What a labelled row carries besides; refuses what the release does not acknowledge."""
    if not transcript.labels:
        return {}
    restricted = RESTRICTED.intersection(transcript.labels)
    if restricted and not (release.acknowledge and release.canary):
        raise InputError(
            f"conversation {shown(transcript.id)} is labelled {', '.join(sorted(restricted))}: "
            "exporting it takes acknowledge and a canary GUID"
        )
    return {"labels": transcript.labels, **({"canary": release.canary} if restricted else {})}
