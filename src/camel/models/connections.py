"""Connections to endpoints: sessions, gated requests, size limits of responses, and errors without secrets."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import re
import zlib
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any

from camel.core.errors import MalformedReply, ModelError, ReplyTooLarge, RequestRejected, Unreachable
from camel.models import wire

if TYPE_CHECKING:
    import aiohttp

_PASSWORD = re.compile(r"//[^/@\s]+@")
_COMMENT_BYTES, _COMMENT_SECONDS = 2**16, 2.0
"""Limits for reading an error's body, in bytes and seconds: the status is what matters."""

Opened = tuple["aiohttp.ClientSession", AsyncGenerator["aiohttp.ClientSession"]]


async def open_session() -> AsyncGenerator[aiohttp.ClientSession]:
    """Yield one session. It is a generator because the event loop closes open generators when it ends."""
    import aiohttp

    session = aiohttp.ClientSession(
        # The caller decides how many calls are open at once. Idle connections are closed before the servers
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
    """Return a body that calls `gate` just before it is sent. The headers are sent together with it, not earlier."""
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


def connection_errors() -> tuple[type[BaseException], ...]:
    """Return the exceptions of a failed connection."""
    import aiohttp

    return (aiohttp.ClientError, OSError, ValueError, EOFError)


def unreachable(url: object, broken: BaseException) -> ModelError:
    """Return the error of a call whose connection failed."""
    import aiohttp

    if isinstance(broken, aiohttp.ClientConnectorError) and not isinstance(broken, aiohttp.ClientSSLError):
        why = wire.one_line(broken.os_error.strerror or str(broken.os_error))
        return Unreachable(f"no server answers at {url} ({why}): start the server, or correct the base URL")
    said = str(broken)
    if isinstance(broken, aiohttp.ClientResponseError):
        said = f"{broken.status} {broken.message}"
    # A proxy's error contains the proxy's address with its password.
    text = wire.one_line(f"{url}: {type(broken).__name__}: {_PASSWORD.sub('//', said)}")
    # A retry does not fix a certificate.
    return RequestRejected(text) if isinstance(broken, aiohttp.ClientSSLError) else Unreachable(text)


def _unpacker(encoding: str) -> Any:
    """Return a decompressor for a body, or None if it is not compressed."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return None
    if encoding in ("gzip", "x-gzip", "deflate"):
        return zlib.decompressobj(47)  # gzip or zlib, by their headers
    raise MalformedReply(f"the reply is compressed as {encoding[:40]!r}, which is not supported")


async def read_whole(response: aiohttp.ClientResponse, url: str, limit: int) -> bytes:
    """Read the body of a response of at most `limit` bytes; `url` is the base URL for errors."""
    if "Content-Encoding" in response.headers:
        return b"".join([data async for data in read_chunks(response, url, limit)])
    # Fast path: nearly every reply is one uncompressed piece, and the general case costs 10 % of a call.
    content = response.content
    try:
        data = await content.readany()
        if content.at_eof() and len(data) <= limit:
            return data
        pieces, size = [data], len(data)
        while size <= limit and (data := await content.readany()):
            pieces.append(data)
            size += len(data)
    except connection_errors() as broken:
        raise unreachable(url, broken) from None
    if size > limit:
        raise ReplyTooLarge(f"the reply exceeds {limit:,} bytes")
    return b"".join(pieces)


async def read_comment(response: aiohttp.ClientResponse, url: str, limit: int) -> bytes:
    """Return the body of an error response as far as it can be read. A damaged body must not hide the status."""
    said = bytearray()
    with contextlib.suppress(ModelError, TimeoutError):
        async with (
            asyncio.timeout(_COMMENT_SECONDS),
            contextlib.aclosing(read_chunks(response, url, limit)) as chunks,
        ):
            async for data in chunks:
                said += data
                if len(said) >= _COMMENT_BYTES:
                    break
    return bytes(said[:_COMMENT_BYTES])


async def read_chunks(response: aiohttp.ClientResponse, url: str, limit: int) -> AsyncGenerator[bytes]:
    """Yield the decompressed body as it arrives. Raise an error as soon as it exceeds `limit`, as sent or decompressed."""
    sent = unpacked = 0
    unpack = _unpacker(response.headers.get("Content-Encoding", ""))
    while True:
        try:
            data = await response.content.readany()
        except connection_errors() as broken:
            raise unreachable(url, broken) from None
        if not data:
            break
        sent += len(data)
        if unpack:
            try:
                data = unpack.decompress(data, limit - unpacked + 1)
            except zlib.error as error:
                raise MalformedReply(f"the reply's compressed body is damaged: {error}") from None
            if unpack.unused_data:
                raise MalformedReply("the reply's compressed body has data after its end")
        unpacked += len(data)
        if max(sent, unpacked) > limit:
            raise ReplyTooLarge(f"the reply exceeds {limit:,} bytes")
        if data:
            yield data
    if unpack and not unpack.eof:
        raise MalformedReply("the reply's compressed body ends early")
