"""The simulator as a raw client sees it: bytes over a socket, and a ledger that must agree with them."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import difflib
import itertools
import json
import math
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel.core.history import History
from camel.core.model import Request
from camel.models import simulator as package
from camel.models.chat import ChatModel
from camel.models.simulator import (
    AUTHORS,
    Burst,
    CapacityChange,
    Constant,
    Facts,
    LogNormal,
    Simulator,
    SimulatorSettings,
    read_rows,
    spawn,
)
from camel.models.simulator.__main__ import main
from camel.models.simulator.server import ReplyPlanner
from camel.models.simulator.wire import HttpRequest, RequestReader
from tests.support.virtual_time import virtual_time

USER = "Never forget you are a Trader and I am a Programmer. Never flip roles! You will always instruct me."
ASSISTANT = "Never forget you are a Programmer and I am a Trader. Never flip roles! Never instruct me!"
DONE = "<CAMEL_TASK_DONE>"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.json["choices"][0]["message"]["content"]

    @property
    def events(self) -> list[Any]:
        lines = [line for line in self.body.decode().split("\n\n") if line]
        assert all(line.startswith("data: ") for line in lines)
        assert lines[-1] == "data: [DONE]"
        return [json.loads(line[6:]) for line in lines[:-1]]


class Wire:
    """One keep-alive connection, by hand."""

    def __init__(self, sim: Any) -> None:
        self.port = int(sim.url.rsplit(":", 1)[1])

    async def __aenter__(self) -> Wire:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> None:
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        head = f"{method} {path} HTTP/1.1\r\nHost: sim\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)

    async def receive(self) -> Answer:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        line, *rest = head.rstrip().split("\r\n")
        headers = {name.lower(): value for name, value in (entry.split(": ", 1) for entry in rest)}
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(await self.reader.readline(), 16):
                body += (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readexactly(2)
        else:
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return Answer(int(line.split()[1]), headers, body)

    async def chat(self, body: dict[str, Any] | bytes, **headers: str) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send("POST", "/v1/chat/completions", data, **headers)
        return await self.receive()

    async def call(self, method: str, path: str) -> Answer:
        self.send(method, path)
        return await self.receive()


def ask(question: str = "Why?", **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": question}], **fields}


async def once(settings: SimulatorSettings, body: dict[str, Any]) -> Answer:
    async with Simulator(settings) as sim, Wire(sim) as wire:
        return await wire.chat(body)


async def converse(wire: Wire, limit: int, task: str = "") -> list[str]:
    """Both seats of a role play, until the user is done or `limit` messages were said."""
    user = [{"role": "system", "content": USER + task}, {"role": "user", "content": "Begin."}]
    assistant = [{"role": "system", "content": ASSISTANT + task}]
    said: list[str] = []
    while len(said) < limit and DONE not in said:
        speaker, hearer = (user, assistant) if len(said) % 2 == 0 else (assistant, user)
        text = (await wire.chat({"model": "m", "messages": speaker})).text
        speaker.append({"role": "assistant", "content": text})
        hearer.append({"role": "user", "content": text})
        said.append(text)
    return said


# --- what it says -----------------------------------------------------------------------------------------


async def test_a_reply_has_the_shape_of_a_chat_completion() -> None:
    answer = await once(SimulatorSettings(), ask())
    reply = answer.json
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert (reply["object"], reply["model"]) == ("chat.completion", "m")
    assert reply["choices"][0]["finish_reason"] == "stop"
    assert reply["choices"][0]["message"]["role"] == "assistant"
    usage = reply["usage"]
    assert usage["completion_tokens"] == -(-len(answer.text) // 4)
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}


async def test_a_reply_depends_on_messages_and_seeds_and_on_nothing_else() -> None:
    async with Simulator() as sim, Wire(sim) as wire:
        first = await wire.chat(ask("A"))
        other = await wire.chat(ask("B"))
        assert (await wire.chat(ask("A"))).body == first.body, "order must not matter"
        assert (await wire.chat(ask("A", temperature=1.9))).body == first.body
        assert (await wire.chat(ask("A", seed=1))).text != first.text
    assert other.text != first.text
    assert (await once(SimulatorSettings(seed=1), ask("A"))).text != first.text


async def test_processes_with_different_hash_seeds_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = [
        ask("A"),
        ask("A", n=3, seed=5),
        ask("A", stream=True),
        {"messages": [{"role": "system", "content": USER}]},
    ]
    async with Simulator(SimulatorSettings(seed=3)) as sim, Wire(sim) as wire:
        here = [(await wire.chat(body)).body for body in bodies]
    monkeypatch.setenv("PYTHONHASHSEED", "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1")
    with spawn(SimulatorSettings(seed=3)) as sim:
        async with Wire(sim) as wire:
            assert [(await wire.chat(body)).body for body in bodies] == here


@pytest.mark.parametrize("length", [1, 7, 21])
async def test_a_society_plays_its_roles_and_ends_at_its_length(length: int) -> None:
    async with Simulator(SimulatorSettings(length=Constant(length))) as sim, Wire(sim) as wire:
        said = await converse(wire, 100)
    assert len(said) == length
    assert said[-1] == DONE
    for instruction, solution in zip(said[:-1:2], said[1::2], strict=True):
        assert instruction.startswith("Instruction: ")
        assert "\nInput: " in instruction
        assert solution.startswith("Solution: ")
        assert solution.endswith("\n\nNext request.")


async def test_a_long_society_never_nearly_repeats_itself() -> None:
    async with Simulator(SimulatorSettings(length=None)) as sim, Wire(sim) as wire:
        said = await converse(wire, 40)
    assert len(said) == 40
    assert DONE not in said
    for seat in (said[::2], said[1::2]):
        closest = max(
            difflib.SequenceMatcher(None, a.split(), b.split(), False).ratio()
            for a, b in itertools.combinations(seat, 2)
        )
        assert closest < 0.75
        instructions = [text.split("\n")[0] for text in seat]
        assert len(set(instructions)) == len(instructions)
    assert {text.rpartition("\n")[2] == "Input: None" for text in said[::2]} == {True, False}


async def test_conversation_lengths_follow_the_distribution() -> None:
    async def lengths(seed: int) -> list[float]:
        def author(facts: Facts) -> str:
            return str(facts.length)

        settings = SimulatorSettings(seed=seed, length=LogNormal(median=20, p99=80))
        async with Simulator(settings, author=author) as sim, Wire(sim) as wire:
            bodies = [{"messages": [{"role": "system", "content": f"{USER} {i}"}]} for i in range(300)]
            return [float((await wire.chat(body)).text) for body in bodies]

    drawn = await lengths(0)
    assert 17 < statistics.median(drawn) < 23
    assert 0 < sum(length > 80 for length in drawn) < 10
    assert drawn == await lengths(0)
    assert drawn != await lengths(1)


async def test_reply_length_follows_the_mean() -> None:
    async with Simulator(SimulatorSettings(words=140)) as sim, Wire(sim) as wire:
        words = [len((await wire.chat(ask(str(i)))).text.split()) for i in range(200)]
    assert 120 < statistics.mean(words) < 160
    assert max(words) > 1.5 * min(words)


async def test_max_tokens_cuts_the_reply() -> None:
    whole = await once(SimulatorSettings(), ask())
    for field in ("max_tokens", "max_completion_tokens"):
        cut = await once(SimulatorSettings(), ask(**{field: 5}))
        assert cut.json["choices"][0]["finish_reason"] == "length"
        assert cut.json["usage"]["completion_tokens"] == 5
        assert whole.text.startswith(cut.text)
        assert len(cut.text) == 20


async def test_choices_differ_and_the_first_is_the_single_one() -> None:
    three = (await once(SimulatorSettings(), ask(n=3))).json
    texts = [choice["message"]["content"] for choice in three["choices"]]
    assert [choice["index"] for choice in three["choices"]] == [0, 1, 2]
    assert len(set(texts)) == 3
    assert texts[0] == (await once(SimulatorSettings(), ask())).text
    assert three["usage"]["completion_tokens"] == sum(-(-len(text) // 4) for text in texts)


async def test_an_author_can_be_swapped() -> None:
    def echo(facts: Facts) -> str:
        return f"{facts.system}|{facts.messages[-1].text}|{facts.turns}"

    parts = [{"type": "text", "text": "é"}, {"type": "text", "text": "!"}]
    roles = [("system", "S"), ("user", "a"), ("assistant", "b"), ("user", parts)]
    body = {"messages": [{"role": role, "content": content} for role, content in roles]}
    async with Simulator(author=echo) as sim, Wire(sim) as wire:
        assert (await wire.chat(body)).text == "S|é!|1"
    by_name = SimulatorSettings(author="camel.models.simulator.authors:society")
    assert (await once(by_name, ask())).text == (await once(SimulatorSettings(), ask())).text
    with pytest.raises(ValueError, match="nobody"):
        Simulator(SimulatorSettings(author="nobody"))


async def test_an_author_that_fails_is_a_500_and_is_not_billed() -> None:
    def broken(facts: Facts) -> str:
        raise KeyError("oops")

    async with Simulator(author=broken) as sim, Wire(sim) as wire:
        answer = await wire.chat(ask())
        assert answer.status == 500
        assert "oops" in answer.json["error"]["message"]
        assert sim.ledger.counters.outcomes == {"error": 1}
        assert sim.ledger.counters.billed == sim.ledger.counters.in_flight == 0


# --- streaming --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens_per_event", [1, 7])
async def test_a_stream_says_what_the_whole_reply_says(tokens_per_event: int) -> None:
    settings = SimulatorSettings(tokens_per_event=tokens_per_event)
    whole = (await once(settings, ask(n=2))).json
    answer = await once(settings, ask(n=2, stream=True, stream_options={"include_usage": True}))
    assert answer.headers["content-type"] == "text/event-stream"
    *events, usage = answer.events
    texts, finishes = ["", ""], [None, None]
    for event in events:
        assert event["object"] == "chat.completion.chunk"
        assert event["usage"] is None
        (choice,) = event["choices"]
        texts[choice["index"]] += choice["delta"].get("content", "")
        finishes[choice["index"]] = choice["finish_reason"]
    assert texts == [choice["message"]["content"] for choice in whole["choices"]]
    assert finishes == ["stop", "stop"]
    assert usage["choices"] == []
    assert usage["usage"] == whole["usage"]


async def test_a_stream_without_usage_mentions_none() -> None:
    events = (await once(SimulatorSettings(), ask(stream=True))).events
    assert all("usage" not in event for event in events)
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}


@virtual_time
async def test_a_stream_keeps_its_pace_and_the_connection() -> None:
    async with Simulator(SimulatorSettings(tokens_per_second=2)) as sim, Wire(sim) as wire:
        loop = asyncio.get_running_loop()
        started = loop.time()
        await wire.chat(ask(stream=True, max_tokens=20))
        assert loop.time() - started == pytest.approx(10, abs=1)
        assert (await wire.call("GET", "/health")).status == 200


# --- HTTP -------------------------------------------------------------------------------------------------


async def test_one_connection_carries_many_requests_even_sent_at_once() -> None:
    settings = SimulatorSettings(latency=Constant(0.01))
    async with Simulator(settings) as sim, Wire(sim) as wire:
        for question in "ABC":
            wire.send("POST", "/v1/chat/completions", json.dumps(ask(question)).encode())
        answers = [(await wire.receive()).text for _ in range(3)]
        assert answers == [(await wire.chat(ask(question))).text for question in "ABC"]
        assert sim.ledger.counters.max_in_flight == 1


async def test_connection_close_is_honored() -> None:
    async with Simulator() as sim, Wire(sim) as wire:
        assert (await wire.chat(ask(), Connection="close")).status == 200
        assert await wire.reader.read() == b""


async def test_a_chunked_body_is_the_same_request() -> None:
    body = json.dumps(ask()).encode()
    async with Simulator() as sim, Wire(sim) as wire:
        plain = await wire.chat(body)
        wire.writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        for at in range(0, len(body), 7):
            piece = body[at : at + 7]
            wire.writer.write(b"%x;x=y\r\n%s\r\n" % (len(piece), piece))
            await asyncio.sleep(0)
        wire.writer.write(b"0\r\nTrailer: yes\r\n\r\n")
        assert (await wire.receive()).body == plain.body
        assert sim.ledger.counters.billed_repeats == 1, "the same body, whatever its framing"


REQUESTS = (
    b"POST /a?q=1 HTTP/1.1\r\nX-SESSION-ID: s\r\ncontent-length: 5\r\n\r\nhello"
    b"POST /b HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\n\r\n\r\r\n2\r\n\nx\r\n0\r\n\r\n"
    b"GET /c HTTP/1.0\r\n\r\n"
)


@given(st.lists(st.integers(0, len(REQUESTS)), max_size=12))
def test_requests_survive_any_fragmentation(cuts: list[int]) -> None:
    reader, found = RequestReader(), []
    for start, end in itertools.pairwise([0, *sorted(cuts), len(REQUESTS)]):
        reader.feed(REQUESTS[start:end])
        while request := reader.next():
            found.append(tuple(request))
    assert found == [
        ("POST", "/a", "s", b"hello", False),
        ("POST", "/b", "", b"\r\n\r\nx", False),
        ("GET", "/c", "", b"", True),
    ]


async def test_a_client_may_wait_for_100_continue() -> None:
    body = json.dumps(ask()).encode()
    async with Simulator() as sim, Wire(sim) as wire:
        wire.send("POST", "/v1/chat/completions", body, Expect="100-continue")
        assert (await wire.receive()).status == 200, "a body that is there needs no invitation"
        head = f"POST /v1/chat/completions HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
        wire.writer.write(head.encode())
        assert (await wire.receive()).status == 100
        wire.writer.write(body)
        assert (await wire.receive()).status == 200


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"",
        b"\xff\xfe",
        b'{"messages":[]}',
        b'{"messages":[{"content":"no role"}]}',
        b'{"messages":[{"role":"system","content":7}]}',
        b'{"messages":[{"role":"system","content":"\xff"}]}',
        b'{"messages":[{"role":"user","content":"x"}],"max_tokens":0}',
        b'{"messages":[{"role":"user","content":"x"}],"n":0}',
    ],
)
async def test_a_bad_request_is_a_400_in_openais_shape(body: bytes) -> None:
    async with Simulator() as sim, Wire(sim) as wire:
        answer = await wire.chat(body)
        assert answer.status == 400
        assert answer.json["error"]["type"] == "invalid_request_error"
        assert answer.json["error"]["message"]
        assert (await wire.chat(ask())).status == 200, "the connection survives"
        assert sim.ledger.counters.outcomes == {"rejected": 1, "served": 1}


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"x" * 70_000, 431),
    ],
)
async def test_what_is_not_http_is_refused_and_closed(sent: bytes, status: int) -> None:
    async with Simulator() as sim, Wire(sim) as wire:
        wire.writer.write(sent)
        assert (await wire.receive()).status == status
        assert await wire.reader.read() == b""


async def test_the_other_paths() -> None:
    async with Simulator(SimulatorSettings(model="sim-1")) as sim, Wire(sim) as wire:
        assert (await wire.call("GET", "/v1/models")).json["data"][0]["id"] == "sim-1"
        assert (await wire.call("GET", "/health")).json == {"status": "ok"}
        assert (await wire.call("GET", "/ledger")).json["requests"] == 0
        for method, path in (("GET", "/nowhere"), ("GET", "/v1/chat/completions"), ("POST", "/health")):
            missing = await wire.call(method, path)
            assert (missing.status, missing.json["error"]["type"]) == (404, "not_found_error")


# --- faults -----------------------------------------------------------------------------------------------


async def arrived(sim: Simulator) -> None:
    while not sim.ledger.counters.in_flight:  # noqa: ASYNC110 - the ledger is not built to be awaited
        await asyncio.sleep(0.001)


async def outcome_of(sim: Simulator) -> tuple[str, bool]:
    """The single outcome in the ledger and whether it was billed, once nothing is in flight."""
    while sim.ledger.counters.in_flight:  # noqa: ASYNC110 - the ledger is not built to be awaited
        await asyncio.sleep(0.001)
    (outcome,) = sim.ledger.counters.outcomes
    return outcome, sim.ledger.counters.billed == 1


@pytest.mark.parametrize("kind", ["500", "503", "429"])
async def test_an_error_status(kind: Any) -> None:
    async with Simulator(SimulatorSettings(faults={kind: 1}, retry_after=0.5)) as sim, Wire(sim) as wire:
        answer = await wire.chat(ask())
        assert answer.status == int(kind)
        assert answer.json["error"]["message"] == "simulated fault"
        assert answer.headers.get("retry-after") == ("0.5" if kind == "429" else None)
        assert await outcome_of(sim) == (kind, False)


@virtual_time
async def test_hang_says_nothing_until_it_gives_up() -> None:
    settings = SimulatorSettings(faults={"hang": 1}, hang_seconds=60)
    async with Simulator(settings) as sim, Wire(sim) as wire:
        wire.send("POST", "/v1/chat/completions", json.dumps(ask()).encode())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wire.reader.read(1), 59)
        assert sim.ledger.counters.in_flight == 1
        assert await wire.reader.read() == b""
        assert await outcome_of(sim) == ("hang", False)


async def test_hang_ends_when_the_client_leaves() -> None:
    async with Simulator(SimulatorSettings(faults={"hang": 1})) as sim:
        async with Wire(sim) as wire:
            wire.send("POST", "/v1/chat/completions", json.dumps(ask()).encode())
            await arrived(sim)
        assert await outcome_of(sim) == ("hang", False)


@pytest.mark.parametrize("stream", [False, True])
async def test_truncate_cuts_the_body_and_closes(stream: bool) -> None:
    async with Simulator(SimulatorSettings(faults={"truncate": 1})) as sim, Wire(sim) as wire:
        with pytest.raises(asyncio.IncompleteReadError) as caught:
            await wire.chat(ask(stream=stream))
        assert caught.value.partial
        assert await outcome_of(sim) == ("truncate", True)


@virtual_time
async def test_drip_sends_a_byte_at_a_time() -> None:
    settings = SimulatorSettings(faults={"drip": 1}, drip_seconds=0.01)
    async with Simulator(settings) as sim, Wire(sim) as wire:
        wire.send("POST", "/v1/chat/completions", json.dumps(ask(max_tokens=1)).encode())
        pieces = [await wire.reader.readexactly(1)]
        while not pieces[-1].endswith(b"}") or b"".join(pieces).count(b"}") < 5:
            pieces.append(await wire.reader.read(4096))
        assert statistics.median(map(len, pieces)) == 1
        assert json.loads(b"".join(pieces).partition(b"\r\n\r\n")[2])["object"] == "chat.completion"
        assert await outcome_of(sim) == ("drip", True)


async def test_reset_is_a_reset() -> None:
    async with Simulator(SimulatorSettings(faults={"reset": 1})) as sim, Wire(sim) as wire:
        wire.send("POST", "/v1/chat/completions", json.dumps(ask()).encode())
        with pytest.raises(ConnectionResetError):
            await wire.reader.read()
        assert await outcome_of(sim) == ("reset", False)


async def test_lost_is_billed_and_says_nothing() -> None:
    async with Simulator(SimulatorSettings(faults={"lost": 1})) as sim, Wire(sim) as wire:
        wire.send("POST", "/v1/chat/completions", json.dumps(ask()).encode())
        assert await wire.reader.read() == b""
        assert await outcome_of(sim) == ("lost", True)
        assert sim.ledger.counters.completion_tokens > 0


async def test_malformed_is_a_200_that_does_not_parse() -> None:
    async with Simulator(SimulatorSettings(faults={"malformed": 1})) as sim, Wire(sim) as wire:
        answer = await wire.chat(ask())
        assert answer.status == 200
        with pytest.raises(json.JSONDecodeError):
            json.loads(answer.body)
        assert await outcome_of(sim) == ("malformed", True)
        broken = await wire.chat(ask(stream=True))
        assert broken.body.startswith(b"data: {")
        assert broken.body.endswith(b'data: {"choices":[{"delta":\n\n')


async def test_a_retry_draws_again_and_the_draws_are_the_same_every_time() -> None:
    async def run(seed: int) -> list[list[int]]:
        settings = SimulatorSettings(seed=seed, faults={"500": 0.3, "503": 0.2})
        async with Simulator(settings) as sim, Wire(sim) as wire:
            return [[(await wire.chat(ask(str(i)))).status for _ in range(6)] for i in range(50)]

    statuses = await run(0)
    assert statuses == await run(0)
    assert statuses != await run(1)
    counts = Counter(itertools.chain(*statuses))
    assert 70 < counts[500] < 110
    assert 42 < counts[503] < 78
    assert sum(len(set(attempts)) > 1 for attempts in statuses) > 45


# --- latency and capacity ---------------------------------------------------------------------------------


def test_a_log_normal_has_the_median_and_p99_it_was_given() -> None:
    spread = LogNormal(median=2, p99=9)
    assert math.isclose(spread.at(0.5), 2)
    assert math.isclose(spread.at(0.99), 9)


def test_latency_is_the_same_for_the_same_request_and_attempt() -> None:
    def delays(seed: int) -> list[float]:
        settings = SimulatorSettings(seed=seed, latency=LogNormal(0.5, 4))
        planner = ReplyPlanner(settings, AUTHORS["society"])
        bodies = [json.dumps(ask(question)).encode() for question in "AAABC"]
        requests = [HttpRequest("POST", "/v1/chat/completions", "", body, False) for body in bodies]
        return [planner.plan(request).delay for request in requests]

    assert delays(0) == delays(0)
    assert delays(0) != delays(1)
    assert len(set(delays(0))) == 5


@virtual_time
async def test_latency_is_waited_for() -> None:
    async with Simulator(SimulatorSettings(latency=Constant(7))) as sim, Wire(sim) as wire:
        loop = asyncio.get_running_loop()
        started = loop.time()
        await wire.chat(ask())
        assert loop.time() - started == pytest.approx(7)


async def concurrent(sim: Simulator, count: int) -> list[Answer]:
    async def one(number: int) -> Answer:
        async with Wire(sim) as wire:
            return await wire.chat(ask(str(number)))

    return await asyncio.gather(*(one(number) for number in range(count)))


@virtual_time
async def test_beyond_capacity_requests_get_429() -> None:
    async with Simulator(SimulatorSettings(capacity=2, latency=Constant(0.5), retry_after=3)) as sim:
        answers = await concurrent(sim, 5)
        assert sorted(answer.status for answer in answers) == [200, 200, 429, 429, 429]
        refused = next(answer for answer in answers if answer.status == 429)
        assert refused.headers["retry-after"] == "3"
        assert refused.json["error"]["type"] == "rate_limit_exceeded"
        assert sim.ledger.counters.outcomes == {"served": 2, "capacity": 3}
        assert sim.ledger.counters.billed == 2


def test_capacity_and_bursts_follow_the_clock() -> None:
    schedule = (CapacityChange(10, 2), CapacityChange(20, None))
    settings = SimulatorSettings(capacity=5, capacity_schedule=schedule)
    assert [settings.capacity_at(elapsed) for elapsed in (0, 9.9, 10, 19, 20, 99)] == [5, 5, 2, 2, None, None]
    burst = Burst(period=60, length=5)
    assert [burst.covers(elapsed) for elapsed in (0, 54, 55, 59, 60, 114, 116)] == [0, 0, 1, 1, 0, 0, 1]


@pytest.mark.parametrize(
    ("settings", "outcome"),
    [
        (SimulatorSettings(capacity_schedule=(CapacityChange(0, 0),)), "capacity"),
        (SimulatorSettings(capacity=0, capacity_schedule=(CapacityChange(0, None),)), "served"),
        (SimulatorSettings(capacity_schedule=(CapacityChange(3600, 0),)), "served"),
        (SimulatorSettings(burst=Burst(3600, 3600)), "burst"),
        (SimulatorSettings(burst=Burst(3600, 1)), "served"),
    ],
)
async def test_schedules_and_bursts_are_obeyed(settings: SimulatorSettings, outcome: str) -> None:
    async with Simulator(settings) as sim, Wire(sim) as wire:
        assert (await wire.chat(ask())).status == (200 if outcome == "served" else 429)
        assert sim.ledger.counters.outcomes == {outcome: 1}


# --- the prefix cache -------------------------------------------------------------------------------------


async def test_the_prefix_cache_counts_the_longest_known_prefix() -> None:
    async with Simulator(SimulatorSettings(prefix_cache=100)) as sim, Wire(sim) as wire:
        history = [{"role": "system", "content": "S" * 400}]
        cached: list[int] = []
        for turn in range(3):
            history.append({"role": "user", "content": f"{turn}" * 400})
            usage = (await wire.chat({"messages": history})).json["usage"]
            cached.append(usage["prompt_tokens_details"]["cached_tokens"])
        per_message = len(history[0]["content"]) / 4
        assert cached[0] == 0
        assert cached[1:] == pytest.approx([2 * per_message, 3 * per_message], abs=2)
        assert sim.ledger.counters.cached_tokens == sum(cached)


async def test_the_prefix_cache_forgets() -> None:
    async with Simulator(SimulatorSettings(prefix_cache=2)) as sim, Wire(sim) as wire:
        for question in ("A", "B", "C", "A"):
            usage = (await wire.chat(ask(question))).json["usage"]
            assert usage["prompt_tokens_details"]["cached_tokens"] == 0


# --- the ledger -------------------------------------------------------------------------------------------


@virtual_time
async def test_the_ledger_agrees_with_what_the_clients_saw(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    settings = SimulatorSettings(
        faults={"500": 0.1, "429": 0.1, "lost": 0.1, "truncate": 0.1, "reset": 0.05, "malformed": 0.05},
        latency=LogNormal(0.001, 0.02),
        ledger_path=str(path),
    )
    seen: Counter[str] = Counter()
    billed_tokens = 0

    async def client(number: int) -> None:
        nonlocal billed_tokens
        for turn in range(10):
            async with Wire(sim) as wire:
                try:
                    answer = await wire.chat(ask(f"{number % 10} {turn}"), X_Session_ID=f"client-{number}")
                except asyncio.IncompleteReadError as cut:
                    seen["truncate" if cut.partial else "lost"] += 1
                except ConnectionResetError:
                    seen["reset"] += 1
                else:
                    try:
                        usage = answer.json.get("usage", {})
                    except json.JSONDecodeError:
                        seen["malformed"] += 1
                    else:
                        seen["served" if answer.status == 200 else str(answer.status)] += 1
                        billed_tokens += usage.get("total_tokens", 0)

    async with Simulator(settings) as sim:
        await asyncio.gather(*(client(number) for number in range(20)))
        async with Wire(sim) as wire:
            counters = (await wire.call("GET", "/ledger")).json
            await wire.call("POST", "/ledger/flush")
        rows = read_rows(path)

    assert counters["outcomes"] == dict(seen)
    assert counters["requests"] == len(rows) == 200
    assert (counters["in_flight"], counters["served"]) == (0, seen["served"])
    assert 1 < counters["max_in_flight"] <= 20
    assert sorted(row.seq for row in rows) == list(range(200))
    assert Counter(row.session for row in rows) == {f"client-{number}": 10 for number in range(20)}
    assert Counter(row.outcome for row in rows) == seen
    assert (
        sum(row.prompt_tokens + row.completion_tokens for row in rows if row.outcome == "served")
        == billed_tokens
    )
    billed = [row for row in rows if row.billed]
    assert {row.outcome for row in billed} == {"served", "lost", "truncate", "malformed"}
    assert counters["billed"] == len(billed)
    assert counters["billed_repeats"] == len(billed) - len({row.hash for row in billed})
    assert counters["completion_tokens"] == sum(row.completion_tokens for row in rows)
    # 20 clients asked 100 questions, each twice.
    assert Counter(row.seen for row in rows) == {0: 100, 1: 100}


@pytest.mark.parametrize("stream", [False, True])
@virtual_time
async def test_a_client_that_leaves_is_billed(tmp_path: Path, stream: bool) -> None:
    path = tmp_path / "ledger.jsonl"
    settings = SimulatorSettings(
        latency=None if stream else Constant(5), tokens_per_second=10, ledger_path=str(path)
    )
    async with Simulator(settings) as sim:
        async with Wire(sim) as wire:
            wire.send("POST", "/v1/chat/completions", json.dumps(ask(stream=stream)).encode())
            await arrived(sim)
            assert not stream or await wire.reader.read(1)
        assert await outcome_of(sim) == ("client_gone", True)
    (row,) = read_rows(path)
    assert row.status == (200 if stream else 0)
    assert row.completion_tokens > 0


@virtual_time
async def test_who_has_read_a_slow_stream_to_its_end_was_served(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    settings = SimulatorSettings(words=20, tokens_per_second=50, ledger_path=str(path))
    async with Simulator(settings) as sim, ChatModel("m", base_url=f"{sim.url}/v1") as model:
        for number in range(2):
            history = History("S")
            history.add("user", f"Question {number}")
            await model.reply(Request(history=history, watch=lambda _: None))
    assert [row.outcome for row in read_rows(path)] == ["served"] * 2


@virtual_time
async def test_what_is_in_flight_when_the_server_stops_is_in_the_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    sim = Simulator(SimulatorSettings(latency=Constant(5), ledger_path=str(path)))
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(sim)
        wire = await stack.enter_async_context(Wire(sim))
        stack.push_async_exit(sim)
        wire.send("POST", "/v1/chat/completions", json.dumps(ask()).encode())
        await arrived(sim)
    assert [row.outcome for row in read_rows(path)] == ["stopped"]


@virtual_time
async def test_reset_starts_again_and_keeps_what_is_in_flight(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    settings = SimulatorSettings(latency=Constant(3), prefix_cache=10, ledger_path=str(path))
    async with Simulator(settings) as sim, Wire(sim) as wire, Wire(sim) as other:
        await wire.chat(ask())
        wire.send("POST", "/v1/chat/completions", json.dumps(ask("in flight")).encode())
        await arrived(sim)
        await other.call("POST", "/reset")
        assert (await other.call("GET", "/ledger")).json["requests"] == 1
        await wire.receive()
        again = await wire.chat(ask())
        assert again.json["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        counters = sim.ledger.counters
        assert (counters.requests, counters.billed, counters.billed_repeats) == (2, 2, 0)
        assert (counters.in_flight, counters.outcomes) == (0, {"served": 2})
    assert [(row.seq, row.seen) for row in read_rows(path)] == [(1, 0), (2, 0)]


# --- settings, process, independence ----------------------------------------------------------------------


def test_settings_survive_json() -> None:
    settings = SimulatorSettings(
        seed=-5,
        length=Constant(9),
        latency=LogNormal(0.5, 4),
        capacity_schedule=(CapacityChange(1, 4), CapacityChange(2, None)),
        faults={"500": 0.01, "lost": 0.002},
        burst=Burst(60, 5),
    )
    assert msgspec.json.decode(msgspec.json.encode(settings), type=SimulatorSettings) == settings
    assert msgspec.json.decode(b"{}", type=SimulatorSettings) == SimulatorSettings()


@pytest.mark.parametrize(
    "text",
    [
        '{"sed":1}',
        '{"faults":{"501":0.1}}',
        '{"faults":{"500":0.7,"503":0.7}}',
        '{"faults":{"500":-0.1}}',
        '{"latency":{"kind":"lognormal","median":3,"p99":1}}',
        '{"burst":{"period":1,"length":2}}',
        '{"words":0}',
        '{"capacity_schedule":[{"at":2,"capacity":1},{"at":1,"capacity":1}]}',
    ],
)
def test_wrong_settings_are_refused(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=SimulatorSettings)


def ended(pid: int) -> bool:
    """Whether the process is gone; one that waits to be reaped by init counts."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


def call_blocking(sim: Any, body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", int(sim.url.rsplit(":", 1)[1]))) as raw:
        raw.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
            % len(data)
        )
        raw.sendall(data)
        return b"".join(iter(lambda: raw.recv(65536), b""))


def test_a_spawned_simulator_serves_counts_and_stops(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with spawn(SimulatorSettings(ledger_path=str(path))) as sim:
        assert sim.base_url == f"{sim.url}/v1"
        assert b" 200 OK" in call_blocking(sim, ask())
        assert (sim.ledger().requests, sim.ledger().served) == (1, 1)
        sim.flush()
        assert len(read_rows(path)) == 1
        sim.reset()
        assert sim.ledger().requests == 0
        call_blocking(sim, ask())
    assert ended(sim.pid)
    assert len(read_rows(path)) == 1, "rows are flushed at exit"


def test_sigterm_flushes_and_stops(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with spawn(SimulatorSettings(ledger_path=str(path))) as sim:
        call_blocking(sim, ask())
        os.kill(sim.pid, signal.SIGTERM)
        assert ended(sim.pid)
        assert len(read_rows(path)) == 1


def test_no_orphan_survives_a_killed_parent() -> None:
    script = (
        "import os, signal\n"
        "from camel.models.simulator import spawn\n"
        "with spawn() as sim:\n"
        "    print(sim.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment)
    assert done.returncode == -signal.SIGKILL
    assert ended(int(done.stdout))


def test_bad_settings_on_the_command_line_say_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["simulator", "--settings", '{"sed":1}'])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "`sed`" in capsys.readouterr().err


def test_it_shares_no_code_with_the_client_it_judges() -> None:
    imported: set[str] = set()
    for source in Path(package.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0
                imported.add(node.module or "")
            elif isinstance(node, ast.Import):
                imported.update(alias.name for alias in node.names)
    foreign = {
        name
        for name in imported
        if name.partition(".")[0] not in sys.stdlib_module_names
        and not name.startswith(("msgspec", "camel.models.simulator"))
    }
    assert not foreign


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_call_costs_little_cpu() -> None:
    calls, width = 256, 32
    roles = ["system", *["user", "assistant"] * 9, "user"]
    texts = [ASSISTANT * 15, *["A turn of some sixty words, give or take a few. " * 7] * 19]
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
    with spawn() as sim, contextlib.ExitStack() as stack:
        port = int(sim.url.rsplit(":", 1)[1])
        raw = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(width)]
        for stream in (False, True):
            before = cpu_seconds(sim.pid)
            for first in range(0, calls, width):
                for number, connection in enumerate(raw, first):
                    body = json.dumps({"messages": messages, "seed": number, "stream": stream}).encode()
                    head = b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
                    connection.sendall(head + body)
                for connection in raw:
                    answer = connection.recv(1 << 20)
                    while not answer.endswith(b"0\r\n\r\n" if stream else b"}"):
                        answer += connection.recv(1 << 20)
            spent = (cpu_seconds(sim.pid) - before) / calls
            assert spent < 0.01, "two orders of magnitude off"
        assert sim.ledger().served == 2 * calls
