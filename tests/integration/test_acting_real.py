"""The small real model in a seat with tools: a function, the interpreter, and a tool of a real MCP server.

Three example turns in its history are enough for a model of 135 million parameters to write well-formed calls.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from camel.core.conversation import Agent, Conversation
from camel.core.message import Action, Message, Sampling
from camel.core.model import Choice, Reply
from camel.core.stops import MaxMessages
from camel.core.task import Task
from camel.core.tools import Toolbox
from camel.core.transcript import Transcript
from camel.models.local import Running
from camel.models.scripted import ScriptedModel
from camel.tools.find import find_tools
from camel.tools.settings import ServerSettings, ToolSettings
from tests.support import small_model

pytestmark = pytest.mark.real_model
Example = tuple[str, dict[str, Any], str]
"""A question, the arguments of the call, and its result."""


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def answered(
    server: Running, tools: Sequence[Any], tool: str, examples: Sequence[Example], question: str
) -> Message:
    """Let the model answer a question after three examples."""
    transcript = Transcript("real", Task("Answer questions"))
    sampling = Sampling(temperature=0.0, max_tokens=80)
    async with small_model.connect(server) as model:
        conversation = Conversation(
            [
                Agent("user", "User", ScriptedModel([question]), opening="Ask."),
                Agent(
                    "assistant",
                    "Assistant",
                    model,
                    f"Answer with the tool {tool}.",
                    sampling=sampling,
                    tools=Toolbox(tools, form="text"),
                ),
            ],
            transcript,
            rules=[MaxMessages(8)],
        )
        for asked, arguments, result in examples:
            conversation.say("user", Reply((Choice(asked),)))
            action = Action(tool, json.dumps(arguments), result, call=asked)
            conversation.say("assistant", Reply((Choice(f"The answer is {result}."),), actions=(action,)))
        async for _ in conversation:
            pass
    assert transcript.stop
    assert transcript.stop.reason == "max_messages"
    return transcript.messages[-1]


async def test_a_function(small_server: Running):
    examples: list[Example] = [
        (f"What is {a} plus {b}?", {"a": a, "b": b}, str(a + b)) for a, b in ((2, 3), (10, 4), (7, 8))
    ]
    message = await answered(small_server, [add], "add", examples, "What is 12 plus 30?")
    assert [(one.tool, one.result) for one in message.actions] == [("add", "42")]


async def test_the_interpreter(small_server: Running):
    examples: list[Example] = [
        (f"What is {a} times {b}?", {"code": f"print({a} * {b})"}, str(a * b))
        for a, b in ((2, 3), (10, 4), (7, 8))
    ]
    message = await answered(small_server, ["python"], "python", examples, "What is 12 times 30?")
    assert [(one.tool, one.result.strip()) for one in message.actions] == [("python", "360")]


async def test_a_tool_of_a_real_mcp_server(small_server: Running):
    pytest.importorskip("mcp")
    server = ServerSettings(command=("mcp-server-time", "--local-timezone", "UTC"))
    tools = find_tools(["mcp:time.get_current_time"], ToolSettings(servers={"time": server}))
    examples: list[Example] = [
        (f"What time is it in {zone}?", {"timezone": zone}, f"2026-11-1{n}T10:00:00")
        for n, zone in enumerate(("Europe/Paris", "Asia/Tokyo", "Europe/London"))
    ]
    message = await answered(
        small_server, tools, "get_current_time", examples, "What time is it in Europe/Berlin?"
    )
    (action,) = message.actions
    assert json.loads(action.arguments) == {"timezone": "Europe/Berlin"}
    assert json.loads(action.result)["timezone"] == "Europe/Berlin"
