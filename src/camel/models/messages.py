"""Anthropic's Messages API: the body of a call, and what comes back as a `Reply`.

The one decision to know: a conversation's prompt is marked for caching as a whole, because the next call of the same
speaker begins with it. Reading it then costs a tenth; without the mark nothing is cached.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from camel.core.errors import MalformedReply, RequestRejected
from camel.core.message import FinishReason, Usage, well_formed
from camel.core.model import Expects, Reply, Request
from camel.models.guided import Guide, schema_of
from camel.models.protocol import Wire, choice_of, encode, name_in, without_system
from camel.models.streams import EventStream
from camel.models.wire import UNKNOWN, believed, excerpt, failure, field_of, load_loosely, status_in

_FINISH: dict[Any, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
    None: "stop",
}
_LEAST_THOUGHT = 1024
"""Tokens of thought that a model must at least be allowed."""
_CACHED = b',"cache_control":{"type":"ephemeral"}'


class AnthropicMessages(Wire):
    """How a model is asked for messages."""

    path = "/messages"

    def encode(self, request: Request) -> bytes:
        """The body of a call."""
        system, rest = without_system(request)
        told = [b',"system":', encode(system)] if system else []
        cached = _CACHED if request.session else b""
        return b"".join(
            [b'{"model":', encode(self._name), *told, cached, b',"messages":[', rest, self.tail(request)]
        )

    def fields(self, sampling: Any, expects: Expects | None, options: int, streaming: bool) -> dict[str, Any]:
        """Everything but the model and the messages."""
        fields = super().fields(sampling, expects, options, streaming)
        budget, limit = field_of(fields.get("thinking"), "budget_tokens"), fields["max_tokens"]
        if isinstance(budget, int) and sampling.max_tokens is None:
            fields["max_tokens"] = budget + limit
        elif isinstance(budget, int) and budget >= limit:
            # A level leaves room for speech; a number means what it says.
            room = limit if isinstance(sampling.reasoning, int) else max(_LEAST_THOUGHT, limit // 2)
            if room >= limit:
                raise RequestRejected(
                    f"sampling.reasoning lets the model think in {budget:,} tokens, and sampling.max_tokens ends the reply at "
                    f"{limit:,}: set max_tokens above that, or reasoning to a smaller number of tokens"
                )
            fields["thinking"] = {**fields["thinking"], "budget_tokens": room}
        return fields

    def _held(self, guide: Guide, expects: Expects, options: int) -> dict[str, Any]:
        held = schema_of(guide, expects, options)
        return (
            {"output_config": {"format": {"type": "json_schema", "schema": held["schema"]}}} if held else {}
        )

    def stream(self) -> EventStream:
        """Read a streamed reply."""
        return MessageStream()


def _read(data: Any, body: bytes) -> Reply:
    if error := field_of(data, "error"):
        raise failure(status_in(error), body, {})
    content = field_of(data, "content")
    if not isinstance(content, list):
        raise MalformedReply(f"the reply has no content: {excerpt(body)}")
    blocks = cast("list[Any]", content)
    choice = choice_of(
        _texts(blocks, "text"), _texts(blocks, "thinking"), _finish(field_of(data, "stop_reason"))
    )
    return Reply((choice,), _usage(field_of(data, "usage")), name_in(data))


def _finish(reason: Any) -> FinishReason:
    return _FINISH.get(reason, "other") if isinstance(reason, str | None) else "other"


def _texts(blocks: list[Any], kind: str) -> str:
    """The text of all blocks of a kind. Redacted thoughts have none."""
    found = [field_of(block, kind) for block in blocks if field_of(block, "type") == kind]
    return "".join(well_formed(one) for one in found if isinstance(one, str))


class _Details(msgspec.Struct):
    thinking_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: _Details | None = None


def _usage(counts: Any) -> Usage:
    """Tokens of the prompt that were cached, or written into the cache, are counted apart from the others."""
    try:
        told = msgspec.convert(counts, _Usage)
    except msgspec.ValidationError:
        return UNKNOWN
    if told.input_tokens is None or told.output_tokens is None:
        return UNKNOWN
    read, written = told.cache_read_input_tokens or 0, told.cache_creation_input_tokens or 0
    thought = (told.output_tokens_details.thinking_tokens if told.output_tokens_details else 0) or 0
    return believed(told.input_tokens + read + written, told.output_tokens, read, thought, written)


class MessageStream(EventStream):
    """Puts a streamed message together, event by event."""

    def __init__(self) -> None:
        super().__init__()
        self._texts: list[str] = []
        self._thoughts: list[str] = []
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
            case "content_block_start":
                yield from self._piece(field_of(event, "content_block"))
            case "content_block_delta":
                yield from self._piece(field_of(event, "delta"))
            case "message_delta":
                self._reason = field_of(field_of(event, "delta"), "stop_reason") or self._reason
                self._count(field_of(event, "usage"))
            case "message_stop":
                self.done = True
            case _:  # pings, ends of blocks, and what may come later
                pass

    def _piece(self, piece: Any) -> Iterator[str]:
        text, thought = field_of(piece, "text"), field_of(piece, "thinking")
        if isinstance(thought, str):
            self._thoughts.append(well_formed(thought))
        if isinstance(text, str) and text:
            self._texts.append(well_formed(text))
            yield from self._show(text)

    def _count(self, counts: Any) -> None:
        """Counts are of everything so far: the last ones hold."""
        if isinstance(counts, dict):
            told = cast("dict[str, Any]", counts)
            self._counts |= {name: count for name, count in told.items() if count is not None}

    def finished(self) -> Reply:
        """The whole reply."""
        if not self.done and not self._texts and self._stray.strip():
            return _read(load_loosely(bytes(self._stray)), bytes(self._stray))
        if not self.done:
            raise MalformedReply("the stream ended before the reply was complete")
        choice = choice_of("".join(self._texts), "".join(self._thoughts), _finish(self._reason))
        return Reply((choice,), _usage(self._counts), self._model)
