"""Scorers from what a program or a command line names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.core.model import Model
from camel.core.plugins import import_named
from camel.core.rubric import Rubric
from camel.detectors import DETECTORS
from camel.evaluation.scorers import (
    NEAR,
    Scorer,
    detector_scorer,
    duplicate_scorer,
    function_scorer,
    language_scorer,
    overlap_scorer,
    rubric_scorer,
)
from camel.models.spec import ModelSpec, spec_of


def find_scorers(
    columns: Mapping[str, Any], model: Model | ModelSpec | str | None = None
) -> dict[str, Scorer]:
    """Return the scorers of columns. `model` is for rubrics that name none."""
    found: dict[str, Scorer] = {}
    for name, given in columns.items():
        if name == "questions" and not callable(given):
            found["overlap"] = overlap_scorer((given,) if isinstance(given, str) else tuple(given))
        elif isinstance(given, bool) and name in ("language", "duplicates", "detectors"):
            found |= _shipped(name) if given else {}
        elif isinstance(given, Rubric):
            asked = given.model if given.model is not None else model
            found[name] = rubric_scorer(given, spec_of(asked or ""))
        elif isinstance(given, Scorer):
            found[name] = given
        elif callable(given):
            found[name] = function_scorer(given)
        else:
            raise InputError(
                f"{name} must be a function of a transcript or a camel.Rubric, not {shown(given)}"
            )
    return found


def _shipped(name: str) -> dict[str, Scorer]:
    if name == "language":
        return {name: language_scorer()}
    if name == "duplicates":
        return {"duplicate": duplicate_scorer(), "near_duplicate": duplicate_scorer(NEAR)}
    return {detector: detector_scorer(detector) for detector in DETECTORS}


def import_function(where: str) -> Any:
    """Import `module:name`. Raise an `InputError` if it is not a function."""
    found = import_named(where)
    if not callable(found):
        raise InputError(f"{shown(where)} is not a function: give it as module:name")
    return found


def read_rubric(given: str) -> str:
    """Return the text of a rubric: the content of a file, or the text itself."""
    try:
        return Path(given).read_text("utf-8") if len(given) < 1_000 and Path(given).is_file() else given
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the rubric {shown(given)}: {error}") from None
