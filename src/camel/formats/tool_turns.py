"""Reads tool calls, their results and the schemas of tools in chats of OpenAI, TRL and ShareGPT."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from camel.core.errors import InputError
from camel.core.message import Action, well_formed
from camel.core.model import ToolSchema
from camel.core.role_playing import ASSISTANT


class _Function(msgspec.Struct):
    """A function in the format of OpenAI: a call of it, or its schema."""

    name: str | None = None
    arguments: Any = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    id: str | None = None
    function: _Function | None = None


class CallReader:
    """Collects the tool calls of a chat until the message that they belong to."""

    def __init__(self) -> None:
        self._actions: list[Action] = []
        self._waiting: list[int] = []  # places of the calls without a result
        self._count, self._step = 0, 0

    def read(self, turn: dict[str, Any], seat: str, role: str, said: str, where: str) -> bool:
        """Add the calls or the result in a turn. Return whether it has any."""
        if seat != ASSISTANT:
            return seat == "tool" and self._read_result(turn, said)
        given, said = (said, "") if role == "function_call" else (turn.get("tool_calls"), said)
        calls = _functions(given, where)
        for place, call in enumerate(calls):
            function = call.function or call
            given: Any = function.arguments or {}
            arguments = given if isinstance(given, str) else msgspec.json.encode(given).decode()
            name, id = well_formed(function.name or ""), well_formed(call.id or f"call-{self._count}")
            self._waiting.append(len(self._actions))
            self._actions.append(
                Action(name, well_formed(arguments), call=id, step=self._step, said="" if place else said)
            )
            self._count += 1
        self._step += bool(calls)
        return bool(calls)

    def _read_result(self, turn: dict[str, Any], content: str) -> bool:
        """Add a result to its call: the one with the id, or the first without a result. Others are ignored."""
        named = [place for place in self._waiting if self._actions[place].call == turn.get("tool_call_id")]
        texts = [content]
        if "value" in turn and len(self._waiting) > 1:  # ShareGPT has one turn for several results
            with suppress(msgspec.MsgspecError):
                texts = msgspec.json.decode(content, type=list[str])
        for place, text in zip(named or [*self._waiting], texts, strict=False):
            self._waiting.remove(place)
            error = text.removeprefix("Error: ")  # as `read_by_model` writes it
            outcome = {"result": text} if error == text else {"error": error}
            self._actions[place] = replace(self._actions[place], **outcome)
        return True

    def take(self) -> list[Action]:
        """Return the calls since the last message."""
        found, self._actions, self._waiting, self._step = self._actions, [], [], 0
        return found


def read_tools(given: Any, where: str) -> list[ToolSchema]:
    """Return the schemas of the column `tools`: a list in the format of OpenAI, or its JSON text. Skips tools without a name."""
    found = [one.function or one for one in _functions(given, where)]
    return [ToolSchema(one.name, one.description or "", one.parameters or {}) for one in found if one.name]


def _functions(given: Any, where: str) -> list[_Function]:
    try:
        found: Any = msgspec.json.decode(given) if isinstance(given, str) and given else given or []
        return msgspec.convert(found if isinstance(found, list) else [found], list[_Function])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InputError(f"{where}: invalid tools or tool calls: {error}. Fix them, or add --skip") from None
