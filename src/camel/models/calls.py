"""Tool calls in the replies of all protocols, whole or in pieces. The next request sends them back to the endpoint, so names
that endpoints reject are changed."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from camel.core.errors import MalformedReply
from camel.core.message import ToolCall, well_formed
from camel.models.wire import cleaned

MAX_CALLS, MAX_CHARACTERS = 128, 2**20
"""Maximum number of calls in a choice, and of characters in all of them."""


class _Call(msgspec.Struct):
    index: int
    id: str = ""
    name: str = ""
    arguments: list[str] = []


class Calls:
    """The tool calls of one choice."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._size = 0

    def add(self, index: Any, id: Any, name: Any, arguments: Any) -> None:
        """Add a call or a piece of one. Everything may be missing or invalid, and `arguments` may be an object. Some endpoints
        send calls without an index, or all with the same one."""
        if arguments is not None and not isinstance(arguments, str):
            arguments = json.dumps(cleaned(arguments), ensure_ascii=False)
        id, name, text = (one if isinstance(one, str) else "" for one in (id, name, arguments))
        numbered = isinstance(index, int)
        call = next((one for one in reversed(self._calls) if not numbered or one.index == index), None)
        if call and id and call.id:
            call = call if id == call.id else None
        elif call and name and call.name and (any(call.arguments) or not numbered):
            call = None
        if call is None and (id or name or text):
            call = _Call(index if numbered else len(self._calls))
            self._calls.append(call)
        if call:
            call.id, call.name = call.id or id, call.name or name
            call.arguments.append(text)
        self._size += len(id) + len(name) + len(text) + 8
        if len(self._calls) > MAX_CALLS or self._size > MAX_CHARACTERS:
            raise MalformedReply(
                f"the reply exceeds {MAX_CALLS} tool calls, or {MAX_CHARACTERS:,} characters"
            )

    def whole(self) -> tuple[ToolCall, ...]:
        """Return the calls, in the order of their indexes."""
        found = sorted(self._calls, key=lambda one: one.index)
        names = [plain(one.name.strip())[:64] or "unknown" for one in found]
        texts = [well_formed("".join(one.arguments)).strip() or "{}" for one in found]
        return tuple(map(ToolCall, [well_formed(one.id) for one in found], names, texts))


def plain(text: str) -> str:
    """Replace characters that are not allowed in names of tools."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", text)
