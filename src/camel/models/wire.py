"""What an OpenAI-compatible endpoint sends back, read into a `Reply` or a typed error.

Pure functions of bytes: no network, no clock. The one decision to know: the choices are what was paid for, so they
are read strictly first (fast) and leniently second (lone surrogates, invalid UTF-8, NaN, content in parts), and
whatever else is broken beside them (usage, model name) is dropped rather than losing the reply.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, cast

import msgspec

from camel.core.errors import (
    ContentRejected,
    ContextOverflow,
    MalformedReply,
    ModelError,
    NotAuthorised,
    QuotaExhausted,
    RateLimited,
    ReplyTooLarge,
    RequestRejected,
    ServerFailed,
)
from camel.core.message import FinishReason, Usage, well_formed
from camel.core.model import Choice, Reply


class _Said(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Said
    finish_reason: str | None = None
    logprobs: Any = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int = 0
    prompt_tokens_details: _Details | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage | None = None
    model: str | None = None
    error: msgspec.Raw | None = None


_decode = msgspec.json.Decoder(_Completion).decode
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
_UNKNOWN = Usage(calls=1, unknown=1)


def read_reply(body: bytes) -> Reply:
    """Read the body of a 2xx answer; raises a `ModelError` when it holds no reply."""
    if len(body) > 2**20 and (nested := body.count(b"{") + body.count(b"[")) > _MAX_NESTED:
        raise ReplyTooLarge(f"the reply nests {nested:,} lists and objects; at most {_MAX_NESTED:,} are read")
    try:
        completion = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _read_loosely(body)
    if not completion.choices or _is_set(completion.error):
        return _read_loosely(body)
    _check_count(completion.choices)
    choices = tuple(
        Choice(said.content or "", _finish(choice.finish_reason), _tokens_of(choice.logprobs))
        if (said := choice.message).content or not said.refusal
        else Choice(said.refusal, "refusal")
        for choice in completion.choices
    )
    return Reply(choices, _usage(completion.usage), completion.model or "")


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
    details = usage.prompt_tokens_details
    cached = (details.cached_tokens or 0) if details else 0
    if not (
        0 <= usage.prompt_tokens < _MAX_TOKENS_BELIEVED
        and 0 <= usage.completion_tokens < _MAX_TOKENS_BELIEVED
        and 0 <= cached < _MAX_TOKENS_BELIEVED
    ):
        return _UNKNOWN
    # More cached than prompt: whoever says so does not count what was cached as part of the prompt.
    beside = cached if cached > usage.prompt_tokens else 0
    return Usage(usage.prompt_tokens + beside, usage.completion_tokens, cached, 1)


def _read_loosely(body: bytes) -> Reply:
    """Save what can be saved of a body that is not quite a completion."""
    if body.startswith(_STREAM_STARTS):  # a stream that was not labelled as one
        streamed = StreamedReply()
        for _ in streamed.feed(body + b"\n"):
            pass
        return streamed.finished()
    fields = _object(body, "reply")
    choices = fields.get("choices")
    if not isinstance(choices, list) or not choices:
        raise MalformedReply(f"the reply has no choices: {_excerpt(body)}")
    said = cast("list[Any]", choices)
    _check_count(said)
    model = fields.get("model")
    return Reply(
        tuple(_loose_choice(choice) for choice in said),
        _usage(_loose_usage(fields.get("usage"))),
        well_formed(model) if isinstance(model, str) else "",
    )


def _object(body: bytes, what: str) -> dict[str, Any]:
    """The JSON object in `body`, unless it is an error or something else altogether."""
    data = _loads(body)
    if data is None:
        raise MalformedReply(f"the {what} is not JSON: {_excerpt(body)}")
    if not isinstance(data, dict):
        raise MalformedReply(f"the {what} is JSON but not an object: {_excerpt(body)}")
    fields = cast("dict[str, Any]", data)
    if error := fields.get("error"):
        raise failure(_status_in(error), body, {})
    return fields


def _loose_choice(choice: Any) -> Choice:
    message = _get(choice, "message")
    if not isinstance(message, dict):
        raise MalformedReply("a choice of the reply has no message")
    content, refusal = _loose_text(_get(message, "content")), _get(message, "refusal")
    if not content and isinstance(refusal, str) and refusal:
        return Choice(well_formed(refusal), "refusal")
    finish = _finish(_loose_reason(_get(choice, "finish_reason")))
    return Choice(content or "", finish, _tokens_of(_cleaned(_get(choice, "logprobs"))))


def _loose_text(content: Any) -> str | None:
    if isinstance(content, list):  # content in parts, as some gateways send it
        parts = [_get(part, "text") for part in cast("list[Any]", content)]
        content = "".join(part for part in parts if isinstance(part, str))
    if content is not None and not isinstance(content, str):
        raise MalformedReply(f"the content of the reply is {type(content).__name__}, not text")
    return content and well_formed(content)


def _loose_reason(reason: Any) -> str | None:
    return reason if reason is None or isinstance(reason, str) else "other"


def _loose_usage(usage: Any) -> _Usage | None:
    try:
        return msgspec.convert(_cleaned(usage), _Usage | None)
    except (msgspec.ValidationError, RecursionError):
        return None


def _tokens_of(logprobs: Any) -> list[Any] | None:
    tokens = _get(logprobs, "content")
    return cast("list[Any]", tokens) if isinstance(tokens, list) else None


class _Delta(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None


class _Piece(msgspec.Struct):
    delta: _Delta | None = None
    index: int = 0
    finish_reason: str | None = None
    logprobs: Any = None


class _Chunk(msgspec.Struct):
    choices: list[_Piece] = []
    usage: _Usage | None = None
    model: str | None = None
    error: msgspec.Raw | None = None


_decode_chunk = msgspec.json.Decoder(_Chunk).decode


_STREAM_FIELDS = (b":", b"event:", b"id:", b"retry:")
"""Lines of a stream that carry nothing for us: comments, names, numbers."""
_STREAM_STARTS = (b"data:", *_STREAM_FIELDS)


_MAX_LINE = 4 * 2**20


class StreamedReply:
    """Puts a streamed reply together, chunk by chunk."""

    def __init__(self) -> None:
        self._texts: dict[int, list[str]] = {}
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
                elif payload:
                    yield from self._take(payload)
            elif not line.startswith(_STREAM_FIELDS):
                self._stray += line + b"\n"

    def _take(self, payload: bytes) -> Iterator[str]:
        try:
            chunk = _decode_chunk(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            chunk = _loose_chunk(payload)
        if _is_set(chunk.error):
            chunk = _loose_chunk(payload)
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
            if text and index == 0:
                yield text

    def finished(self) -> Reply:
        """The whole reply; raises `MalformedReply` when the stream broke off before its end."""
        indexes = self._texts.keys() | self._finish.keys()
        if not indexes and not self.done and self._stray.strip():
            return read_reply(bytes(self._stray))  # a plain body that was labelled as a stream
        if not indexes or not (self.done or indexes == self._finish.keys()):
            raise MalformedReply("the stream ended before the reply was complete")
        if len(indexes) <= max(indexes):
            raise MalformedReply("the stream skips a choice")
        choices = tuple(
            Choice(
                "".join(self._texts.get(i, ())),
                "refusal" if i in self._refused else self._finish.get(i, "stop"),
                self._logprobs.get(i),
            )
            for i in range(len(indexes))
        )
        return Reply(choices, self._usage, self._model)


_NOTHING = _Delta()


def _loose_chunk(payload: bytes) -> _Chunk:
    fields = _object(payload, "stream's chunk")
    choices: Any = fields.get("choices") or []
    if not isinstance(choices, list):
        raise MalformedReply(f"a chunk of the stream is not a completion: {_excerpt(payload)}")
    model = fields.get("model")
    return _Chunk(
        [_loose_piece(choice) for choice in cast("list[Any]", choices)],
        _loose_usage(fields.get("usage")),
        well_formed(model) if isinstance(model, str) else None,
    )


def _loose_piece(choice: Any) -> _Piece:
    index = _get(choice, "index") or 0
    if not isinstance(choice, dict) or not isinstance(index, int):
        raise MalformedReply("a chunk of the stream holds something that is not a choice")
    delta = _get(choice, "delta")
    refusal = _get(delta, "refusal")
    return _Piece(
        _Delta(
            _loose_text(_get(delta, "content")), well_formed(refusal) if isinstance(refusal, str) else None
        ),
        index,
        _loose_reason(_get(choice, "finish_reason")),
        _cleaned(_get(choice, "logprobs")),
    )


# Gemini's words for a limit per minute are OpenAI's for an empty account, followed by when to come back; and OpenAI's
# for a limit per minute point at the billing page.
_QUOTA = re.compile(
    r"insufficient_(?:user_)?quota|exceeded_current_quota|billing[_ ](?:hard|not)|billing details(?!.*retry in)|"
    r"insufficient[_ ]balance|credit balance|out of credits|payment required",
    re.IGNORECASE | re.DOTALL,
)
_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context length|context (?:window|size|length|limit)|"
    r"(?:prompt|input) is too long|too many (?:input )?tokens|max_model_len|maximum (?:model|prompt|input) length|"
    r"exceeds the maximum (?:allowed length|number of tokens)|max_new_tokens. must be <=",
    re.IGNORECASE,
)

_MODERATED = re.compile(
    r"moderation|content[_ -]?(?:filter|policy|management policy)|content[_ ]policy[_ ]violation|flagged|"
    r"ResponsibleAIPolicyViolation|data_inspection_failed|(?:inappropriate|prohibited|harmful|unsafe) content|"
    r"safety (?:system|filter|setting|reasons)",
    re.IGNORECASE,
)
"""An endpoint's words for content that it will not serve."""
_CONTENT = re.compile(
    r"messages?[.\[]\d+\]?\.?.{0,40}content|invalid (?:utf|unicode|byte|character|surrogate)|"
    r"(?:text|message|messages?|content)(?: content)?s? (?:must be|is|cannot be|must not be) (?:non-?)?empty",
    re.IGNORECASE,
)
"""An endpoint's words for content that it cannot read."""


def failure(status: int, body: bytes, headers: Mapping[str, str]) -> ModelError:
    """The typed error for an answer that is not a reply."""
    words = _error_words(body)
    # Judged by more than is shown: a long message must not push the code behind it out of sight.
    said = "; ".join(word[:2_000] for word in words)
    text = f"HTTP {status}: {one_line(said) or 'the body is empty'}"
    if status == 402 or (400 <= status < 500 and _QUOTA.search(said)):
        return QuotaExhausted(f"{text} (no credit left: waiting will not help)", status=status)
    if status == 429:
        limited = RateLimited(text, status=status)
        limited.retry_after = retry_after(headers)
        return limited
    if status in (400, 403, 413, 422) and _OVERFLOW.search(said):
        return ContextOverflow(text, status=status)
    if (status in (400, 403, 422, 451) and _MODERATED.search(said)) or (
        status in (400, 422) and _CONTENT.search(said)
    ):
        return ContentRejected(text, status=status)
    if status in (401, 403):
        return NotAuthorised(f"{text} (check the API key and what it may use)", status=status)
    if status in (408, 409, 425) or (status >= 500 and status not in (501, 505)):
        failed = ServerFailed(text, status=status)
        failed.retry_after = retry_after(headers)
        return failed
    if status == 404:
        text += " (check the model's name, and that the base URL ends where /chat/completions begins)"
    elif 300 <= status < 400:
        text += " (redirects are not followed: set the base URL to where it leads)"
    return RequestRejected(text, status=status)


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Seconds that the endpoint asks to wait, or None when it says nothing sensible."""
    for name, scale in (("retry-after-ms", 1e-3), ("Retry-After", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) * scale
        except ValueError:
            try:
                seconds = parsedate_to_datetime(value).timestamp() - (time.time() if now is None else now)
            except (ValueError, TypeError, OverflowError, IndexError, OSError):
                continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return None


def _error_words(body: bytes) -> list[str]:
    """The human part of an error body, whatever shape it has."""
    data = _loads(body)
    error = _get(data, "error") or data
    parts = (
        [_get(error, key) for key in ("message", "detail", "type", "code")]
        if isinstance(error, dict)
        else [error]
    )
    words = [well_formed(str(part)).strip() for part in parts if isinstance(part, str | int)]
    return list(dict.fromkeys(filter(None, words))) or [body[:2_000].decode("utf-8", "replace")]


def _status_in(error: Any) -> int:
    """The status an error body claims for itself when HTTP said 200."""
    for key in ("code", "status", "status_code"):
        value = _get(error, key)
        if isinstance(value, str) and value.isdecimal() and len(value) == 3:
            value = int(value)
        if isinstance(value, int) and 400 <= value < 600:
            return value
    kind = f"{_get(error, 'type')} {_get(error, 'code')}".lower()
    if "rate_limit" in kind or "quota" in kind:
        return 429
    if "api_key" in kind or "auth" in kind:
        return 401
    if "invalid_request" in kind or _OVERFLOW.search(
        f"{kind} {str(_get(error, 'message') or error)[:2_000]}"
    ):
        return 400
    return 500


def _loads(body: bytes) -> Any:
    try:
        return json.loads(
            body.decode("utf-8-sig", "replace"), parse_int=_parse_int, parse_constant=_parse_constant
        )
    except (ValueError, RecursionError):
        return None


def _parse_int(digits: str) -> int | float:
    # Longer numbers are nobody's count, do not fit where JSON is written again, and beyond 4,300 digits raise.
    return int(digits) if len(digits) < 19 else float(digits)


def _parse_constant(_: str) -> None:
    """NaN and the infinities, which are not JSON."""


def _get(data: Any, key: str) -> Any:
    return cast("dict[str, Any]", data).get(key) if isinstance(data, dict) else None


def _cleaned(data: Any, depth: int = 20) -> Any:
    """`data` without what could not be written as JSON again."""
    if isinstance(data, str):
        return well_formed(data)
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, list):
        return [_cleaned(item, depth - 1) for item in cast("list[Any]", data)] if depth else None
    if isinstance(data, dict):
        items = cast("dict[str, Any]", data).items()
        return {well_formed(key): _cleaned(value, depth - 1) for key, value in items} if depth else None
    return data


def _excerpt(body: bytes) -> str:
    return one_line(body[:600].decode("utf-8", "replace")) or "the body is empty"


def one_line(text: str) -> str:
    """At most 300 printable characters on one line: errors are read in terminals and logs."""
    text = " ".join("".join(c if c.isprintable() else " " for c in text[:1200]).split())
    return text if len(text) <= 300 else f"{text[:297]}..."
