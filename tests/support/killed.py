"""A campaign in a process that kills itself with SIGKILL at a given request, so that no clock decides where it ends."""

from __future__ import annotations

import signal
import subprocess
import sys

import msgspec

from camel.generation.config import GenerateConfig

_CODE = """
import asyncio, os, signal, sys
import msgspec
from camel import ChatModel
from camel.core.model import WrappedModel
from tests.support.jobs import generation
from camel.generation.config import GenerateConfig

config, left = msgspec.json.decode(sys.argv[1], type=GenerateConfig), int(sys.argv[2])

class Killing(WrappedModel):
    async def reply(self, request):
        global left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return await self.inner.reply(request)

async def main():
    window = config.model.context_tokens
    async with ChatModel("simulated", base_url=config.model.base_url, api_key="", context_tokens=window) as model:
        await generation(config, Killing(model)).run()

asyncio.run(main())
"""


def run_until_killed(config: GenerateConfig, at: int) -> None:
    """Run the campaign in a process of its own that dies as it is about to make the given request."""
    command = [sys.executable, "-c", _CODE, msgspec.json.encode(config).decode(), str(at)]
    ended = subprocess.run(command, timeout=600, check=False)
    assert ended.returncode == -signal.SIGKILL, "it ended before it could be killed"
