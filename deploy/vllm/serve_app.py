"""Replicas of an OpenAI-compatible server, such as vLLM, behind one address of Ray Serve.

    pip install 'ray[serve]' aiohttp vllm       # on every node
    cd deploy/vllm && serve run serve.yaml      # on a node of the cluster; Ctrl-C stops it

Each replica starts the server that `command` names, on a free port of its node, and passes requests on to it. Serve starts a
replica again if its server ends or no longer answers. CAMEL sends the id of a conversation as X-Session-ID. Serve chooses the
replica by it (see `request_router_config` in serve.yaml), so a conversation stays where its prompts are cached.
"""

from __future__ import annotations

import asyncio
import ctypes
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

# Headers of one connection, which a proxy does not pass on (RFC 9110, section 7.6.1), and those that aiohttp sets.
OWN = {
    "connection", "content-length", "expect", "host", "keep-alive", "proxy-authenticate", "proxy-authorization",
    "te", "trailer", "transfer-encoding", "upgrade",  # codespell:ignore te
}  # fmt: skip
SIGNAL_OF_DEAD_PARENT = 1  # PR_SET_PDEATHSIG


def end_with_parent() -> None:
    """Let the server end with this replica, even if the replica is killed: else it would keep its GPU."""
    ctypes.CDLL(None).prctl(SIGNAL_OF_DEAD_PARENT, signal.SIGTERM)


def free_port() -> int:
    """Return a free port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@serve.deployment
class ModelServer:
    """One server of the model, and the requests that are passed on to it."""

    async def __init__(self, command: Sequence[str], health: str, startup_seconds: float) -> None:
        port = free_port()
        self._url, self._health = f"http://127.0.0.1:{port}", health
        words = [word.replace("{port}", str(port)) for word in command]
        self._server = subprocess.Popen(words, stdin=subprocess.DEVNULL, preexec_fn=end_with_parent)  # noqa: ASYNC220, S603
        # A reply takes as long as it takes: CAMEL has the deadline.
        timeout = aiohttp.ClientTimeout(total=None, connect=10)
        self._session = aiohttp.ClientSession(
            timeout=timeout, connector=aiohttp.TCPConnector(limit=0), auto_decompress=False
        )
        end = time.monotonic() + startup_seconds
        while not await self._answers():
            if time.monotonic() > end:
                raise RuntimeError(f"{words[0]} did not answer within {startup_seconds:g} s")
            await asyncio.sleep(1)

    async def _answers(self) -> bool:
        if (status := self._server.poll()) is not None:
            raise RuntimeError(
                f"{self._server.args[0]} ended with status {status}: see its output in the replica's log"
            )
        try:
            async with self._session.get(
                self._url + self._health, timeout=aiohttp.ClientTimeout(10)
            ) as reply:
                return reply.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def check_health(self) -> None:
        """Raise an error if the server no longer answers. Serve calls this, and replaces the replica after three errors."""
        if not await self._answers():
            raise RuntimeError("the server does not answer")

    async def __call__(self, request: Request) -> Response:
        """Pass a request on to the server, and its reply back as it arrives."""
        target = self._url + request.url.path + (f"?{request.url.query}" if request.url.query else "")
        headers = [(name, value) for name, value in request.headers.items() if name not in OWN]
        try:
            reply = await self._session.request(
                request.method, target, headers=headers, data=await request.body(), allow_redirects=False
            )
        except aiohttp.ClientError as error:
            # CAMEL takes it for an overloaded replica, and tries again.
            problem = {
                "error": {"message": f"the replica's server is down: {type(error).__name__}", "code": 503}
            }
            return JSONResponse(problem, 503)
        passed = {name: value for name, value in reply.headers.items() if name.lower() not in OWN}
        return StreamingResponse(_chunks(reply), reply.status, passed)

    async def __del__(self) -> None:
        """Stop the server."""
        await self._session.close()
        self._server.terminate()
        try:
            await asyncio.to_thread(self._server.wait, 30)
        except subprocess.TimeoutExpired:
            self._server.kill()


async def _chunks(reply: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    # If the caller disconnects, this ends too, and the server stops writing the reply.
    async with reply:
        async for chunk in reply.content.iter_any():
            yield chunk


def build(arguments: dict[str, Any]) -> serve.Application:
    """Return the application. `arguments` is `args` in serve.yaml."""
    return ModelServer.bind(
        arguments["command"],
        arguments.get("health", "/health"),
        float(arguments.get("startup_seconds", 1800)),
    )
