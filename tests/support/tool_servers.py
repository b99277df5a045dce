"""Reference servers of the three protocols for tool calls, written from their documentation and not from the client.

`read_chat` decodes the body of a request, and fails where the provider's server would reject it. `Said` is a reply, which
`whole` and `streamed` write in each protocol.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

PROTOCOLS = ("completions", "messages", "responses")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

Turn = tuple[Any, ...]
"""`(role, text)`, `("call", id, name, arguments)` or `("result", id, text)`."""


class Tool(NamedTuple):
    """A tool as a request describes it."""

    name: str
    description: str
    schema: dict[str, Any]


class Called(NamedTuple):
    """A call that a server's model writes."""

    id: str
    name: str
    arguments: dict[str, Any]


class Said(NamedTuple):
    """A reply of a server's model."""

    text: str
    calls: Sequence[Called]


def read_chat(protocol: str, body: bytes) -> tuple[list[Turn], list[Tool]]:
    """The turns and the tools of a request."""
    data = json.loads(body)
    turns = {"completions": _completions, "messages": _messages, "responses": _responses}[protocol](data)
    _check_answers(turns)
    return turns, [_tool(protocol, one) for one in data.get("tools", ())]


def _tool(protocol: str, given: dict[str, Any]) -> Tool:
    if protocol == "messages":
        assert given.keys() == {"name", "description", "input_schema"}
        return Tool(given["name"], given["description"], given["input_schema"])
    assert given.pop("type") == "function"
    if protocol == "completions":
        assert given.keys() == {"function"}
        given = given["function"]
    else:
        assert given.pop("strict") is False  # strict is the default, and rejects optional arguments
    assert given.keys() == {"name", "description", "parameters"}
    return Tool(given["name"], given["description"], given["parameters"])


def _check_answers(turns: list[Turn]) -> None:
    """Every call is answered once, before the next message."""
    waiting: list[str] = []
    for turn in turns:
        if turn[0] == "call":
            assert _NAME.fullmatch(turn[2])
            assert turn[1] not in waiting
            waiting.append(turn[1])
        elif turn[0] == "result":
            waiting.remove(turn[1])
        else:
            assert not waiting
    assert not waiting


def _completions(data: dict[str, Any]) -> list[Turn]:
    turns: list[Turn] = []
    for one in data["messages"]:
        if one["role"] == "tool":
            assert one.keys() == {"role", "content", "tool_call_id"}
            turns.append(("result", one["tool_call_id"], one["content"]))
            continue
        calls = one.pop("tool_calls", [])
        assert one.keys() == {"role", "content"}
        turns += [(one["role"], one["content"])] if one["content"] or not calls else []
        for call in calls:
            assert call["type"] == "function"
            function = call["function"]
            turns.append(("call", call["id"], function["name"], json.loads(function["arguments"])))
    return turns


def _messages(data: dict[str, Any]) -> list[Turn]:
    turns: list[Turn] = [("system", data["system"])] if "system" in data else []
    asked: set[str] = set()
    for message in data["messages"]:
        role, content = message["role"], message["content"]
        assert role in ("user", "assistant")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        results = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
        assert results == asked, "the message after tool_use must have a tool_result for each"
        asked = {block["id"] for block in blocks if block["type"] == "tool_use"}
        for block in blocks:
            match block["type"]:
                case "text":
                    assert block["text"].strip(), "text content blocks must contain non-whitespace text"
                    turns.append((role, block["text"]))
                case "tool_use":
                    assert role == "assistant"
                    assert _ID.fullmatch(block["id"])
                    assert isinstance(block["input"], dict)
                    turns.append(("call", block["id"], block["name"], block["input"]))
                case _:
                    assert role == "user"
                    text = block.get("content", "")
                    assert block.get("is_error", False) is text.startswith("Error: ")
                    turns.append(("result", block["tool_use_id"], text))
    return turns


def _responses(data: dict[str, Any]) -> list[Turn]:
    turns: list[Turn] = [("system", data["instructions"])] if "instructions" in data else []
    for item in data["input"]:
        match item.get("type", "message"):
            case "function_call":
                turns.append(("call", item["call_id"], item["name"], json.loads(item["arguments"])))
            case "function_call_output":
                turns.append(("result", item["call_id"], item["output"]))
            case _:
                assert item.keys() == {"role", "content"}
                turns.append((item["role"], item["content"]))
    return turns


def whole(protocol: str, said: Said) -> bytes:
    """A reply in one piece."""
    if protocol == "completions":
        calls = [
            {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": _text(one)}}
            for one in said.calls
        ]
        message = {
            "role": "assistant",
            "content": said.text or None,
            **({"tool_calls": calls} if calls else {}),
        }
        finish = "tool_calls" if calls else "stop"
        return _json({"choices": [{"index": 0, "message": message, "finish_reason": finish}]})
    if protocol == "messages":
        blocks: list[Any] = [{"type": "text", "text": said.text}] if said.text else []
        blocks += [_block(one, one.arguments) for one in said.calls]
        return _json({"type": "message", "content": blocks, "stop_reason": _reason(said)})
    return _json(_response(said))


def streamed(protocol: str, said: Said, sizes: Sequence[int]) -> bytes:
    """A reply in events. `sizes` are the lengths of the pieces of the arguments, used in turn."""
    events = {"completions": _chunks, "messages": _events, "responses": _response_events}[protocol](
        said, sizes
    )
    lines = [b"event: %s\ndata: %s\n\n" % (one.get("type", "x").encode(), _json(one)) for one in events]
    return b"".join(lines) + (b"data: [DONE]\n\n" if protocol == "completions" else b"")


def _chunks(said: Said, sizes: Sequence[int]) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None}]
    deltas += [{"content": piece} for piece in _pieces(said.text, sizes)]
    pending = [_pieces(_text(one), sizes) for one in said.calls]
    for index, one in enumerate(said.calls):
        begun = {
            "index": index,
            "id": one.id,
            "type": "function",
            "function": {"name": one.name, "arguments": ""},
        }
        deltas.append({"tool_calls": [begun]})
    while any(pending):  # the calls are written at the same time
        pieces = [(index, pieces.pop(0)) for index, pieces in enumerate(pending) if pieces]
        deltas.append({"tool_calls": [{"index": i, "function": {"arguments": text}} for i, text in pieces]})
    finish = "tool_calls" if said.calls else "stop"
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    return [{"choices": [one]} for one in choices]


def _events(said: Said, sizes: Sequence[int]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"content": []}}, {"type": "ping"}]
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if said.text:
        deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(said.text, sizes)]
        blocks.append(({"type": "text", "text": ""}, deltas))
    for one in said.calls:
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in _pieces(_text(one), sizes)]
        blocks.append((_block(one, {}), [{"type": "input_json_delta", "partial_json": ""}, *deltas]))
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    return [
        *events,
        {"type": "message_delta", "delta": {"stop_reason": _reason(said)}},
        {"type": "message_stop"},
    ]


def _response_events(said: Said, sizes: Sequence[int]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {"status": "in_progress"}}]
    events += [{"type": "response.output_text.delta", "delta": piece} for piece in _pieces(said.text, sizes)]
    for index, one in enumerate(said.calls):
        kind = "response.function_call_arguments.delta"
        pieces = _pieces(_text(one), sizes)
        events += [{"type": kind, "output_index": index, "delta": piece} for piece in pieces]
    return [*events, {"type": "response.completed", "response": _response(said)}]


def _response(said: Said) -> dict[str, Any]:
    output: list[Any] = []
    if said.text:
        output.append({"type": "message", "content": [{"type": "output_text", "text": said.text}]})
    for one in said.calls:
        call = {"call_id": one.id, "name": one.name, "arguments": _text(one)}
        output.append({"type": "function_call", "id": f"fc_{one.id}", **call})
    return {"object": "response", "status": "completed", "output": output}


def _block(one: Called, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": one.id, "name": one.name, "input": arguments}


def _reason(said: Said) -> str:
    return "tool_use" if said.calls else "end_turn"


def _pieces(text: str, sizes: Sequence[int]) -> list[str]:
    pieces: list[str] = []
    while text:
        size = sizes[len(pieces) % len(sizes)]
        pieces, text = [*pieces, text[:size]], text[size:]
    return pieces


def _text(one: Called) -> str:
    return json.dumps(one.arguments)


def _json(data: Any) -> bytes:
    return json.dumps(data).encode()
