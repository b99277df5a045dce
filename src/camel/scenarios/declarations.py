"""Reads a TOML declaration into a struct. Reports all mistakes at once: unknown keys are dropped, and reading
continues."""

from __future__ import annotations

import tomllib
from typing import TypeVar

import msgspec

from camel.core.toml import MISSING, drop_unknown_keys, plain_message

T = TypeVar("T", bound=msgspec.Struct)


def parse_declaration(text: str, kind: type[T]) -> tuple[T | None, list[str]]:
    """Return the declared struct and the problems, one line each. The struct is None if the declaration is incomplete."""
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        return None, [f"it is not valid TOML ({' '.join(str(error).split())})"]
    problems = drop_unknown_keys(table, kind)
    try:
        return msgspec.convert(table, kind), problems
    except msgspec.ValidationError as error:
        # A misspelled key is one mistake: what it leaves missing is not reported as another one.
        is_consequence = problems and str(error).startswith((MISSING, "Invalid enum value"))
        return None, problems if is_consequence else [*problems, plain_message(error)]
