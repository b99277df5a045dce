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
    """What the publisher of a dataset declares about its content."""

    acknowledge: bool = False
    """Whether rows with a restricted label may be included. They are marked as such."""
    canary: str = ""
    """A GUID by which others can find these rows and keep them out of training data. Required for restricted rows."""
    reasoning: bool = False
    """Whether the models' reasoning is included."""
    run: str = ""
    """Name of the run that the conversations come from."""
    metadata: bool | None = None
    """Whether rows have a key `metadata` with id, run, inputs, scores and result. None: as usual for the format."""


class Exported(NamedTuple):
    """The result of an export."""

    path: Path
    conversations: int
    rows: int


def published(transcripts: Iterable[Transcript], release: Release) -> Iterator[Transcript]:
    """Yield the transcripts to export, without excluded ones. Raises an `InputError` for labels that the release does not
    acknowledge."""
    for transcript in transcripts:
        if not transcript.excluded:
            marks(transcript, release)
            yield transcript if release.reasoning else without_reasoning(transcript)


def without_reasoning(transcript: Transcript) -> Transcript:
    """Return the transcript without the models' reasoning."""
    if not any(message.reasoning for message in transcript.messages):
        return transcript
    messages = [replace(message, reasoning="") for message in transcript.messages]
    return replace(transcript, messages=messages)


def check_labels(id: str, labels: Iterable[str], release: Release) -> frozenset[str]:
    """Return the restricted labels of a conversation. Raises an `InputError` unless the release acknowledges them.

    Everything that shows messages outside of the run calls this: exports, maps, studies.
    """
    restricted = RESTRICTED.intersection(labels)
    if restricted and not (release.acknowledge and release.canary):
        raise InputError(
            f"conversation {shown(id)} is labeled {', '.join(sorted(restricted))}: to export it, add "
            f"--acknowledge {min(restricted)} (in Python: Release(acknowledge=True, canary=GUID))"
        )
    return restricted


def refuse_restricted(transcripts: Iterable[Transcript]) -> None:
    """Raise an `InputError` if a conversation is harmful: nothing may continue it."""
    for one in transcripts:
        if closed := RESTRICTED.intersection(one.labels):
            raise InputError(
                f"{one.id} is labeled {min(closed)}, and harmful conversations cannot be continued"
            )


def marks(transcript: Transcript, release: Release) -> dict[str, Any]:
    """Return the additional fields of a labeled row. Raises an `InputError` for labels that the release does not
    acknowledge."""
    if not transcript.labels:
        return {}
    restricted = check_labels(transcript.id, transcript.labels, release)
    return {"labels": transcript.labels, **({"canary": release.canary} if restricted else {})}
