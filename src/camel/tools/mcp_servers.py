"""Tools of MCP servers: one session per server and process, on the event loop of tools.

The one decision to know: a server is not trusted. What it may send is bounded before the SDK parses it (`transports`), its
tools are fixed when it is first used, and its requests for samples, roots and input are declined.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import hashlib
import logging
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

import msgspec

from camel.core.background import run_on_tool_loop, wait_on_tool_loop
from camel.core.checks import shown, similar
from camel.core.errors import InputError, MissingExtra
from camel.core.message import well_formed
from camel.core.tools import Tool, ToolFailed, Workplace
from camel.tools.settings import ServerSettings, ToolSettings, rules_for
from camel.tools.transports import Ended, connect

START_SECONDS = 30.0
RESTARTS = 5
"""Maximum number of restarts in a row, without a successful call in between."""
MOST_TOOLS, MOST_DESCRIPTION, MOST_SCHEMA = 500, 4_000, 50_000
_HANGING = 3
"""A server is restarted after this number of calls in a row that took too long."""


class McpTool(Tool):
    """A tool of an MCP server."""

    def __init__(self, server: Server, listed: Any) -> None:
        self._server, self._remote = server, str(listed.name)
        self.name = re.sub(r"[^A-Za-z0-9_-]", "_", self._remote)[:64]
        if self.name in ("", "python"):
            self.name = f"{server.name}_{self.name}"
        self.description = well_formed(str(listed.description or listed.title or ""))[:MOST_DESCRIPTION]
        self.parameters = listed.input_schema
        hints = listed.annotations if server.settings.trust else None
        self.read_only = bool(hints and hints.read_only_hint)
        self.idempotent = bool(hints and hints.idempotent_hint)
        self.seconds = server.settings.seconds + START_SECONDS  # a call may first start the server
        self.version = _version(listed)

    async def call(self, arguments: dict[str, Any], place: Workplace) -> str:
        """Call the tool of the server."""
        size = len(msgspec.json.encode(self.parameters))
        if size > MOST_SCHEMA:
            raise ToolFailed(f"the schema of this tool has {size:,} bytes, more than {MOST_SCHEMA:,}")
        work = self._server.call(self._remote, self.version, arguments, self.repeatable)
        return place.hidden(await run_on_tool_loop(work))


class Server:
    """A connection to a server. It starts at the first use, and again if it ended."""

    def __init__(self, name: str, settings: ServerSettings) -> None:
        self.name, self.settings = name, settings
        self.values = settings.values()
        self._session: Any = None
        self._ended = Ended()
        self._task: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._failures, self._late = 0, 0
        self._versions: dict[str, int] = {}
        self._changed = False

    async def tools(self) -> list[Any]:
        """Return the tools that the server lists."""
        session = await self._connected()
        return await self._listed(session)

    async def call(self, tool: str, version: int, arguments: dict[str, Any], repeatable: bool) -> str:
        """Call a tool. Raise `ToolFailed` for everything that goes wrong."""
        for attempt in (0, 1):
            session = await self._connected()
            if self._changed:
                await self._listed(session)
            if self._versions.get(tool) != version:
                raise ToolFailed(f"the server {self.name} changed this tool after the start: it is not called")
            try:
                async with asyncio.timeout(self.settings.seconds):
                    found = await self._request(session, tool, arguments)
            except TimeoutError:
                self._late += 1
                if self._late >= _HANGING:
                    await self.stop()
                raise ToolFailed(
                    f"the server {self.name} did not answer within {self.settings.seconds:g} seconds"
                ) from None
            except ToolFailed:
                raise
            except Exception as error:
                if not _is_end(error) and self._session is session:
                    raise ToolFailed(f"the server {self.name} answered with an error: {_told(error)}") from None
                why = self._ended.reason or _told(error)
                await self.stop()
                if attempt or not repeatable:
                    raise ToolFailed(
                        f"the server {self.name} ended during this call, which may have been executed: {why}"
                    ) from None
                continue
            self._failures = self._late = 0
            return _text_of(found)
        raise AssertionError

    async def stop(self) -> None:
        """End the session and the server's process."""
        task, self._session, self._task = self._task, None, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task], timeout=10)

    async def _request(self, session: Any, tool: str, arguments: dict[str, Any]) -> Any:
        types = _sdk().types
        # Not `call_tool`, which applies the server's own patterns to results and could take forever.
        params = types.CallToolRequestParams(name=tool, arguments=arguments)
        result = types.CallToolResult | types.InputRequiredResult
        return await session.send_request(types.CallToolRequest(params=params), _sdk().adapter(result))

    async def _connected(self) -> Any:
        async with self._lock:
            if self._session is None or self._task is None or self._task.done():
                await self.stop()
                if self._failures > RESTARTS:
                    raise ToolFailed(f"the server {self.name} ended {RESTARTS} times and is not started again")
                if self._failures:
                    await asyncio.sleep(min(10.0, 0.1 * 2**self._failures))
                self._failures += 1  # until a call succeeds
                ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                self._task = asyncio.create_task(self._run(ready))
                try:
                    self._session = await asyncio.wait_for(ready, START_SECONDS)
                    if self._versions:
                        await self._listed(self._session)
                except BaseException as error:
                    why = self._ended.reason or _told(error)
                    await self.stop()
                    if isinstance(error, asyncio.CancelledError):
                        raise
                    raise ToolFailed(f"the server {self.name} does not start: {why}") from None
            return self._session

    async def _run(self, ready: asyncio.Future[Any]) -> None:
        """Connect, and keep the connection until it ends. Everything happens in one task, as the SDK needs it."""
        ended = self._ended = Ended()
        try:
            async with (
                connect(self.settings, self.values, ended) as streams,
                _sdk().session(*streams, message_handler=self._noticed) as session,
            ):
                try:
                    await session.initialize()
                except _sdk().error as error:
                    if error.code != _sdk().types.UNSUPPORTED_PROTOCOL_VERSION:
                        raise
                    await session.discover()
                ready.set_result(session)
                await ended.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error if isinstance(error, Exception) else ConnectionError("it was stopped"))

    async def _noticed(self, message: Any) -> None:
        self._changed |= getattr(message, "method", "") == "notifications/tools/list_changed"

    async def _listed(self, session: Any) -> list[Any]:
        """List the tools, and note their versions."""
        found: list[Any] = []
        page: Any = None
        async with asyncio.timeout(START_SECONDS):
            while len(found) <= MOST_TOOLS:
                listed = await session.list_tools(params=page)
                found += listed.tools
                if not listed.next_cursor or not listed.tools:
                    break
                page = _sdk().types.PaginatedRequestParams(cursor=listed.next_cursor)
        self._versions, self._changed = {str(one.name): _version(one) for one in found}, False
        if len(found) > MOST_TOOLS or len(self._versions) < len(found):
            raise InputError(f"the server {self.name} lists more than {MOST_TOOLS} tools, or two of one name")
        return found


def server_tools(name: str, settings: ToolSettings) -> Iterator[tuple[Tool, str]]:
    """Yield the tools of `mcp:SERVER` or `mcp:SERVER.TOOL` with their full names, without those that `allow` excludes."""
    server, _, wanted = name[4:].partition(".")
    try:
        connection = _server(server, msgspec.json.encode(settings.servers[server]))
        listed = wait_on_tool_loop(connection.tools(), 2 * START_SECONDS)
    except (ToolFailed, TimeoutError) as error:
        raise InputError(f"{error or 'the server ' + server + ' does not answer'}. Run its command to see why") from None
    known = [str(one.name) for one in listed]
    if wanted and wanted not in known:
        raise InputError(f"the server {server} has no tool {shown(wanted)}{similar(wanted, known)}")
    for one in listed:
        full = f"mcp:{server}.{one.name}"
        if wanted in ("", one.name) and (not rules_for(f"mcp:{server}", settings) or rules_for(full, settings)):
            yield McpTool(connection, one), full


@cache
def _server(name: str, settings: bytes) -> Server:
    server = Server(name, msgspec.json.decode(settings, type=ServerSettings))

    @atexit.register
    def _stop() -> None:  # pyright: ignore[reportUnusedFunction]
        with contextlib.suppress(Exception):
            wait_on_tool_loop(server.stop(), 10.0)

    return server


class _Sdk:
    """What is used of the SDK, which is imported at the first use because that takes a second."""

    def __init__(self) -> None:
        try:
            self.types: Any = import_module("mcp_types")
            self.session: Any = import_module("mcp.client.session").ClientSession
            self.error: Any = import_module("mcp.shared.exceptions").MCPError
            self.adapter: Any = import_module("pydantic").TypeAdapter
        except ImportError as error:
            raise MissingExtra(f"An MCP server ({error.name})", "tools") from None
        for name in ("mcp", "client"):  # they would print what servers send
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)


_sdk = cache(_Sdk)


def _version(listed: Any) -> int:
    """Return a number that changes with a tool's description, schema and annotations."""
    known = listed.model_dump(mode="json", include={"description", "title", "input_schema", "annotations"})
    data = msgspec.json.encode(known, order="sorted")
    return int.from_bytes(hashlib.blake2b(data, digest_size=6).digest(), "big")


def _is_end(error: Exception) -> bool:
    closed = isinstance(error, _sdk().error) and error.code == _sdk().types.CONNECTION_CLOSED
    return closed or "Session terminated" in str(error)[:100]


def _told(error: BaseException) -> str:
    """Return what an error says, in one short line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if type(error).__name__ == "ValidationError":  # its text may be very long
        return "its answer does not follow the protocol"
    said = " ".join(well_formed(str(error)[:500]).split())
    return said or type(error).__name__


def _text_of(found: Any) -> str:
    """Return a result as text. Links are never followed."""
    if not hasattr(found, "content"):
        raise ToolFailed("the server asks for input, which nobody can give")
    parts = [_block_text(block) for block in found.content]
    if not parts and found.structured_content is not None:
        parts = [msgspec.json.encode(found.structured_content).decode()]
    text = "\n".join(parts)
    if found.is_error:
        raise ToolFailed(text or "the tool failed and did not say why")
    return text


def _block_text(block: Any) -> str:
    if block.type == "text":
        return block.text
    if block.type == "resource_link":
        return f"(a link to {str(block.uri)[:500]}, not opened)"
    kind = str(getattr(block, "mime_type", None) or getattr(getattr(block, "resource", None), "mime_type", None))
    return f"({block.type}, {kind[:100]}: not shown)"
