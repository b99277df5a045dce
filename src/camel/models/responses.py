"""OpenAI's Responses API: writes requests and parses replies.

Nothing is stored at the provider: every call sends the whole conversation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from camel.core.errors import MalformedReply
from camel.core.history import Entry
from camel.core.message import FinishReason, Usage, well_formed
from camel.core.model import Reply, Request, ToolSchema
from camel.models.calls import Calls
from camel.models.guided import Guide
from camel.models.protocol import Wire, choice_of, encode, name_in, without_system
from camel.models.streams import EventStream
from camel.models.wire import as_usage, excerpt, failure, field_of, load_loosely, status_in

_CUT: dict[Any, FinishReason] = {"max_output_tokens": "length", "content_filter": "content_filter"}
_ENDED = ("response.completed", "response.incomplete", "response.failed")


class OpenAIResponses(Wire):
    """The Responses protocol."""

    path = "/responses"

    def encode(self, request: Request) -> bytes:
        """Return the body of a request."""
        system, rest = without_system(request, _turns)
        told = [b',"instructions":', encode(system)] if system else []
        head = [b'{"model":', encode(self._name), b',"store":false', *told, b',"input":[']
        return b"".join([*head, rest, self.tail(request)])

    def _held(self, guide: Guide, request: Request) -> dict[str, Any]:
        held = super()._held(guide, request).get("response_format", {}).get("json_schema", {})
        return {"text": {"format": {"type": "json_schema", **held}}} if held else {}

    def _tool(self, tool: ToolSchema) -> dict[str, Any]:
        # By default the endpoint is strict, and rejects schemas with optional fields.
        return {"type": "function", **super()._tool(tool), "strict": False}

    def stream(self) -> EventStream:
        """Return a parser for a streamed reply."""
        return ResponseStream()


def _turns(entries: list[Entry]) -> Iterator[dict[str, Any]]:
    for entry in entries:
        if entry.role == "tool":
            yield {"type": "function_call_output", "call_id": entry.answers, "output": entry.content}
        elif entry.content or not entry.calls:
            yield {"role": entry.role, "content": entry.content}
        for id, name, arguments in map(msgspec.structs.astuple, entry.calls):
            yield {"type": "function_call", "call_id": id, "name": name, "arguments": arguments}


def _read(data: Any, body: bytes) -> Reply:
    if error := field_of(data, "error"):
        raise failure(status_in(error), body, {})
    output = field_of(data, "output")
    if not isinstance(output, list):
        raise MalformedReply(f"the reply has no output: {excerpt(body)}")
    said: list[str] = []
    thought: list[str] = []
    refused, calls = False, Calls()
    for place, item in enumerate(cast("list[Any]", output)):
        kind = field_of(item, "type")
        if kind == "function_call":
            id = field_of(item, "call_id") or field_of(item, "id")
            calls.add(place, id, field_of(item, "name"), field_of(item, "arguments"))
        for part in _parts(item, "content"):
            name = "refusal" if field_of(part, "type") == "refusal" else "text"
            text = field_of(part, name)
            if isinstance(text, str):
                refused = refused or name == "refusal"
                (thought if kind == "reasoning" else said).append(well_formed(text))
        if kind == "reasoning":
            texts = [field_of(part, "text") for part in _parts(item, "summary")]
            thought += [well_formed(text) for text in texts if isinstance(text, str)]
    reason = field_of(field_of(data, "incomplete_details"), "reason")
    finish: FinishReason = "refusal" if refused else "stop"
    if field_of(data, "status") == "incomplete":
        finish = _CUT.get(reason, "other") if isinstance(reason, str) else "other"
    choice = choice_of("".join(said), "\n\n".join(thought), finish, None, calls)
    return Reply((choice,), _usage(field_of(data, "usage")), name_in(data))


def _parts(item: Any, name: str) -> list[Any]:
    found = field_of(item, name)
    return cast("list[Any]", found) if isinstance(found, list) else []


def _usage(counts: Any) -> Usage:
    prompt, completion = field_of(counts, "input_tokens"), field_of(counts, "output_tokens")
    details = field_of(counts, "input_tokens_details")
    cached, written = field_of(details, "cached_tokens") or 0, field_of(details, "cache_write_tokens") or 0
    thought = field_of(field_of(counts, "output_tokens_details"), "reasoning_tokens") or 0
    return as_usage(prompt, completion, cached, thought, written)


class ResponseStream(EventStream):
    """Parses a streamed response; its last event contains the complete reply."""

    def __init__(self) -> None:
        super().__init__()
        self._last: Any = None
        self._body = b""

    def _take(self, payload: bytes) -> Iterator[str]:
        event = load_loosely(payload)
        kind = field_of(event, "type")
        if kind == "error":
            error = field_of(event, "error") or event
            raise failure(status_in(error), payload, {})
        if kind in _ENDED:
            self._last, self._body, self.done = field_of(event, "response"), payload, True
        elif kind in ("response.output_text.delta", "response.refusal.delta"):
            text = field_of(event, "delta")
            if isinstance(text, str):
                yield from self._show(well_formed(text))

    def finished(self) -> Reply:
        """Return the complete reply."""
        if self._last is None and self._stray.strip():
            return _read(load_loosely(bytes(self._stray)), bytes(self._stray))
        if self._last is None:
            raise MalformedReply("the stream ended before the reply was complete")
        return _read(self._last, self._body)
