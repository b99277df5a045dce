"""Inception prompts: the texts with which two agents converse without a human (paper, section 3.2, Figure 2).

The wording is the paper's, in text files next to this one. The one decision to know: placeholders are filled in a
single pass, so inserted text is never searched for placeholders. Braces in code and math are safe, and a role called
`<TASK>` stays a role called `<TASK>`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from camel.core.errors import InputError

_PLACEHOLDER = re.compile(r"<([A-Za-z][A-Za-z0-9_]*)>")


class Inception(msgspec.Struct, frozen=True):
    """The prompts of a role play, as templates."""

    assistant: str
    """System prompt of the AI assistant."""
    user: str
    """System prompt of the AI user."""
    specifier: str
    """The prompt that asks for a more specific task."""
    opening: str
    """First message in the AI user's chat, because endpoints need a user message before the first reply. The paper does
    not print it; it repeats the prompt's own call to begin."""


def fill(template: str, values: Mapping[str, Any]) -> str:
    """Replace each `<name>` in `template` by its value, ignoring case. Names that are not in `values` stay."""
    known = {str(name).lower(): str(value) for name, value in values.items()}
    return _PLACEHOLDER.sub(lambda found: known.get(found[1].lower(), found[0]), template)


def placeholders(*templates: str) -> frozenset[str]:
    """Return the names of all placeholders in templates, in lower case."""
    return frozenset(name.lower() for text in templates for name in _PLACEHOLDER.findall(text))


def load(folder: Path) -> Inception:
    """Read `assistant.txt`, `user.txt`, `specifier.txt` and `opening.txt` of a folder. A missing file means the paper's prompt.
    Other text files raise an `InputError`: a misspelled name would silently keep the paper's prompt."""
    files = {name: folder / f"{name}.txt" for name in Inception.__struct_fields__}
    found = {name: _read(path) for name, path in files.items() if path.exists()}
    wanted = ", ".join(path.name for path in files.values())
    if found and (stray := sorted(path.name for path in folder.glob("*.txt") if path.stem not in files)):
        raise InputError(f"'{folder}' contains {stray[0]!r}, which is not the name of a prompt. Use {wanted}")
    if not found:
        raise InputError(f"there is no prompt in '{folder}': add at least one of {wanted}")
    return msgspec.structs.replace(paper(), **found)


@cache
def paper() -> Inception:
    """Return the AI Society prompts of the paper's Figure 2."""
    return Inception(**{name: texts()[name] for name in Inception.__struct_fields__})


@cache
def texts(folder: str = "") -> Mapping[str, str]:
    """Return the prompts next to this file or in a folder there, by name. All except those of `paper` were written for CAMEL."""
    files = sorted((Path(__file__).parent / folder).glob("*.txt"))
    return MappingProxyType({path.stem: _read(path) for path in files})


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the prompt '{path}' ({error})") from None
