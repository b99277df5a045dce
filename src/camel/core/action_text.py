"""Tool calls as text for readers: in one line, or with all their texts, limited in length.

The one decision to know: models and tools wrote these texts. Lines have no control codes; pages must still escape everything.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from camel.core.message import Action, in_one_line, well_formed

RAISED = "The code raised an exception.\n"
"""Start of the error of a call of the tool `python` whose code was executed. A traceback follows."""
MOST_CHARS = 8_000
"""Maximum length of a text that is shown."""
_FRAME = re.compile(r'^  File ".*\n(?:[ \t].*\n|\n)*', re.MULTILINE)
"""A frame of a traceback. The exception is the first line after the last one."""
_MOST_PARSED, _MOST_BRACKETS = 100_000, 500
"""Limits of JSON that is indented. Deep nesting would make it much longer."""


def one_line(text: str, most: int = 100) -> str:
    """Return the beginning of a text in one line, without control codes."""
    line = "".join(char for char in in_one_line(text[: 8 * most]) if char.isprintable())
    return line if len(line) <= most and len(text) <= 8 * most else f"{line[: most - 1]}…"


def call_line(tool: str, arguments: str, most: int = 100) -> str:
    """Return a call in one line: `search(query="cats", limit=5)`."""
    given, name = _parsed(arguments), one_line(tool, 64) or "(no name)"
    if isinstance(given, dict):
        arguments = ", ".join(f"{name}={_json(value)}" for name, value in given.items())
    return f"{name}({one_line(arguments, max(8, most - len(name) - 2))})"


def failure_line(error: str, most: int = 100) -> str:
    """Return the cause of an error in one line: the exception of a traceback, or the first line of other texts."""
    *frames, rest = _FRAME.split(error.strip())
    cut = not frames and error.startswith(("Traceback", RAISED))
    return one_line((rest.splitlines() or [""])[-1 if cut else 0], most)


def action_texts(action: Action) -> list[tuple[str, str]]:
    """Return the names and texts of what is known about a call, without those that are empty."""
    result = "Result", action.result if action.result or action.error else "(empty)"
    texts = ("Said", action.said), ("Arguments", action.arguments), ("Error", action.error), result
    return [(name, laid_out(text)) for name, text in (*texts, ("Changed state", action.change)) if text]


def laid_out(given: object, most: int = MOST_CHARS) -> str:
    """Return a text for reading: JSON with indentation, texts of several lines in it as they are, and long ones cut."""
    shown = given if isinstance(given, str) else msgspec.json.encode(given).decode()
    data = _parsed(shown)
    if isinstance(data, dict) and any(isinstance(one, str) and "\n" in one for one in data.values()):
        texts = ((name, one if isinstance(one, str) else _json(one)) for name, one in data.items())
        shown = "\n".join(f"{name}:\n{one}" if "\n" in one else f"{name}: {one}" for name, one in texts)
    elif data is not None:
        shown = _json(data) if len(shown) <= 72 else _json(data, 2)
    more = len(shown) - most
    return well_formed(f"{shown[:most]}\n… ({more:,} more characters)" if more > 0 else shown)


def _parsed(text: str) -> dict[str, Any] | list[Any] | None:
    """Return an object or a list in JSON. Return None for any other text, and for JSON beyond the limits."""
    small = len(text) <= _MOST_PARSED and text.count("[") + text.count("{") <= _MOST_BRACKETS
    try:
        return msgspec.json.decode(text, type=dict[str, Any] | list[Any]) if small else None
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return None


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)
