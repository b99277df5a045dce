"""Metadata that a published dataset must declare, and what labeled rows carry because of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.core.transcript import Transcript

RESTRICTED = frozenset({"misalignment"})
"""Labels of conversations that simulate malicious use."""
WARNING = (
    "These conversations simulate malicious use, for red-team research only. They contain harmful content by design: "
    "do not train a deployed model on them, and do not act on what they say."
)


@dataclass(frozen=True, slots=True)
class Release:
    """What a publication declares."""

    acknowledge: bool = False
    """Rows with a restricted label are included on purpose, and its readers are told."""
    canary: str = ""
    """A GUID that lets others find, and keep out of training, what came from here. Restricted rows need one."""
    reasoning: bool = False
    """Whether what models thought is published with what they said."""


class Exported(NamedTuple):
    """What an export came to."""

    path: Path
    conversations: int
    rows: int


def published(transcripts: Iterable[Transcript], release: Release) -> Iterator[Transcript]:
    """The transcripts that an export has: those that failed are left out, and what the release does not acknowledge is refused."""
    for transcript in transcripts:
        if not transcript.failed:
            marks(transcript, release)
            yield transcript if release.reasoning else without_reasoning(transcript)


def without_reasoning(transcript: Transcript) -> Transcript:
    """The same without what the models thought."""
    if not any(message.reasoning for message in transcript.messages):
        return transcript
    messages = [replace(message, reasoning="") for message in transcript.messages]
    return replace(transcript, messages=messages)


def check_labels(id: str, labels: Iterable[str], release: Release) -> frozenset[str]:
    """The restricted labels of a conversation; raises an `InputError` unless the release acknowledges them.

    The gate of everything that shows what was said outside of the run: exports, maps, studies.
    """
    restricted = RESTRICTED.intersection(labels)
    if restricted and not (release.acknowledge and release.canary):
        raise InputError(
            f"conversation {shown(id)} is labelled {', '.join(sorted(restricted))}, and leaves its run only with "
            f"--acknowledge {min(restricted)} (in Python: Release(acknowledge=True, canary=GUID))"
        )
    return restricted


def marks(transcript: Transcript, release: Release) -> dict[str, Any]:
    """The additional fields of a labeled row; refuses what the release does not acknowledge."""
    if not transcript.labels:
        return {}
    restricted = check_labels(transcript.id, transcript.labels, release)
    return {"labels": transcript.labels, **({"canary": release.canary} if restricted else {})}
