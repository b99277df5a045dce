"""Tool calls as text for readers: a call in one line, and arguments and results with a limit on their length.

The one decision to know: everything here was written by a model or a tool. The lines have no control codes and no line breaks;
a page or a terminal still has to escape them.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from camel.core.message import Action, in_one_line, well_formed

MOST_CHARS = 8_000
"""Maximum length of arguments, results and changes that are shown."""
_PARSED = 100_000
_NESTED = 500
"""Maximum number of brackets in JSON that is indented. Deep nesting would make it much longer."""


def one_line(text: str, most: int = 100) -> str:
    """Return the beginning of a text in one line, without control codes."""
    line = "".join(char for char in in_one_line(text[: 8 * most]) if char.isprintable())
    return line if len(line) <= most and len(text) <= 8 * most else f"{line[: most - 1]}…"


def call_line(tool: str, arguments: str, most: int = 100) -> str:
    """Return a call in one line: `search(query="cats", limit=5)`."""
    given = _parsed(arguments)
    if isinstance(given, dict):
        arguments = ", ".join(f"{name}={_json(value)}" for name, value in given.items())
    name = one_line(tool, 64) or "(no name)"
    return f"{name}({one_line(arguments, max(8, most - len(name) - 2))})"


def outcome_line(action: Action, most: int = 100) -> str:
    """Return the result or the error of a call in one line."""
    return (
        f"failed: {one_line(action.error, most)}"
        if action.error
        else one_line(action.result, most) or "(empty)"
    )


def laid_out(given: object, most: int = MOST_CHARS) -> str:
    """Return arguments or a result for reading: JSON with indentation, a text with line breaks as it is, and long ones cut."""
    text = given if isinstance(given, str) else msgspec.json.encode(given).decode()
    data = _parsed(text)
    if isinstance(data, dict) and any(isinstance(one, str) and "\n" in one for one in data.values()):
        several = ((name, one if isinstance(one, str) else _json(one)) for name, one in data.items())
        shown = "\n".join(f"{name}:\n{one}" if "\n" in one else f"{name}: {one}" for name, one in several)
    else:
        shown = _json(data, 2) if isinstance(data, dict | list) else text
    more = len(shown) - most
    return well_formed(f"{shown[:most]}\n… ({more:,} more characters)" if more > 0 else shown)


def _parsed(text: str) -> Any:
    """Return the value of a text in JSON. Return None if it is not JSON, or if it is too large or too deep to be shown as such."""
    if len(text) > _PARSED or text.count("[") + text.count("{") > _NESTED:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)
