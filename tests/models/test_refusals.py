"""What an endpoint refuses is left out, or sent by its other name, from the second call on; each call is paid for once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from msgspec.structs import replace

from camel.core.errors import RequestRejected
from camel.core.history import History
from camel.core.message import Sampling
from camel.core.model import Request
from camel.models.chat import ChatModel

OPENAI = {
    "temperature": (
        "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported.",
        "unsupported_value",
    ),
    "max_tokens": (
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        "unsupported_parameter",
    ),
    "stop": ("Unsupported parameter: 'stop' is not supported with this model.", "unsupported_parameter"),
}
OTHERS = {
    "seed": ('Invalid JSON payload received. Unknown name "seed": Cannot find field.', "INVALID_ARGUMENT"),
    "presence_penalty": ("`presence_penalty` is deprecated for this model", "invalid_request_error"),
}


class Picky:
    """An endpoint that refuses fields, in the words given for each."""

    def __init__(self, refused: dict[str, tuple[str, str]]) -> None:
        self.refused = refused
        self.bodies: list[dict[str, Any]] = []

    async def answer(self, request: web.Request) -> web.Response:
        body: dict[str, Any] = await request.json()
        self.bodies.append(body)
        for name, (message, code) in self.refused.items():
            if name in body:
                error = {"message": message, "type": "invalid_request_error", "param": name, "code": code}
                return web.json_response({"error": error}, status=400)
        choice = {"index": 0, "message": {"content": "Solution: 1"}, "finish_reason": "stop"}
        return web.json_response({"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 3}})


@pytest_asyncio.fixture
async def serve() -> AsyncIterator[Any]:
    runners: list[web.AppRunner] = []

    async def start(picky: Picky) -> str:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", picky.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        runners.append(runner)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/v1"  # type: ignore[union-attr]

    yield start
    for runner in runners:
        await runner.cleanup()


def asked(sampling: Sampling) -> Request:
    history = History()
    history.add("user", "What is 1?")
    return Request(history, sampling)


SAMPLING = Sampling(temperature=0.2, max_tokens=50, seed=3, stop=("END",), presence_penalty=0.1, top_p=0.9)


@pytest.mark.parametrize("words", [OPENAI, OTHERS], ids=["openai", "others"])
async def test_a_refused_field_goes_and_the_rest_stays(words: dict[str, tuple[str, str]], serve: Any):
    picky = Picky(words)
    async with ChatModel("thinker", base_url=await serve(picky), api_key="") as model:
        for _ in range(3):
            assert (await model.reply(asked(SAMPLING))).content == "Solution: 1"
        assert len(picky.bodies) == 3 + len(words), "each field is refused once"
        sent = picky.bodies[-1]
        assert not words.keys() & sent.keys()
        wanted = {"temperature": 0.2, "seed": 3, "stop": ["END"], "presence_penalty": 0.1, "top_p": 0.9}
        assert {name: value for name, value in wanted.items() if name not in words}.items() <= sent.items()
        assert sent["max_completion_tokens" if "max_tokens" in words else "max_tokens"] == 50
        assert len(model.wire.adjustments) == len(words)
        assert all(any(name in line for line in model.wire.adjustments) for name in words)


@pytest.mark.parametrize(
    "message",
    [
        "This response_format type is unavailable now",
        "Invalid schema for response_format 'result': In context=(), 'required' is required to be supplied",
        "Unsupported parameter: 'response_format' is not supported with this model.",
    ],
)
async def test_a_refused_schema_is_left_out(message: str, serve: Any):
    picky = Picky({"response_format": (message, "invalid_request_error")})
    request = replace(asked(SAMPLING), expects="result", schema={"type": "object"})
    async with ChatModel("thinker", base_url=await serve(picky), api_key="") as model:
        replies = [await model.reply(request) for _ in range(3)]
    assert [reply.guided for reply in replies] == [""] * 3
    assert ["response_format" in body for body in picky.bodies] == [True, False, False, False]
    assert all(body["temperature"] == 0.2 for body in picky.bodies)


async def test_many_calls_at_once_learn_the_same(serve: Any):
    picky = Picky({"temperature": OPENAI["temperature"]})
    async with ChatModel("thinker", base_url=await serve(picky), api_key="") as model:
        replies = await asyncio.gather(*(model.reply(asked(SAMPLING)) for _ in range(20)))
    assert {reply.content for reply in replies} == {"Solution: 1"}
    assert sum("temperature" in body for body in picky.bodies) <= 20
    assert len(model.wire.adjustments) == 1


@pytest.mark.parametrize(
    "message",
    [
        "The model `thinker` is not supported in this region.",
        "max_tokens is too large: 50. This model supports at most 40 completion tokens.",
        "Unsupported parameter: 'tools' is not supported with this model.",
        "temperature must be between 0 and 1",
    ],
)
async def test_a_refusal_of_something_else_stays_one(message: str, serve: Any):
    picky = Picky({"messages": (message, "invalid_request_error")})
    async with ChatModel("thinker", base_url=await serve(picky), api_key="") as model:
        with pytest.raises(RequestRejected):
            await model.reply(asked(SAMPLING))
        assert model.wire.adjustments == []
    assert len(picky.bodies) == 1


async def test_an_endpoint_that_says_the_same_again_is_believed_once(serve: Any):
    picky = Picky({"messages": OPENAI["temperature"]})
    async with ChatModel("thinker", base_url=await serve(picky), api_key="") as model:
        with pytest.raises(RequestRejected):
            await model.reply(asked(SAMPLING))
    assert len(picky.bodies) == 2
