"""What a detector says: which rule, in which message, the words that decided it, and why.

The one decision to know: a finding points at a message and quotes it, so that whoever doubts it can look, and it
carries the version of its rule, so that rates from different versions are never added up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from camel.core.transcript import Transcript

WHOLE = -1
"""The index of a finding about the conversation as a whole. None of the rules here makes one; one of yours may."""
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
    """A short quotation of that message, as it stands there; empty where the message is."""
    reason: str
    """Why, in a sentence. Holds nothing that a model wrote."""
    confirmed: bool | None = None
    """What a judge said of it; None when none was asked or none decided."""


class Hit(msgspec.Struct, frozen=True, gc=False):
    """What a rule returns; the detector makes a finding of it."""

    index: int
    reason: str
    words: str = ""
    """The words that decided it. Where they are not in the message as they stand, its beginning is quoted instead."""


class Detector(msgspec.Struct, frozen=True):
    """A named, versioned rule."""

    name: str
    version: int
    """Raised whenever the rule may find something else than before."""
    title: str
    """The behaviour in a few words, for tables and plots."""
    question: str
    """What a judge is asked about a finding; yes means that it is right."""
    rule: Callable[[Transcript], Iterable[Hit]]

    def find(self, transcript: Transcript) -> list[Finding]:
        """Everything the rule finds, in the order of the messages."""
        return [
            Finding(self.name, self.version, hit.index, _evidence(transcript, hit), hit.reason)
            for hit in self.rule(transcript)
        ]


def _evidence(transcript: Transcript, hit: Hit) -> str:
    if hit.index == WHOLE:
        return ""
    content = transcript.messages[hit.index].content
    # The rules read with plain apostrophes, which leaves every character where it was.
    at = max(0, content.replace("’", "'").find(hit.words.replace("’", "'")))
    return content[at : at + min(len(hit.words) or MAX_EVIDENCE, MAX_EVIDENCE)]
