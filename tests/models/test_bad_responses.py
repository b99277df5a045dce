"""Every way an endpoint can answer badly that we could think of, and the typed outcome of each.

All cases run once, concurrently, when the first test asks for them; each test then judges one case. What holds for
every case whatever it expects (in time, a `ModelError`, one printable line, no more requests than attempts, no key
in the text) is in `_judge`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import traceback
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from camel.core.errors import (
    ContextOverflow,
    DeadlineExceeded,
    MalformedReply,
    ModelError,
    NotAuthorized,
    QuotaExhausted,
    RateLimited,
    ReplyTooLarge,
    RequestRejected,
    ServerFailed,
    Unreachable,
)
from camel.core.history import History
from camel.core.message import FinishReason, Usage
from camel.core.model import Event, Reply, Request, Retrying, Text
from camel.models import endpoint, wire
from camel.models.chat import ChatModel
from camel.models.endpoint import served_models
from tests.support.hostile import (
    HANG,
    KEEP,
    RESET,
    STREAM_HEAD,
    UNREAD,
    USAGE,
    Answer,
    Drip,
    Flood,
    Pause,
    Step,
    bomb,
    chunked,
    completion,
    delta,
    encoded,
    events,
    good,
    gzipped,
    head,
    http,
    serving,
    stream,
)
from tests.support.virtual_time import run_virtual, virtual_time

KEY = "sk-hostile/0123456789+abcdefghij="
ATTEMPTS = 2
KNOWN = Usage(11, 7, 4, 1)
UNKNOWN = Usage(calls=1, unknown=1)
STATUS = Path("/proc/self/status")
NOW = 1_700_000_000
"""The date while the cases run."""


@dataclass(frozen=True)
class Said:
    """The reply a case must end in."""

    content: str = "Solution: hello"
    finish: FinishReason = "stop"
    usage: Usage = KNOWN
    attempts: int = 1
    more: tuple[str, ...] = ()
    """The contents of the second and later choices."""


@dataclass(frozen=True)
class Case:
    name: str
    answers: tuple[Answer, ...]
    expected: type[ModelError] | Said
    requests: int | None = None
    """How many requests the server must see; by default what the outcome's type implies."""
    text: str = ""
    """What the error must say."""
    streaming: bool = False
    deadline: float = 2.0
    within: float | None = None
    """When given, the call must be over by then, although its deadline is later."""
    at_least: float = 0.0
    retry_after: float | None = None
    prompt: str = "hi"
    alone: bool = False
    """Run by itself: it is heavy, and together with others would need too much memory."""
    options: dict[str, Any] = field(default_factory=dict)


CASES: list[Case] = []


def case(
    name: str, answer: Step | Answer | list[Answer], expected: type[ModelError] | Said, **other: Any
) -> None:
    """Add a case; `answer` is one step, the steps of one answer (a tuple), or a list of answers."""
    answers = answer if isinstance(answer, list) else [answer if isinstance(answer, tuple) else (answer,)]
    CASES.append(Case(name, tuple(answers), expected, **other))


def body(name: str, data: Any, expected: type[ModelError] | Said, **other: Any) -> None:
    """Add a case that is a 200 with this body."""
    raw = data if isinstance(data, bytes) else encoded(data)
    case(name, http(200, raw, "Content-Type: application/json"), expected, **other)


def error(name: str, status: int, data: Any, expected: type[ModelError], *headers: str, **other: Any) -> None:
    """Add a case that is an error status with this body."""
    case(name, http(status, data if isinstance(data, bytes) else encoded(data), *headers), expected, **other)


def streamed(
    name: str, answer: Step | Answer | list[Answer], expected: type[ModelError] | Said, **other: Any
) -> None:
    """Add a case where a stream was asked for."""
    case(f"stream_{name}", answer, expected, streaming=True, **other)


# --- Status codes ---------------------------------------------------------------------------------------------------

for status in (400, 405, 406, 410, 411, 413, 414, 415, 418, 422, 431, 451, 501, 505):
    error(f"status_{status}", status, b"", RequestRejected, text=f"HTTP {status}")
for status in (408, 409, 425, 500, 502, 503, 504, 507, 520, 522, 529, 599):
    error(f"status_{status}", status, {"error": {"message": "no"}}, ServerFailed, text=f"HTTP {status}: no")
for status in (401, 403):
    error(f"status_{status}", status, {"error": "bad key"}, NotAuthorized, text="bad key")
error("status_402", 402, {"error": {"message": "Payment Required"}}, QuotaExhausted)
error("status_404_names_the_cure", 404, {"detail": "Not Found"}, RequestRejected, text="base URL")
error("status_429", 429, {"error": {"message": "slow down"}}, RateLimited, text="slow down")
for status in (300, 301, 302, 303, 304, 305, 307, 308):
    error(f"redirect_{status}_without_location", status, b"", RequestRejected, text=f"HTTP {status}")
case("status_204", head(status="204 No Content"), MalformedReply)
case("status_205_with_body", http(205, b"reset"), MalformedReply)
case(
    "status_101",
    (head("Upgrade: h2c", "Connection: upgrade", status="101 Switching"), HANG),
    RequestRejected,
    within=1.5,
)
case("status_999", http(999, b"denied"), ServerFailed)
case("status_100_then_good", (head(status="100 Continue"), good(), KEEP), Said())
case("status_103_then_good", (head("Link: </a>", status="103 Early Hints"), good()), Said())
case("status_100_for_ever", Flood(head(status="100 Continue"), gap=0.05), DeadlineExceeded, deadline=1.0)
error("error_html_502", 502, b"<html><h1>Bad Gateway</h1></html>", ServerFailed, text="Bad Gateway")
error(
    "error_detail_list",
    422,
    {"detail": [{"loc": ["body"], "msg": "field required"}]},
    RequestRejected,
    text="field required",
)
error("error_nested_oddly", 500, {"error": {"error": {"message": "inner"}}}, ServerFailed, text="inner")
error("error_is_null", 500, {"error": None}, ServerFailed)
error("error_is_array", 500, [{"error": {"message": "in a list"}}], ServerFailed, text="in a list")
error("error_bad_utf8", 500, b'{"error":{"message":"caf\xe9 \xff"}}', ServerFailed, text="caf")
error("error_lone_surrogate", 500, b'{"error":{"message":"bad \\ud800 end"}}', ServerFailed, text="end")
error("error_huge_number", 400, b'{"error":{"message":"m","code":' + b"9" * 5000 + b"}}", RequestRejected)
error("error_deeply_nested", 400, b'{"error":' * 50_000, RequestRejected)

# The status says what happened; what happens to the body must not change that.
case("error_401_body_cut", head("Content-Length: 900", status="401 No") + b'{"error":', NotAuthorized)
case(
    "error_401_body_hangs",
    (head("Content-Length: 900", status="401 No") + b'{"err', HANG),
    NotAuthorized,
    deadline=3.0,
)
case("error_401_body_reset", (head("Content-Length: 900", status="401 No"), Pause(0.1), RESET), NotAuthorized)
error("error_400_corrupt_gzip", 400, b"\x1f\x8bnonsense", RequestRejected, "Content-Encoding: gzip")
error("error_400_unknown_coding", 400, b"??", RequestRejected, "Content-Encoding: br")
case(
    "error_500_of_50_MB",
    (head("Content-Length: 50000000", status="500 No"), Flood(b"x" * 65536, 5e7)),
    ServerFailed,
)
case("error_401_endless", (head(status="401 No"), Flood(b"x" * 65536)), NotAuthorized)
error("error_500_gzip_bomb", 500, bomb(2**26), ServerFailed, "Content-Encoding: gzip")

# --- Text of errors: one printable line, and never the key ------------------------------------------------------------

error(
    "echo_key",
    401,
    {"error": {"message": f"Incorrect API key provided: {KEY}."}},
    NotAuthorized,
    text=r"[key]",
)
error("echo_key_as_text", 400, f"who is Bearer {KEY}?".encode(), RequestRejected, text="[key]")
error("echo_key_where_text_is_cut", 400, {"error": {"message": "x" * 270 + KEY}}, RequestRejected)
error("echo_key_where_excerpt_is_cut", 400, b"x" * 275 + KEY.encode(), RequestRejected)
error(
    "echo_key_escaped",
    400,
    b'{"error":{"message":"\\u0073' + KEY[1:].encode().replace(b"/", b"\\/") + b'"}}',
    RequestRejected,
)
error(
    "echo_key_escaped_in_broken_json",
    400,
    b'{"error":"' + KEY.encode().replace(b"/", b"\\/"),
    RequestRejected,
)
body("echo_key_in_200", {"error": {"message": f"key {KEY}", "code": 401}}, NotAuthorized)
body("echo_key_in_malformed_200", f"<p>{KEY}</p>".encode(), MalformedReply)
case("echo_key_in_status_line", head(status=f"200 {KEY}\x00", version="HTTP/9.9"), Unreachable)
case("echo_key_in_broken_header", f"HTTP/1.1 200 OK\r\n{KEY}\r\n\r\n".encode(), Unreachable)
streamed("echo_key", stream(events({"error": {"message": f"key {KEY}", "code": 401}})), NotAuthorized)
streamed("echo_key_in_garbage", stream(b"data: {" + KEY.encode() + b"\n\n"), MalformedReply)
error(
    "ansi_escapes",
    400,
    {"error": {"message": "\x1b[2J\x1b]0;owned\x07red\r\n\x9b31m\u202e\u2028\u0000 end"}},
    RequestRejected,
    text="end",
)
error("ansi_escapes_raw", 503, b"\x1b[31m\x00\x07\r\n\r\nplain\x7f\xc2\x9b", ServerFailed, text="plain")
error("text_of_a_megabyte", 400, {"error": {"message": "long " * 200_000}}, RequestRejected)
error("blank_message", 400, {"error": {"message": " \n\t "}}, RequestRejected)

# --- Quota and rate limits --------------------------------------------------------------------------------------------

QUOTA = "You exceeded your current quota, please check your plan and billing details."
error(
    "quota_openai",
    429,
    {"error": {"message": QUOTA, "type": "insufficient_quota", "code": "insufficient_quota"}},
    QuotaExhausted,
)
error(
    "quota_with_retry_after",
    429,
    {"error": {"message": QUOTA, "code": "insufficient_quota"}},
    QuotaExhausted,
    "Retry-After: 0",
)
error(
    "quota_code_after_long_text",
    429,
    {"error": {"message": "m" * 500, "code": "insufficient_quota"}},
    QuotaExhausted,
)
error(
    "quota_one_api_403",
    403,
    {"error": {"message": "no credit", "code": "insufficient_user_quota"}},
    QuotaExhausted,
)
error(
    "quota_anthropic_400",
    400,
    {"error": {"message": "Your credit balance is too low to access the API. Go to Plans & Billing."}},
    QuotaExhausted,
)
error("quota_deepseek_402", 402, {"error": {"message": "Insufficient Balance"}}, QuotaExhausted)
error(
    "quota_openai_hard_limit",
    400,
    {"error": {"message": "Billing hard limit has been reached", "code": "billing_hard_limit_reached"}},
    QuotaExhausted,
)
body("quota_in_200", {"error": {"message": QUOTA, "type": "insufficient_quota"}}, QuotaExhausted)
# OpenAI's text for a plain rate limit on a free account points at the billing page.
error(
    "rate_limit_that_mentions_billing",
    429,
    {
        "error": {
            "message": "Rate limit reached on requests per min. Limit: 3 / min. Please try again in 20s. Visit https://platform.openai.com/account/billing to add a payment method.",
            "type": "requests",
            "code": "rate_limit_exceeded",
        }
    },
    RateLimited,
    requests=1,
    retry_after=20.0,
)
# Gemini calls its per-minute limit a quota, and says when to come back.
error(
    "rate_limit_gemini",
    429,
    {"error": {"code": 429, "message": QUOTA + " Please retry in 24.4s.", "status": "RESOURCE_EXHAUSTED"}},
    RateLimited,
    requests=1,
    retry_after=24.4,
)


def limited(*headers: str, status: int = 429) -> tuple[Step, ...]:
    return (http(status, b'{"error":{"message":"busy"}}', *headers), KEEP)


AGAIN = Said(attempts=2)
case("retry_after_short", [limited("Retry-After: 0.3"), (good(),)], AGAIN, at_least=0.3)
case(
    "retry_after_ms",
    [limited("retry-after-ms: 300", "Retry-After: 9"), (good(),)],
    AGAIN,
    at_least=0.3,
    within=1.5,
)
case(
    "retry_after_bad_ms_good_s",
    [limited("retry-after-ms: soon", "Retry-After: 0.3"), (good(),)],
    AGAIN,
    at_least=0.3,
)
case("retry_after_lower_case", [limited("retry-after: 0.3"), (good(),)], AGAIN, at_least=0.3)
case("retry_after_on_503", [limited("Retry-After: 0.3", status=503), (good(),)], AGAIN, at_least=0.3)
case(
    "retry_after_date_past",
    [limited("Retry-After: Wed, 21 Oct 2015 07:28:00 GMT"), (good(),)],
    AGAIN,
    within=1.0,
)
case(
    "retry_after_date_near",
    [limited(f"Retry-After: {formatdate(NOW + 2, usegmt=True)}"), (good(),)],
    AGAIN,
    deadline=6.0,
    at_least=2.0,
    within=3.0,
)
case(
    "retry_after_date_far",
    limited("Retry-After: Fri, 31 Dec 9999 23:59:59 GMT"),
    RateLimited,
    requests=1,
    within=1.0,
)
for label, value in {
    "nan": "NaN",
    "negative": "-30",
    "empty": "",
    "garbage": "a while",
    "inf": "inf",
    "two": "1, 2",
    "date_absurd": "Mon, 99 Foo 99999 99:99:99 +99999999999",
    "long": "9" * 4000 + "x",
}.items():
    case(f"retry_after_{label}", [limited(f"Retry-After: {value}"), (good(),)], AGAIN, within=1.0)
case(
    "retry_after_hour", limited("Retry-After: 3600"), RateLimited, requests=1, within=1.0, retry_after=3600.0
)
case(
    "retry_after_hour_on_503",
    limited("Retry-After: 3600", status=503),
    ServerFailed,
    requests=1,
    within=1.0,
    retry_after=3600.0,
)
case(
    "retry_after_absurd",
    limited("Retry-After: 1e300"),
    RateLimited,
    requests=1,
    within=1.0,
    retry_after=1e300,
)
case(
    "retry_after_past_deadline",
    limited("Retry-After: 2.5"),
    RateLimited,
    requests=1,
    within=1.0,
    retry_after=2.5,
)
case("fails_then_works", [(http(500), KEEP), (good(),)], AGAIN)
case(
    "fails_thrice_then_works",
    [(http(500),), (http(502), KEEP), (RESET,), (good(),)],
    Said(attempts=4),
    deadline=5.0,
    options={"max_attempts": 5},
)
case("malformed_then_works", [(http(200, b"<html>"), KEEP), (good(),)], AGAIN)
case("never_retried_when_told", http(500), ServerFailed, requests=1, options={"max_attempts": 1})
case("every_attempt_counted", http(500), ServerFailed, requests=7, deadline=5.0, options={"max_attempts": 7})

# --- Context overflow, in the words of each provider ----------------------------------------------------------------

for who, status, data in (
    (
        "openai",
        400,
        {
            "error": {
                "message": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.",
                "type": "invalid_request_error",
                "code": "context_length_exceeded",
            }
        },
    ),
    (
        "openai_responses",
        400,
        {
            "error": {
                "message": "Your input exceeds the context window of this model. Please adjust your input and try again."
            }
        },
    ),
    (
        "code_only",
        400,
        {
            "error": {
                "message": "Please reduce the length of the messages or completion.",
                "code": "context_length_exceeded",
            }
        },
    ),
    ("code_after_long_text", 400, {"error": {"message": "m" * 900, "code": "context_length_exceeded"}}),
    (
        "vllm",
        400,
        {
            "object": "error",
            "message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
            "type": "BadRequestError",
            "code": 400,
        },
    ),
    (
        "vllm_decoder",
        400,
        {
            "object": "error",
            "message": "The decoder prompt (length 10127) is longer than the maximum model length of 8192.",
            "code": 400,
        },
    ),
    (
        "llama_cpp",
        400,
        {
            "error": {
                "code": 400,
                "message": "request (1234 tokens) exceeds the available context size (512 tokens), try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 1234,
                "n_ctx": 512,
            }
        },
    ),
    (
        "sglang",
        400,
        {
            "object": "error",
            "message": "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
    ),
    (
        "sglang_older",
        400,
        {
            "object": "error",
            "message": "Input length (5000 tokens) exceeds the maximum allowed length (4096 tokens). Use a shorter input or enable --allow-auto-truncate.",
            "code": 400,
        },
    ),
    (
        "anthropic",
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "prompt is too long: 210000 tokens > 200000 maximum",
            },
        },
    ),
    (
        "anthropic_reserved",
        400,
        {
            "type": "error",
            "error": {
                "message": "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length or `max_tokens` and try again"
            },
        },
    ),
    (
        "tgi",
        422,
        {
            "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 4000 `inputs` tokens and 512 `max_new_tokens`",
            "error_type": "validation",
        },
    ),
    (
        "gemini",
        400,
        {
            "error": {
                "message": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
            }
        },
    ),
    ("bedrock", 400, {"message": "Input is too long for requested model."}),
    (
        "mistral",
        400,
        {
            "message": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length"
        },
    ),
    (
        "xai",
        400,
        {"error": "This model's maximum prompt length is 131072 but the request contains 150000 tokens."},
    ),
):
    error(f"overflow_{who}", status, data, ContextOverflow)
body(
    "overflow_in_200",
    {"error": {"message": "This model's maximum context length is 4096 tokens."}},
    ContextOverflow,
)

# --- 200 with an error, or with something else entirely ----------------------------------------------------------------

body("ok_error_object", {"error": {"message": "upstream died"}}, ServerFailed, text="upstream died")
body("ok_error_string", {"error": "upstream died"}, ServerFailed, text="upstream died")
body("ok_error_code_401", {"error": {"message": "no", "code": 401}}, NotAuthorized)
body("ok_error_code_as_text", {"error": {"message": "slow", "code": "429"}}, RateLimited)
body("ok_error_bad_key", {"error": {"message": "no", "code": "invalid_api_key"}}, NotAuthorized)
body("ok_error_rate_limit", {"error": {"message": "slow", "type": "rate_limit_error"}}, RateLimited)
body(
    "ok_error_invalid_request", {"error": {"message": "no", "type": "invalid_request_error"}}, RequestRejected
)
body("ok_error_beside_choices", completion(error={"message": "half failed"}), ServerFailed)
for label, value in {"null": None, "empty": {}, "false": False, "blank": ""}.items():
    body(f"ok_error_{label}_beside_choices", completion(error=value), Said())
body("html", b"<!doctype html><title>Login</title>", MalformedReply, text="Login")
body("empty", b"", MalformedReply, text="empty")
body("blank", b" \r\n\t ", MalformedReply, text="empty")
for label, raw in {
    "null": b"null",
    "array": b"[]",
    "number": b"42",
    "text": b'"hi"',
    "true": b"true",
    "object": b"{}",
}.items():
    body(f"json_{label}", raw, MalformedReply)
GOOD = encoded(completion())
for cut in (1, len(GOOD) // 3, len(GOOD) // 2, len(GOOD) - 1):
    body(f"json_cut_at_{cut}", GOOD[:cut], MalformedReply)
body("json_twice", GOOD + GOOD, MalformedReply)
body("json_then_garbage", GOOD + b"</body>", MalformedReply)
body("json_with_bom", b"\xef\xbb\xbf" + GOOD, Said())
body("json_in_utf16", GOOD.decode().encode("utf-16"), MalformedReply)
body("json_padded", b"\n" * 1000 + GOOD + b" " * 1000, Said())
body("json_deep", b"[" * 200_000, MalformedReply)
body(
    "json_deep_beside_choices", GOOD[:-1] + b',"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}", MalformedReply
)
body(
    "json_duplicate_keys",
    GOOD[:-1] + b',"choices":null,"choices":[{"message":{"content":"last"}}]}',
    Said("last"),
)
body("json_single_quotes", str(completion()).encode(), MalformedReply)
body("json_null_bytes", b"\x00" * 5000, MalformedReply)
for label, choices in {
    "null": None,
    "empty": [],
    "object": {},
    "text": "hi",
    "number": 7,
    "of_null": [None],
    "of_lists": [[]],
    "of_empty": [{}],
    "of_text": ["hi"],
}.items():
    body(f"choices_{label}", completion(choices=choices), MalformedReply)
for label, message in {"null": None, "text": "hi", "list": [], "number": 1}.items():
    body(f"message_{label}", completion(choices=[{"message": message}]), MalformedReply)
for label, content in {"number": 5, "true": True, "object": {"text": "x"}}.items():
    body(f"content_{label}", completion(content), MalformedReply)
body("choices_second_broken", completion(choices=[*completion()["choices"], None]), MalformedReply)
body("choices_without_index", completion(choices=[{"message": {"content": "a"}}]), Said("a"))

# --- Odd replies that are replies ---------------------------------------------------------------------------------------

body("content_null", completion(None), Said(""))
body("content_empty", completion(""), Said(""))
body(
    "content_missing",
    completion(choices=[{"message": {"role": "assistant"}, "finish_reason": "length"}]),
    Said("", "length"),
)
body("content_parts", completion([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), Said("ab"))
body(
    "content_parts_odd",
    completion([None, 5, {"text": None}, {"type": "image"}, {"text": "b"}, []]),
    Said("b"),
)
body("content_of_null_bytes", completion("\x00\x1b\u2028"), Said("\x00\x1b\u2028"))
body("content_unicode", completion("é漢🦙\U0010ffff"), Said("é漢🦙\U0010ffff"))
body("finish_length", completion("cut", "length"), Said("cut", "length"))
body("finish_content_filter", completion(None, "content_filter"), Said("", "content_filter"))
body("finish_null", completion("a", None), Said("a"))
body("finish_unknown", completion("a", "abort"), Said("a", "other"))
body("finish_number", completion("a", 5), Said("a", "other"))
body("finish_list", completion("a", ["stop"]), Said("a", "other"))
REFUSED = {"role": "assistant", "content": None, "refusal": "I cannot help."}
body(
    "refusal",
    completion(choices=[{"message": REFUSED, "finish_reason": "stop"}]),
    Said("I cannot help.", "refusal"),
)
body(
    "refusal_empty_content",
    completion(choices=[{"message": REFUSED | {"content": ""}}]),
    Said("I cannot help.", "refusal"),
)
body(
    "refusal_odd_usage",
    completion(choices=[{"message": REFUSED | {"content": ""}}], usage=5),
    Said("I cannot help.", "refusal", UNKNOWN),
)
body("refusal_number", completion(choices=[{"message": {"content": None, "refusal": 5}}]), Said(""))
TOOLS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "x", "function": {"name": "f", "arguments": "{}"}}],
}
body("tool_calls", completion(choices=[{"message": TOOLS, "finish_reason": "tool_calls"}]), Said(""))
body("lone_surrogate", GOOD.replace(b"hello", b"a\\ud800b"), Said("Solution: a?b"))
body("surrogate_pair", GOOD.replace(b"hello", b"\\ud83e\\udd99"), Said("Solution: 🦙"))
body("surrogate_in_model", GOOD.replace(b"m-1", b"\\udfff"), Said())
body("surrogate_raw_bytes", GOOD.replace(b"hello", b"\xed\xa0\x80"), Said("Solution: \ufffd\ufffd\ufffd"))
body("invalid_utf8", GOOD.replace(b"hello", b"caf\xe9"), Said("Solution: caf\ufffd"))
body("invalid_utf8_elsewhere", GOOD.replace(b'"c"', b'"\xff"'), Said())
body("invalid_utf8_key", GOOD[:-1] + b',"\xfe\xff":1}', Said())
body("overlong_utf8", GOOD.replace(b"hello", b"\xc0\xaf"), Said("Solution: \ufffd\ufffd"))
for label, usage in {
    "null": None,
    "number": 5,
    "list": [],
    "empty": {},
    "negative": {"prompt_tokens": -5, "completion_tokens": 1},
    "huge": {"prompt_tokens": 10**30, "completion_tokens": 1},
    "text": {"prompt_tokens": "11", "completion_tokens": "x"},
    "negative_cached": {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": -1}},
    "fraction": {"prompt_tokens": 3.5},
    "true": {"prompt_tokens": True},
    "odd_details": {"prompt_tokens": 3, "prompt_tokens_details": 7},
}.items():
    body(f"usage_{label}", completion(usage=usage), Said(usage=UNKNOWN))
body(
    "usage_too_cached",  # of providers that do not count it as part of the prompt
    completion(
        usage={"prompt_tokens": 3, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 4}}
    ),
    Said(usage=Usage(7, 1, 4, 1)),
)
body(
    "usage_missing",
    {key: value for key, value in completion().items() if key != "usage"},
    Said(usage=UNKNOWN),
)
for label, raw in {
    "nan": b"NaN",
    "infinite": b"-Infinity",
    "1e30": b"1e30",
    "1e999": b"1e999",
    "5000_digits": b"9" * 5000,
}.items():
    body(f"usage_{label}", GOOD.replace(b"11", raw), Said(usage=UNKNOWN))
body(
    "usage_null_details",
    completion(usage=USAGE | {"prompt_tokens_details": None}),
    Said(usage=Usage(11, 7, 0, 1)),
)
body("model_number", completion(model=5), Said())
body("model_null", completion(model=None), Said())
LOGPROBS = completion()["choices"][0] | {"logprobs": {"content": [{"token": "T", "logprob": "P"}]}}
for label, raw in {
    "nan": b"NaN",
    "infinite": b"Infinity",
    "1e999": b"-1e999",
    "5000_digits": b"8" * 5000,
    "2_to_70": b"1180591620717411303424",
}.items():
    body(f"logprobs_{label}", encoded(completion(choices=[LOGPROBS])).replace(b'"P"', raw), Said())
body("logprobs_surrogate", encoded(completion(choices=[LOGPROBS])).replace(b'"T"', b'"\\ud800"'), Said())
body(
    "logprobs_surrogate_key",
    encoded(completion(choices=[LOGPROBS])).replace(b'"token"', b'"\\ud800"'),
    Said(),
)
body(
    "logprobs_deep", encoded(completion(choices=[LOGPROBS])).replace(b'"P"', b"[" * 900 + b"]" * 900), Said()
)
body("logprobs_number", completion(choices=[completion()["choices"][0] | {"logprobs": 5}]), Said())
body("choices_index_absurd", completion(choices=[completion()["choices"][0] | {"index": -(10**30)}]), Said())

# --- Too large -----------------------------------------------------------------------------------------------------------

LARGE = 50_000_000
case(
    "large_announced",
    (head(f"Content-Length: {LARGE}"), Flood(b" " * 65536, LARGE)),
    ReplyTooLarge,
    text="50,000,000",
)
case("large_lying_length", (head("Content-Length: 99999999999999"), HANG), ReplyTooLarge, within=1.0)
case("large_unannounced", (head("Connection: close"), Flood(b" " * 65536, LARGE)), ReplyTooLarge, alone=True)
case(
    "large_chunked",
    (head("Transfer-Encoding: chunked"), Flood(b"10000\r\n" + b" " * 65536 + b"\r\n", LARGE)),
    ReplyTooLarge,
    alone=True,
)
case("large_endless", (head("Connection: close"), Flood(b"9" * 65536)), ReplyTooLarge, alone=True)
case(
    "large_content",
    (head(), b'{"choices":[{"message":{"content":"', Flood(b"a" * 65536, LARGE)),
    ReplyTooLarge,
    alone=True,
)
for coding, wbits in (("gzip", 31), ("deflate", 15), ("x-gzip", 31)):
    case(
        f"bomb_{coding}",
        http(200, bomb(200 * 2**20, wbits), f"Content-Encoding: {coding}"),
        ReplyTooLarge,
        alone=True,
    )
case(
    "bomb_drips_out", (head("Content-Encoding: gzip"), bomb(2**26)[:30_000], HANG), ReplyTooLarge, within=1.5
)
case(
    "bomb_of_nothing",
    (head("Content-Encoding: deflate"), b"\x78\x9c", Flood(b"\x00\x00\x00\xff\xff" * 13_000)),
    ReplyTooLarge,
    alone=True,
)
case(
    "bomb_after_the_end",
    (head("Content-Encoding: gzip"), gzipped(GOOD), Flood(b"z" * 65536)),
    MalformedReply,
    alone=True,
)
DENSE = 4 * 2**20 - 100
for label, raw in {
    "lists": b"[" + b"[]," * (DENSE // 3) + b"[]]",
    "objects": b'{"choices":[' + b'{"a":1},' * (DENSE // 8) + b"{}]}",
    "numbers": b"[" + b"1.5," * (DENSE // 4) + b"1]",
}.items():
    case(
        f"dense_{label}",
        http(200, raw),
        MalformedReply if label == "numbers" else ReplyTooLarge,
        alone=True,
        requests=1,
        options={"max_attempts": 1},
    )
case("dense_error", http(500, b"[" + b"{}," * (DENSE // 3) + b"{}]"), ServerFailed, alone=True)
FEW = b'{"choices":[' + b'{"message":{}},' * 100_000 + b'{"message":{}}]}'
case("dense_choices_few", http(200, FEW), MalformedReply, alone=True, text="100,001 choices")
MANY = (
    encoded(completion())[:-1].replace(
        b'"choices": [', b'"choices": [' + b'{"message":{}},' * (DENSE // 15 - 99)
    )
    + b"}"
)
case("dense_choices", http(200, MANY), ReplyTooLarge, alone=True, requests=1, options={"max_attempts": 1})

# --- Compression nobody asked for ----------------------------------------------------------------------------------------

case("gzip_good", http(200, gzipped(GOOD), "Content-Encoding: gzip"), Said())
case("gzip_good_in_pieces", (head("Content-Encoding: GZIP"), Drip(gzipped(GOOD), 0)), Said(), deadline=6.0)
case("deflate_good", http(200, zlib.compress(GOOD), "Content-Encoding: deflate"), Said())
case("deflate_raw", http(200, zlib.compress(GOOD)[2:-4], "Content-Encoding: deflate"), MalformedReply)
case("gzip_corrupt", http(200, gzipped(GOOD)[:40] + b"\xff" * 40, "Content-Encoding: gzip"), MalformedReply)
case(
    "gzip_bad_checksum", http(200, gzipped(GOOD)[:-8] + b"\x00" * 8, "Content-Encoding: gzip"), MalformedReply
)
case("gzip_truncated", http(200, gzipped(GOOD)[:-12], "Content-Encoding: gzip"), MalformedReply, text="early")
case("gzip_not_at_all", http(200, GOOD, "Content-Encoding: gzip"), MalformedReply)
case("gzip_empty", http(200, b"", "Content-Encoding: gzip"), MalformedReply)
for coding in ("br", "zstd", "compress", "gzip, gzip", "\x1b[31mred"):
    case(
        f"coding_{coding.split(',')[0].strip(chr(27))[:8]}_{len(coding)}",
        http(200, GOOD, f"Content-Encoding: {coding}"),
        MalformedReply,
    )

# --- Broken HTTP -----------------------------------------------------------------------------------------------------------

case("hang_before_head", HANG, DeadlineExceeded, deadline=1.0)
case("hang_in_head", (b"HTTP/1.1 200 OK\r\nContent-", HANG), DeadlineExceeded, deadline=1.0)
case("hang_in_body", (head("Content-Length: 500"), GOOD[:50], HANG), DeadlineExceeded, deadline=1.0)
case("hang_then_works", [(HANG,), (good(),)], AGAIN, options={"attempt_timeout": 0.5}, within=1.5)
case(
    "hang_every_attempt",
    HANG,
    Unreachable,
    deadline=3.0,
    options={"attempt_timeout": 0.4},
    text="0.4 s",
    within=1.5,
)
case("drip_body", (head("Content-Length: 500"), Drip(b" " * 500, 0.05)), DeadlineExceeded, deadline=1.0)
case("drip_head", Drip(b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 500, 0.02), DeadlineExceeded, deadline=1.0)
case("drip_good", (head(f"Content-Length: {len(GOOD)}"), Drip(GOOD, 0)), Said(), deadline=6.0)
case("close_at_once", (), Unreachable)
case("reset_at_once", RESET, Unreachable)
case("reset_in_head", (b"HTTP/1.1 200 OK\r\nConte", Pause(0.05), RESET), Unreachable)
case("reset_in_body", (head("Content-Length: 500"), GOOD[:60], Pause(0.05), RESET), Unreachable)
case("close_in_head", b"HTTP/1.1 200 OK\r\nConte", Unreachable)
case("length_too_long", head(f"Content-Length: {len(GOOD) + 9}") + GOOD, Unreachable)
case("length_too_short", head(f"Content-Length: {len(GOOD) - 9}") + GOOD, Unreachable)
case("length_zero", head("Content-Length: 0") + GOOD, Unreachable)
for label, value in {
    "negative": "-1",
    "text": "abc",
    "hex": "0x10",
    "float": "1.5",
    "plus": "+5",
    "empty": "",
    "huge": "9" * 40,
}.items():
    case(
        f"length_{label}",
        head(f"Content-Length: {value}") + GOOD,
        Unreachable,
    )
case("length_twice", head("Content-Length: 5", "Content-Length: 500") + GOOD, Unreachable)
case(
    "length_and_chunked", head("Content-Length: 5", "Transfer-Encoding: chunked") + chunked(GOOD), Unreachable
)
case("chunk_size_text", head("Transfer-Encoding: chunked") + b"zz\r\n" + GOOD, Unreachable)
case("chunk_size_negative", head("Transfer-Encoding: chunked") + b"-5\r\n" + GOOD, Unreachable)
case("chunk_size_huge", head("Transfer-Encoding: chunked") + b"f" * 40 + b"\r\n" + GOOD, Unreachable)
case("chunk_missing_end", head("Transfer-Encoding: chunked") + chunked(GOOD, last=False), Unreachable)
case("chunk_cut", head("Transfer-Encoding: chunked") + b"fff\r\n" + GOOD, Unreachable)
case(
    "chunk_extension_endless",
    (head("Transfer-Encoding: chunked") + b"5;", Flood(b"x" * 65536, gap=0.05)),
    DeadlineExceeded,
    deadline=1.0,
)
case(
    "chunk_trailers",
    head("Transfer-Encoding: chunked") + chunked(GOOD, last=False) + b"0\r\nX-T: v\r\n\r\n",
    Said(),
)
case(
    "chunk_every_byte",
    head("Transfer-Encoding: chunked") + chunked(*(bytes((byte,)) for byte in GOOD)),
    Said(),
)
case("transfer_coding_unknown", head("Transfer-Encoding: whatever") + GOOD, Said())
case("http_1_0", head("Content-Type: application/json", version="HTTP/1.0") + GOOD, Said())
case("http_1_0_cut", head(version="HTTP/1.0") + GOOD[:90], MalformedReply)
case("http_1_1_until_close", head("Connection: close") + GOOD, Said())
case("http_9", head(version="HTTP/9.9") + GOOD, Unreachable)
case("http_0_9", GOOD, Unreachable)
case("not_http", b"SSH-2.0-OpenSSH_9.6\r\n\r\n", Unreachable)
case("not_http_binary", bytes(range(256)) * 20, Unreachable)
case("not_http_tls", b"\x15\x03\x01\x00\x02\x02\x46", Unreachable)
case("not_http_2", b"\x00\x00\x12\x04\x00\x00\x00\x00\x00", Unreachable)
for label, value in {
    "text": "OK",
    "negative": "-200 x",
    "short": "20 x",
    "long": "20000 x",
    "empty": "",
}.items():
    case(f"status_line_{label}", head(status=value) + GOOD, Unreachable)
case("status_line_only", b"HTTP/1.1 200 OK\r\n", Unreachable)
case("header_without_colon", b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", Unreachable)
case("header_with_null", head("X-A: b\x00c") + GOOD, Unreachable)
case("header_not_ascii", head("X-A: caf\xe9", f"Content-Length: {len(GOOD)}") + GOOD, Said())
case(
    "header_of_a_megabyte", (b"HTTP/1.1 200 OK\r\nX-A: ", Flood(b"a" * 65536, 1e6), b"\r\n\r\n"), Unreachable
)
case("header_endless", (b"HTTP/1.1 200 OK\r\nX-A: ", Flood(b"a" * 65536)), Unreachable)
case(
    "headers_many", head(*(f"X-{n}: {n}" for n in range(100)), f"Content-Length: {len(GOOD)}") + GOOD, Said()
)
case("headers_endless", (b"HTTP/1.1 200 OK\r\n", Flood(b"X-A: b\r\n" * 8000)), Unreachable, alone=True)
case("content_type_odd", http(200, GOOD, 'Content-Type: ;;="/\\;text/event-stream'), Said())
case("cookies", good("Solution: hello", "Set-Cookie: a=b; Domain=evil", "Set-Cookie: \x01"), Said())
case("keep_alive_then_garbage", [(good() + b"GARBAGE" * 100, KEEP), (good(),)], AGAIN)
case(
    "answers_before_reading",
    (UNREAD, http(413, b"too long"), Pause(0.2)),
    RequestRejected,
    prompt="x" * 8_000_000,
    alone=True,
)
case("answers_before_reading_and_resets", (UNREAD, RESET), Unreachable, prompt="x" * 8_000_000, alone=True)
case("answers_well_before_reading", (UNREAD, good(), Pause(0.2)), Said(), prompt="x" * 8_000_000, alone=True)
case(
    "answers_well_and_never_reads",
    (UNREAD, good(), HANG),
    Said(),
    prompt="x" * 8_000_000,
    alone=True,
    within=1.0,
)
case("small_cap", good(), ReplyTooLarge, options={"max_bytes": 100})
case(
    "small_cap_chunked",
    head("Transfer-Encoding: chunked") + chunked(GOOD),
    ReplyTooLarge,
    options={"max_bytes": 100},
)
case("never_reads", (UNREAD, HANG), DeadlineExceeded, prompt="x" * 8_000_000, alone=True, deadline=1.0)

# --- Streams -------------------------------------------------------------------------------------------------------------

HELLO = (delta("Solution: "), delta("hello"))
END = delta(finish="stop")
COST = {"id": "c", "choices": [], "usage": USAGE}
WHOLE = events(*HELLO, END, COST)
streamed("good", stream(WHOLE), Said())
streamed("every_byte", stream(*(bytes((byte,)) for byte in WHOLE)), Said())
streamed("crlf", stream(events(*HELLO, END, COST, end=b"\r\n")), Said())
streamed("no_space_after_colon", stream(WHOLE.replace(b"data: ", b"data:")), Said())
streamed("comments_and_names", stream(b": ping\n\nevent: message\nid: 7\nretry: 5\n" + WHOLE), Said())
streamed("garbage_lines", stream(b"what is this\n\x00\xff\n\ndata\ndata:\n" + WHOLE), Said())
streamed("no_done", stream(events(*HELLO, END, COST, done=False)), Said())
streamed(
    "no_done_no_newline", stream(events(*HELLO, done=False) + b"data: " + encoded(END)), Said(usage=UNKNOWN)
)
streamed("no_usage", stream(events(*HELLO, END)), Said(usage=UNKNOWN))
streamed("no_finish_but_done", stream(events(*HELLO, COST)), Said())
streamed(
    "no_finish_no_done",
    stream(events(*HELLO, done=False)),
    MalformedReply,
)
streamed("cut_mid_event", stream(WHOLE[:100]), MalformedReply)
streamed("cut_connection", (STREAM_HEAD + chunked(WHOLE[:200], last=False),), Unreachable)
streamed(
    "reset", (STREAM_HEAD + chunked(events(*HELLO, done=False), last=False), Pause(0.05), RESET), Unreachable
)
streamed("reset_after_done", (STREAM_HEAD + chunked(WHOLE, last=False), Pause(0.05), RESET), Said())
streamed("hang_after_done", (STREAM_HEAD + chunked(WHOLE, last=False), HANG), Said(), deadline=3.0)
streamed(
    "hang",
    (STREAM_HEAD + chunked(events(*HELLO, done=False), last=False), HANG),
    DeadlineExceeded,
    deadline=1.0,
)
streamed("drip", (STREAM_HEAD, Drip(chunked(WHOLE * 5), 0.02)), DeadlineExceeded, deadline=1.0)
streamed(
    "drip_of_comments",
    (STREAM_HEAD, Drip(chunked(b": wait\n", last=False) * 20, 0.02)),
    DeadlineExceeded,
    deadline=1.0,
)
streamed("empty", stream(), MalformedReply)
streamed("only_done", stream(b"data: [DONE]\n\n"), MalformedReply)
streamed("nothing_said", stream(events(END, COST)), Said(""))
streamed("not_json", stream(events(b"{oops")), MalformedReply, text="oops")
streamed("json_array", stream(events(b"[1,2]")), MalformedReply)
streamed("garbage_after_done", stream(WHOLE + b"data: {oops\n\n"), Said())
streamed(
    "error_event",
    stream(events(*HELLO, {"error": {"message": "gpu fell off", "code": 500}})),
    ServerFailed,
    text="gpu",
)
streamed("error_event_text", stream(events(*HELLO, {"error": "gpu fell off"})), ServerFailed, text="gpu")
streamed(
    "error_event_quota",
    stream(events({"error": {"message": QUOTA, "code": "insufficient_quota"}})),
    QuotaExhausted,
)
streamed(
    "error_event_overflow",
    stream(events({"error": {"message": "exceeds the available context size", "code": 400}})),
    ContextOverflow,
)
streamed(
    "error_event_with_odd_choices",
    stream(events({"error": {"message": "no", "code": 401}, "choices": 5})),
    NotAuthorized,
)
streamed(
    "error_event_named",
    stream(b"event: error\n" + events({"error": {"message": "late", "code": 503}})),
    ServerFailed,
)
streamed("error_null", stream(events(*(chunk | {"error": None} for chunk in (*HELLO, END, COST)))), Said())
streamed("error_empty", stream(events(*(chunk | {"error": {}} for chunk in (*HELLO, END, COST)))), Said())
streamed(
    "error_then_works", [(stream(events(delta("wrong"), {"error": "x"})), KEEP), (stream(WHOLE),)], AGAIN
)
streamed("finish_length", stream(events(*HELLO, delta(finish="length"), COST)), Said(finish="length"))
streamed("finish_number", stream(events(*HELLO, delta(finish=5), COST)), Said(finish="other"))
streamed(
    "refusal",
    stream(
        events(
            {"choices": [{"delta": {"refusal": "No"}}]}, {"choices": [{"delta": {"refusal": "."}}]}, END, COST
        )
    ),
    Said("No.", "refusal"),
)
streamed(
    "tool_calls",
    stream(
        events(
            {"choices": [{"delta": {"content": None, "tool_calls": [{}]}}]}, delta(finish="tool_calls"), COST
        )
    ),
    Said(""),
)
streamed(
    "delta_null",
    stream(events(*HELLO, {"choices": [{"delta": None, "finish_reason": "stop"}]}, COST)),
    Said(),
)
streamed("choices_null", stream(events(*HELLO, END, COST | {"choices": None})), Said())
streamed(
    "index_null",
    stream(events(*HELLO, {"choices": [{"index": None, "delta": {}, "finish_reason": "stop"}]}, COST)),
    Said(),
)
streamed(
    "content_parts", stream(events(delta([{"text": "Solution: "}, 5]), delta("hello"), END, COST)), Said()
)
streamed("content_number", stream(events(delta(5), END)), MalformedReply)
streamed("usage_odd", stream(events(*HELLO, END | {"usage": {"prompt_tokens": "x"}})), Said(usage=UNKNOWN))
streamed("usage_odd_after_good", stream(events(*HELLO, END, COST, COST | {"usage": {}})), Said())
streamed("usage_nan", stream(events(*HELLO, END, encoded(COST).replace(b"11", b"NaN"))), Said(usage=UNKNOWN))
streamed("model_number", stream(events(*(chunk | {"model": 5} for chunk in (*HELLO, END, COST)))), Said())
streamed(
    "surrogate",
    stream(events(delta("Solution: "), encoded(delta("X")).replace(b"X", b"\\ud800"), END, COST)),
    Said("Solution: ?"),
)
streamed(
    "invalid_utf8", stream(events(encoded(delta("X")).replace(b"X", b"\xe9"), END, COST)), Said("\ufffd")
)
SPLIT = events(encoded(delta("X")).replace(b"X", "é漢🦙".encode()), END, COST)
streamed("utf8_split", stream(*(SPLIT[n : n + 1] for n in range(len(SPLIT)))), Said("é漢🦙"))
streamed(
    "interleaved",
    stream(
        events(delta("a", index=1), *HELLO, delta("b", index=1), delta(finish="stop", index=1), END, COST)
    ),
    Said(more=("ab",)),
)
streamed(
    "interleaved_in_one_event",
    stream(
        events(
            {"choices": [delta("x", index=i)["choices"][0] for i in (2, 0, 1)]},
            {"choices": [delta(finish="stop", index=i)["choices"][0] for i in (0, 1, 2)]},
            COST,
        )
    ),
    Said("x", more=("x", "x")),
)
streamed(
    "one_choice_unfinished", stream(events(*HELLO, delta("half", index=1), END, done=False)), MalformedReply
)
streamed(
    "index_negative", stream(events(delta("a", index=-1), delta(finish="stop", index=-1))), MalformedReply
)
streamed("index_absurd", stream(events(delta("a", index=10**9), END)), MalformedReply)
streamed("index_1e30", stream(events(delta("a", index=10**30), END)), MalformedReply)
streamed("index_text", stream(events(delta("a", index="one"), END)), MalformedReply)
streamed(
    "index_gap",
    stream(events(delta("a", index=900), delta(finish="stop", index=900), *HELLO, END)),
    MalformedReply,
)
streamed("json_instead", good(), Said())
streamed("json_instead_error", http(200, b'{"error":{"message":"no streams","code":400}}'), RequestRejected)
streamed("json_labeled_stream", http(200, GOOD, "Content-Type: text/event-stream"), Said())
streamed(
    "error_labeled_stream",
    http(200, b'{\n"error": {"code": 401,\n"message": "no"}}', "Content-Type: text/event-stream"),
    NotAuthorized,
)
streamed("labeled_json", http(200, WHOLE, "Content-Type: application/json"), Said())
streamed("labeled_nothing", http(200, WHOLE), Said())
streamed(
    "html_labeled_stream",
    http(200, b"<html>login", "Content-Type: text/event-stream"),
    MalformedReply,
    text="login",
)
streamed(
    "label_in_capitals",
    STREAM_HEAD.replace(b"text/event-stream", b"Text/Event-Stream; charset=UTF-8") + chunked(WHOLE),
    Said(),
)
case("stream_never_asked_for", stream(WHOLE), Said())
streamed("huge_line", (STREAM_HEAD + b"fffffff\r\ndata: ", Flood(b"x" * 65536)), ReplyTooLarge, alone=True)
streamed(
    "huge_line_in_crumbs",
    (head("Content-Type: text/event-stream"), Flood(b"x" * 600, 5e6)),
    ReplyTooLarge,
    alone=True,
    deadline=3.0,
)
streamed(
    "huge_many_events",
    (head("Content-Type: text/event-stream"), Flood(events(delta("aa"), done=False) * 200)),
    ReplyTooLarge,
    alone=True,
    deadline=4.0,
)
streamed(
    "gzip_good",
    http(200, gzipped(WHOLE), "Content-Type: text/event-stream", "Content-Encoding: gzip"),
    Said(),
)
streamed(
    "gzip_bomb",
    http(200, bomb(2**26), "Content-Type: text/event-stream", "Content-Encoding: gzip"),
    ReplyTooLarge,
    alone=True,
)
streamed("status_429", [limited("Retry-After: 0.3"), (stream(WHOLE),)], AGAIN, at_least=0.3)


@dataclass
class Outcome:
    result: Reply | BaseException
    elapsed: float
    requests: int
    seen: list[Event]
    traceback: str


async def _run(this: Case) -> Outcome:
    seen: list[Event] = []
    history = History()
    history.add("user", this.prompt)
    async with serving(*this.answers) as server:
        options = {"max_attempts": ATTEMPTS, "deadline": this.deadline} | this.options
        async with ChatModel("m", base_url=server.url, api_key=KEY, **options) as model:
            request = Request(
                history, session="s", speaker="user", watch=seen.append if this.streaming else None
            )
            loop = asyncio.get_running_loop()
            started = loop.time()
            try:
                result: Reply | BaseException = await model.reply(request)
                told = ""
            except BaseException as raised:
                told = "".join(traceback.format_exception(raised))
                result = raised.with_traceback(None)  # which would keep the prompt in memory
            elapsed = loop.time() - started
        return Outcome(result, elapsed, server.requests, seen, told)


async def _run_all() -> dict[str, Outcome]:
    together = asyncio.Semaphore(24)
    outcomes: dict[str, Outcome] = {}

    async def one(this: Case) -> None:
        async with together:
            outcomes[this.name] = await _run(this)

    async with asyncio.TaskGroup() as group:
        for this in CASES:
            if not this.alone:
                group.create_task(one(this))
    for this in CASES:
        if this.alone:
            outcomes[this.name] = await _run(this)
    return outcomes


def _memory(field: str) -> int:
    """A line of /proc/self/status, in MB."""
    if not STATUS.exists():
        return 0
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) // 1024


@dataclass
class Memory:
    before: int
    peak_before: int
    after: int = 0
    peak: int = 0


@pytest.fixture(scope="module")
def _quick_backoff() -> Iterator[None]:
    """Retries as in life, but sooner."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(random, "uniform", lambda low, high: low + (high - low) * 0.02)
        patch.setattr(wire, "time", SimpleNamespace(time=lambda: NOW))
        yield


@pytest.fixture(scope="module")
def memory(_quick_backoff: None) -> Memory:
    """Taken after a first call, so that what is imported then does not count."""
    warm = Case("warm", ((good(),),), Said())
    run_virtual(_run(warm))
    with contextlib.suppress(OSError):  # sets the peak back to what is used now
        Path("/proc/self/clear_refs").write_text("5")
    return Memory(_memory("VmRSS"), _memory("VmHWM"))


@pytest.fixture(scope="module")
def outcomes(memory: Memory, _loopback_only: None) -> dict[str, Outcome]:
    took = run_virtual(_run_all())
    memory.after, memory.peak = _memory("VmRSS"), _memory("VmHWM")
    return took


def test_there_are_enough_cases_and_no_name_twice() -> None:
    names = [this.name for this in CASES]
    assert len(names) >= 80
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("this", CASES, ids=lambda this: this.name)
def test_bad_response(this: Case, outcomes: dict[str, Outcome]) -> None:
    _judge(this, outcomes[this.name])


def _judge(this: Case, outcome: Outcome) -> None:
    result = outcome.result
    if not isinstance(result, Reply | ModelError):
        raise AssertionError(f"{this.name} ended in {result!r}") from result
    assert this.at_least <= outcome.elapsed <= (this.within or this.deadline) + 0.001, "in virtual seconds"
    assert outcome.requests <= this.options.get("max_attempts", ATTEMPTS)
    if isinstance(this.expected, Said):
        if isinstance(result, ModelError):
            raise AssertionError(f"{this.name} ended in {result!r}") from result
        _judge_reply(this.expected, result, outcome.requests)
    else:
        assert type(result) is this.expected, repr(result)
        assert isinstance(result, ModelError)
        _judge_error(result, outcome.traceback)
        assert this.text in str(result)
        expected = this.options.get("max_attempts", ATTEMPTS) if this.expected.retryable else 1
        assert outcome.requests == (expected if this.requests is None else this.requests)
        assert result.attempts == outcome.requests
        if this.retry_after is not None:
            assert getattr(result, "retry_after", None) == this.retry_after
    _judge_events(outcome)


def _judge_reply(expected: Said, reply: Reply, requests: int) -> None:
    assert reply.content == expected.content
    assert reply.choices[0].finish == expected.finish
    assert tuple(choice.content for choice in reply.choices[1:]) == expected.more
    assert reply.usage == expected.usage
    assert reply.attempts == expected.attempts == requests
    assert reply.model
    assert msgspec.json.decode(msgspec.json.encode(reply), type=Reply) == reply


def _judge_error(failed: ModelError, trace: str = "") -> None:
    told = str(failed)
    assert told
    assert told.isprintable()
    assert len(told) <= 600
    everything = [told, repr(failed), *map(str, failed.args), *getattr(failed, "__notes__", [])]
    everything.append(trace or "".join(traceback.format_exception(failed)))
    for text in everything:
        assert KEY not in text
        assert KEY[:14] not in text.replace("\\", ""), "a part of the key is left"


def _judge_events(outcome: Outcome) -> None:
    """What was streamed after the last retry is what was said."""
    for event in outcome.seen:
        if isinstance(event, Retrying):
            assert event.error.isprintable()
            assert KEY not in event.error
            assert event.wait >= 0
    if isinstance(outcome.result, Reply) and outcome.seen:
        retries = [n for n, event in enumerate(outcome.seen) if isinstance(event, Retrying)]
        said = outcome.seen[retries[-1] + 1 if retries else 0 :]
        assert "".join(event.text for event in said if isinstance(event, Text)) == outcome.result.content


@pytest.mark.skipif(not STATUS.exists(), reason="memory is read from Linux's /proc")
def test_memory_stays_under_100_MB(outcomes: dict[str, Outcome], memory: Memory) -> None:
    assert memory.after - memory.before < 100
    assert memory.peak - memory.peak_before < 100
    print(f"memory: {memory.before} MB before, {memory.after} MB after, {memory.peak} MB at most")


# --- What needs more than one server, or none ------------------------------------------------------------------------------


async def _failure(model: ChatModel, error: type[ModelError]) -> ModelError:
    async with model:
        with pytest.raises(ModelError) as raised:
            await model.reply(_hello())
    assert type(raised.value) is error, repr(raised.value)
    _judge_error(raised.value)
    return raised.value


def _hello() -> Request:
    history = History()
    history.add("user", "hi")
    return Request(history)


@pytest.mark.usefixtures("_quick_backoff")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@virtual_time
async def test_redirects_are_not_followed_and_the_key_stays_home(status: int) -> None:
    async with serving((good("stolen"),)) as other, serving() as server:
        location = f"Location: http://localhost:{other.port}/v1/chat/completions"
        server.answers = [(http(status, b"", location),)]
        model = ChatModel("m", base_url=server.url, api_key=KEY, deadline=2)
        await _failure(model, RequestRejected)
        assert (server.requests, other.requests, other.connections) == (1, 0, 0)
        assert b"Authorization: Bearer " + KEY.encode() in server.heads[0]


@pytest.mark.parametrize("status", [301, 307])
async def test_listing_models_does_not_follow_redirects(status: int) -> None:
    async with serving((http(200, b'{"data":[]}'),)) as other, serving() as server:
        server.answers = [(http(status, b"", f"Location: http://localhost:{other.port}/v1/models"),)]
        with pytest.raises(Unreachable) as raised:
            await asyncio.to_thread(served_models, server.url, KEY)
        _judge_error(raised.value)
        assert (server.requests, other.connections) == (1, 0)


LISTINGS: dict[str, Answer] = {
    "not_http": (b"SSH-2.0-OpenSSH\r\n",),
    "closed": (),
    "reset": (RESET,),
    "cut": (head("Content-Length: 500"), b'{"data":['),
    "cut_chunks": (head("Transfer-Encoding: chunked"), b"ff\r\n{"),
    "bad_chunks": (head("Transfer-Encoding: chunked"), b"zz\r\n{"),
    "html": (http(200, b"<html>\x1b[31m"),),
    "wrong": (http(200, b'{"data":[{"id":5}]}'),),
    "deep": (http(200, b"[" * 100_000),),
    "many_headers": (head(*("X-A: b" for _ in range(500))),),
    "status_401": (http(401, KEY.encode(), reason=f"{KEY} \x1b[31m"),),
    "status_500": (http(500, b"no"),),
}


@pytest.mark.parametrize("answer", LISTINGS.values(), ids=LISTINGS)
async def test_listing_models_fails_with_a_typed_error(answer: Answer) -> None:
    async with serving(answer) as server:
        with pytest.raises(ModelError) as raised:
            await asyncio.to_thread(served_models, server.url, KEY)
        _judge_error(raised.value)


async def test_the_error_for_an_address_without_v1_mentions_v1() -> None:
    async with serving((http(404, b"{}"),)) as server:
        for url, hinted in ((server.url.removesuffix("/v1"), True), (server.url, False)):
            with pytest.raises(Unreachable) as raised:
                await asyncio.to_thread(served_models, url, KEY)
            assert ("/v1" in str(raised.value).replace("/v1/models", "")) is hinted


async def test_listing_models_gives_up_on_a_drip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte comes before the socket's timeout, but not all of them before the caller's."""
    clock = itertools.count(step=61.0)
    monkeypatch.setattr(endpoint, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    async with serving((head("Content-Length: 11"), Drip(b'{"data":[]}', 0.001))) as server:
        with pytest.raises(ModelError, match=r"60 s"):
            await asyncio.to_thread(served_models, server.url, KEY, timeout=60.0)
        clock = itertools.repeat(0.0)
        assert await asyncio.to_thread(served_models, server.url, KEY, timeout=60.0) == {}


async def test_listing_models() -> None:
    async with serving(
        (http(200, b'{"object":"list","data":[{"id":"a","max_model_len":9},{"id":"b"}]}'),)
    ) as server:
        assert await asyncio.to_thread(served_models, server.url, KEY) == {"a": 9, "b": None}
        assert server.heads[0].startswith(b"GET /v1/models HTTP/1.1\r\n")
        assert b"Authorization: Bearer " + KEY.encode() in server.heads[0]


@pytest.mark.usefixtures("_quick_backoff")
@virtual_time
async def test_connection_refused() -> None:
    async with serving() as server:
        port = server.port
    failed = await _failure(
        ChatModel("m", base_url=f"http://127.0.0.1:{port}", api_key=KEY, deadline=2), Unreachable
    )
    assert failed.attempts == 6
    assert str(port) in str(failed)


@pytest.mark.usefixtures("_quick_backoff")
@pytest.mark.parametrize("name", ["nothing.invalid", "a" * 63 + ".invalid", "xn--a.invalid"])
@virtual_time
async def test_a_name_that_does_not_resolve(name: str) -> None:
    await _failure(
        ChatModel("m", base_url=f"http://{name}/v1", api_key=KEY, deadline=2, max_attempts=2), Unreachable
    )


@pytest.mark.usefixtures("_quick_backoff")
@virtual_time
async def test_tls_to_a_port_that_does_not_speak_it() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(http(400, b"this is plain HTTP"))
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with server:
        await _failure(ChatModel("m", base_url=url, api_key=KEY, deadline=2, max_attempts=2), RequestRejected)


@pytest.mark.usefixtures("_quick_backoff")
@virtual_time
async def test_connection_closed_between_calls() -> None:
    """The server hangs up on an idle connection: the next call must not notice, or recover by itself."""
    async with serving((good(), KEEP)) as server, ChatModel("m", base_url=server.url, deadline=2) as model:
        assert (await model.reply(_hello())).content == "Solution: hello"
        assert (await model.reply(_hello())).content == "Solution: hello"
        assert server.connections == 1
        await server.close()
        await asyncio.sleep(1)
        assert (await model.reply(_hello())).content == "Solution: hello"
        assert server.connections == 2


@pytest.mark.usefixtures("_quick_backoff")
@virtual_time
async def test_connection_dies_under_the_next_call() -> None:
    """The same, but the hang-up crosses the request on its way."""
    async with (
        serving((good(), KEEP), (RESET,), (good(),)) as server,
        ChatModel("m", base_url=server.url, deadline=2) as model,
    ):
        assert (await model.reply(_hello())).attempts == 1
        assert (await model.reply(_hello())).attempts == 2
        assert server.requests == 3


@pytest.mark.usefixtures("_quick_backoff")
@virtual_time
async def test_header_secrets_of_the_caller_are_scrubbed_too() -> None:
    async with serving((http(401, f"who is {KEY}?".encode()),)) as server:
        for headers in ({"api-key": KEY}, {"Authorization": f"Bearer {KEY}"}):
            model = ChatModel("m", base_url=server.url, api_key="", headers=headers, deadline=2)
            assert KEY not in repr(model)
            await _failure(model, NotAuthorized)


def _always(value: float) -> Callable[[float, float], float]:
    return lambda low, high: value


@virtual_time
async def test_the_deadline_covers_the_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """With waits of 0.8 s, a deadline of 2.3 s leaves room for three tries, not for the six allowed."""
    monkeypatch.setattr(random, "uniform", _always(0.8))
    async with serving((http(500),)) as server:
        failed = await _failure(ChatModel("m", base_url=server.url, deadline=2.3), ServerFailed)
        assert failed.attempts == server.requests == 3
