"""A public server with many visitors, some of them hostile: the others are answered in time, and no limit is exceeded."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest

from camel.models.simulator import Constant, SimulatorProcess, SimulatorSettings, spawn
from tests.support.explorer_client import form_token
from tests.support.societies import society

pytestmark = pytest.mark.slow
PAGES = (
    "/",
    "/list",
    "/statistics",
    "/list?q=oasis",
    "/reports",
    "/list?sort=messages",
    "/random",
    "/play",
    "/contrast",
)
BUDGET = 40_000
IN_FLIGHT = 4 * 2_000
"""Tokens of the calls that may be in flight when the budget is used up: four conversations, with a message each."""


@dataclass
class Seen:
    """What the visitors saw."""

    seconds: list[float] = field(default_factory=list[float])
    """How long each page of a friendly visitor took."""
    wrong: list[str] = field(default_factory=list[str])
    refused: int = 0
    """Number of pages that hostile visitors did not get."""
    rooms: dict[str, int] = field(default_factory=dict[str, int])
    """Conversations by their path, and who started them."""


@pytest.fixture
def endpoint() -> Iterator[SimulatorProcess]:
    with spawn(SimulatorSettings(length=Constant(20))) as process:
        yield process


@contextlib.contextmanager
def public_server(folder: Path, endpoint: SimulatorProcess) -> Iterator[str]:
    society(folder / "caravan", rows=200)
    command = [sys.executable, "-m", "camel", "agents", str(folder / "caravan"), "--out", str(folder / "agents"), "--public", "--no-open",
               "--port", "0", "--model", "simulated", "--base-url", endpoint.base_url, "--budget-tokens", str(BUDGET)]  # fmt: skip
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"OPENAI_API_KEY": "none"}
    ) as server:
        try:
            assert server.stdout is not None
            line = next(line for line in server.stdout if " at http" in line)
            yield re.sub(r".* at (http://[^/]+).*", r"\1", line.strip())
        finally:
            server.terminate()


async def friendly(number: int, base: str, seen: Seen, until: float, every: float) -> None:
    chance = random.Random(number)
    headers = {"x-forwarded-for": f"198.51.100.{number}"}
    async with aiohttp.ClientSession(base, headers=headers) as browser:
        await asyncio.sleep(chance.random() * every)
        starts = number % 4 == 0
        while time.monotonic() < until:
            begun = time.monotonic()
            path = "/play" if starts else chance.choice(PAGES)
            async with browser.get(path) as answer:
                text = await answer.text()
            seen.seconds.append(time.monotonic() - begun)
            if answer.status != 200:
                seen.wrong.append(f"{path}: {answer.status}")
            if starts:
                starts = False
                form = {
                    "token": form_token(text),
                    "assistant": "Chef",
                    "user": "Guest",
                    "task": f"Soup {number}",
                    "messages": "6",
                }
                async with browser.post("/play", data=form, allow_redirects=False) as answer:
                    if answer.status == 303:
                        seen.rooms[answer.headers["location"]] = number
            others = [room for room, owner in seen.rooms.items() if owner != number]
            if others:
                async with browser.get(chance.choice(others)) as answer:
                    if answer.status != 404:
                        seen.wrong.append(f"another visitor's conversation: {answer.status}")
            await asyncio.sleep(max(0.0, every - (time.monotonic() - begun)))


async def hostile(number: int, base: str, seen: Seen, until: float) -> None:
    chance = random.Random(-number)
    headers = {"x-forwarded-for": f"203.0.113.{number}"}
    deep = "(" * 5_000
    async with aiohttp.ClientSession(base, headers=headers, timeout=aiohttp.ClientTimeout(30)) as browser:
        while time.monotonic() < until:
            kind = chance.randrange(7)
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, StopIteration):
                if kind == 0:  # a flood
                    answers = [browser.get(chance.choice(PAGES)) for _ in range(50)]
                elif kind == 1:
                    answers = [browser.get("/list", params={"where": deep})]
                elif kind == 2:
                    answers = [browser.get("/list", params={"q": "a* " * 1_000})]
                elif kind == 3:
                    answers = [browser.post("/play", data=b"x" * 3_000_000)]
                elif kind == 4:
                    answers = [browser.get(next(iter(seen.rooms)) + "/events") for _ in range(20)]
                elif kind == 5:
                    answers = [
                        browser.post("/play", data={"task": "Soup", "token": "0" * 64}) for _ in range(20)
                    ]
                else:
                    answers = [browser.get("/download/conversations.jsonl") for _ in range(5)]
                for answer in await asyncio.gather(*answers, return_exceptions=True):
                    if isinstance(answer, aiohttp.ClientResponse):
                        seen.refused += answer.status != 200
                        answer.release()
            await asyncio.sleep(0.05)


async def visit(base: str, visitors: int, enemies: int, seconds: float, every: float) -> Seen:
    seen = Seen()
    until = time.monotonic() + seconds
    async with asyncio.TaskGroup() as group:
        for number in range(visitors):
            group.create_task(friendly(number + 1, base, seen, until, every))
        for number in range(enemies):
            group.create_task(hostile(number + 1, base, seen, until))
    return seen


@pytest.mark.parametrize(
    ("visitors", "enemies", "seconds", "every"),
    [
        pytest.param(8, 2, 12.0, 3.0, id="few"),
        pytest.param(90, 10, 300.0, 10.0, id="full", marks=[pytest.mark.thorough, pytest.mark.timeout(900)]),
    ],
)
def test_visitors(
    visitors: int, enemies: int, seconds: float, every: float, tmp_path: Path, endpoint: SimulatorProcess
):
    with public_server(tmp_path, endpoint) as base:
        seen = asyncio.run(visit(base, visitors, enemies, seconds, every))
    assert seen.wrong == []
    assert seen.rooms, "no conversation was started, so nothing was shown about them"
    assert seen.refused > 0
    slow = statistics.quantiles(seen.seconds, n=20)[-1]
    counters = endpoint.ledger()
    used = counters.prompt_tokens + counters.completion_tokens
    print(
        f"{len(seen.seconds)} pages, 95% within {slow:.2f} s; {len(seen.rooms)} conversations, {used} tokens"
    )
    assert used <= BUDGET + IN_FLIGHT
    if visitors > 50:  # the full size is a measurement
        assert slow < 2
