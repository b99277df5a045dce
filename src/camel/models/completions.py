"""The chat completions protocol of OpenAI and most servers, and OpenAI's Responses API: writes requests and parses replies.

Pure functions of bytes: no network, no clock. The one decision to know: the choices were paid for, so they are parsed
strictly first (fast) and leniently second (lone surrogates, invalid UTF-8, NaN, content in parts). Other invalid fields
(usage, model name) are ignored rather than losing the reply.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, cast

import msgspec

from camel.core.errors import MalformedReply, ServerFailed
from camel.core.history import Entry
from camel.core.message import FinishReason, Usage, well_formed
from camel.core.model import Choice, Reply, Request, ToolSchema
from camel.models.dialects import Dialect
from camel.models.guided import Guide
from camel.models.protocol import (
    STARTS,
    Calls,
    EventStream,
    Wire,
    check_nested,
    choice_of,
    encode,
    name_in,
    without_system,
)
from camel.models.wire import UNKNOWN, as_usage, cleaned, excerpt, failure, field_of, load_loosely, status_in


class _Message(msgspec.Struct):
    """The message of a choice, or its next piece in a stream."""

    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    """The reasoning, under another name that some servers use."""
    reasoning_details: Any = None
    """Reasoning in parts; some may be encrypted."""
    tool_calls: Any = None


class _Choice(msgspec.Struct):
    message: _Message | None = None
    delta: _Message | None = None
    index: int = 0
    finish_reason: str | None = None
    logprobs: Any = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int = 0
    total_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None
    prompt_cache_hit_tokens: int | None = None
    """Cached tokens in DeepSeek's replies."""
    num_cached_tokens: int | None = None
    """Cached tokens in Mistral's replies."""
    cached_tokens: int | None = None
    """Cached tokens in some of Together's replies."""
    reasoning_tokens: int | None = None
    """Reasoning tokens in SGLang's replies."""


class _Groq(msgspec.Struct):
    usage: _Usage | None = None


class _Completion(msgspec.Struct):
    """A reply, or a chunk of a stream."""

    choices: list[_Choice] = []
    usage: _Usage | None = None
    model: str | None = None
    error: msgspec.Raw | None = None
    x_groq: _Groq | None = None
    """Groq's token counts of a stream."""


_decode = msgspec.json.Decoder(_Completion).decode
_UNDECODED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_FINISH: dict[str | None, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content_filter",
    "tool_calls": "stop",
    "function_call": "stop",
    "model_length": "length",
    "insufficient_system_resource": "length",  # DeepSeek's reason for a truncated reply
    "max_tokens": "length",
    "end_turn": "stop",
    "": "stop",
    None: "stop",
}
_MAX_CHOICES = 1_000
"""Maximum number of choices in a request; more in a reply are an error or an attack on memory."""
_NOTHING = _Message()


def read_reply(body: bytes) -> Reply:
    """Parse the body of a 2xx response; raises a `ModelError` if it contains no reply."""
    if len(body) > 2**20:
        check_nested(body.count(b"{") + body.count(b"["))
    try:
        completion = _decode(body)
        whole = completion.choices and not _is_set(completion.error)
    except _UNDECODED:
        completion, whole = _Completion(), False
    if not whole:
        if body.startswith(STARTS):  # a stream that was not labeled as one
            streamed = StreamedReply()
            for _ in streamed.feed(body + b"\n"):
                pass
            return streamed.finished()
        completion = _read_loosely(body, "message")
    _check_count(completion.choices)
    choices: list[Choice] = []
    for one in completion.choices:
        said = one.message
        if said is None:
            raise MalformedReply("a choice of the reply has no message")
        if said.refusal and not said.content:
            choices.append(Choice(said.refusal, "refusal"))
        else:
            text, finish, tokens = said.content or "", _finish(one.finish_reason), _tokens_of(one.logprobs)
            calls = _add_calls(Calls(), said.tool_calls, True) if said.tool_calls else None
            choices.append(choice_of(text, _thought_in(said), finish, tokens, calls))
    return Reply(tuple(choices), _usage(completion.usage), completion.model or "")


def _thought_in(said: _Message) -> str:
    if thought := said.reasoning_content or said.reasoning:
        return thought
    details = said.reasoning_details
    if not isinstance(details, list):
        return ""
    parts = [field_of(one, "text") or field_of(one, "summary") for one in cast("list[Any]", details)]
    return "".join(well_formed(part) for part in parts if isinstance(part, str))


def _add_calls(calls: Calls, given: Any, whole: bool) -> Calls:
    """Add the tool calls of a message, or the pieces of them in a stream."""
    for place, one in enumerate(cast("list[Any]", given) if isinstance(given, list) else ()):
        index, made = place if whole else field_of(one, "index"), field_of(one, "function") or one
        calls.add(index, field_of(one, "id"), field_of(made, "name"), field_of(made, "arguments"))
    return calls


def _finish(reason: str | None) -> FinishReason:
    if reason == "error":  # from a gateway whose provider failed after the status was sent
        raise ServerFailed("the endpoint ended its reply with an error")
    return _FINISH.get(reason, "other")


def _check_count(choices: list[Any]) -> None:
    if len(choices) > _MAX_CHOICES:
        raise MalformedReply(f"the reply has {len(choices):,} choices")


def _is_set(error: msgspec.Raw | None) -> bool:
    return error is not None and bytes(error) != b"null"


def _usage(usage: _Usage | None) -> Usage:
    if usage is None:
        return UNKNOWN
    details, prompt, completion = usage.prompt_tokens_details, usage.prompt_tokens, usage.completion_tokens
    other = usage.prompt_cache_hit_tokens or usage.num_cached_tokens or usage.cached_tokens or 0
    cached = (details.cached_tokens if details else 0) or other
    spent = usage.completion_tokens_details
    thought = (spent.reasoning_tokens if spent else 0) or usage.reasoning_tokens or 0
    written = (details.cache_write_tokens if details else 0) or 0
    total = usage.total_tokens or 0
    if min(prompt, completion, cached, thought, written, total) < 0:
        return UNKNOWN
    # More cached than prompt tokens: this endpoint does not include cached tokens in the prompt.
    prompt += cached if cached > prompt else 0
    if thought and total == prompt + completion + thought:  # counted separately, as by xAI
        completion += thought
    elif not thought and total > prompt + completion:  # visible only in the total, as with Gemini
        thought = total - prompt - completion
        completion += thought
    return as_usage(prompt, completion, cached, thought, written)


def _tokens_of(logprobs: Any) -> list[Any] | None:
    tokens = field_of(logprobs, "content")
    return cast("list[Any]", tokens) if isinstance(tokens, list) else None


def _read_loosely(body: bytes, part: Literal["message", "delta"]) -> _Completion:
    """Parse as much as possible of a completion or chunk that does not match the schema."""
    what = "reply" if part == "message" else "stream's chunk"
    data = load_loosely(body)
    if data is None:
        raise MalformedReply(f"the {what} is not JSON: {excerpt(body)}")
    if not isinstance(data, dict):
        raise MalformedReply(f"the {what} is JSON but not an object: {excerpt(body)}")
    fields = cast("dict[str, Any]", data)
    if error := fields.get("error"):
        raise failure(status_in(error), body, {})
    choices: Any = fields.get("choices") or []
    if not isinstance(choices, list) or (part == "message" and not choices):
        raise MalformedReply(f"the {what} has no choices: {excerpt(body)}")
    found = cast("list[Any]", choices)
    _check_count(found)
    read = [_loose_choice(choice, part) for choice in found]
    return _Completion(read, _loose_usage(fields.get("usage")), name_in(fields))


def _loose_choice(choice: Any, part: Literal["message", "delta"]) -> _Choice:
    index = 0 if part == "message" else field_of(choice, "index") or 0
    if part == "delta" and not (isinstance(choice, dict) and isinstance(index, int)):
        raise MalformedReply("a chunk of the stream contains an invalid choice")
    said, reason, message = field_of(choice, part), field_of(choice, "finish_reason"), None
    if isinstance(said, dict):
        refusal = field_of(said, "refusal")
        refusal = well_formed(refusal) if isinstance(refusal, str) else None
        thoughts = (field_of(said, name) for name in ("reasoning_content", "reasoning"))
        thought = next((well_formed(one) for one in thoughts if isinstance(one, str) and one), None)
        content = field_of(said, "content")
        thought = thought or _loose_thought(content)
        details, calls = field_of(said, "reasoning_details"), field_of(said, "tool_calls")
        message = _Message(_loose_text(content), refusal, thought, None, details, calls)
    both = (message, None) if part == "message" else (None, message)
    reason = reason if reason is None or isinstance(reason, str) else "other"
    return _Choice(*both, index, reason, cleaned(field_of(choice, "logprobs")))


def _loose_text(content: Any) -> str | None:
    if isinstance(content, list):  # some gateways send content in parts
        parts = [field_of(part, "text") for part in cast("list[Any]", content)]
        content = "".join(part for part in parts if isinstance(part, str))
    if content is not None and not isinstance(content, str):
        raise MalformedReply(f"the content of the reply is {type(content).__name__}, not text")
    return content and well_formed(content)


def _loose_thought(content: Any) -> str | None:
    """Return the reasoning in a content that is a list of parts, as Mistral sends it."""
    if not isinstance(content, list):
        return None
    found = [field_of(part, "thinking") for part in cast("list[Any]", content)]
    texts = [_loose_text(one) if isinstance(one, list | str) else "" for one in found]
    return "".join(filter(None, texts)) or None


def _loose_usage(usage: Any) -> _Usage | None:
    try:
        return msgspec.convert(cleaned(usage), _Usage | None)
    except (msgspec.ValidationError, RecursionError):
        return None


class StreamedReply(EventStream):
    """Assembles a streamed reply from chunks."""

    def __init__(self) -> None:
        super().__init__()
        self._texts: dict[int, list[str]] = {}
        self._thoughts: dict[int, list[str]] = {}
        self._finish: dict[int, FinishReason] = {}
        self._refused: set[int] = set()
        self._logprobs: dict[int, list[Any]] = {}
        self._calls: dict[int, Calls] = {}
        self._usage = UNKNOWN
        self._model = ""

    def _take(self, payload: bytes) -> Iterator[str]:
        try:
            chunk = _decode(payload)
        except _UNDECODED:
            chunk = _read_loosely(payload, "delta")
        if _is_set(chunk.error):
            chunk = _read_loosely(payload, "delta")
        counted = chunk.usage or (chunk.x_groq and chunk.x_groq.usage)
        if counted and not (usage := _usage(counted)).unknown:
            self._usage = usage
        self._model = self._model or chunk.model or ""
        for piece in chunk.choices:
            index, delta = piece.index, piece.delta or _NOTHING
            if not 0 <= index < _MAX_CHOICES:
                raise MalformedReply(f"the stream has a choice with the invalid index {index}")
            if text := delta.content or delta.refusal or "":
                self._texts.setdefault(index, []).append(text)
            if delta.refusal:
                self._refused.add(index)
            if piece.finish_reason is not None:
                self._finish[index] = _finish(piece.finish_reason)
            if tokens := _tokens_of(piece.logprobs):
                self._logprobs.setdefault(index, []).extend(tokens)
            if thought := _thought_in(delta):
                self._thoughts.setdefault(index, []).append(thought)
            if delta.tool_calls:
                _add_calls(self._calls.setdefault(index, Calls()), delta.tool_calls, False)
            if text and index == 0:
                yield from self._show(text)

    def finished(self) -> Reply:
        """Return the complete reply. Raise `MalformedReply` if the stream ended early."""
        indexes = self._texts.keys() | self._finish.keys() | self._thoughts.keys() | self._calls.keys()
        if not indexes and not self.done and self._stray.strip():
            return read_reply(bytes(self._stray))  # a plain body that was labeled as a stream
        if not indexes or not (self.done or indexes == self._finish.keys()):
            raise MalformedReply("the stream ended before the reply was complete")
        if len(indexes) <= max(indexes):
            raise MalformedReply("the stream skips a choice")
        choices = tuple(
            choice_of(
                "".join(self._texts.get(i, ())),
                "".join(self._thoughts.get(i, ())),
                "refusal" if i in self._refused else self._finish.get(i, "stop"),
                self._logprobs.get(i),
                None if i in self._refused else self._calls.get(i),
            )
            for i in range(len(indexes))
        )
        return Reply(choices, self._usage, self._model)


class ChatCompletions(Wire):
    """The chat completions protocol."""

    path = "/chat/completions"

    def __init__(self, name: str, dialect: Dialect, **given: Any) -> None:
        super().__init__(name, dialect, **given)
        self._head = b'{"model":' + encode(name) + b',"messages":['

    def encode(self, request: Request) -> bytes:
        """Return the body of a request."""
        return b"".join([self._head, request.history.encoded(), self.tail(request)])

    def _tool(self, tool: ToolSchema) -> dict[str, Any]:
        return {"type": "function", "function": super()._tool(tool)}

    def read(self, body: bytes) -> Reply:
        """Parse a reply."""
        return read_reply(body)

    def stream(self) -> StreamedReply:
        """Return a parser for a streamed reply."""
        return StreamedReply()


_CUT: dict[Any, FinishReason] = {"max_output_tokens": "length", "content_filter": "content_filter"}
_ENDED = ("response.completed", "response.incomplete", "response.failed")


class OpenAIResponses(Wire):
    """The Responses protocol. Nothing is stored at the provider: every call sends the whole conversation."""

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
    return Reply((choice,), _response_usage(field_of(data, "usage")), name_in(data))


def _parts(item: Any, name: str) -> list[Any]:
    found = field_of(item, name)
    return cast("list[Any]", found) if isinstance(found, list) else []


def _response_usage(counts: Any) -> Usage:
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
