"""Calls tools the way a conversation does."""

from __future__ import annotations

import json
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
