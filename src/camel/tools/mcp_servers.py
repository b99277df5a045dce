"""Tools of MCP servers: one session per server and process, on the event loop of tools.

The one decision to know: a server is not trusted. Its tools are fixed when it is first used, and its requests for
samples, roots and input are declined. What it sends is measured as bytes before the SDK parses it, because the SDK reads lines
and bodies of any length, and validating a message with many small values takes a thousand times its size in memory.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import hashlib
import logging
import os
import re
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import cache
from string import Template
from typing import Any, cast

import anyio
import httpx2
import mcp_types as types
import msgspec
from mcp.client.session import ClientSession
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from pydantic import TypeAdapter, ValidationError

from camel.core.checks import similar
from camel.core.errors import InputError
from camel.core.message import well_formed
from camel.core.tools import Tool, ToolFailed, Workplace, run_on_tool_loop, wait_on_tool_loop
from camel.tools.settings import ServerSettings, ToolSettings, rules_for

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


START_SECONDS, MOST_TOOLS, MOST_DESCRIPTION, MOST_SCHEMA = 60.0, 500, 4_000, 50_000
RESTARTS, HANGING = 5, 3
"""Maximum number of restarts without a successful call, and number of calls in a row that take too long before a restart."""
_RESULT: TypeAdapter[Any] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)
_CONTROL = re.compile(r"[\x00-\x20\x7f-\x9f]+")
for _name in ("mcp", "client"):  # loggers of the SDK, which would print what servers send
    logging.getLogger(_name).setLevel(logging.CRITICAL + 1)


class McpTool(Tool):
    """A tool of an MCP server."""

    def __init__(self, server: Server, listed: types.Tool) -> None:
        self.server, self._remote = server, listed.name
        self.name = re.sub(r"[^A-Za-z0-9_-]", "_", listed.name)[:64]
        if self.name in ("", "python"):
            self.name = f"{server.name}_{self.name}"
        self.description = well_formed(listed.description or listed.title or "")[:MOST_DESCRIPTION]
        self.parameters = listed.input_schema
        hints = listed.annotations if server.settings.trust else None
        self.read_only = bool(hints and hints.read_only_hint)
        self.idempotent = bool(hints and hints.idempotent_hint)
        self.seconds = server.settings.seconds + START_SECONDS  # a call may first start the server
        self.version = _version(listed)

    async def call(self, arguments: dict[str, Any], place: Workplace) -> str:
        """Call the tool of the server."""
        work = self.server.call(self._remote, self.version, arguments, self.repeatable)
        return place.hidden(await run_on_tool_loop(work))


class Server:
    """A connection to a server. It starts at the first use, and again if it ended."""

    def __init__(self, name: str, settings: ServerSettings) -> None:
        self.name, self.settings, self._values = name, settings, settings.values()
        self._session: ClientSession | None = None
        self._task: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._starts, self._late, self._changed = 0, 0, False
        self._versions: dict[str, int] = {}

    async def tools(self, session: ClientSession | None = None) -> list[types.Tool]:
        """List the tools of the server, and note their versions."""
        session = session or await self._connected()
        found, page = list[types.Tool](), types.PaginatedRequestParams()
        async with asyncio.timeout(START_SECONDS):
            more = True
            while more:
                listed = await session.list_tools(params=page)
                found += listed.tools
                page = types.PaginatedRequestParams(cursor=listed.next_cursor)
                more = bool(listed.tools and listed.next_cursor) and len(found) <= MOST_TOOLS
        self._versions, self._changed = {one.name: _version(one) for one in found}, False
        if len(found) > MOST_TOOLS or len(self._versions) < len(found):
            raise ToolFailed(f"the server {self.name} lists more than {MOST_TOOLS} tools, or two of one name")
        return found

    async def call(self, tool: str, version: int, arguments: dict[str, Any], repeatable: bool) -> str:
        """Call a tool. Raise `ToolFailed` for everything that goes wrong."""
        session = await self._connected()
        if self._changed:
            await self.tools(session)
        if self._versions.get(tool) != version:
            raise ToolFailed(f"the server {self.name} changed this tool after the start, so it is not called")
        # Not `call_tool`, which applies the server's own patterns to results, and could take forever.
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=arguments))
        try:
            async with asyncio.timeout(self.settings.seconds):
                found = await session.send_request(request, _RESULT)
        except TimeoutError:
            self._late += 1
            if self._late >= HANGING:
                await self.stop(session)
            raise ToolFailed(f"{self.name} did not answer within {self.settings.seconds:g} seconds") from None
        except Exception as error:
            if not _is_end(error):
                raise ToolFailed(f"{self.name} answered with an error: {_describe(error)}") from None
            why = await self.stop(session) or _describe(error)
            if repeatable:
                return await self.call(tool, version, arguments, False)
            raise ToolFailed(
                f"{self.name} ended during this call, which may have had its effect: {why}"
            ) from None
        self._starts = self._late = 0
        return _text_of(found)

    async def stop(self, session: ClientSession | None = None) -> str:
        """End the session and the server's process. Return why it had ended already, if it had. A call that failed gives its
        session, because another one may have started the server again."""
        if session and session is not self._session:
            return ""
        task, self._session, self._task = self._task, None, None
        why = self._ended.result() if task and self._ended.done() else ""
        if task:
            task.cancel()
            await asyncio.wait([task], timeout=10)
        return why

    async def _connected(self) -> ClientSession:
        async with self._lock:
            if self._session and self._task and not self._task.done():
                return self._session
            await self.stop()
            if self._starts > RESTARTS:
                raise ToolFailed(f"the server {self.name} ended {RESTARTS} times and is not started again")
            await asyncio.sleep(min(10.0, 0.1 * 2**self._starts) if self._starts else 0)
            self._starts += 1  # until a call succeeds
            self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            ready: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._run(ready))
            try:
                session = await asyncio.wait_for(ready, START_SECONDS)
                if self._versions:
                    await self.tools(session)
            except BaseException as error:
                why = (_is_end(error) and await self.stop()) or _describe(error)
                await self.stop()
                if isinstance(error, asyncio.CancelledError):
                    raise
                raise ToolFailed(f"the server {self.name} does not start: {why}") from None
            self._session = session
            return session

    async def _run(self, ready: asyncio.Future[ClientSession]) -> None:
        """Connect, and keep the connection until it ends. Everything happens in one task, as the SDK needs it."""
        try:
            async with (
                start_server(self.settings, self._values, self._ended)
                if self.settings.command
                else open_server(self.settings, self._values) as streams,
                ClientSession(*streams, message_handler=self._notice) as session,
            ):
                await session.initialize()
                ready.set_result(session)
                await asyncio.shield(self._ended)
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error if isinstance(error, Exception) else ConnectionError("stopped"))

    async def _notice(self, message: Any) -> None:
        self._changed |= getattr(message, "method", "") == CHANGED


def server_tools(name: str, settings: ToolSettings) -> Iterator[tuple[Tool, str]]:
    """Yield the tools of `mcp:SERVER` or `mcp:SERVER.TOOL` with their full names, without those that `allow` excludes."""
    server, _, wanted = name[4:].partition(".")
    try:
        connection = _server(server, msgspec.json.encode(settings.servers[server]))
        listed = wait_on_tool_loop(connection.tools(), 3 * START_SECONDS + 30.0)
    except (ToolFailed, TimeoutError, MCPError) as error:
        raise InputError(f"mcp:{server} cannot be used: {_describe(error)}") from None
    known = {f"mcp:{server}.{one.name}": one for one in listed}
    if wanted and name not in known:
        raise InputError(f"there is no tool {name}{similar(name, known)}")
    limited = rules_for(f"mcp:{server}", settings)
    for full in [name] if wanted else known:
        if limited and not rules_for(full, settings):
            continue
        if len(msgspec.json.encode(known[full].input_schema)) > MOST_SCHEMA:
            raise InputError(f"the schema of {full} has more than {MOST_SCHEMA:,} bytes: name other tools")
        yield McpTool(connection, known[full]), full


@cache
def _server(name: str, settings: bytes) -> Server:
    server = Server(name, msgspec.json.decode(settings, type=ServerSettings))
    atexit.register(lambda: wait_on_tool_loop(server.stop(), 30.0))
    return server


def _version(listed: types.Tool) -> int:
    """Return a number that changes with a tool's description, schema and annotations."""
    known = listed.model_dump(mode="json", include={"description", "title", "input_schema", "annotations"})
    data = msgspec.json.encode(known, order="sorted")
    return int.from_bytes(hashlib.blake2b(data, digest_size=6).digest(), "big")


def _is_end(error: BaseException) -> bool:
    error = _innermost(error)
    gone = isinstance(error, MCPError) and error.code == types.CONNECTION_CLOSED
    return gone or str(error)[:50] == "Session terminated"


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _describe(error: BaseException) -> str:
    """Return what an error says, in one short line."""
    error = _innermost(error)
    if isinstance(error, ValidationError):  # its text may be very long
        return "its answer does not follow the protocol"
    said = "it does not answer" if isinstance(error, TimeoutError) else str(error)
    return _CONTROL.sub(" ", well_formed(said[:500])) or type(error).__name__


def _text_of(found: types.CallToolResult | types.InputRequiredResult) -> str:
    """Return a result as text. Links are never followed."""
    if isinstance(found, types.InputRequiredResult):
        raise ToolFailed("the server asks for input, which nobody can give")
    parts: list[str] = []
    for block in found.content:
        if block.type == "text":
            parts.append(block.text)
        else:
            about = block.uri if block.type == "resource_link" else getattr(block, "mime_type", None)
            parts.append(f"({block.type} {(about or '')[:500]}: not opened)")
    if not parts and found.structured_content is not None:
        parts = [msgspec.json.encode(found.structured_content).decode()]
    if found.is_error:
        raise ToolFailed("\n".join(parts) or "the tool failed and did not say why")
    return "\n".join(parts)
