"""Batch APIs: what is sent, what comes back, and what a hostile or broken provider can do. In both shapes."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from typing import Any, cast

import pytest

from camel import ChatModel, InputError
from camel.core.errors import (
    ContextOverflow,
    MalformedReply,
    ModelError,
    NotAuthorized,
    ReplyTooLarge,
    RequestRejected,
    ServerFailed,
    Unreachable,
)
from camel.core.message import Usage
from camel.core.model import Reply
from camel.models import batch_api as module
from camel.models.batch_api import BatchApi, MessageBatches, ProviderBatch, batch_api
from camel.models.chat import WIRES
from camel.models.prices import ModelPrice
from camel.models.spec import ModelSpec
from tests.support.batch_server import BatchServer, MessagesWire, serve_batches

KEY = "sk-secret-0123456789"
LINES = {
    f"id-{i}": json.dumps({"messages": [{"role": "user", "content": f"{i}?"}]}).encode() for i in range(5)
}
SHAPES = pytest.mark.parametrize("messages", [False, True], ids=["files", "messages"])


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with serve_batches() as server:
        yield server


def api_of(server: BatchServer, messages: bool, patch: pytest.MonkeyPatch) -> tuple[BatchApi, ChatModel]:
    if messages:
        patch.setitem(cast("Any", WIRES), "completions", MessagesWire)
    client = ChatModel("m", base_url=server.url, api_key=KEY)
    api = batch_api(client)
    assert isinstance(api, MessageBatches) == messages
    return api, client


async def submitted(api: BatchApi, key: str = "key") -> str:
    return await api.create(LINES, await api.upload(LINES), key)


@SHAPES
async def test_a_batch_from_its_submission_to_its_results(
    server: BatchServer, messages: bool, monkeypatch: pytest.MonkeyPatch
):
    server.fails = lambda id, times: {
        "id-1": (400, "This model's maximum context length is 8 tokens"),
        "id-2": (500, "overloaded"),
    }.get(id)
    api, client = api_of(server, messages, monkeypatch)
    id = await submitted(api)
    looked = await api.look(id)
    assert (looked.ended, looked.done) == (False, 0)
    looked = await api.look(id)
    assert (looked.ended, looked.done, looked.refused) == (True, 5, "")
    found = {id: outcome async for id, outcome in api.results(looked)}
    assert found.keys() == LINES.keys()
    assert isinstance(found["id-1"], ContextOverflow)
    assert isinstance(found["id-2"], ServerFailed)
    reply = found["id-0"]
    assert isinstance(reply, Reply)
    assert reply.content == "Answer to 0?"
    assert reply.usage == Usage(1, 4, 0, 1)
    await client.aclose()


@SHAPES
async def test_a_submission_is_found_by_its_key_or_its_requests(
    server: BatchServer, messages: bool, monkeypatch: pytest.MonkeyPatch
):
    server.looks = 100
    api, client = api_of(server, messages, monkeypatch)
    others = {f"other-{i}": body for i, body in enumerate(LINES.values())}
    id = await submitted(api, "key-0")
    for i in range(6):
        await api.create(others, await api.upload(others), f"other-{i}")
    now = server.batches[0].made.timestamp()
    if messages:
        # Results tell whose it is, and there are none before the batch has ended.
        assert await api.find("key-0", now, tuple(LINES)) is None
        server.looks = 0
    assert await api.find("key-0", now, tuple(LINES)) == id
    assert await api.find("another", now, ("elsewhere",) * 4) == ""
    # Those from long before were not submitted by whom is asked about.
    assert await api.find("key-0", now + 2 * module.CLOCKS, tuple(LINES)) == ""
    await client.aclose()


async def test_a_refused_batch_says_why(server: BatchServer, monkeypatch: pytest.MonkeyPatch):
    server.refuses, server.looks = {0}, 0
    api, client = api_of(server, False, monkeypatch)
    looked = await api.look(await submitted(api))
    assert looked.ended
    assert "Enqueued token limit reached" in looked.refused
    assert not looked.results
    await client.aclose()


async def test_an_id_from_a_file_leads_to_no_other_path(server: BatchServer, monkeypatch: pytest.MonkeyPatch):
    api, client = api_of(server, False, monkeypatch)
    with pytest.raises(RequestRejected):
        await api.look("../files/x")
    assert server.raw_paths[-1] == "/v1/batches/..%2Ffiles%2Fx"
    await client.aclose()


class Told(ChatModel):
    """A client whose endpoint answers what a test says, in pieces."""

    answers: dict[str, list[bytes]]

    async def exchange(self, method: str, path: str, data: Any = None) -> AsyncGenerator[bytes]:
        for piece in self.answers[path]:
            yield piece


def told(**answers: Any) -> BatchApi:
    chat = Told("m", base_url="http://127.0.0.1:9/v1", api_key="")
    chat.answers = {f"/{name.replace('__', '/')}": value for name, value in answers.items()}
    return BatchApi(chat)


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b"{}", b'{"id":"../files/x"}', b'{"id":"a b"}', b'{"id":"x","status":3}', b"\xff"],
)
async def test_an_answer_that_is_no_batch_is_malformed(body: bytes):
    with pytest.raises(MalformedReply):
        await told(batches__x=[body]).look("x")


async def test_an_id_from_an_answer_leads_to_no_other_path():
    body = b'{"id":"x","status":"completed","output_file_id":"../../elsewhere"}'
    with pytest.raises(MalformedReply):
        await told(batches__x=[body]).look("x")


async def test_lines_that_cannot_be_read_are_passed_over():
    good = {
        "custom_id": "b",
        "response": {"status_code": 200, "body": {"choices": [{"message": {"content": "hi"}}]}},
    }
    lines = [b"garbage", b"", b"[1]", b"null", b'{"custom_id":3}', b"{" * 3000, json.dumps(good).encode()]
    text = b"\n".join(lines)
    pieces = [text[at : at + 7] for at in range(0, len(text), 7)]
    api = told(results=pieces)
    found = [one async for one in api.results(ProviderBatch("x", results=("/results",)))]
    assert [(id, cast("Reply", outcome).content) for id, outcome in found] == [("b", "hi")]


async def test_a_line_without_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_MOST_LINE", 1000)
    api = told(results=[b"x" * 600, b"x" * 600])
    with pytest.raises(ReplyTooLarge):
        _ = [one async for one in api.results(ProviderBatch("x", results=("/results",)))]


@pytest.mark.parametrize(
    ("status", "kind"),
    [("401", NotAuthorized), ("404", RequestRejected), ("503", ServerFailed), ("lose", Unreachable)],
)
async def test_every_failure_of_a_call_is_typed(
    server: BatchServer, status: str, kind: type[ModelError], monkeypatch: pytest.MonkeyPatch
):
    api, client = api_of(server, False, monkeypatch)
    server.breaks["POST /files"] = [status]
    with pytest.raises(kind):
        await api.upload(LINES)
    await client.aclose()


async def test_no_error_has_the_key_in_it(server: BatchServer, monkeypatch: pytest.MonkeyPatch):
    api, client = api_of(server, False, monkeypatch)
    server.says = f"wrong key {KEY}"
    server.breaks["POST /files"] = ["401"]
    with pytest.raises(NotAuthorized) as failed:
        await api.upload(LINES)
    assert "wrong key" in str(failed.value)
    assert KEY not in str(failed.value)
    assert server.headers["Authorization"] == f"Bearer {KEY}"
    await client.aclose()


def test_a_batch_costs_a_share():
    price = ModelPrice(input=2.0, output=8.0, cached=0.5)
    used = Usage(1_000_000, 1_000_000, 400_000, 1)
    spec = ModelSpec("m", "http://127.0.0.1:9/v1", price=price)
    direct, batched = spec.cost(), ModelSpec("m", "http://127.0.0.1:9/v1", price=price, batch=True).cost()
    assert direct
    assert batched
    assert direct.cost(used) == pytest.approx(9.4)
    assert batched.cost(used) == pytest.approx(4.7)
    assert ModelPrice(input=2.0, output=8.0).batched() == ModelPrice(input=1.0, output=4.0)
    third = ModelPrice(input=2.0, output=8.0, batch=0.25).batched()
    assert (third.input, third.output, third.cached) == (0.5, 2.0, None)


def test_several_endpoints_have_no_batches():
    spec = ModelSpec("m", ("http://127.0.0.1:9/v1", "http://127.0.0.1:10/v1"), batch=True)
    with pytest.raises(InputError, match="one base_url"):
        spec.open()
