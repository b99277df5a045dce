"""Results of the doctor's checks: what was found, and how to fix it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from camel.core.message import Usage

State = Literal["ok", "note", "warning", "error", "skipped"]
"""Severity of a result. `note`: information only. `warning`: works, but worse or at a higher cost. `error`: a run will fail.
`skipped`: not checked."""
_ORDER: tuple[State, ...] = ("skipped", "ok", "note", "warning", "error")


class CheckResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """One check and its result."""

    check: str
    """The name of the check."""
    state: State
    says: str
    """The result, in one line."""
    fix: str = ""
    """What to do about it. Empty if nothing needs to be done."""
    usage: Usage = Usage()
    """Tokens and calls that the check used."""
    of: str = ""
    """The model's name in the configuration, if there are several."""


def worst(findings: Iterable[CheckResult]) -> State:
    """Return the worst state among the results."""
    return _ORDER[max((_ORDER.index(finding.state) for finding in findings), default=1)]
