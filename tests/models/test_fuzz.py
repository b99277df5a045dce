"""Broken bodies by the thousand: whatever comes, the outcome is a well-formed `Reply` or a `ModelError`, and soon.

Every body is made from its number alone, so that a failure names the one to look at: `_body(random.Random(number))`.
"""

from __future__ import annotations

import gc
import json
import math
import random
import time
from collections.abc import Callable
from email.utils import format_datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camel.core.errors import ModelError
from camel.core.history import History
from camel.core.message import well_formed
from camel.core.model import Reply, Request
from camel.models import completions, wire
from camel.models.chat import ChatModel
from tests.support.hostile import completion, delta, encoded, events, http, serving
from tests.support.virtual_time import virtual_time

BODIES, BLOCKS, OVER_A_SOCKET = 10_000, 10, 120

TOKENS = {"content": [{"token": "é", "logprob": -0.25, "bytes": [195, 169], "top_logprobs": []}]}
TWO = [
    completion("a")["choices"][0] | {"logprobs": TOKENS},
    completion("b", "length")["choices"][0] | {"index": 1},
]
COST = {
    "choices": [],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}},
}
WHOLE = [
    encoded(completion()),
    json.dumps(completion("é漢🦙 \ud83e\udd99 “x”\n\t", "length"), ensure_ascii=False).encode(
        "utf-8", "replace"
    ),
    encoded(completion(choices=TWO)),
    encoded(completion(None, "tool_calls")),
    encoded(completion([{"type": "text", "text": "part"}])),
    encoded(completion(choices=[{"message": {"content": None, "refusal": "No."}}])),
    encoded({"error": {"message": "This model's maximum context length is 5.", "type": "x", "code": 400}}),
    encoded({"error": {"message": "slow", "code": "rate_limit_exceeded"}}),
    encoded({"detail": [{"loc": ["body", 0], "msg": "bad"}]}),
    b"<html><body>Bad gateway</body></html>",
]
STREAMS = [
    events(delta("Solution: "), delta("é漢🦙"), delta(finish="stop"), COST),
    events(delta("a", index=1), delta("b"), delta(finish="stop"), delta(finish="stop", index=1), end=b"\r\n"),
    b": hi\n\nevent: x\n"
    + events({"choices": [{"delta": {"refusal": "No"}, "logprobs": TOKENS}]}, delta(finish="stop")),
    events(delta("half"), {"error": {"message": "gone", "code": 503}}),
]
ODD: list[Callable[[], Any]] = [
    lambda: None, lambda: True, lambda: False, lambda: 0, lambda: -1, lambda: 10**30, lambda: 2**64, lambda: -(2**63) - 1,
    lambda: 1e308, lambda: math.nan, lambda: math.inf, lambda: 0.5, lambda: "", lambda: "\ud800", lambda: "x" * 5000,
    lambda: "null", lambda: [], lambda: {}, lambda: [None], lambda: [[[]]], lambda: {"error": {}}, lambda: {"\udfff": "\udfff"},
    lambda: [{"text": "p"}], lambda: {"content": "c"}, lambda: "stop", lambda: "401", lambda: 429, lambda: completion(),
]  # fmt: skip
CRUMBS = [
    b"\\ud800", b"\xff", b"\xc3", b"\x00", b"NaN", b"1e999", b"-", b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\n",
    b"\r\n", b"data:", b"data: [DONE]\n", b"9" * 400, b"9" * 5000, b"null", b'"error":', b'"choices":[],', b"[" * 1500, b'{"a":' * 1500,
]  # fmt: skip


def _spots(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value inside `data`."""
    inside = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    if len(path) > 50:
        raise RecursionError
    return [path, *(spot for key, value in inside for spot in _spots(value, (*path, key)))]


def _swapped(rng: random.Random, raw: bytes) -> bytes:
    """One value of a JSON text replaced by another, or doubled, or dropped."""
    try:
        data = json.loads(raw)
        spots = _spots(data)[1:]
    except (ValueError, RecursionError):  # broken, or too deep for us
        return raw
    path = rng.choice(spots or [()])
    if not path:
        return json.dumps(rng.choice(ODD)()).encode()
    holder = data
    for key in path[:-1]:
        holder = holder[key]
    action = rng.randrange(5)
    if action == 0:
        del holder[path[-1]]
    elif action == 1 and isinstance(holder, dict):  # the same key twice
        holder["DOUBLE"] = rng.choice(ODD)()
        return json.dumps(data).replace('"DOUBLE"', json.dumps(path[-1])).encode()
    else:
        holder[path[-1]] = rng.choice(ODD)()
    return json.dumps(data).encode()


def _deepened(rng: random.Random, raw: bytes) -> bytes:
    """One value wrapped in many lists or objects."""
    depth = rng.choice((5, 90, 400, 900, 2_000, 100_000))
    spot = raw.find(b":", rng.randrange(max(1, len(raw)))) + 1
    opened, closed = rng.choice(((b"[", b"]"), (b'{"a":', b"}")))
    return raw[:spot] + opened * depth + b"1" + closed * depth + b"," + raw[spot:]


def _mutated(rng: random.Random, raw: bytes) -> bytes:
    match rng.randrange(8):
        case 0:  # bits flipped
            data = bytearray(raw)
            for _ in range(rng.randint(1, 6)):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            return bytes(data)
        case 1:  # cut
            return raw[: rng.randrange(len(raw))]
        case 2:  # a piece missing
            start = rng.randrange(len(raw))
            return raw[:start] + raw[start + rng.randint(1, 30) :]
        case 3:  # spliced with another
            other = rng.choice(WHOLE + STREAMS)
            return raw[: rng.randrange(len(raw))] + other[rng.randrange(len(other)) :]
        case 4 | 5:  # a crumb put in
            spot = rng.randrange(len(raw))
            return raw[:spot] + rng.choice(CRUMBS) + raw[spot:]
        case 6:
            return _deepened(rng, raw)
        case _:
            return bytes(rng.randbytes(rng.randint(0, 300)))


def _body(rng: random.Random) -> bytes:
    """A plain body, broken in one to three ways."""
    raw = rng.choice(WHOLE)
    for _ in range(rng.randint(1, 3)):
        raw = (_swapped if rng.random() < 0.6 else _mutated)(rng, raw or b"{}")
    return raw


def _stream(rng: random.Random) -> bytes:
    """A stream, broken in its lines or as a whole."""
    lines = rng.choice(STREAMS).split(b"\n")
    for _ in range(rng.randint(1, 3)):
        spot = rng.randrange(len(lines))
        if lines[spot].startswith(b"data: {") and rng.random() < 0.7:
            lines[spot] = b"data: " + _swapped(rng, lines[spot][6:])
        elif rng.random() < 0.5:
            lines[spot], lines[-1] = lines[-1], lines[spot]
        else:
            lines = _mutated(rng, b"\n".join(lines) or b"\n").split(b"\n")
    return b"\n".join(lines)


def _pieces(rng: random.Random, raw: bytes) -> list[bytes]:
    cuts = sorted(rng.randrange(len(raw) + 1) for _ in range(rng.randrange(6)))
    return [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]


def _read_stream(pieces: list[bytes]) -> tuple[str, Reply]:
    streamed = completions.StreamedReply()
    said = [text for piece in [*pieces, b"\n"] for text in streamed.feed(piece)]
    return "".join(said), streamed.finished()


def _check_reply(reply: object) -> None:
    assert isinstance(reply, Reply)
    assert reply.choices
    for choice in reply.choices:
        choice.content.encode()
        assert choice.finish in ("stop", "length", "content_filter", "refusal", "other")
    assert 0 <= reply.usage.cached <= reply.usage.prompt < 10**9
    assert 0 <= reply.usage.completion < 10**9
    assert reply.usage.calls == 1
    assert msgspec.json.decode(msgspec.json.encode(reply), type=Reply) == reply


def _check_error(error: object) -> None:
    assert isinstance(error, ModelError)
    assert str(error)
    assert str(error).isprintable()
    assert len(str(error)) <= 600


def _outcome(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except ModelError as error:
        return error


def _check_one(number: int) -> type[Any]:
    """Put body and stream `number` through all three readers; the type of what the body came to."""
    rng = random.Random(number)
    body, stream = _body(rng), _stream(rng)
    whole = _outcome(lambda: completions.read_reply(body))
    streamed = _outcome(lambda: _read_stream(_pieces(rng, stream)))
    failed = wire.failure(
        rng.choice((400, 401, 403, 404, 413, 429, 500, 503, 302, 101)), body, {"Retry-After": "3"}
    )
    _check_error(failed)
    for outcome in (whole, streamed):
        if isinstance(outcome, ModelError):
            _check_error(outcome)
        elif isinstance(outcome, tuple):
            said, reply = outcome
            _check_reply(reply)
            assert said in ("", reply.content)
        else:
            _check_reply(outcome)
    return type(whole)


@pytest.mark.parametrize(
    "block", [0, 1, *(pytest.param(block, marks=pytest.mark.thorough) for block in range(2, BLOCKS))]
)
def test_broken_bodies(block: int) -> None:
    size = BODIES // BLOCKS
    kinds: set[str] = set()
    gc.collect()
    gc.freeze()  # a collection over what other tests have left takes a second
    for number in range(block * size, (block + 1) * size):
        started = time.process_time()
        try:
            kinds.add(_check_one(number).__name__)
        except BaseException as error:
            raise AssertionError(f"body {number} breaks the reader: {error!r}") from error
        assert time.process_time() - started < 1, f"body {number} is slow to read"
    gc.unfreeze()
    # The fuzz means something only while some bodies can still be read and others cannot, each in its own way.
    assert kinds >= {"Reply", "MalformedReply", "ServerFailed"}


@virtual_time
async def test_broken_bodies_through_the_client() -> None:
    """The same over a socket, half of them with a stream asked for, some with the head of the answer broken too."""
    answers: list[Any] = []
    for number in range(OVER_A_SOCKET):
        rng = random.Random(-1 - number)
        kind = rng.choice(("application/json", "text/event-stream", "text/plain"))
        raw = _stream(rng) if rng.random() < 0.5 else _body(rng)
        sent = http(
            rng.choice((200, 200, 200, 201, 400, 429, 500)), raw, f"Content-Type: {kind}", "Retry-After: 9"
        )
        if number % 4 == 0:
            head, _, rest = sent.partition(b"\r\n\r\n")
            sent = _mutated(rng, head + b"\r\n\r\n") + rest
        answers.append((sent,))
    replies = 0
    async with (
        serving(*answers) as server,
        ChatModel("m", base_url=server.url, deadline=2, max_attempts=1) as model,
    ):
        history = History("Be brief.")
        for number in range(OVER_A_SOCKET):
            started = time.process_time()
            try:
                outcome: object = await model.reply(
                    Request(history, watch=(lambda _: None) if number % 2 else None)
                )
                _check_reply(outcome)
                replies += 1
            except ModelError as error:
                _check_error(error)
            except BaseException as error:
                raise AssertionError(f"answer {number} breaks the client: {error!r}") from error
            assert time.process_time() - started < 1, f"answer {number} is slow to take"
            await model.aclose()  # a connection for each call, so that call and answer have the same number
        assert server.requests == OVER_A_SOCKET
    assert 0 < replies < OVER_A_SOCKET


ANY_TEXT = st.text(st.characters())


@given(ANY_TEXT, st.booleans(), st.sampled_from(("stop", "length", "content_filter")))
def test_a_completion_reads_back_to_its_own_content(text: str, ascii_only: bool, finish: str) -> None:
    raw = json.dumps(completion(text, finish), ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    reply = completions.read_reply(raw)
    _check_reply(reply)
    if ascii_only or well_formed(text) == text:
        assert reply.content == well_formed(text)
    assert reply.choices[0].finish == finish


@given(
    st.lists(st.tuples(st.integers(0, 2), ANY_TEXT), max_size=8),
    st.lists(st.integers(0, 3_000), max_size=8),
    st.booleans(),
)
def test_a_stream_says_the_same_however_it_is_cut(
    said: list[tuple[int, str]], cuts: list[int], ascii_only: bool
) -> None:
    chunks = [delta(text, index=index) for index, text in said] + [
        delta(finish="stop", index=i) for i in range(3)
    ]
    payloads = [
        json.dumps(chunk, ensure_ascii=ascii_only).encode(
            "utf-8", "replace" if ascii_only else "surrogatepass"
        )
        for chunk in chunks
    ]
    raw = events(*payloads, end=b"\r\n")
    ends = sorted({min(cut, len(raw)) for cut in cuts} | {len(raw)})
    pieces = [raw[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    whole, in_pieces = _read_stream([raw]), _read_stream(pieces)
    assert whole == in_pieces
    _check_reply(whole[1])
    assert whole[0] == whole[1].content
    if ascii_only:
        for index in range(3):
            expected = "".join(well_formed(text) for at, text in said if at == index)
            assert whole[1].choices[index].content == expected


FEW, MANY = st.integers(0, 99), st.integers(0, 10**9)
WAITS = st.one_of(
    st.text(), st.floats().map(str), st.integers().map(str), st.datetimes().map(format_datetime),
    st.builds(
        "{}, {} {} {} {}:{}:{} {}".format, st.sampled_from(["Mon", "Xyz"]), FEW, st.sampled_from(["Jan", "Dec", "Foo"]), MANY, FEW, FEW, FEW,
        st.just("GMT") | MANY.map("{:+}".format),
    ),
)  # fmt: skip


@settings(max_examples=150)
@given(WAITS, st.none() | WAITS, st.floats(0, 4e9))
def test_the_wait_asked_for_is_a_sensible_number_or_none(value: str, ms: str | None, now: float) -> None:
    wait = wire.retry_after({"Retry-After": value} | ({} if ms is None else {"retry-after-ms": ms}), now)
    assert wait is None or (wait >= 0 and math.isfinite(wait))


@given(
    st.integers(100, 999),
    st.binary(max_size=200) | ANY_TEXT.map(lambda text: encoded({"error": {"message": text}})),
)
def test_every_failure_is_one_printable_line(status: int, body: bytes) -> None:
    failed = wire.failure(status, body, {})
    _check_error(failed)
    assert failed.status == status
