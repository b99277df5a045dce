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
    ContextOverflow,
    MalformedReply,
    ModelError,
    NotAuthorised,
    QuotaExhausted,
    RateLimited,
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
_UNKNOWN = Usage(calls=1, unknown=1)


def read_reply(body: bytes) -> Reply:
    """Read the body of a 2xx answer; raises a `ModelError` when it holds no reply."""
    try:
        completion = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _read_loosely(body)
    if completion.error is not None or not completion.choices:
        return _read_loosely(body)
    choices = tuple(
        Choice(said.content, _FINISH.get(choice.finish_reason, "other"), _tokens_of(choice.logprobs))
        if (said := choice.message).content is not None
        else Choice(
            said.refusal or "", "refusal" if said.refusal else _FINISH.get(choice.finish_reason, "other")
        )
        for choice in completion.choices
    )
    return Reply(choices, _usage(completion.usage), completion.model or "")


def _usage(usage: _Usage | None) -> Usage:
    if usage is None:
        return _UNKNOWN
    details = usage.prompt_tokens_details
    cached = (details.cached_tokens or 0) if details else 0
    if not (
        0 <= usage.prompt_tokens < _MAX_TOKENS_BELIEVED
        and 0 <= usage.completion_tokens < _MAX_TOKENS_BELIEVED
        and 0 <= cached <= usage.prompt_tokens
    ):
        return _UNKNOWN
    return Usage(usage.prompt_tokens, usage.completion_tokens, cached, 1)


def _read_loosely(body: bytes) -> Reply:
    """Save what can be saved of a body that is not quite a completion."""
    data = _loads(body)
    if data is None:
        raise MalformedReply(f"the reply is not JSON: {_excerpt(body)}")
    if not isinstance(data, dict):
        raise MalformedReply(f"the reply is JSON but not an object: {_excerpt(body)}")
    fields = cast("dict[str, Any]", data)
    if fields.get("error"):
        raise failure(_status_in(fields["error"]), body, {})
    choices = fields.get("choices")
    if not isinstance(choices, list) or not choices:
        raise MalformedReply(f"the reply has no choices: {_excerpt(body)}")
    said = tuple(_loose_choice(choice) for choice in cast("list[Any]", choices))
    model = fields.get("model")
    return Reply(
        said, _loose_usage(fields.get("usage")), well_formed(model) if isinstance(model, str) else ""
    )


def _loose_choice(choice: Any) -> Choice:
    message = _get(choice, "message")
    if not isinstance(message, dict):
        raise MalformedReply("a choice of the reply has no message")
    content, refusal = _get(message, "content"), _get(message, "refusal")
    reason = _get(choice, "finish_reason")
    finish = _FINISH.get(reason, "other") if reason is None or isinstance(reason, str) else "other"
    if isinstance(content, list):  # content in parts, as some gateways send it
        parts = [_get(part, "text") for part in cast("list[Any]", content)]
        content = "".join(part for part in parts if isinstance(part, str))
    if content is None:
        refused = isinstance(refusal, str) and refusal != ""
        return Choice(well_formed(refusal) if refused else "", "refusal" if refused else finish)
    if not isinstance(content, str):
        raise MalformedReply(f"the content of the reply is {type(content).__name__}, not text")
    return Choice(well_formed(content), finish, _tokens_of(_get(choice, "logprobs")))


def _loose_usage(usage: Any) -> Usage:
    try:
        return _usage(msgspec.convert(usage, _Usage | None))
    except (msgspec.ValidationError, RecursionError):
        return _UNKNOWN


def _tokens_of(logprobs: Any) -> list[Any] | None:
    tokens = _get(logprobs, "content")
    return cast("list[Any]", tokens) if isinstance(tokens, list) else None


class _Delta(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None


class _Piece(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)
    index: int = 0
    finish_reason: str | None = None
    logprobs: Any = None


class _Chunk(msgspec.Struct):
    choices: list[_Piece] = []
    usage: _Usage | None = None
    model: str | None = None
    error: msgspec.Raw | None = None


_decode_chunk = msgspec.json.Decoder(_Chunk).decode


class StreamedReply:
    """Puts a streamed reply together, chunk by chunk."""

    def __init__(self) -> None:
        self._texts: dict[int, list[str]] = {}
        self._finish: dict[int, FinishReason] = {}
        self._logprobs: dict[int, list[Any]] = {}
        self._usage = _UNKNOWN
        self._model = ""
        self._pending = b""
        self.done = False
        """The stream said that it is complete."""

    def feed(self, data: bytes) -> Iterator[str]:
        """Take more bytes; yield each new piece of the first choice's text."""
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            # Server-sent events: anything but data (comments, event names, blank lines) carries nothing for us.
            if line.startswith(b"data:"):
                payload = line[5:].strip()
                if payload == b"[DONE]":
                    self.done = True
                elif payload:
                    yield from self._take(payload)

    def _take(self, payload: bytes) -> Iterator[str]:
        try:
            chunk = _decode_chunk(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            chunk = self._loose_chunk(payload)
        if chunk.error is not None and bytes(chunk.error) != b"null":
            raise failure(_status_in(_get(_loads(payload), "error")), payload, {})
        if chunk.usage is not None:
            self._usage = _usage(chunk.usage)
        self._model = self._model or chunk.model or ""
        for piece in chunk.choices:
            text = piece.delta.content or piece.delta.refusal or ""
            if text:
                self._texts.setdefault(piece.index, []).append(text)
            if piece.delta.refusal:
                self._finish[piece.index] = "refusal"
            if piece.finish_reason is not None:
                self._finish.setdefault(piece.index, _FINISH.get(piece.finish_reason, "other"))
            if tokens := _tokens_of(piece.logprobs):
                self._logprobs.setdefault(piece.index, []).extend(tokens)
            if text and piece.index == 0:
                yield text

    def _loose_chunk(self, payload: bytes) -> _Chunk:
        data = _loads(payload)
        try:
            chunk = msgspec.convert(_cleaned(data), _Chunk)
        except (msgspec.ValidationError, RecursionError):
            if error := _get(data, "error"):
                raise failure(_status_in(error), payload, {}) from None
            raise MalformedReply(f"a chunk of the stream is not a completion: {_excerpt(payload)}") from None
        return chunk

    def finished(self) -> Reply:
        """The whole reply; raises `MalformedReply` when the stream broke off before its end."""
        if not self._finish or (0 not in self._finish and not self.done):
            raise MalformedReply("the stream ended before the reply was complete")
        count = max(*self._texts, *self._finish) + 1 if self._texts else 1
        if count > 1_000:
            raise MalformedReply(f"the stream numbers its choices up to {count - 1}")
        choices = tuple(
            Choice("".join(self._texts.get(i, ())), self._finish.get(i, "other"), self._logprobs.get(i))
            for i in range(count)
        )
        return Reply(choices, self._usage, self._model)


_QUOTA = re.compile(
    r"insufficient_(?:user_)?quota|billing|insufficient[_ ]balance|credit balance|out of credits|payment required",
    re.IGNORECASE,
)
_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context length|context (?:window|size|length)|"
    r"prompt is too long|too many (?:input )?tokens|max_model_len|maximum (?:model|prompt|input) length",
    re.IGNORECASE,
)


def failure(status: int, body: bytes, headers: Mapping[str, str]) -> ModelError:
    """The typed error for an answer that is not a reply."""
    said = _error_text(body)
    text = f"HTTP {status}: {said}" if said else f"HTTP {status}"
    if status in (402, 429) and (status == 402 or _QUOTA.search(said)):
        return QuotaExhausted(f"{text} (no credit left: waiting will not help)", status=status)
    if status == 429:
        limited = RateLimited(text, status=status)
        limited.retry_after = retry_after(headers)
        return limited
    if status in (401, 403):
        return NotAuthorised(f"{text} (check the API key and what it may use)", status=status)
    if status in (400, 413, 422) and _OVERFLOW.search(said):
        return ContextOverflow(text, status=status)
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


def _error_text(body: bytes) -> str:
    """The human part of an error body, whatever shape it has."""
    data = _loads(body)
    error = _get(data, "error") or data
    parts = (
        [_get(error, key) for key in ("message", "detail", "type", "code")]
        if isinstance(error, dict)
        else [error]
    )
    words = [well_formed(str(part)) for part in parts if isinstance(part, str | int) and str(part)]
    return _one_line("; ".join(dict.fromkeys(words))) if words else _excerpt(body)


def _status_in(error: Any) -> int:
    """The status an error body claims for itself when HTTP said 200."""
    for key in ("code", "status", "status_code"):
        value = _get(error, key)
        if isinstance(value, int) and 400 <= value < 600:
            return value
    kind = f"{_get(error, 'type')} {_get(error, 'code')}"
    if "rate_limit" in kind or "quota" in kind:
        return 429
    if "invalid_request" in kind or "context_length" in kind:
        return 400
    return 500


def _loads(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def _get(data: Any, key: str) -> Any:
    return cast("dict[str, Any]", data).get(key) if isinstance(data, dict) else None


def _cleaned(data: Any) -> Any:
    if isinstance(data, str):
        return well_formed(data)
    if isinstance(data, list):
        return [_cleaned(item) for item in cast("list[Any]", data)]
    if isinstance(data, dict):
        return {key: _cleaned(value) for key, value in cast("dict[str, Any]", data).items()}
    return data


def _excerpt(body: bytes) -> str:
    return _one_line(body[:600].decode("utf-8", "replace")) if body.strip() else "the body is empty"


def _one_line(text: str) -> str:
    """At most 300 printable characters on one line: errors are read in terminals and logs."""
    text = " ".join("".join(c if c.isprintable() else " " for c in text[:1200]).split())
    return text if len(text) <= 300 else f"{text[:297]}..."
