"""The client on the good path: what it sends, what it makes of a good answer, and how it behaves as a guest of asyncio."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import os
import random
import time
import warnings
from typing import Any

import pytest

from camel.core.errors import DeadlineExceeded, InputError, ModelError, RateLimited, ServerFailed, Unreachable
from camel.core.history import History
from camel.core.message import Sampling, Usage
from camel.core.model import Event, Reply, Request, Retrying, Text
from camel.models import endpoint, protocol
from camel.models.chat import ChatModel
from camel.models.dialects import OPENAI_URL
from camel.models.governor import Rates
from camel.models.guided import guided_fields
from camel.models.replica import PoolSettings
from tests.support.hostile import (
    HANG,
    KEEP,
    HostileServer,
    Pause,
    completion,
    delta,
    encoded,
    events,
    good,
    http,
    serving,
    stream,
)
from tests.support.virtual_time import virtual_time

HEAD = b'{"model":"m","messages":[{"role":"system","content":"S"},{"role":"user","content":"hi \\"you\\" \xc3\xa9"}]'


def _history() -> History:
    history = History("S")
    history.add("user", 'hi "you" é')
    return history


def _request(**other: Any) -> Request:
    return Request(**{"history": _history(), **other})


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda low, high: low)


async def _sent(request: Request, **options: Any) -> tuple[HostileServer, Reply]:
    async with serving((good(),)) as server, ChatModel("m", base_url=server.url, **options) as model:
        return server, await model.reply(request)


# --- Bodies ----------------------------------------------------------------------------------------------------------------

BODIES: dict[str, tuple[dict[str, Any], bytes]] = {
    "nothing": ({}, b""),
    "temperature": ({"temperature": 0.5}, b',"temperature":0.5'),
    "temperature_zero": ({"temperature": 0}, b',"temperature":0'),
    "top_p": ({"top_p": 0.9}, b',"top_p":0.9'),
    "max_tokens": ({"max_tokens": 64}, b',"max_tokens":64'),
    "n": ({"n": 3}, b',"n":3'),
    "n_of_one": ({"n": 1}, b""),
    "seed": ({"seed": 0}, b',"seed":0'),
    "stop": ({"stop": ("END", "\n")}, b',"stop":["END","\\n"]'),
    "logprobs": ({"logprobs": 0}, b',"logprobs":true,"top_logprobs":0'),
    "penalties": (
        {"presence_penalty": -0.5, "frequency_penalty": 1},
        b',"presence_penalty":-0.5,"frequency_penalty":1',
    ),
    "extra": ({"extra": {"reasoning_effort": "low"}}, b',"reasoning_effort":"low"'),
    "extra_wins": ({"max_tokens": 5, "extra": {"max_tokens": 9}}, b',"max_tokens":9'),
}


@pytest.mark.parametrize(("sampling", "tail"), BODIES.values(), ids=BODIES)
async def test_body(sampling: dict[str, Any], tail: bytes) -> None:
    server, _ = await _sent(_request(sampling=Sampling(**sampling), session="s", speaker="user"))
    assert server.bodies == [HEAD + tail + b"}"]


async def test_body_of_a_stream() -> None:
    server, _ = await _sent(_request(watch=lambda _: None))
    assert server.bodies == [HEAD + b',"stream":true,"stream_options":{"include_usage":true}}']


async def test_two_samplings_are_not_mixed_up() -> None:
    """Tails are kept by the identity of the sampling, which Python may give again once it is gone."""
    async with serving((good(), KEEP)) as server, ChatModel("m", base_url=server.url) as model:
        for seed in range(300):
            await model.reply(_request(sampling=Sampling(seed=seed)))
            gc.collect(0)
        assert [json.loads(body)["seed"] for body in server.bodies] == list(range(300))


def _openai_body(**other: Any) -> bytes:
    return ChatModel("m", api_key="sk-123456789").wire.encode(_request(**other))


def test_openai_has_its_own_fields() -> None:
    assert _openai_body(sampling=Sampling(max_tokens=5)) == HEAD + b',"max_completion_tokens":5}'
    assert _openai_body(session="s", speaker="user") == HEAD + b',"prompt_cache_key":"s/user"}'
    keys = {json.loads(_openai_body(session="s" * 99 + end))["prompt_cache_key"] for end in ("", "1", "2")}
    assert len(keys) == 3
    assert all(len(key) == 64 for key in keys)
    assert json.loads(_openai_body(session="\ud800"))["prompt_cache_key"] == "?/"


async def test_a_gateway_can_receive_the_session_in_a_field_of_its_own() -> None:
    server, _ = await _sent(_request(session="s", speaker="user"), session_field="prompt_cache_key")
    assert server.bodies == [HEAD + b',"prompt_cache_key":"s/user"}']
    for field in ("messages", "model", "a\nb"):
        with pytest.raises(InputError, match="session_field"):
            ChatModel("m", base_url="http://host/v1", session_field=field)


async def test_consecutive_bodies_share_their_prefix() -> None:
    """What was sent before is sent again byte for byte, so that an endpoint's cache knows it."""
    history = _history()
    async with serving((good(), KEEP)) as server, ChatModel("m", base_url=server.url) as model:
        for turn in range(5):
            reply = await model.reply(Request(history, Sampling(temperature=0.2, max_tokens=9)))
            history.add("assistant", reply.content)
            history.add(
                "user", f"turn {turn} é\ud83e\udd99".encode("utf-16", "surrogatepass").decode("utf-16")
            )
        bodies = server.bodies
    tail = b'],"temperature":0.2,"max_tokens":9}'
    for earlier, later in itertools.pairwise(bodies):
        assert earlier.endswith(tail)
        assert later.startswith(earlier.removesuffix(tail) + b',{"role":"assistant"')
    assert len(json.loads(bodies[-1])["messages"]) == 2 + 4 * 2


def test_encoding_is_not_quadratic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message is encoded once however often it is sent: counted, because time is noisy."""
    from camel.core import history as module

    encoded_bytes = 0
    encode = module._encode

    def counting(content: str) -> bytes:
        nonlocal encoded_bytes
        encoded_bytes += len(content)
        return encode(content)

    monkeypatch.setattr(module, "_encode", counting)
    monkeypatch.setattr(protocol, "encode", counting)
    model, sampling = ChatModel("m", base_url="http://127.0.0.1:9"), Sampling()

    def cost(messages: int) -> int:
        nonlocal encoded_bytes
        encoded_bytes = 0
        history = History()
        for _ in range(messages):
            history.add("user", "x" * 100)
            model.wire.encode(Request(history, sampling))
        return encoded_bytes

    assert cost(400) <= 2.2 * cost(200)
    assert cost(400) <= 400 * 130


# --- Headers ---------------------------------------------------------------------------------------------------------------


def _headers(server: HostileServer, index: int = 0) -> dict[str, str]:
    lines = server.heads[index].decode().split("\r\n")[1:-2]
    return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}


@pytest.mark.parametrize("size", [10, 2**20])
@pytest.mark.parametrize("passes", [0, 1])
async def test_nothing_leaves_once_the_gate_is_shut(passes: int, size: int) -> None:
    """Before an attempt begins, and where it has its connection and was about to be written; also in pieces."""
    asked = itertools.count()
    history = History()
    history.add("user", "o" * size)

    class Shut(Exception):
        pass

    def gate() -> None:
        if next(asked) >= passes:
            raise Shut

    async with serving((good(),)) as server, ChatModel("m", base_url=server.url) as model:
        model.pool.gate = gate
        with pytest.raises(Shut):
            await model.reply(_request(history=history))
        assert not server.requests
        assert model.pool.states()[0].in_flight == 0
        model.pool.gate = lambda: None
        assert (await model.reply(_request(history=history))).content
        assert server.requests == 1


async def test_headers() -> None:
    server, _ = await _sent(
        _request(session="conversation-7"), api_key="sk-secret", headers={"X-Title": "CAMEL"}
    )
    assert server.heads[0].startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    sent = _headers(server)
    assert sent["authorization"] == "Bearer sk-secret"
    assert sent["x-session-id"] == "conversation-7"
    assert sent["content-type"] == "application/json"
    assert sent["accept-encoding"] == "identity"
    assert sent["x-title"] == "CAMEL"
    assert sent["content-length"] == str(len(server.bodies[0]))


async def test_no_key_no_authorization_and_no_session_no_header() -> None:
    sent = _headers((await _sent(_request()))[0])
    assert "authorization" not in sent
    assert "x-session-id" not in sent
    assert "cookie" not in sent


async def test_a_header_of_the_caller_wins() -> None:
    server, _ = await _sent(_request(), api_key="sk-1", headers={"Authorization": "Basic abc"})
    assert _headers(server)["authorization"] == "Basic abc"


async def test_a_session_that_no_header_can_hold_is_quoted() -> None:
    server, _ = await _sent(_request(session="a\r\nX-Evil: 1 é\ud800"))
    assert _headers(server)["x-session-id"] == "a%0D%0AX-Evil%3A%201%20%C3%A9%3F"
    assert "x-evil" not in _headers(server)


async def test_key_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", " sk-from-env \n")
    async with serving((good(),)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url + "/")
        async with ChatModel("m") as model:
            await model.reply(_request())
            assert model.base_url == server.url
            assert "sk-from-env" not in repr(model)
    assert _headers(server)["authorization"] == "Bearer sk-from-env"


@pytest.mark.parametrize(
    "options",
    [
        {"base_url": OPENAI_URL},
        {"base_url": "ftp://host"},
        {"base_url": "localhost:8000"},
        {"base_url": "http://host:99999"},
        {"base_url": "http://user:pass@host/v1"},
        {"base_url": "http://host/v1?key=1"},
        {"base_url": "http://host/v1#x"},
        {"api_key": "sk-é"},
        {"api_key": "sk\nx"},
        {"headers": {"X-A": "b\r\nX-B: c"}},
        {"headers": {"X A": "b"}},
        {"headers": {"": "b"}},
        {"headers": {"X-A": "é"}},
        {"deadline": 0},
        {"deadline": float("nan")},
        {"attempt_timeout": float("nan")},
        {"attempt_timeout": -1},
        {"max_attempts": 0},
        {"max_bytes": 0},
        {"guided": "nonsense"},
        {"name": ""},
        {"name": "a\nb"},
        {"name": "\ud800"},
    ],
    ids=str,
)
def test_bad_settings_are_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(InputError) as raised:
        ChatModel(**{"name": "m", "base_url": "http://host/v1", "api_key": "", **options})
    assert "pass@" not in str(raised.value)


# --- Replies ---------------------------------------------------------------------------------------------------------------


async def test_reply() -> None:
    _, reply = await _sent(_request())
    assert reply.content == "Solution: hello"
    assert reply.usage == Usage(prompt=11, completion=7, cached=4, calls=1)
    assert reply.model == "m-1"
    assert reply.attempts == 1
    assert reply.latency > 0
    assert reply.guided == ""


@pytest.mark.usefixtures("_quick")
async def test_attempts_that_were_rate_limited_are_counted() -> None:
    refused = http(429, b"slow down", "Retry-After: 0")
    async with (
        serving((refused,), (refused,), (good(),)) as server,
        ChatModel("m", base_url=server.url) as model,
    ):
        reply = await model.reply(_request())
    assert (reply.attempts, reply.limited) == (3, 2)
    async with (
        serving((http(500, b"gone"),), (refused,)) as server,
        ChatModel("m", base_url=server.url, max_attempts=2) as model,
    ):
        with pytest.raises(RateLimited) as raised:
            await model.reply(_request())
    assert (raised.value.attempts, raised.value.limited) == (2, 1)


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize("first", [b"the disk is full", None])
@virtual_time
async def test_a_deadline_names_the_error_before_it(first: bytes | None) -> None:
    answers = [(HANG,)] if first is None else [(http(500, first),), (HANG,)]
    options = {"deadline": 30.0, "attempt_timeout": 60.0}
    async with serving(*answers) as server, ChatModel("m", base_url=server.url, **options) as model:
        with pytest.raises(DeadlineExceeded) as raised:
            await model.reply(_request())
    assert ("the disk is full" in str(raised.value)) is (first is not None)
    assert ("previous" in str(raised.value)) is (first is not None)


async def test_the_models_of_an_endpoint() -> None:
    body = encoded({"data": [{"id": "one", "max_model_len": 4096}, {"id": "two"}]})
    async with serving((http(200, body),)) as server, ChatModel("m", base_url=server.url) as model:
        assert await asyncio.to_thread(model.served_models, server.url) == {"one": 4096, "two": None}


async def test_several_choices_with_logprobs() -> None:
    tokens = [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}]
    choices = [
        {"index": 0, "message": {"content": "a"}, "finish_reason": "stop", "logprobs": {"content": tokens}},
        {"index": 1, "message": {"content": "b"}, "finish_reason": "length", "logprobs": None},
    ]
    answer = (http(200, encoded(completion(choices=choices))),)
    async with serving(answer) as server, ChatModel("m", base_url=server.url) as model:
        reply = await model.reply(_request(sampling=Sampling(n=2, logprobs=0)))
    assert [(c.content, c.finish, c.logprobs) for c in reply.choices] == [
        ("a", "stop", tokens),
        ("b", "length", None),
    ]


async def test_stream_reports_each_piece() -> None:
    seen: list[Event] = []
    usage = {"prompt_tokens": 9, "completion_tokens": 3}
    answer = stream(
        events(delta("So"), delta("lution: é"), done=False),
        events(delta("", finish="length"), {"choices": [], "usage": usage}),
    )
    async with serving((answer, KEEP)) as server, ChatModel("m", base_url=server.url) as model:
        for _ in range(2):
            seen.clear()
            reply = await model.reply(_request(speaker="assistant", watch=seen.append))
            assert seen == [Text("assistant", "So"), Text("assistant", "lution: é")]
            assert (reply.content, reply.choices[0].finish) == ("Solution: é", "length")
        assert server.connections == 1, "a finished stream leaves its connection usable"


@pytest.mark.usefixtures("_quick")
async def test_retrying_is_reported_before_what_follows() -> None:
    seen: list[Event] = []
    broken, whole = (
        stream(events(delta("no"), {"error": "gone"})),
        stream(events(delta("yes"), delta(finish="stop"))),
    )
    async with serving((broken,), (whole,)) as server, ChatModel("m", base_url=server.url) as model:
        reply = await model.reply(_request(speaker="user", watch=seen.append))
    assert [type(event) for event in seen] == [Text, Retrying, Text]
    assert seen[1] == Retrying("user", "HTTP 500: gone", 0)
    assert (reply.content, reply.attempts) == ("yes", 2)


async def test_an_error_of_the_watcher_is_the_callers_own() -> None:
    """A closed pipe behind `watch` must not be taken for a broken connection, and paid for again."""

    def watch(event: Event) -> None:
        raise BrokenPipeError("head went away")

    for answer in (good(), stream(events(delta("a"), delta(finish="stop")))):
        async with serving((answer,)) as server, ChatModel("m", base_url=server.url) as model:
            with pytest.raises(BrokenPipeError, match="away"):
                await model.reply(_request(watch=watch))
            assert server.requests == 1


@pytest.mark.parametrize("guide", ["llama.cpp", "vllm"])
@pytest.mark.parametrize("expects", ["instruction", "solution"])
async def test_guided_fields_are_sent_and_recorded(guide: Any, expects: Any) -> None:
    server, reply = await _sent(_request(expects=expects), guided=guide)
    fields = guided_fields(guide, expects)
    assert fields
    sent = json.loads(server.bodies[0])
    assert {name: sent[name] for name in fields} == json.loads(encoded(fields))
    assert reply.guided == f"{guide}:{expects}"


@pytest.mark.parametrize("guide", ["llama.cpp", "vllm", "openai"])
@pytest.mark.parametrize("expects", ["choice", "scores", "verdict"])
async def test_a_critic_is_held_to_its_options(guide: Any, expects: Any) -> None:
    server, reply = await _sent(_request(expects=expects, options=3), guided=guide)
    fields = guided_fields(guide, expects, 3)
    sent = json.loads(server.bodies[0])
    assert {name: sent[name] for name in fields} == json.loads(encoded(fields))
    assert reply.guided == f"{guide}:{expects}"


def test_openai_is_asked_for_json_by_models_that_know_it() -> None:
    for name, guided in (
        ("gpt-4.1-mini", "openai"),
        ("gpt-5", "openai"),
        ("gpt-4-turbo", None),
        ("gpt-3.5-turbo", None),
    ):
        assert ChatModel(name, api_key="sk-123456789").wire.guided == guided
    assert "response_format" in json.loads(_openai_body(expects="choice", options=2))
    assert _openai_body(expects="instruction") == HEAD + b"}"


@pytest.mark.parametrize(
    ("guided", "expects"),
    [(None, "instruction"), ("llama.cpp", None), ("openai", "instruction"), (None, "choice")],
)
async def test_guided_fields_are_not_sent_otherwise(guided: Any, expects: Any) -> None:
    server, reply = await _sent(_request(expects=expects), guided=guided)
    assert server.bodies == [HEAD + b"}"]
    assert reply.guided == ""


@pytest.mark.usefixtures("_quick")
async def test_a_thousand_attempts_do_not_overflow_the_backoff() -> None:
    model = ChatModel("m", base_url="http://127.0.0.1:9", max_attempts=10_000)
    assert model._wait_before_retry(ServerFailed("x"), 5_000) == 0


# --- A guest of asyncio ------------------------------------------------------------------------------------------------------


def test_two_event_loops_in_sequence() -> None:
    """Nobody closes anything, and still nothing is left open: a warning would fail the test."""
    history = _history()
    seen: list[int] = []

    async def talk(model: ChatModel, server: HostileServer) -> None:
        for _ in range(2):
            assert (await model.reply(Request(history))).content == "Solution: hello"
        seen.append(server.connections)

    async def once(model_at: list[ChatModel]) -> None:
        async with serving((good(), KEEP)) as server:
            if not model_at:
                model_at.append(ChatModel("m", base_url=server.url))
            model = model_at[0]
            model.pool._placement.replicas[0].url = server.url
            await talk(model, server)

    kept: list[ChatModel] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            asyncio.run(once(kept))
        assert len(kept[0]._opened) == 1, "loops that ended are forgotten"
        kept.clear()
        gc.collect()
    assert seen == [1, 1, 1]


async def test_two_event_loops_at_once() -> None:
    async with serving((good(), KEEP)) as server:
        model = ChatModel("m", base_url=server.url)

        def elsewhere() -> str:
            return asyncio.run(model.reply(_request())).content

        for _ in range(3):
            here, there = await asyncio.gather(model.reply(_request()), asyncio.to_thread(elsewhere))
            assert here.content == there == "Solution: hello"
        await model.aclose()
        await model.aclose()


async def test_aclose_then_reuse() -> None:
    async with serving((good(), KEEP)) as server:
        model = ChatModel("m", base_url=server.url)
        await model.aclose()
        for connections in (1, 2):
            assert (await model.reply(_request())).content == "Solution: hello"
            assert server.connections == connections
            await model.aclose()
            await asyncio.gather(model.aclose(), model.aclose())
            await _until(lambda: server.open == 0)


async def _until(true: Any, seconds: float = 60.0) -> None:
    end = time.perf_counter() + seconds
    while not true():
        assert time.perf_counter() < end
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("streaming", [False, True])
@virtual_time
async def test_cancellation_passes_through_and_leaves_nothing(streaming: bool) -> None:
    before = asyncio.all_tasks()
    head = stream(events(delta("a"), done=False), last=False) if streaming else b"HTTP/1.1 200 OK\r\n"
    async with serving((head, HANG)) as server, ChatModel("m", base_url=server.url) as model:
        call = asyncio.create_task(model.reply(_request(watch=(lambda _: None) if streaming else None)))
        await _until(lambda: server.requests == 1)
        await asyncio.sleep(1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert server.requests == 1
    await _until(lambda: asyncio.all_tasks() == before)
    gc.collect()


@virtual_time
async def test_cancellation_during_a_wait() -> None:
    async with (
        serving((http(503, b"", "Retry-After: 6"), KEEP)) as server,
        ChatModel("m", base_url=server.url) as model,
    ):
        call = asyncio.create_task(model.reply(_request()))
        await _until(lambda: server.requests == 1)
        await asyncio.sleep(5)
        assert not call.done()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


@virtual_time
async def test_a_timeout_of_the_caller_is_not_taken_for_ours() -> None:
    async with serving((HANG,)) as server, ChatModel("m", base_url=server.url) as model:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(20):
                await model.reply(_request())
        assert server.requests == 1


@virtual_time
async def test_many_calls_at_once() -> None:
    """More than the hundred connections to which aiohttp limits a client by default."""
    async with (
        serving((Pause(10), good(), KEEP)) as server,
        ChatModel("m", base_url=server.url, deadline=20, pool=PoolSettings(rates=Rates(start=150))) as model,
    ):
        started = asyncio.get_running_loop().time()
        replies = await asyncio.gather(*(model.reply(_request(session=str(n))) for n in range(150)))
        assert asyncio.get_running_loop().time() - started < 20, "all of them wait at the same time"
        assert {reply.content for reply in replies} == {"Solution: hello"}
        assert all(reply.attempts == 1 for reply in replies)
        assert {_headers(server, n)["x-session-id"] for n in range(150)} == {str(n) for n in range(150)}


async def test_connections_are_reused() -> None:
    async with serving((good(), KEEP)) as server, ChatModel("m", base_url=server.url) as model:
        for _ in range(20):
            await model.reply(_request())
        assert (server.requests, server.connections) == (20, 1)


async def test_errors_keep_no_frames_and_no_key() -> None:
    """Failed calls are kept as data by the thousand: not with their bodies, nor with what aiohttp knows of the key."""
    options: dict[str, Any] = {"api_key": "sk-123456789", "max_attempts": 1}
    async with (
        serving((b"HTTP/1.1 nonsense\r\n\r\n",)) as server,
        ChatModel("m", base_url=server.url, **options) as model,
    ):
        with pytest.raises(Unreachable) as raised:
            await model.reply(_request())
    error = raised.value
    assert error.__context__ is None
    assert error.__cause__ is None
    frames = []
    trace = error.__traceback__
    while trace:
        frames.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert frames[-1] == "reply"


# --- Proxies ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def _proxied(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("https_proxy", "127.0.0.1:2")
    monkeypatch.setenv("no_proxy", "inside.example")


@pytest.mark.usefixtures("_proxied")
@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("http://host.example/v1", "http://127.0.0.1:1"),
        ("https://host.example/v1", "http://127.0.0.1:2"),
        ("http://inside.example/v1", None),
        ("http://localhost:8000/v1", None),
        ("http://127.0.0.1:8000/v1", None),
        ("http://127.9.9.9/v1", None),
        ("http://[::1]:8000/v1", None),
        ("https://LOCALHOST/v1", None),
        ("http://10.0.0.1/v1", "http://127.0.0.1:1"),
    ],
)
def test_proxy_of_the_environment(url: str, proxy: str | None) -> None:
    assert endpoint.proxy_for(url) == proxy


@pytest.mark.usefixtures("_proxied")
async def test_loopback_goes_past_the_proxy_and_the_rest_through_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving((good(),)) as server:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.port}")
        async with ChatModel("m", base_url="http://far.example/v1") as model:
            await model.reply(_request())
        async with ChatModel("m", base_url=server.url) as model:
            await model.reply(_request())
        assert [head.split()[1] for head in server.heads] == [
            b"http://far.example/v1/chat/completions",
            b"/v1/chat/completions",
        ]


@pytest.mark.usefixtures("_proxied")
@virtual_time
async def test_the_password_of_a_proxy_is_in_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    proxy = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
    monkeypatch.setenv("https_proxy", f"http://alice:s3cret@127.0.0.1:{port}")
    async with proxy, ChatModel("m", base_url="https://far.example/v1", max_attempts=1) as model:
        with pytest.raises(ModelError) as failed:
            await model.reply(_request())
        assert "407" in str(failed.value)
        assert "s3cret" not in str(failed.value) + repr(model.pool.states())
