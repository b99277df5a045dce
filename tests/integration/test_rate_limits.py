"""`camel generate` against HTTP servers that enforce a limit, by the servers' account. Virtual servers: `models/test_rate_control.py`."""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from camel.models.simulator import Constant, SimulatorSettings
from tests.support.moody import Moody, moody

pytest.importorskip("pyarrow")
pytestmark = [pytest.mark.slow, pytest.mark.thorough, pytest.mark.timeout(600)]
ADAPTED, COUNTED = 30.0, 60.0
"""Seconds until calls are counted, and for which they are."""
LATENCY = 1.0


class Limited:
    """Refuses what is above a rate or a number of calls at once."""

    def __init__(self, endpoint: Moody, *, per_second: float = math.inf, at_once: float = math.inf) -> None:
        self.per_second, self.at_once = per_second, at_once
        self.inside, self.saved, self.last = 0, 1.0, time.monotonic()
        self.began = 0.0
        self.calls: list[tuple[float, float]] = []
        """When each came since the first, and how many seconds it was served; 0: it was refused."""
        self._answer, endpoint.answer = endpoint.answer, self.answer  # type: ignore[method-assign]

    def admits(self, now: float) -> bool:
        self.saved = min(max(1.0, self.per_second), self.saved + (now - self.last) * self.per_second)
        self.last = now
        if self.inside >= self.at_once or self.saved < 1:
            return False
        self.saved -= 1 if self.per_second < math.inf else 0
        return True

    async def answer(self, request: Any) -> Any:
        now = time.monotonic()
        self.began = self.began or now
        if not self.admits(now):
            self.calls.append((now - self.began, 0.0))
            return web.Response(status=429, text="slow down", headers={"Retry-After": "1"})
        self.inside += 1
        try:
            await asyncio.sleep(LATENCY)
            return await self._answer(request)
        finally:
            self.inside -= 1
            self.calls.append((now - self.began, time.monotonic() - now))

    def counted(self) -> tuple[float, float]:
        """The share of calls that were refused, and what was used of what is allowed."""
        some = [served for at, served in self.calls if ADAPTED <= at < ADAPTED + COUNTED]
        calls = sum(served > 0 for served in some)
        used = calls / self.per_second if self.per_second < math.inf else sum(some) / self.at_once
        return 1 - calls / len(some), used / COUNTED


@pytest.mark.parametrize(
    "limits", [{"per_second": 20.0}, {"at_once": 20.0}], ids=["20 a second", "20 at once"]
)
def test_a_limit_is_respected_and_used(tmp_path: Path, limits: dict[str, float]):
    with moody(SimulatorSettings(length=Constant(41), words=12)) as endpoint:
        limited = Limited(endpoint, **limits)
        (tmp_path / "config.toml").write_text(
            'scenario = "ai_society"\nout = "run"\ncounts = { assistant_role = 10, user_role = 10, task = 2 }\n'
            f'[model]\nname = "simulated"\nbase_url = {json.dumps(endpoint.base_url)}\n[run]\nconcurrency = 100\n'
        )
        with subprocess.Popen(
            [sys.executable, "-m", "camel", "generate", "config.toml"],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as child:
            try:
                while not limited.calls or limited.calls[-1][0] < ADAPTED + COUNTED:
                    assert child.poll() is None
                    time.sleep(0.5)
            finally:
                child.kill()
        refused, goodput = limited.counted()
    print(f"refused {refused:.1%}, used {goodput:.0%} of what is allowed")
    assert refused <= 0.05
    assert goodput >= 0.9
