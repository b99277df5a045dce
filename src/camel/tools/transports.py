"""Connections to MCP servers that bound what a server can send, before the SDK parses it.

The one decision to know: the SDK reads lines and bodies of any length, and a message with many small values takes a hundred
times its size in memory once it is validated. So a message is measured as bytes first.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from string import Template
from typing import Any

import msgspec

from camel.tools.settings import ServerSettings

MOST_BYTES = 8 << 20
"""Maximum size of a message."""
MOST_VALUES = 20_000
"""Maximum number of values in a message."""
MOST_STREAM = 64 << 20
"""Maximum size of all messages that answer one request."""
MOST_MESSAGES = 1_000
"""Maximum number of messages that answer one request, without notifications that are ignored."""
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_CHANGED = "notifications/tools/list_changed"


class Ended(asyncio.Event):
    """Set when the connection has ended."""

    reason = ""


class TooMuch(Exception):
    """A server sent more than it may."""


class _Head(msgspec.Struct):
    method: str = ""
    id: Any = None


def connect(settings: ServerSettings, values: dict[str, str], ended: Ended) -> AbstractAsyncContextManager[Any]:
    """Connect to a server. The context is the pair of streams that a session of the SDK needs."""
    return _start(settings, values, ended) if settings.command else _open(settings, values)


def check_size(data: bytes | bytearray) -> None:
    """Raise `TooMuch` for a message that would take too much memory."""
    if len(data) > MOST_BYTES:
        raise TooMuch(f"it sent a message of more than {MOST_BYTES >> 20} MB")
    if len(data) > MOST_VALUES:
        bare = _STRING.sub(b"", data)
        if sum(map(bare.count, (b",", b"[", b"{"))) > MOST_VALUES:
            raise TooMuch(f"it sent a message with more than {MOST_VALUES:,} values")


@asynccontextmanager
async def _start(
    settings: ServerSettings, values: dict[str, str], ended: Ended
) -> AsyncGenerator[tuple[Any, Any]]:
    """Start a server and exchange lines with it."""
    anyio, sdk = import_module("anyio"), import_module("mcp.client.stdio")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *settings.command,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env=sdk.get_default_environment() | values,
        start_new_session=True,
    )
    assert process.stdin
    assert process.stdout
    assert process.stderr
    inbox, read = anyio.create_memory_object_stream(0)
    write, outbox = anyio.create_memory_object_stream(0)
    budget, said = [MOST_STREAM, MOST_MESSAGES], b""

    async def receive() -> None:
        try:
            async for line in _lines(process.stdout, budget):
                message = _parsed(line, sdk)
                if message is not None:
                    budget[1] -= 1
                    if budget[1] < 0:
                        raise TooMuch(f"it sent more than {MOST_MESSAGES:,} messages")
                    await inbox.send(sdk.SessionMessage(message))
            ended.reason = " ".join(said[-300:].decode("utf-8", "replace").split()) or "it closed its output"
        except (TooMuch, OSError) as error:
            ended.reason = str(error)
        except anyio.BrokenResourceError:
            pass
        finally:
            inbox.close()
            ended.set()

    async def send() -> None:
        with contextlib.suppress(OSError):
            async for item in outbox:
                if getattr(item.message, "method", "") and getattr(item.message, "id", None) is not None:
                    budget[:] = MOST_STREAM, MOST_MESSAGES
                process.stdin.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await process.stdin.drain()

    async def drain() -> None:
        nonlocal said
        while data := await process.stderr.read(1 << 16):
            said = (said + data)[-1_000:]
            await asyncio.sleep(0.01)  # a server that writes more must wait

    tasks = [asyncio.create_task(work()) for work in (receive, send, drain)]
    try:
        yield read, write
    finally:
        for stream in (read, write, outbox):
            stream.close()
        await _end(process)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        inbox.close()


async def _end(process: Any) -> None:
    """Close the input of a server, and kill it with all its processes if it does not end."""
    process.stdin.close()
    for patience, number in ((1.0, signal.SIGTERM), (1.0, signal.SIGKILL), (2.0, 0)):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), patience)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)  # also what it started
    process._transport.close()


async def _lines(stream: asyncio.StreamReader, budget: list[int]) -> AsyncIterator[bytes]:
    rest = bytearray()
    while data := await stream.read(1 << 16):
        budget[0] -= len(data)
        if budget[0] < 0:
            raise TooMuch(f"it sent more than {MOST_STREAM >> 20} MB")
        start = 0
        while (cut := data.find(b"\n", start)) >= 0:
            yield bytes(rest) + data[start:cut]
            rest.clear()
            start = cut + 1
        rest += data[start:]
        if len(rest) > MOST_BYTES:
            check_size(rest)


def _parsed(line: bytes, sdk: Any) -> Any:
    """Return a message, or None for one that is ignored. A line that is no object is taken for a log of the server."""
    if not line.lstrip().startswith(b"{"):
        return None
    check_size(line)
    try:
        head = msgspec.json.decode(line, type=_Head)
        if head.id is None and head.method not in ("", _CHANGED):
            return None
        return sdk.types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except (ValueError, RecursionError):
        raise TooMuch("it sent a message that is not valid") from None


@asynccontextmanager
async def _open(settings: ServerSettings, values: dict[str, str]) -> AsyncGenerator[tuple[Any, Any]]:
    """Connect by streamable HTTP."""
    httpx: Any = import_module("httpx2")
    sdk: Any = import_module("mcp.client.streamable_http")

    class Bounded(httpx.AsyncByteStream):
        def __init__(self, inner: Any, events: bool) -> None:
            self.inner, self.events = inner, events

        async def __aiter__(self) -> AsyncIterator[bytes]:
            rest, size, count = bytearray(), 0, 0
            try:
                async for data in self.inner:
                    rest += data
                    size += len(data)
                    if len(rest) > MOST_BYTES or size > MOST_STREAM or count > MOST_MESSAGES:
                        raise TooMuch("it sent too much")
                    cut = max(map(rest.rfind, (b"\n\n", b"\r\r", b"\n\r\n"))) + 1 if self.events else 0
                    if cut:
                        check_size(rest[:cut])
                        count += rest.count(b"data:", 0, cut)
                        yield bytes(rest[:cut])
                        del rest[:cut]
                check_size(rest)
            except TooMuch as error:
                raise httpx.StreamError(str(error)) from None
            yield bytes(rest)

        async def aclose(self) -> None:
            await self.inner.aclose()

    async def refuse(request: Any) -> None:
        if request.method == "GET":  # a stream of its own, which the server could open again and again
            raise httpx.UnsupportedProtocol("only answers are read")

    async def bound(response: Any) -> None:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx.DecodingError("the server sent compressed data")
        events = "text/event-stream" in response.headers.get("content-type", "")
        response.stream = Bounded(response.stream, events)

    headers = {name: Template(value).substitute(values) for name, value in settings.headers.items()}
    client = httpx.AsyncClient(
        headers={**headers, "accept-encoding": "identity"},
        timeout=httpx.Timeout(30.0, read=settings.seconds + 30.0),
        event_hooks={"request": [refuse], "response": [bound]},
    )
    async with (
        client,
        sdk.streamable_http_client(settings.url, http_client=client, max_sse_event_size=MOST_BYTES) as streams,
    ):
        yield streams
