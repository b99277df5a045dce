"""Connections to endpoints: sessions, bodies behind a gate, and errors without secrets."""

from __future__ import annotations

import functools
import io
import re
import zlib
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any

from camel.core.errors import (
    MalformedReply,
    ModelError,
    RequestRejected,
    Unreachable,
)
from camel.models import wire

if TYPE_CHECKING:
    import aiohttp


_PASSWORD = re.compile(r"//[^/@\s]+@")


Opened = tuple["aiohttp.ClientSession", AsyncGenerator["aiohttp.ClientSession"]]


async def open_session() -> AsyncGenerator[aiohttp.ClientSession]:
    """Yield one session. A generator, because an event loop closes those before it ends: nobody has to."""
    import aiohttp

    session = aiohttp.ClientSession(
        # How many calls are open at once is for the caller to decide. Idle connections are dropped before the servers
        # do it (llama.cpp and uvicorn after 5 s), because a call sent into a closed one fails.
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=4),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=30),
    )
    try:
        yield session
    finally:
        await session.close()


def gated(body: bytes | io.BytesIO, gate: Callable[[], None]) -> aiohttp.Payload:
    """A body that asks the gate when it is written; the headers leave with it, and not before."""
    gated = _gated_payload(type(body))(body)
    gated.gate = gate
    return gated


@functools.cache
def _gated_payload(kind: type) -> Any:
    import aiohttp

    payload: Any = aiohttp.BytesPayload if kind is bytes else aiohttp.BytesIOPayload

    class Gated(payload):
        gate: Callable[[], None]

        async def write_with_length(self, writer: Any, content_length: int | None) -> None:
            self.gate()
            await payload.write_with_length(self, writer, content_length)

    return Gated


def root_of(response: aiohttp.ClientResponse) -> str:
    """The base URL that a response came from."""
    return str(response.url).removesuffix("/chat/completions")


def connection_errors() -> tuple[type[BaseException], ...]:
    """What is raised where a connection fails."""
    import aiohttp

    return (aiohttp.ClientError, OSError, ValueError, EOFError)


def unreachable(url: object, broken: BaseException) -> ModelError:
    """The error of a call whose connection failed."""
    import aiohttp

    if isinstance(broken, aiohttp.ClientConnectorError) and not isinstance(broken, aiohttp.ClientSSLError):
        why = wire.one_line(broken.os_error.strerror or str(broken.os_error))
        return Unreachable(
            f"nothing answers at {url} ({why}): is the server running, and is the base URL right?"
        )
    # An error of a proxy has the proxy's address in it, with the password.
    said = (
        f"{broken.status} {broken.message}"
        if isinstance(broken, aiohttp.ClientResponseError)
        else str(broken)
    )
    text = wire.one_line(f"{url}: {type(broken).__name__}: {_PASSWORD.sub('//', said)}")
    # A certificate does not become right by asking again.
    return RequestRejected(text) if isinstance(broken, aiohttp.ClientSSLError) else Unreachable(text)


def unpacker(encoding: str) -> Any:
    """What unpacks a body; None where it is not packed."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return None
    if encoding in ("gzip", "x-gzip", "deflate"):
        return zlib.decompressobj(47)  # gzip or zlib, told apart by their headers
    raise MalformedReply(f"the reply is compressed as {encoding[:40]!r}, which was not asked for")
