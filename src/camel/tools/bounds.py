"""Connects to MCP servers, with bounds on what a server can send.

The one decision to know: the SDK reads lines and bodies of any length, and validating a message with many small values takes
a thousand times its size in memory. So messages are measured as bytes before the SDK parses them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from string import Template
from typing import Any

import anyio
import httpx2
import msgspec
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from camel.tools.settings import ServerSettings

MOST_BYTES, MOST_VALUES, MOST_STREAM, MOST_MESSAGES = 8 << 20, 20_000, 64 << 20, 1_000
"""Maximum size of a message and number of its values; size and number of all messages that answer one request."""
CHANGED = "notifications/tools/list_changed"
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


class TooMuch(httpx2.StreamError):
    """A server sent more than it may, or something that is not a message."""


def check_size(data: bytes | bytearray) -> None:
    """Raise `TooMuch` for a message that would take too much memory."""
    if len(data) > MOST_BYTES:
        raise TooMuch(f"it sent a message of more than {MOST_BYTES >> 20} MB")
    if len(data) > MOST_VALUES and sum(map(_STRING.sub(b"", data).count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise TooMuch(f"it sent a message with more than {MOST_VALUES:,} values")


@asynccontextmanager
async def start_server(
    settings: ServerSettings, values: dict[str, str], ended: asyncio.Future[str]
) -> AsyncGenerator[tuple[Any, Any]]:
    """Start a server and exchange lines with it. `ended` gets the reason when it stops."""
    env = get_default_environment() | values
    process = await asyncio.create_subprocess_exec(
        *settings.command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=env, start_new_session=True
    )
    inbox, read = anyio.create_memory_object_stream[Any](0)
    write, outbox = anyio.create_memory_object_stream[Any](0)
    allowed = [MOST_STREAM, MOST_MESSAGES]

    async def receive() -> None:
        reason = "it closed its output. Run its command to see why"
        try:
            async for message in _messages(process, allowed):
                await inbox.send(SessionMessage(message))
        except (TooMuch, OSError, anyio.BrokenResourceError) as error:
            reason = str(error)
        if not ended.done():
            ended.set_result(reason)
        inbox.close()

    async def send() -> None:
        assert process.stdin
        with contextlib.suppress(OSError):
            async for item in outbox:
                if {"method", "id"} <= item.message.model_fields_set:  # a request
                    allowed[:] = MOST_STREAM, MOST_MESSAGES
                data = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(data.encode() + b"\n")
                await process.stdin.drain()

    tasks = [asyncio.create_task(receive()), asyncio.create_task(send())]
    try:
        yield read, write
    finally:
        await _end(process)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for stream in (inbox, read, write, outbox):
            stream.close()


async def _end(process: Process) -> None:
    """Close the input of a server, and kill it with all its processes if it does not end."""
    assert process.stdin
    process.stdin.close()
    for patience, number in ((1.0, signal.SIGTERM), (1.0, signal.SIGKILL), (2.0, signal.SIGKILL)):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), patience)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
    process._transport.close()  # pyright: ignore


async def _messages(process: Process, allowed: list[int]) -> AsyncIterator[Any]:
    """Yield what a server sends. Lines that are no objects are its logs, and most notifications are ignored."""
    assert process.stdout
    rest = bytearray()
    while data := await process.stdout.read(1 << 16):
        allowed[0] -= len(data)
        first, *lines = data.split(b"\n")
        rest += first
        if len(rest) > MOST_BYTES or min(allowed) < 0:
            raise TooMuch(f"it sent more than {MOST_BYTES >> 20} MB in a message, or too many messages")
        for following in lines:
            line, rest = bytes(rest), bytearray(following)
            if not line.lstrip().startswith(b"{"):
                continue
            check_size(line)
            try:
                head = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
                if "id" in head or msgspec.json.decode(head.get("method", b"0")) == CHANGED:
                    allowed[1] -= 1
                    yield jsonrpc_message_adapter.validate_json(line, by_name=False)
            except (ValueError, RecursionError):
                raise TooMuch("it sent a message that is not valid") from None


class Bounded(httpx2.AsyncByteStream):
    """The body of an HTTP response. It is passed on when a message is complete and has the right size."""

    def __init__(self, inner: Any, events: bool) -> None:
        self._inner, self._events = inner, events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        rest, size, count = bytearray(), 0, 0
        async for data in self._inner:
            rest += data
            size += len(data)
            if len(rest) > MOST_BYTES or size > MOST_STREAM or count > MOST_MESSAGES:
                raise TooMuch(f"it sent more than {MOST_BYTES >> 20} MB in a message, or too many messages")
            ends = (b"\n\n", b"\r\r", b"\n\r\n") if self._events else ()
            cut = max((rest.rfind(end) for end in ends), default=-1) + 1
            if cut:
                check_size(rest[:cut])
                count += rest.count(b"data:", 0, cut)
                yield bytes(rest[:cut])
                del rest[:cut]
        check_size(rest)
        yield bytes(rest)

    async def aclose(self) -> None:
        """Close the response."""
        await self._inner.aclose()


@asynccontextmanager
async def open_server(settings: ServerSettings, values: dict[str, str]) -> AsyncGenerator[tuple[Any, Any]]:
    """Connect to a server by streamable HTTP."""

    async def refuse(request: httpx2.Request) -> None:
        if request.method == "GET":  # a stream of its own, which the server could end and open forever
            raise httpx2.UnsupportedProtocol("only answers are read")

    async def bound(response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.DecodingError("the server sent compressed data")
        events = "text/event-stream" in response.headers.get("content-type", "")
        response.stream = Bounded(response.stream, events)

    headers = {name: Template(text).substitute(values) for name, text in settings.headers.items()}
    client = httpx2.AsyncClient(
        headers={**headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(30.0, read=settings.seconds + 30.0),
        event_hooks={"request": [refuse], "response": [bound]},
    )
    sdk = streamable_http_client(settings.url, http_client=client, max_sse_event_size=MOST_BYTES)
    async with client, sdk as streams:
        yield streams
