"""What commands that ask a model open first."""

from __future__ import annotations

from collections.abc import Iterable

from camel.core.errors import InputError
from camel.models.local import LOCAL
from camel.models.spec import ModelSpec, find_spec
from camel.record.release import RESTRICTED


def acknowledged(labels: Iterable[str] | None) -> tuple[str, ...]:
    """The `--acknowledge` of a command line."""
    given = tuple(labels or ())
    if unknown := sorted(set(given) - RESTRICTED):
        raise InputError(f"--acknowledge takes {', '.join(sorted(RESTRICTED))}, not {unknown[0]!r}")
    return given


def chosen_model(name: str, base_url: str, local: bool) -> ModelSpec:
    """The model that is asked, by the options that say so."""
    # Without a grammar: that of instructions fits neither translations nor verdicts nor programs.
    return ModelSpec(LOCAL) if local or name == LOCAL else find_spec(name, base_url=base_url)
