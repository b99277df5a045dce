"""Anthropic's Messages API: writes requests and parses replies.

The one decision to know: the whole prompt is marked for caching, because the next call of the same speaker begins with it.
Cached tokens cost a tenth; without the mark nothing is cached.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, cast

from camel.core.errors import MalformedReply, RequestRejected
from camel.core.history import Entry
from camel.core.message import FinishReason, Usage, well_formed
from camel.core.model import Reply, Request, ToolSchema
from camel.models.guided import Guide
from camel.models.protocol import Calls, EventStream, Wire, choice_of, encode, name_in, plain, without_system
from camel.models.wire import as_usage, cleaned, excerpt, failure, field_of, load_loosely, status_in

_FINISH: dict[Any, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
    None: "stop",
}
_LEAST_THOUGHT = 1024
"""Minimum reasoning budget in tokens."""
_CACHED = b',"cache_control":{"type":"ephemeral"}'


class AnthropicMessages(Wire):
    """The Messages protocol."""

    path = "/messages"

    def encode(self, request: Request) -> bytes:
        """Return the body of a request."""
        system, rest = without_system(request, _turns)
        told = [b',"system":', encode(system)] if system else []
        cached = _CACHED if request.session else b""
        head = [b'{"model":', encode(self._name), *told, cached, b',"messages":[']
        return b"".join([*head, rest, self.tail(request)])

    def fields(self, request: Request) -> dict[str, Any]:
        """Return all fields except the model and the messages."""
        sampling, fields = request.sampling, super().fields(request)
        if request.tools and field_of(fields.get("thinking"), "type") == "enabled":
            # After a call, the endpoint would require the signed reasoning before it, which is not kept.
            self._left_out.add("reasoning")
            del fields["thinking"]
        budget, limit = field_of(fields.get("thinking"), "budget_tokens"), fields["max_tokens"]
        if isinstance(budget, int) and sampling.max_tokens is None:
            fields["max_tokens"] = budget + limit
        elif isinstance(budget, int) and budget >= limit:
            # A level leaves room for the answer; a number is used as it is.
            room = limit if isinstance(sampling.reasoning, int) else max(_LEAST_THOUGHT, limit // 2)
            if room >= limit:
                raise RequestRejected(
                    f"sampling.reasoning allows {budget:,} tokens, but sampling.max_tokens limits the whole reply to "
                    f"{limit:,}: raise max_tokens above {budget:,}, or lower reasoning"
                )
            fields["thinking"] = {**fields["thinking"], "budget_tokens": room}
        return fields

    def _held(self, guide: Guide, request: Request) -> dict[str, Any]:
        held = super()._held(guide, request).get("response_format", {}).get("json_schema", {})
        form = {"type": "json_schema", "schema": held.get("schema")}
        return {"output_config": {"format": form}} if held else {}

    def _tool(self, tool: ToolSchema) -> dict[str, Any]:
        described = super()._tool(tool)
        return {"input_schema": described.pop("parameters"), **described}

    def stream(self) -> EventStream:
        """Return a parser for a streamed reply."""
        return MessageStream()


def _turns(entries: list[Entry]) -> Iterator[dict[str, Any]]:
    for role, group in groupby(entries, lambda entry: entry.role):
        if role == "tool":  # all results of a step belong into one message
            yield {"role": "user", "content": [_result(entry) for entry in group]}
        else:
            yield from map(_turn, group)


def _turn(entry: Entry) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": entry.content}] if entry.content.strip() else []
    for one in entry.calls:
        given = cleaned(load_loosely(one.arguments.encode()))
        called = {"type": "tool_use", "id": plain(one.id), "name": one.name}
        blocks.append({**called, "input": given if isinstance(given, dict) else {}})
    return {"role": entry.role, "content": blocks if entry.calls else entry.content}


def _result(entry: Entry) -> dict[str, Any]:
    text, block = entry.content, {"type": "tool_result", "tool_use_id": plain(entry.answers)}
    return {**block, **({"content": text} if text else {}), "is_error": text.startswith("Error: ")}


def _read(data: Any, body: bytes) -> Reply:
    if error := field_of(data, "error"):
        raise failure(status_in(error), body, {})
    content = field_of(data, "content")
    if not isinstance(content, list):
        raise MalformedReply(f"the reply has no content: {excerpt(body)}")
    blocks = list(enumerate(cast("list[Any]", content)))
    return _reply(blocks, field_of(data, "stop_reason"), field_of(data, "usage"), name_in(data))


def _reply(blocks: list[tuple[Any, Any]], reason: Any, counts: Any, model: str) -> Reply:
    """Return the reply in blocks, or in the pieces of blocks of a stream, each with its index."""
    calls = Calls()
    for index, block in blocks:
        if field_of(block, "type") in ("tool_use", "input_json_delta"):
            # In a stream, the input of the block is empty.
            given = field_of(block, "input") or field_of(block, "partial_json")
            calls.add(index, field_of(block, "id"), field_of(block, "name"), given)
    finish = _FINISH.get(reason, "other") if isinstance(reason, str | None) else "other"
    choice = choice_of(_texts(blocks, "text"), _texts(blocks, "thinking"), finish, None, calls)
    return Reply((choice,), _usage(counts), model)


def _texts(blocks: list[tuple[Any, Any]], kind: str) -> str:
    """Return the joined text of all blocks of a kind. Redacted reasoning has no text."""
    found = [field_of(block, kind) for _, block in blocks]
    return "".join(well_formed(one) for one in found if isinstance(one, str))


def _usage(counts: Any) -> Usage:
    """Convert token counts. In this protocol, prompt tokens read from or written to the cache are counted separately."""
    fresh, completion = field_of(counts, "input_tokens"), field_of(counts, "output_tokens")
    read = field_of(counts, "cache_read_input_tokens") or 0
    written = field_of(counts, "cache_creation_input_tokens") or 0
    thought = field_of(field_of(counts, "output_tokens_details"), "thinking_tokens") or 0
    parts = fresh, read, written
    prompt = sum(parts) if all(type(part) is int for part in parts) else None
    return as_usage(prompt, completion, read, thought, written)


class MessageStream(EventStream):
    """Assembles a streamed message from events."""

    def __init__(self) -> None:
        super().__init__()
        self._blocks: list[tuple[Any, Any]] = []
        self._counts: dict[str, Any] = {}
        self._reason: Any = None
        self._model = ""

    def _take(self, payload: bytes) -> Iterator[str]:
        event = load_loosely(payload)
        match field_of(event, "type"):
            case "error":
                raise failure(status_in(field_of(event, "error")), payload, {})
            case "message_start":
                message = field_of(event, "message")
                self._model = name_in(message)
                self._count(field_of(message, "usage"))
            case "content_block_start" | "content_block_delta":
                piece = field_of(event, "content_block") or field_of(event, "delta")
                self._blocks.append((field_of(event, "index"), piece))
                if isinstance(text := field_of(piece, "text"), str) and text:
                    yield from self._show(text)
            case "message_delta":
                self._reason = field_of(field_of(event, "delta"), "stop_reason") or self._reason
                self._count(field_of(event, "usage"))
            case "message_stop":
                self.done = True
            case _:  # pings, ends of blocks, and unknown events
                pass

    def _count(self, counts: Any) -> None:
        """Store token counts. They are cumulative, so later ones replace earlier ones."""
        if isinstance(counts, dict):
            told = cast("dict[str, Any]", counts)
            self._counts |= {name: count for name, count in told.items() if count is not None}

    def finished(self) -> Reply:
        """Return the complete reply."""
        if not self.done and not self._blocks and self._stray.strip():
            return _read(load_loosely(bytes(self._stray)), bytes(self._stray))
        if not self.done:
            raise MalformedReply("the stream ended before the reply was complete")
        return _reply(self._blocks, self._reason, self._counts, self._model)
