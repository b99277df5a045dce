"""What a detector says: which rule, in which message, the words that decided it, and why.

The one decision to know: a finding points at a message and quotes it, so that whoever doubts it can look, and it
carries the version of its rule, so that rates from different versions are never added up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from camel.core.transcript import Transcript

WHOLE = -1
"""The index of a finding about the conversation as a whole."""
MAX_EVIDENCE = 200
"""Characters of evidence at most."""


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """A behaviour, found in a message."""

    detector: str
    version: int
    """Of the rule that found it."""
    index: int
    """Of the message in the transcript's list; -1 means the whole conversation."""
    evidence: str
    """A short quotation of that message, as it stands there; empty where the message is empty."""
    reason: str
    """Why, in a sentence. Holds nothing that a model wrote."""
    confirmed: bool | None = None
    """What a judge said of it; None when none was asked or none decided."""


class Hit(msgspec.Struct, frozen=True, gc=False):
    """What a rule returns: the place and the reason. The detector adds its name and version."""

    index: int
    start: int
    end: int
    reason: str


Rule = Callable[[Transcript], Iterator[Hit]]


class Detector(msgspec.Struct, frozen=True):
    """A named, versioned rule."""

    name: str
    version: int
    """Raised whenever the rule may find something else than before."""
    title: str
    """The behaviour in a few words, for tables and plots."""
    question: str
    """What a judge is asked, so that yes means the finding is right."""
    rule: Rule

    def find(self, transcript: Transcript) -> list[Finding]:
        """Everything the rule finds, in the order of the messages."""
        return [
            Finding(
                self.name,
                self.version,
                hit.index,
                transcript.messages[hit.index].content[hit.start : min(hit.end, hit.start + MAX_EVIDENCE)],
                hit.reason,
            )
            for hit in self.rule(transcript)
        ]
