"""Shared by all protocols: errors in any wording, and lenient JSON.

Pure functions of bytes: no network, no clock.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, cast

from camel.core.errors import (
    ContentRejected,
    ContextOverflow,
    ModelError,
    NotAuthorized,
    QuotaExhausted,
    RateLimited,
    RequestRejected,
    ServerFailed,
)
from camel.core.message import Usage, well_formed

UNKNOWN = Usage(calls=1, unknown=1)
"""The usage of a call without a usable count."""
_MOST_TOKENS = 10**9
# Gemini's message for a limit per minute is OpenAI's for an empty account, followed by when to retry; and OpenAI's
# message for a limit per minute mentions the billing page.
_QUOTA = re.compile(
    r"insufficient_(?:user_)?quota|exceeded_current_quota|billing[_ ](?:hard|not)|billing details(?!.*retry in)|"
    r"insufficient[_ ]balance|credit balance|out of credits|payment required",
    re.IGNORECASE | re.DOTALL,
)
_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context length|context (?:window|size|length|limit)|"
    r"(?:prompt|input) is too long|too many (?:input )?tokens|max_model_len|maximum (?:model|prompt|input) length|"
    r"exceeds the maximum (?:allowed length|number of tokens)|max_new_tokens. must be <=|token count \+ .max_tokens. must be",
    re.IGNORECASE,
)

_MODERATED = re.compile(
    r"moderation|content[_ -]?(?:filter|policy|management policy)|content[_ ]policy[_ ]violation|flagged|"
    r"ResponsibleAIPolicyViolation|data_inspection_failed|(?:inappropriate|prohibited|harmful|unsafe) content|"
    r"safety (?:system|filter|setting|reasons)",
    re.IGNORECASE,
)
"""Pattern of error messages about content that the endpoint refuses to serve."""
_RETRY_IN = re.compile(r"(?:retry|try again) in (?:(\d{1,4})m)?(\d{1,6}(?:\.\d{1,6})?)s", re.IGNORECASE)
_CONTENT = re.compile(
    r"messages?[.\[]\d+\]?\.?.{0,40}content|invalid (?:utf|unicode|byte|character|surrogate)|"
    r"(?:text|message|messages?|content)(?: content)?s? (?:must be|is|cannot be|must not be) (?:non-?)?empty",
    re.IGNORECASE,
)
"""Pattern of error messages about content that the endpoint cannot read."""


_TOOLS = re.compile(r"\btools?\b|tool_(?:choice|use|call|result)|\bfunction[- _]call", re.IGNORECASE)


def failure(status: int, body: bytes, headers: Mapping[str, str]) -> ModelError:
    """Return the typed error for a response that is not a reply."""
    words = _error_words(body)
    # Classify by more text than is shown, because the error code may come after a long message.
    said = "; ".join(word[:2_000] for word in words)
    text = f"HTTP {status}: {one_line(said) or 'the body is empty'}"
    if status == 402 or (400 <= status < 500 and _QUOTA.search(said)):
        return QuotaExhausted(f"{text} (no credit: add credit to the account of this key)", status=status)
    if status == 429:
        limited = RateLimited(text, status=status)
        limited.retry_after = retry_after(headers) or None
        if not limited.retry_after and (wait := _RETRY_IN.search(said)):  # as Gemini and Groq say
            limited.retry_after = int(wait[1] or 0) * 60 + float(wait[2])
        return limited
    if status in (400, 403, 413, 422) and _OVERFLOW.search(said):
        return ContextOverflow(text, status=status)
    if (status in (400, 403, 422, 451) and _MODERATED.search(said)) or (
        status in (400, 422) and _CONTENT.search(said)
    ):
        return ContentRejected(text, status=status)
    if status in (401, 403):
        return NotAuthorized(f"{text} (check the API key and its permissions)", status=status)
    if _TOOLS.search(said) and (status in (400, 422, 501) or "support tool" in said or "--jinja" in said):
        # OpenRouter answers 404, and a server of llama.cpp without chat templates 500.
        text += ' (if the endpoint does not support tools, set form = "text" under [tools])'
        return RequestRejected(text, status=status)
    if status in (408, 409, 425) or (status >= 500 and status not in (501, 505)):
        failed = ServerFailed(text, status=status)
        failed.retry_after = retry_after(headers)
        return failed
    if status == 404:
        text += " (check the model's name, and that the base URL is the part before /chat/completions)"
    elif 300 <= status < 400:
        text += " (redirects are not followed: set the base URL to the target)"
    return RequestRejected(text, status=status)


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Return the seconds that the endpoint asks to wait in its headers, or None."""
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
    """Return the readable texts in an error body, in any format."""
    data = load_loosely(body)
    error = field_of(data, "error") or data
    keys = ("message", "detail", "type", "code")
    parts = [field_of(error, key) for key in keys] if isinstance(error, dict) else [error]
    # Structured details, such as a list of invalid fields, are shown as JSON.
    texts = [json.dumps(part) if isinstance(part, list | dict) else part for part in parts]
    words = [well_formed(str(part)).strip() for part in texts if isinstance(part, str | int)]
    return list(dict.fromkeys(filter(None, words))) or [body[:2_000].decode("utf-8", "replace")]


def as_usage(prompt: Any, completion: Any, cached: Any = 0, reasoning: Any = 0, written: Any = 0) -> Usage:
    """Return a usage from an endpoint's counts. It counts as unknown if one of them is missing or impossible."""
    counts = prompt, completion, cached, reasoning, written
    if not all(type(count) is int and 0 <= count < _MOST_TOKENS for count in counts):
        return UNKNOWN
    written = min(written, max(0, prompt - cached))
    return Usage(prompt, completion, cached, 1, reasoning=min(reasoning, completion), written=written)


def status_in(error: Any) -> int:
    """Return the HTTP status that an error body implies, for errors sent with HTTP 200."""
    for key in ("code", "status", "status_code"):
        value = field_of(error, key)
        if isinstance(value, str) and value.isdecimal() and len(value) == 3:
            value = int(value)
        if isinstance(value, int) and 400 <= value < 600:
            return value
    kind = f"{field_of(error, 'type')} {field_of(error, 'code')}".lower()
    if "rate_limit" in kind or "quota" in kind:
        return 429
    if "api_key" in kind or "auth" in kind:
        return 401
    if "invalid_request" in kind or _OVERFLOW.search(
        f"{kind} {str(field_of(error, 'message') or error)[:2_000]}"
    ):
        return 400
    return 500


def load_loosely(body: bytes) -> Any:
    """Decode JSON leniently: invalid UTF-8 is replaced, and NaN becomes None. Return None if it is not JSON."""
    try:
        text = body.decode("utf-8-sig", "replace")
        return json.loads(text, parse_int=_parse_int, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None


def _parse_int(digits: str) -> int | float:
    # Longer numbers are not counts, cannot be written as JSON again, and raise above 4,300 digits.
    return int(digits) if len(digits) < 19 else float(digits)


def field_of(data: Any, key: str) -> Any:
    """Return a field of a JSON object, or None if `data` is not an object."""
    return cast("dict[str, Any]", data).get(key) if isinstance(data, dict) else None


def cleaned(data: Any, depth: int = 20) -> Any:
    """Return `data` without values that cannot be written as JSON."""
    if isinstance(data, str):
        return well_formed(data)
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, list):
        return [cleaned(item, depth - 1) for item in cast("list[Any]", data)] if depth else None
    if isinstance(data, dict):
        items = cast("dict[str, Any]", data).items()
        return {well_formed(key): cleaned(value, depth - 1) for key, value in items} if depth else None
    return data


def excerpt(body: bytes) -> str:
    """Return the start of a body, for an error."""
    return one_line(body[:600].decode("utf-8", "replace")) or "the body is empty"


def one_line(text: str) -> str:
    """Return at most 300 printable characters on one line, for terminals and logs."""
    text = " ".join("".join(c if c.isprintable() else " " for c in text[:1200]).split())
    return text if len(text) <= 300 else f"{text[:297]}..."
