"""The values of one conversation for filter expressions."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from camel.core.transcript import Transcript
from camel.detectors import DETECTORS
from camel.detectors.languages import language_in
from camel.detectors.marks import find_in
from camel.index.build import facet_values


def _facet(name: str) -> Callable[[Transcript], str]:
    def value(one: Transcript) -> str:
        speakers = [speaker.name for speaker in one.speakers], [speaker.role for speaker in one.speakers]
        models = (message.model for message in one.messages)
        return getattr(facet_values(*speakers, models, one.stop.reason if one.stop else None), name)

    return value


_VALUES: dict[str, Callable[[Transcript], Any]] = {
    "id": lambda one: one.id,
    "scenario": lambda one: one.scenario,
    "task": lambda one: one.task.original,
    **{name: _facet(name) for name in ("stop", "model", "assistant", "user")},
    "label": lambda one: one.labels,
    "finding": lambda one: sorted({finding.detector for finding in find_in(one, list(DETECTORS))}),
    "language": language_in,
    "messages": lambda one: len(one.messages),
    "tokens": lambda one: one.usage.total,
    "calls": lambda one: one.usage.calls,
    "cost": lambda one: one.usage.usd or None,
    "chars": lambda one: sum(len(message.content) for message in one.messages),
}


def transcript_values(transcript: Transcript, columns: Collection[str]) -> dict[str, Any]:
    """Return the values of some columns. A value that the transcript does not have is None."""
    values: dict[str, Any] = {}
    for name in columns:
        kind, _, rest = name.partition(".")
        if name in _VALUES:
            values[name] = _VALUES[name](transcript)
        elif kind == "input":
            values[name] = transcript.inputs.get(rest)
        elif kind == "score" or not rest:
            score = transcript.scores.get(rest or name)
            values[name] = None if score is None else score.text or score.value
        else:
            values[name] = (getattr(transcript, kind, None) or {}).get(rest)
    return values
