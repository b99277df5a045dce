"""Calls tools the way a conversation does."""

from __future__ import annotations

import json
import time
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


def runs(process: str, *, patience: float = 0.0) -> bool:
    """Return whether a process has not ended after `patience` seconds. One whose parent ignores it stays as a zombie."""
    until = time.monotonic() + patience
    while True:
        try:
            ended = "State:\tZ" in Path(f"/proc/{process}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            ended = True
        if ended or time.monotonic() > until:
            return not ended
        time.sleep(0.02)
