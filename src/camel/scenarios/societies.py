"""Reads a society's file: `society.toml`, one table per decision.

The one decision to know: the tables are those of `Society` itself, so that what can be declared in Python can be
declared in a file and the other way round; this file only says what is wrong in words that help.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from camel.core.errors import InputError
from camel.core.grammar import DONE_TOKEN
from camel.core.society import PLACEHOLDERS, Society
from camel.scenarios.declarations import parse_declaration
from camel.scenarios.scenario import placeholders, unknown_placeholder

SOCIETY_FILE = "society.toml"
_MAX_BYTES = 10_000_000


def load_society(path: str | Path) -> Society:
    """Read a society from its file, or from the `society.toml` of a folder."""
    path = Path(path).expanduser()
    if path.is_dir():
        path = path / SOCIETY_FILE
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(f"{path} has more than {_MAX_BYTES:,} bytes: that is no society's file")
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(
            f"cannot read {path}: {reason}; a society's file is shown in docs/societies.md"
        ) from None
    society, problems = read_society(text)
    if society is not None:
        problems = [f"{where}: {message}" for where, message in unknown_placeholders(society)]
    if society is None or problems:
        raise InputError(f"{path}: {'; '.join(problems)}")
    return society


def templates(society: Society) -> Iterator[tuple[str, str, bool]]:
    """Its texts that may hold placeholders: where they stand, the text, and whether it is a prompt of the society's own."""
    yield "the prompt", society.prompt, True
    yield "the opening", society.opening, True
    for member in society.members:
        yield f"the role of {member.name}", member.role, False
        yield f"the brief of {member.name}", member.brief, False
        yield f"the prompt of {member.name}", member.prompt, True


def unknown_placeholders(society: Society, levels: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """Unknown placeholders: where they are, and what to do. `levels` are a scenario's own."""
    for where, text, is_prompt in templates(society):
        known = [*levels, *(PLACEHOLDERS if is_prompt else ())]
        for name in placeholders(text):
            if name not in known and f"<{name}>" != DONE_TOKEN:
                yield where, unknown_placeholder(name, known)


def read_society(text: str) -> tuple[Society | None, list[str]]:
    """The society that a file's text declares, or None and everything that is wrong with it, a line each."""
    society, problems = parse_declaration(text, Society)
    return (None if problems else society), problems
