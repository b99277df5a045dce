"""Reads tool calls, their results and the schemas of tools in chats of OpenAI, TRL and ShareGPT."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from camel.core.errors import InputError
from camel.core.message import Action, well_formed
from camel.core.model import ToolSchema

_ERROR = "Error: "


class CallReader:
    """Collects the tool calls of a chat until the message that they belong to."""

    def __init__(self) -> None:
        self._actions: list[Action] = []
        self._waiting: list[int] = []
        """Places of the calls without a result."""
        self._count, self._step = 0, 0

    def read_calls(self, turn: dict[str, Any], role: str, said: str, where: str) -> bool:
        """Add the calls of a turn. Return whether it has any."""
        calls = _as_list(said if role == "function_call" else turn.get("tool_calls"), where)
        said = "" if role == "function_call" else said
        for number, call in enumerate(calls):
            id = call.get("id")
            function: Any = call.get("function")
            function = cast("dict[str, Any]", function) if isinstance(function, dict) else call
            given = function.get("arguments") or {}
            arguments = given if isinstance(given, str) else msgspec.json.encode(given).decode()
            self._waiting.append(len(self._actions))
            self._actions.append(
                Action(
                    well_formed(str(function.get("name") or "")),
                    well_formed(arguments),
                    call=well_formed(id) if isinstance(id, str) and id else f"call-{self._count}",
                    step=self._step,
                    said="" if number else said,
                )
            )
            self._count += 1
        self._step += bool(calls)
        return bool(calls)

    def read_result(self, turn: dict[str, Any], content: str) -> None:
        """Add a result to its call: the one with the id, or the first without a result. Others are ignored."""
        id = turn.get("tool_call_id")
        named = [place for place in self._waiting if self._actions[place].call == id]
        texts = [content]
        if (
            "value" in turn and len(self._waiting) > 1
        ):  # ShareGPT has one turn for the results of several calls
            with suppress(msgspec.MsgspecError):
                texts = msgspec.json.decode(content, type=list[str])
        for place, text in zip(named or [*self._waiting], texts, strict=False):
            self._waiting.remove(place)
            failed = text.startswith(_ERROR)
            result, error = ("", text.removeprefix(_ERROR)) if failed else (text, "")
            self._actions[place] = replace(self._actions[place], result=result, error=error)

    def take(self) -> list[Action]:
        """Return the calls since the last message."""
        found, self._actions, self._waiting, self._step = self._actions, [], [], 0
        return found


def read_tools(given: Any, where: str) -> list[ToolSchema]:
    """Return the schemas of the column `tools`: a list in the format of OpenAI, or its JSON text."""
    try:
        return [msgspec.convert(one.get("function", one), ToolSchema) for one in _as_list(given, where)]
    except (msgspec.MsgspecError, AttributeError) as error:
        raise InputError(
            f"{where}: tools must be a list of schemas in the format of OpenAI: {error}"
        ) from None


def _as_list(given: Any, where: str) -> list[dict[str, Any]]:
    """Return the JSON objects of a list, of one object, or of their JSON text."""
    try:
        found = msgspec.json.decode(given) if isinstance(given, str) and given else given or []
        return msgspec.convert(found if isinstance(found, list) else [found], list[dict[str, Any]])
    except msgspec.MsgspecError as error:
        raise InputError(
            f"{where}: the tools or tool calls are not valid: {error}. Fix them, or add --skip"
        ) from None
