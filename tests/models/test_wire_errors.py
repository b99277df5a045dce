"""Errors and odd replies field by field: which word of which field decides what happened."""

from __future__ import annotations

import json
from typing import Any

import pytest

from camel.core.errors import (
    ContentRejected,
    ContextOverflow,
    InputError,
    MalformedReply,
    ModelError,
    NotAuthorized,
    QuotaExhausted,
    RateLimited,
    RequestRejected,
    ServerFailed,
)
from camel.core.history import History
from camel.core.message import Usage
from camel.core.model import Reply, Request
from camel.models.chat import ChatModel
from camel.models.completions import StreamedReply, read_reply
from camel.models.wire import as_usage, failure, one_line, retry_after
from tests.support.hostile import KEEP, completion, delta, encoded, events, good, gzipped, http, serving


def raised(error: Any) -> ModelError:
    """What becomes of an error in the body of a 200."""
    with pytest.raises(ModelError) as caught:
        read_reply(encoded({"error": error}))
    return caught.value


@pytest.mark.parametrize("key", ["message", "detail", "type", "code"])
def test_every_field_of_an_error_is_read(key: str):
    other = "detail" if key == "message" else "message"
    body = encoded({"error": {other: "no", key: "insufficient_quota"}})
    assert type(failure(400, body, {})) is QuotaExhausted
    assert "insufficient_quota" in str(failure(400, body, {}))
    assert type(failure(400, encoded({other: "no", key: "context_length_exceeded"}), {})) is ContextOverflow


@pytest.mark.parametrize("key", ["code", "status", "status_code"])
@pytest.mark.parametrize("value", [429, "429"])
def test_an_error_may_name_its_status_in_several_fields(key: str, value: Any):
    assert type(raised({key: value, "message": "wait"})) is RateLimited


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": 400}, RequestRejected),
        ({"code": 399}, ServerFailed),
        ({"code": 599}, ServerFailed),
        ({"code": 600}, ServerFailed),
        ({"code": 404}, RequestRejected),
        ({"code": "4040"}, ServerFailed),
        ({"code": "abc", "status": 403}, NotAuthorized),
        ({"type": "rate_limit_error"}, RateLimited),
        ({"code": "quota"}, RateLimited),
        ({"type": "authentication_error"}, NotAuthorized),
        ({"code": "invalid_api_key"}, NotAuthorized),
        ({"type": "invalid_request_error"}, RequestRejected),
        ({"message": "prompt is too long"}, ContextOverflow),
        ("maximum context length is 10", ContextOverflow),
        ("something", ServerFailed),
        ({"message": "something"}, ServerFailed),
    ],
)
def test_what_an_error_in_a_good_answer_is(error: Any, kind: type[ModelError]):
    assert type(raised(error)) is kind


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (302, RequestRejected),
        (400, RequestRejected),
        (401, NotAuthorized),
        (402, QuotaExhausted),
        (403, NotAuthorized),
        (404, RequestRejected),
        (408, ServerFailed),
        (409, ServerFailed),
        (413, RequestRejected),
        (422, RequestRejected),
        (425, ServerFailed),
        (429, RateLimited),
        (499, RequestRejected),
        (500, ServerFailed),
        (501, RequestRejected),
        (503, ServerFailed),
        (505, RequestRejected),
        (599, ServerFailed),
    ],
)
def test_what_a_status_means(status: int, kind: type[ModelError]):
    error = failure(status, b"", {"Retry-After": "7"})
    assert (type(error), error.status) == (kind, status)
    assert getattr(error, "retry_after", 7.0) == 7.0


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_prompt_that_is_too_long_is_known_by_its_words(status: int):
    assert type(failure(status, b"input is too long", {})) is ContextOverflow
    assert type(failure(404, b"input is too long", {})) is RequestRejected


@pytest.mark.parametrize("status", [400, 403, 422, 451])
def test_content_that_is_not_served_is_known_by_its_words(status: int):
    assert type(failure(status, b"blocked by the content filter", {})) is ContentRejected
    assert type(failure(401, b"blocked by the content filter", {})) is NotAuthorized


def test_an_error_next_to_a_choice_counts_unless_it_is_null():
    assert read_reply(encoded({**completion("a"), "error": None})).content == "a"
    with pytest.raises(ServerFailed):
        read_reply(encoded({**completion("a"), "error": {"message": "gone"}}))


@pytest.mark.parametrize(
    ("status", "kind"), [(400, QuotaExhausted), (499, QuotaExhausted), (500, ServerFailed)]
)
def test_an_empty_account_is_the_callers_error(status: int, kind: type[ModelError]):
    assert type(failure(status, b"billing hard limit", {})) is kind


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "3"}, 3.0),
        ({"Retry-After": "-3"}, 0.0),
        ({"retry-after-ms": "1500", "Retry-After": "9"}, 1.5),
        ({"retry-after-ms": "soon", "Retry-After": "9"}, 9.0),
        ({"Retry-After": "inf"}, None),
        ({"Retry-After": "Thu, 01 Jan 1970 00:01:40 GMT"}, 40.0),
        ({"Retry-After": "yesterday"}, None),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], seconds: float | None):
    assert retry_after(headers, now=60.0) == seconds


def test_an_error_is_one_line_of_at_most_300_characters():
    assert one_line("a\n\tb\x00c") == "a b c"
    assert one_line("x" * 300) == "x" * 300
    assert one_line("x" * 301) == "x" * 297 + "..."


# --- usage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        (None, Usage(calls=1, unknown=1)),
        ({"prompt_tokens": 5}, Usage(5, 0, 0, 1)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, Usage(0, 0, 0, 1)),
        ({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 5}}, Usage(5, 0, 5, 1)),
        ({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 6}}, Usage(11, 0, 6, 1)),
        ({"prompt_tokens": 5, "prompt_tokens_details": {}}, Usage(5, 0, 0, 1)),
        ({"prompt_tokens": -1}, Usage(calls=1, unknown=1)),
        ({"prompt_tokens": 5, "completion_tokens": -1}, Usage(calls=1, unknown=1)),
        ({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": -1}}, Usage(calls=1, unknown=1)),
        ({"prompt_tokens": 10**9}, Usage(calls=1, unknown=1)),
        ({"prompt_tokens": 10**9 - 1, "completion_tokens": 10**9 - 1}, Usage(10**9 - 1, 10**9 - 1, 0, 1)),
        ({"prompt_tokens": 5, "completion_tokens": 10**9}, Usage(calls=1, unknown=1)),
        ({"prompt_tokens": "5"}, Usage(calls=1, unknown=1)),
    ],
)
def test_counts_that_can_be_as_usage(usage: Any, read: Usage):
    assert read_reply(encoded(completion(usage=usage))).usage == read


def test_no_more_is_written_to_a_cache_than_was_read_without_it():
    assert as_usage(10, 1, cached=4, written=20).written == 6
    assert as_usage(10, 1, cached=4, written=5).written == 5


# --- choices ---------------------------------------------------------------------------------------------------------


def streamed(*chunks: dict[str, Any], done: bool = True) -> Reply:
    reply = StreamedReply()
    for _ in reply.feed(events(*chunks, done=done)):
        pass
    return reply.finished()


@pytest.mark.parametrize("indexes", [[1], [0, 2], [0, 1, 3], [-1], [1_000]])
def test_a_stream_that_skips_a_choice_is_refused(indexes: list[int]):
    with pytest.raises(MalformedReply):
        streamed(*(delta("a", index=index, finish="stop") for index in indexes))


def test_choices_of_a_stream_come_in_their_order():
    reply = streamed(
        delta("b", index=1), delta("a", index=0), delta("c", index=1), delta(index=0, finish="length")
    )
    assert [(choice.content, choice.finish) for choice in reply.choices] == [("a", "length"), ("bc", "stop")]


def test_a_stream_without_its_end_is_whole_only_if_every_choice_has_ended():
    assert streamed(delta("a", finish="stop"), done=False).content == "a"
    for chunks in ([delta("a")], [delta("a", finish="stop"), delta("b", index=1)]):
        with pytest.raises(MalformedReply):
            streamed(*chunks, done=False)


def test_only_the_first_choice_is_streamed():
    reply = StreamedReply()
    told = [*reply.feed(events(delta("a"), delta("x", index=1), delta("b"), done=False))]
    assert told == ["a", "b"]


def test_the_usage_and_the_model_of_a_stream():
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    last = {"choices": [], "usage": usage, "model": "other"}
    reply = streamed(delta("a", finish="stop"), last, {"choices": [], "usage": {"prompt_tokens": -1}})
    assert (reply.usage, reply.model) == (Usage(5, 2, 0, 1), "m-1")


@pytest.mark.parametrize(
    ("message", "finish", "read"),
    [
        ({"content": "a"}, "stop", ("a", "stop")),
        ({"content": "a"}, None, ("a", "stop")),
        ({"content": "a"}, "tool_calls", ("a", "stop")),
        ({"content": "a"}, "function_call", ("a", "stop")),
        ({"content": "a"}, "length", ("a", "length")),
        ({"content": "a"}, "max_tokens", ("a", "length")),
        ({"content": "a"}, "model_length", ("a", "length")),
        ({"content": "a"}, "insufficient_system_resource", ("a", "length")),
        ({"content": "a"}, "end_turn", ("a", "stop")),
        ({"content": "a"}, "", ("a", "stop")),
        ({"content": "a"}, "content_filter", ("a", "content_filter")),
        ({"content": None}, "stop", ("", "stop")),
        ({"content": "", "refusal": "no"}, "stop", ("no", "refusal")),
        ({"content": "a", "refusal": "no"}, "stop", ("a", "stop")),
        ({"content": [{"text": "a"}, {"image": 1}, {"text": "b"}]}, "stop", ("ab", "stop")),
        ({"content": [], "refusal": "no"}, "stop", ("no", "refusal")),
        ({"content": ["x"]}, 7, ("", "other")),
    ],
)
def test_what_a_choice_says(message: dict[str, Any], finish: Any, read: tuple[str, str]):
    (choice,) = read_reply(encoded({"choices": [{"message": message, "finish_reason": finish}]})).choices
    assert (choice.content, choice.finish) == read


@pytest.mark.parametrize("count", [1_000, 1_001])
def test_a_reply_has_no_more_choices_than_can_be_asked_for(count: int):
    body = encoded({"choices": [{"message": {"content": "a"}}] * count})
    if count > 1_000:
        with pytest.raises(MalformedReply, match="1,001"):
            read_reply(body)
    else:
        assert len(read_reply(body).choices) == count


# --- through the client ----------------------------------------------------------------------------------------------


async def answered(*steps: bytes) -> str:
    async with serving(steps) as server, ChatModel("m", base_url=server.url, max_attempts=1) as model:
        history = History()
        history.add("user", "hi")
        return (await model.reply(Request(history))).content


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("identity", bytes),
        ("Identity", bytes),
        ("", bytes),
        ("gzip", gzipped),
        ("x-gzip", gzipped),
        ("deflate", gzipped),
    ],
)
async def test_a_body_is_unpacked_as_its_header_says(encoding: str, pack: Any):
    body = json.dumps(completion("said")).encode()
    assert await answered(http(200, pack(body), f"Content-Encoding: {encoding}")) == "said"


async def test_an_unknown_compression_is_refused():
    with pytest.raises(MalformedReply, match="br"):
        await answered(good("said", "Content-Encoding: br"))


async def test_a_request_that_is_rejected_does_not_move_its_conversation():
    """The replica is well: it has the conversation cached, and the next request goes there again."""
    answers = [(good("first"), KEEP), (http(400, b"bad words"), KEEP), (good("third"), KEEP)]
    history = History()
    history.add("user", "hi")
    request = Request(history, session="s")
    async with serving(*answers) as one, serving(*answers) as other:
        async with ChatModel("m", base_url=[one.url, other.url], max_attempts=1) as model:
            assert (await model.reply(request)).content == "first"
            with pytest.raises(RequestRejected):
                await model.reply(request)
            assert (await model.reply(request)).content == "third"
        assert sorted([one.requests, other.requests]) == [0, 3]


@pytest.mark.parametrize(
    "name", ["deadline", "attempt_timeout", "max_attempts", "max_bytes", "context_tokens", "max_choices"]
)
@pytest.mark.parametrize("value", [0, -1, True, "1"])
def test_a_wrong_setting_is_named(name: str, value: Any):
    with pytest.raises(InputError, match=name):
        ChatModel("m", base_url="http://127.0.0.1:1/v1", **{name: value})
