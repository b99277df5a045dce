"""Reads a TOML declaration into a struct. All mistakes are reported at once: an unknown key is dropped, and reading continues."""

from __future__ import annotations

import tomllib
from typing import TypeVar

import msgspec

from camel.core.toml import drop_unknown_keys, plain_message

T = TypeVar("T", bound=msgspec.Struct)


def parse_declaration(text: str, kind: type[T]) -> tuple[T | None, list[str]]:
    """The struct that a text declares, or None where there is not enough for one, and what is wrong, a line each."""
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        return None, [f"is not valid TOML: {' '.join(str(error).split())}"]
    problems = drop_unknown_keys(table, kind)
    try:
        return msgspec.convert(table, kind), problems
    except msgspec.ValidationError as error:
        return None, [*problems, plain_message(error)]
