"""Reads a society's file: `society.toml`, one table per decision.

The one decision to know: the tables are those of `Society` itself, so that everything can be declared both in Python and in
a file. This module only adds helpful error messages.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from camel.core.errors import InputError
from camel.core.grammar import DONE_TOKEN
from camel.core.society import PLACEHOLDERS, Society
from camel.core.toml import MISSING, drop_unknown_keys, plain_message
from camel.scenarios.scenario import placeholders, unknown_placeholder

T = TypeVar("T", bound=msgspec.Struct)


def parse_declaration(text: str, kind: type[T]) -> tuple[T | None, list[str]]:
    """Return the declared struct and all problems, one line each: unknown keys are dropped, and reading continues.

    The struct is None if the declaration is incomplete.
    """
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


SOCIETY_FILE = "society.toml"
_MAX_BYTES = 10_000_000


def load_society(path: str | Path) -> Society:
    """Read a society from its file, or from the `society.toml` of a folder."""
    path = Path(path).expanduser()
    if path.is_dir():
        path = path / SOCIETY_FILE
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(f"'{path}' is not a society: it has more than {_MAX_BYTES:,} bytes")
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"cannot read '{path}': {reason}. See docs/societies.md for the format") from None
    society, problems = read_society(text)
    if society is not None:
        problems = [f"{where}: {message}" for where, message in unknown_placeholders(society)]
    if society is None or problems:
        more = f". Further mistakes: {len(problems) - 1}" if len(problems) > 1 else ""
        raise InputError(f"{path}: {problems[0]}{more}")
    return society


def templates(society: Society) -> Iterator[tuple[str, str, bool]]:
    """Yield each text that may have placeholders: its description, the text, and whether it is a prompt of the society."""
    yield "the prompt", society.prompt, True
    yield "the opening", society.opening, True
    for member in society.members:
        yield f"the role of {member.name}", member.role, False
        yield f"the brief of {member.name}", member.brief, False
        yield f"the prompt of {member.name}", member.prompt, True


def unknown_placeholders(society: Society, levels: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield unknown placeholders: the text they are in, and what to do. `levels` are always known."""
    for where, text, is_prompt in templates(society):
        known = [*levels, *(PLACEHOLDERS if is_prompt else ())]
        for name in placeholders(text):
            if name not in known and f"<{name}>" != DONE_TOKEN:
                yield where, unknown_placeholder(name, known)


def read_society(text: str) -> tuple[Society | None, list[str]]:
    """Return the society that a text declares, and its problems, one line each. The society is None if there are problems."""
    society, problems = parse_declaration(text, Society)
    name = str(society.model) if society else ""
    if name.startswith("command:") or "@http" in name:  # the file may have another author
        problems.append(
            "model must not be a command or NAME@URL: pass it in Python, with --model or in a configuration"
        )
    return (None if problems else society), problems
