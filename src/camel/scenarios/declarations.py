"""Reads a TOML declaration into a struct. Reports all mistakes at once: unknown keys are dropped, and reading continues."""

from __future__ import annotations

import tomllib
from typing import TypeVar

import msgspec

from camel.core.toml import drop_unknown_keys, plain_message

T = TypeVar("T", bound=msgspec.Struct)


def parse_declaration(text: str, kind: type[T]) -> tuple[T | None, list[str]]:
    """Return the declared struct, or None if it is incomplete, and the problems, one line each."""
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        return None, [f"is not valid TOML: {' '.join(str(error).split())}"]
    problems = drop_unknown_keys(table, kind)
    try:
        return msgspec.convert(table, kind), problems
    except msgspec.ValidationError as error:
        return None, [*problems, plain_message(error)]
