"""Detectors: what goes wrong in a conversation, found by rules.

    from camel.detectors import detect

    for finding in detect(transcript):
        print(finding.index, finding.detector, finding.reason)

Each is a pure function of the transcript. docs/detectors.md defines what each one counts and what it does not, and
says how often it is right.
"""

from __future__ import annotations

from collections.abc import Iterable

from camel.core.errors import InputError, shown
from camel.core.transcript import Transcript
from camel.detectors.finding import Detector, Finding
from camel.detectors.judge import confirm

__all__ = ["DETECTORS", "Detector", "Finding", "confirm", "detect"]

_ALL: list[Detector] = [
    Detector(name, 1, name.replace("_", " ").capitalize(), "", lambda transcript: iter(()))
    for name in (
        "role_flipping",
        "repeated_instruction",
        "flake_reply",
        "message_loop",
        "empty_promise",
        "unfinished_code",
        "refusal",
        "language_drift",
        "format_violation",
        "sycophancy_loop",
    )
]
DETECTORS: dict[str, Detector] = {detector.name: detector for detector in _ALL}
"""Every detector by its name; the first four are the paper's."""


def detect(transcript: Transcript, detectors: Iterable[str] | None = None) -> list[Finding]:
    """Run the named detectors, or all of them, and return what they find, by message."""
    names = list(DETECTORS if detectors is None else detectors)
    if unknown := sorted(set(names) - DETECTORS.keys()):
        raise InputError(f"there is no detector {shown(unknown[0])}; choose from {', '.join(DETECTORS)}")
    found = [finding for name in names for finding in DETECTORS[name].find(transcript)]
    return sorted(found, key=lambda finding: finding.index)
