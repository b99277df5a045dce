"""Calls tools the way a conversation does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from camel.core.acting import ActingModel
from camel.core.history import History
from camel.core.message import Action
from camel.core.model import Request
from camel.core.tools import Toolbox, Workplace
from camel.models.scripted import ScriptedModel


async def act(
    toolbox: Toolbox, name: str, arguments: dict[str, Any], place: Workplace | None = None
) -> Action:
    """Let a speaker call one tool, and return the recorded action."""
    called = json.dumps({"name": name, "arguments": arguments})
    model = ScriptedModel([f"<tool_call>{called}</tool_call>", "done"])
    acting = ActingModel(model, "assistant", toolbox, place or Workplace())
    reply = await acting.reply(Request(History(""), speaker="assistant"))
    return reply.actions[0]


def runs(process: str) -> bool:
    """Return whether a process exists that has not ended. One that ended may stay as a zombie if its parent ignores it."""
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return False
