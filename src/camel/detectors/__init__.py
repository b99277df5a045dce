"""Detectors: rules that find what goes wrong in a conversation.

    from camel.detectors import detect

    for finding in detect(transcript):
        print(finding.index, finding.detector, finding.reason)

Each is a pure function of the transcript; installed plug-ins may add more (docs/extending.md). docs/detectors.md defines
what each one counts, and how often it is right. The rules check only the seats `user` and `assistant`, except for loops,
refusals and language.
"""

from __future__ import annotations

from collections.abc import Iterable

from camel.core.transcript import Transcript
from camel.detectors.catalogue import DETECTORS
from camel.detectors.finding import Detector, Finding, Hit
from camel.detectors.judge import confirm

__all__ = ["DETECTORS", "Detector", "Finding", "Hit", "confirm", "detect"]


def detect(transcript: Transcript, detectors: Iterable[str] | None = None) -> list[Finding]:
    """Run the named detectors, or all of them. Return their findings in the order of the messages."""
    chosen = [DETECTORS.find(name) for name in (DETECTORS if detectors is None else detectors)]
    found = [finding for detector in chosen for finding in detector.find(transcript)]
    return sorted(found, key=lambda finding: finding.index)
