"""What the doctor found: a check, how it ended, and how to mend it where it did not end well."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from camel.core.message import Usage

State = Literal["ok", "note", "warning", "error", "skipped"]
"""`note`: good to know, works without. `warning`: works, but worse or dearer. `error`: a run will fail. `skipped`: not looked at."""
_ORDER: tuple[State, ...] = ("skipped", "ok", "note", "warning", "error")


class CheckResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """One check and its outcome."""

    check: str
    """What was looked at, in a word or two."""
    state: State
    says: str
    """What was found, in a line."""
    mend: str = ""
    """What to do about it; empty where nothing needs to be done."""
    usage: Usage = Usage()
    """What finding out has taken."""
    of: str = ""
    """The model's place in the configuration, where that has several."""


def worst(findings: Iterable[CheckResult]) -> State:
    """The gravest of the states."""
    return _ORDER[max((_ORDER.index(finding.state) for finding in findings), default=1)]
