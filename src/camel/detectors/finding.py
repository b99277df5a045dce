"""Findings of detectors: the rule, the message, the evidence and the reason.

The one decision to know: a finding names a message and quotes it, so that a reader can check it. It has the version of its
rule, so that rates from different versions are never added up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from camel.core.transcript import Transcript

WHOLE = -1
"""Index of a finding about the whole conversation."""
MAX_EVIDENCE = 200
"""Maximum number of characters of evidence."""


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """A behavior found in a message."""

    detector: str
    version: int
    """Version of the rule that found it."""
    index: int
    """Index of the message in the transcript's list. -1 means the whole conversation."""
    evidence: str
    """A short exact quotation of that message. Empty if the message is empty."""
    reason: str
    """Why the rule found it, in a sentence without text of a model."""
    confirmed: bool | None = None
    """A judge's decision. None if no judge was asked or the judge did not decide."""


class Hit(msgspec.Struct, frozen=True, gc=False):
    """A result of a rule, which the detector turns into a `Finding`."""

    index: int
    reason: str
    words: str = ""
    """The evidence. If the text is not exactly in the message, the beginning of the message is quoted instead."""


class Detector(msgspec.Struct, frozen=True):
    """A named, versioned rule."""

    name: str
    version: int
    """Increased whenever the rule may give other results than before."""
    title: str
    """The behavior in a few words, for tables and plots."""
    question: str
    """The question to a judge about a finding. The answer yes means that the finding is right."""
    rule: Callable[[Transcript], Iterable[Hit]]

    def find(self, transcript: Transcript) -> list[Finding]:
        """Return all findings of the rule, in the order of the messages."""
        return [
            Finding(self.name, self.version, hit.index, _evidence(transcript, hit), hit.reason)
            for hit in self.rule(transcript)
        ]


def _evidence(transcript: Transcript, hit: Hit) -> str:
    if hit.index == WHOLE:
        return ""
    content = transcript.messages[hit.index].content
    # The rules replace apostrophes, which does not change positions.
    at = max(0, content.replace("’", "'").find(hit.words.replace("’", "'")))
    return content[at : at + min(len(hit.words) or MAX_EVIDENCE, MAX_EVIDENCE)]
