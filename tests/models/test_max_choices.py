"""A server that refuses more answers a call than it has slots, as llama.cpp does: it is never asked for more."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from aiohttp import web

from camel.core.critic import BestOf, FunctionJudge
from camel.core.errors import InputError
from camel.core.role_playing import RolePlaying
from camel.core.stops import paper_rules
from camel.core.transcript import Transcript
from camel.models import local
from camel.models.chat import ChatModel
from tests.support.hostile import completion

SLOTS = 2


def test_the_local_model_is_never_asked_for_more_answers_than_it_has_slots(monkeypatch: pytest.MonkeyPatch):
    asked: list[int] = []

    async def answer(request: web.Request) -> web.Response:
        n = (await request.json()).get("n", 1)
        asked.append(n)
        if n > SLOTS:
            text = f"Field 'n': Value must be between 1 <= value <= {SLOTS}, but got {n}"
            return web.json_response({"error": {"code": 400, "message": text}}, status=400)
        body: dict[str, Any] = completion("Solution: Yes. Next request.")
        (choice,) = body["choices"]
        return web.json_response({**body, "choices": [{**choice, "index": place} for place in range(n)]})

    async def talk() -> Transcript:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            port = runner.addresses[0][1]

            @contextmanager
            def running(*_: object) -> Generator[local.Running]:
                yield local.Running(f"http://127.0.0.1:{port}/v1", "m", 4096, 0)

            monkeypatch.setattr(local, "running", running)
            with local.local_model(local.LocalServer(parallel=SLOTS)) as chat:
                async with chat:
                    critic = BestOf(judge=FunctionJudge(lambda case: 0), proposals=3)
                    return await RolePlaying(
                        assistant="A",
                        user="U",
                        task="T",
                        model=chat,
                        critic=critic,
                        user_critic=critic,
                        specifier=None,
                        rules=paper_rules(max_messages=2),
                    ).finish()
        finally:
            await runner.cleanup()

    transcript = asyncio.run(talk())
    assert [len(m.deliberation.proposals) for m in transcript.messages if m.deliberation] == [3, 3]
    assert asked == [2, 1, 2, 1]


@pytest.mark.parametrize("wrong", [0, 1.5])
def test_a_limit_that_is_none(wrong: Any):
    with pytest.raises(InputError, match="max_choices"):
        ChatModel("m", base_url="http://127.0.0.1:9/v1", max_choices=wrong)
