"""An HTTP endpoint in front of the simulator that misbehaves on request and keeps an account of its own."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import aiohttp
from aiohttp import web

from camel.models.simulator import Simulator, SimulatorProcess, SimulatorSettings
from tests.support.endpoints import _THREAD, serve


@dataclass
class Answer:
    """What to say instead of a reply."""

    status: int
    body: Any = ""
    headers: dict[str, str] = field(default_factory=dict[str, str])


Mood = Callable[[dict[str, Any], int], "Answer | Callable[[Any], Any] | Literal['hang up'] | None"]
"""Decides by the request and how many came before it: None is served, a function changes the reply that is served."""


class Moody:
    """The endpoint as a test sees it."""

    def __init__(self, url: str, simulator: SimulatorProcess) -> None:
        self.base_url, self.simulator = url, simulator
        self.mood: Mood = lambda body, count: None
        self.requests: list[dict[str, Any]] = []
        self.served: list[str] = []
        """The bodies that were answered with a reply, as text."""

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[None]:
        """Serve on this event loop."""

        async def answer(request: web.Request) -> web.StreamResponse:
            return await self.answer(request)  # which a test may replace

        app = web.Application()
        app.router.add_post("/v1/chat/completions", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        try:
            yield
        finally:
            await runner.cleanup()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = json.loads(raw)
        self.requests.append(body)
        mood = self.mood(body, len(self.requests) - 1)
        if mood == "hang up":
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        if isinstance(mood, Answer):
            said = mood.body if isinstance(mood.body, str) else json.dumps(mood.body)
            return web.Response(status=mood.status, text=said, headers=mood.headers)
        async with (
            aiohttp.ClientSession() as client,
            client.post(f"{self.simulator.base_url}/chat/completions", data=raw) as response,
        ):
            reply = await response.json()
        if mood is not None:
            reply = mood(reply)
        self.served.append(raw.decode())
        return web.json_response(reply)


@asynccontextmanager
async def moody_here(settings: SimulatorSettings | None = None) -> AsyncGenerator[Moody]:
    """An endpoint on this event loop, for tests on a virtual clock."""
    async with Simulator(settings) as simulator:
        endpoint = Moody("", SimulatorProcess(simulator.url, simulator.base_url, os.getpid()))
        async with endpoint.listening():
            yield endpoint


@contextmanager
def moody(settings: SimulatorSettings | None = None) -> Generator[Moody]:
    """An endpoint for the length of a `with` block."""
    with serve(settings) as simulator, _THREAD.used() as loop:
        endpoint = Moody("", simulator)
        listening = endpoint.listening()
        asyncio.run_coroutine_threadsafe(listening.__aenter__(), loop).result()
        try:
            yield endpoint
        finally:
            asyncio.run_coroutine_threadsafe(listening.__aexit__(None, None, None), loop).result()
