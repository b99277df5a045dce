"""Chat completions, as OpenAI and most servers speak them: the body of a call, and what comes back as a `Reply`.

Pure functions of bytes: no network, no clock. The one decision to know: the choices are what was paid for, so they
are read strictly first (fast) and leniently second (lone surrogates, invalid UTF-8, NaN, content in parts), and
whatever else is broken in the reply (usage, model name) is dropped rather than losing it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any, Literal, cast

import msgspec

from camel.core.errors import MalformedReply, ReplyTooLarge, ServerFailed
from camel.core.message import FinishReason, Sampling, Usage, well_formed
from camel.core.model import Choice, Expects, Reply, Request
from camel.core.thought import SpeechFilter, separate
from camel.models.guided import CRITICS, Guide, guided_fields
from camel.models.wire import cleaned, excerpt, failure, field_of, load_loosely, status_in

_SAMPLING_FIELDS = ("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty")
_MAY_GO = (*_SAMPLING_FIELDS, "stop", "logprobs", "top_logprobs", "stream_options")
"""Fields that a call can do without."""
_LIMITS = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
"""Two names of the limit of a reply: an endpoint that refuses one takes the other."""
_REFUSED = re.compile(
    r"unsupported|not support|unrecogni[sz]ed|unknown (?:name|field|parameter|argument)|not permitted|not allowed|"
    r"deprecated|cannot find field|unexpected (?:field|keyword|parameter)|incompatible",
    re.IGNORECASE,
)
"""An endpoint's words for a field that it does not take."""
_BEFORE_SCHEMAS = re.compile(r"gpt-(?:3\.5|4(?![o.]))")
"""Models of OpenAI's that refuse a JSON schema."""
_encode = msgspec.json.Encoder().encode


class _Message(msgspec.Struct):
    """What a choice says, or in a stream the next piece of it."""

    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    """The same by another name: servers differ."""
    reasoning_details: Any = None
    """In parts, of which some may be encrypted."""


class _Choice(msgspec.Struct):
    message: _Message | None = None
    delta: _Message | None = None
    index: int = 0
    finish_reason: str | None = None
    logprobs: Any = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int = 0
    total_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None
    prompt_cache_hit_tokens: int | None = None
    """What was cached, as DeepSeek says it."""
    num_cached_tokens: int | None = None
    """As Mistral does."""
    reasoning_tokens: int | None = None
    """As SGLang does."""


class _Completion(msgspec.Struct):
    """A reply, or a chunk of a stream."""

    choices: list[_Choice] = []
    usage: _Usage | None = None
    model: str | None = None
    error: msgspec.Raw | None = None


_decode = msgspec.json.Decoder(_Completion).decode
_UNDECODED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_FINISH: dict[str | None, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content_filter",
    None: "stop",
}
_MAX_TOKENS_BELIEVED = 10**9
_MAX_CHOICES = 1_000
"""As many as can be asked for; more are a fault, or an attempt to fill the memory."""
_MAX_NESTED = 250_000
"""A list or object of 8 bytes takes 200 once it is parsed. 4,000 tokens with 20 alternatives each have 200,000."""
_MAX_LINE = 4 * 2**20
_UNKNOWN = Usage(calls=1, unknown=1)
_NOTHING = _Message()
_STREAM_FIELDS = (b":", b"event:", b"id:", b"retry:")
"""Lines of a stream that carry nothing for us: comments, names, numbers."""
_STREAM_STARTS = (b"data:", *_STREAM_FIELDS)


def read_reply(body: bytes) -> Reply:
    """Read the body of a 2xx answer; raises a `ModelError` when it holds no reply."""
    if len(body) > 2**20 and (nested := body.count(b"{") + body.count(b"[")) > _MAX_NESTED:
        raise ReplyTooLarge(f"the reply nests {nested:,} lists and objects; at most {_MAX_NESTED:,} are read")
    try:
        completion = _decode(body)
        whole = completion.choices and not _is_set(completion.error)
    except _UNDECODED:
        completion, whole = _Completion(), False
    if not whole:
        if body.startswith(_STREAM_STARTS):  # a stream that was not labeled as one
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
            choices.append(
                _choice(
                    said.content or "",
                    _thought_in(said),
                    _finish(one.finish_reason),
                    _tokens_of(one.logprobs),
                )
            )
    return Reply(tuple(choices), _usage(completion.usage), completion.model or "")


def _choice(content: str, thought: str, finish: FinishReason, tokens: list[Any] | None) -> Choice:
    """A reply of which some thought may stand in a field of its own, and some within the text."""
    within, speech = separate(content)
    return Choice(speech, finish, tokens, "\n\n".join(filter(None, (thought.strip(), within))))


def _thought_in(said: _Message) -> str:
    if thought := said.reasoning_content or said.reasoning:
        return thought
    details = said.reasoning_details
    if not isinstance(details, list):
        return ""
    parts = [field_of(one, "text") or field_of(one, "summary") for one in cast("list[Any]", details)]
    return "".join(well_formed(part) for part in parts if isinstance(part, str))


def _finish(reason: str | None) -> FinishReason:
    if reason == "error":  # of a gateway whose own provider failed after the status was sent
        raise ServerFailed("the endpoint ended its reply with an error")
    return _FINISH.get(reason, "other")


def _check_count(choices: list[Any]) -> None:
    if len(choices) > _MAX_CHOICES:
        raise MalformedReply(f"the reply has {len(choices):,} choices")


def _is_set(error: msgspec.Raw | None) -> bool:
    return error is not None and bytes(error) != b"null"


def _usage(usage: _Usage | None) -> Usage:
    if usage is None:
        return _UNKNOWN
    details, prompt, completion = usage.prompt_tokens_details, usage.prompt_tokens, usage.completion_tokens
    cached = (
        (details.cached_tokens if details else 0)
        or usage.prompt_cache_hit_tokens
        or usage.num_cached_tokens
        or 0
    )
    thought = (
        (spent.reasoning_tokens if (spent := usage.completion_tokens_details) else 0)
        or usage.reasoning_tokens
        or 0
    )
    total = usage.total_tokens or 0
    if not all(0 <= count < _MAX_TOKENS_BELIEVED for count in (prompt, completion, cached, thought, total)):
        return _UNKNOWN
    # More cached than prompt: such an endpoint does not count what was cached as part of the prompt.
    prompt += cached if cached > prompt else 0
    if thought and total == prompt + completion + thought:  # counted apart, as xAI does
        completion += thought
    elif not thought and total > prompt + completion:  # known only by the total, as Gemini's
        thought = total - prompt - completion
        completion += thought
    return Usage(prompt, completion, cached, 1, reasoning=min(thought, completion))


def _tokens_of(logprobs: Any) -> list[Any] | None:
    tokens = field_of(logprobs, "content")
    return cast("list[Any]", tokens) if isinstance(tokens, list) else None


def _read_loosely(body: bytes, part: Literal["message", "delta"]) -> _Completion:
    """Save what can be saved of a body that is not quite a completion, or not quite a chunk of one."""
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
    model = fields.get("model")
    return _Completion(
        [_loose_choice(choice, part) for choice in found],
        _loose_usage(fields.get("usage")),
        well_formed(model) if isinstance(model, str) else None,
    )


def _loose_choice(choice: Any, part: Literal["message", "delta"]) -> _Choice:
    index = 0 if part == "message" else field_of(choice, "index") or 0
    if part == "delta" and not (isinstance(choice, dict) and isinstance(index, int)):
        raise MalformedReply("a chunk of the stream holds something that is not a choice")
    said, reason, message = field_of(choice, part), field_of(choice, "finish_reason"), None
    if isinstance(said, dict):
        refusal = field_of(said, "refusal")
        refusal = well_formed(refusal) if isinstance(refusal, str) else None
        thoughts = (field_of(said, name) for name in ("reasoning_content", "reasoning"))
        thought = next((well_formed(one) for one in thoughts if isinstance(one, str) and one), None)
        content = field_of(said, "content")
        message = _Message(
            _loose_text(content),
            refusal,
            thought or _loose_thought(content),
            None,
            field_of(said, "reasoning_details"),
        )
    return _Choice(
        message if part == "message" else None,
        message if part == "delta" else None,
        index,
        reason if reason is None or isinstance(reason, str) else "other",
        cleaned(field_of(choice, "logprobs")),
    )


def _loose_text(content: Any) -> str | None:
    if isinstance(content, list):  # content in parts, as some gateways send it
        parts = [field_of(part, "text") for part in cast("list[Any]", content)]
        content = "".join(part for part in parts if isinstance(part, str))
    if content is not None and not isinstance(content, str):
        raise MalformedReply(f"the content of the reply is {type(content).__name__}, not text")
    return content and well_formed(content)


def _loose_thought(content: Any) -> str | None:
    """The thinking parts of a content in parts, as Mistral sends it: each holds texts of its own."""
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


class StreamedReply:
    """Puts a streamed reply together, chunk by chunk."""

    def __init__(self) -> None:
        self._texts: dict[int, list[str]] = {}
        self._thoughts: dict[int, list[str]] = {}
        self._shown = SpeechFilter()
        self._finish: dict[int, FinishReason] = {}
        self._refused: set[int] = set()
        self._logprobs: dict[int, list[Any]] = {}
        self._usage = _UNKNOWN
        self._model = ""
        self._pending = bytearray()
        self._stray = bytearray()
        self.done = False
        """The stream said that it is complete."""

    def feed(self, data: bytes) -> Iterator[str]:
        """Take more bytes; yield each new piece of the first choice's text."""
        self._pending += data
        if len(self._pending) + len(self._stray) > _MAX_LINE:
            raise ReplyTooLarge(f"a line of the stream exceeds {_MAX_LINE:,} bytes")
        if b"\n" not in data:
            return
        *lines, self._pending = self._pending.split(b"\n")
        for line in lines:
            if self.done:
                return
            if line.startswith(b"data:"):
                payload = bytes(line[5:]).strip()
                if payload == b"[DONE]":
                    self.done = True
                    if rest := self._shown.rest():
                        yield rest
                elif payload:
                    yield from self._take(payload)
            elif not line.startswith(_STREAM_FIELDS):
                self._stray += line + b"\n"

    def _take(self, payload: bytes) -> Iterator[str]:
        try:
            chunk = _decode(payload)
        except _UNDECODED:
            chunk = _read_loosely(payload, "delta")
        if _is_set(chunk.error):
            chunk = _read_loosely(payload, "delta")
        if chunk.usage is not None and not (usage := _usage(chunk.usage)).unknown:
            self._usage = usage
        self._model = self._model or chunk.model or ""
        for piece in chunk.choices:
            index, delta = piece.index, piece.delta or _NOTHING
            if not 0 <= index < _MAX_CHOICES:
                raise MalformedReply(f"the stream numbers a choice {index}")
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
            if text and index == 0 and (shown := self._shown.feed(text)):
                yield shown

    def finished(self) -> Reply:
        """The whole reply; raises `MalformedReply` when the stream broke off before its end."""
        indexes = self._texts.keys() | self._finish.keys() | self._thoughts.keys()
        if not indexes and not self.done and self._stray.strip():
            return read_reply(bytes(self._stray))  # a plain body that was labeled as a stream
        if not indexes or not (self.done or indexes == self._finish.keys()):
            raise MalformedReply("the stream ended before the reply was complete")
        if len(indexes) <= max(indexes):
            raise MalformedReply("the stream skips a choice")
        choices = tuple(
            _choice(
                "".join(self._texts.get(i, ())),
                "".join(self._thoughts.get(i, ())),
                "refusal" if i in self._refused else self._finish.get(i, "stop"),
                self._logprobs.get(i),
            )
            for i in range(len(indexes))
        )
        return Reply(choices, self._usage, self._model)


class ChatCompletions:
    """How one model is asked. `is_openai` sends what only OpenAI knows, which other endpoints may refuse."""

    path = "/chat/completions"
    """What follows the base URL."""
    read = staticmethod(read_reply)
    stream = StreamedReply

    def __init__(
        self,
        name: str,
        *,
        is_openai: bool,
        guided: Guide | None = None,
        max_choices: int | None = None,
        session_field: str = "",
    ) -> None:
        schemas = is_openai and not _BEFORE_SCHEMAS.match(name)
        self.guided: Guide | None = guided or ("openai" if schemas else None)
        self._is_openai, self._max_choices = is_openai, max_choices
        self._session_field = session_field or ("prompt_cache_key" if is_openai else "")
        self._head = b'{"model":' + _encode(name) + b',"messages":['
        self.refused: dict[str, str] = {}
        """Fields that the endpoint has refused, each with what is sent instead; empty: nothing."""
        self._tails: dict[tuple[int, str | None, int, bool], tuple[Sampling, bytes]] = {}

    def encode(self, request: Request) -> bytes:
        """The body of a call."""
        streaming = request.watch is not None
        parts = [
            self._head,
            request.history.encoded(),
            self._tail(request.sampling, request.expects, request.options, streaming),
        ]
        if self._session_field and request.session:
            # Routes a speaker's growing prompt to the machine that has it cached; other servers may refuse the field.
            parts += [b",", _encode(self._session_field), b":", _encode(_session_key(request))]
        return b"".join([*parts, b"}"])

    def constraint(self, request: Request) -> str:
        """The grammar or schema that the reply is held to, as the record names it."""
        if not self.guided or not request.expects:
            return ""
        held = self.guided != "openai" or request.expects in CRITICS
        return f"{self.guided}:{request.expects}" if held else ""

    def adjust(self, refusal: str, sampling: Sampling) -> str:
        """Learn from a refusal that names a field of a call: it is left out from now on, or sent by its other name.

        Returns the field; empty where the refusal is about something else.
        """
        if not _REFUSED.search(refusal):
            return ""
        sent = {**self._fields(sampling, streaming=True, adjusted=False), **sampling.extra}
        named = [name for name in (*_LIMITS, *_MAY_GO) if name in sent and re.search(rf"\b{name}\b", refusal)]
        if not named:
            return ""
        # A refusal may name both limits: the one not to use comes first.
        field = min(named, key=refusal.index)
        if field not in self.refused:
            self.refused[field] = _LIMITS.get(field, "")
            self._tails.clear()
        return field

    def _tail(self, sampling: Sampling, expects: Expects | None, options: int, streaming: bool) -> bytes:
        """Everything after the messages. The same few settings recur for millions of calls, so they are kept."""
        key = (id(sampling), expects, options, streaming)
        kept = self._tails.get(key)
        if kept is None:
            fields = self._fields(sampling, streaming)
            if self.guided and expects:
                fields |= guided_fields(self.guided, expects, options)
            encoded = _encode({**fields, **sampling.extra})
            if len(self._tails) >= 256:
                self._tails.clear()
            # Keeping the sampling with its tail keeps its id from being given to another.
            kept = self._tails[key] = sampling, b"]" + (b"," + encoded[1:-1] if encoded != b"{}" else b"")
        return kept[1]

    def _fields(self, sampling: Sampling, streaming: bool, *, adjusted: bool = True) -> dict[str, Any]:
        values = {name: getattr(sampling, name) for name in _SAMPLING_FIELDS}
        fields: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
        if sampling.max_tokens is not None:
            # OpenAI's newer models know only the new name, most other servers only the old one.
            fields["max_completion_tokens" if self._is_openai else "max_tokens"] = sampling.max_tokens
        wanted = min(sampling.n, self._max_choices or sampling.n)
        if wanted != 1:
            fields["n"] = wanted
        if sampling.stop:
            fields["stop"] = sampling.stop
        if sampling.logprobs is not None:
            fields |= {"logprobs": True, "top_logprobs": sampling.logprobs}
        if streaming:
            fields |= {"stream": True, "stream_options": {"include_usage": True}}
        for name, other in self.refused.items() if adjusted else ():
            if name in fields:
                value = fields.pop(name)
                if other:
                    fields[other] = value
        return fields


def _session_key(request: Request) -> str:
    """Names a speaker's growing prompt in at most 64 characters, which is what OpenAI takes."""
    key = well_formed(f"{request.session}/{request.speaker}")
    return key if len(key) <= 64 else hashlib.blake2b(key.encode(), digest_size=32).hexdigest()
