"""An endpoint: checks of its address and credentials, its list of models, and connections with limits and errors without secrets."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http.client
import io
import ipaddress
import os
import re
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import msgspec

from camel.core.checks import shown, similar
from camel.core.errors import (
    InputError,
    MalformedReply,
    ModelError,
    NotAuthorized,
    ReplyTooLarge,
    RequestRejected,
    Unreachable,
)
from camel.models import wire

if TYPE_CHECKING:
    import aiohttp


def proxy_for(url: str) -> str | None:
    """Return the proxy that the environment sets for `url`. Cached, because a lookup costs more than a call."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback(host) or cast("Any", urllib.request).proxy_bypass(host):
        return None
    proxy = urllib.request.getproxies().get(parts.scheme)
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is that of this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def secret_values(headers: Mapping[str, str], key: str) -> set[str]:
    """Return the key, and the values of headers whose names announce secrets."""
    telling = ("auth", "key", "token", "secret", "cookie")
    values = [value for name, value in headers.items() if any(word in name.lower() for word in telling)]
    return {value.split()[-1] for value in [key, *values] if value.strip()}


def secrets_in(headers: Mapping[str, str], key: str) -> re.Pattern[str] | None:
    """Return a pattern that finds the secrets in a text by their first 8 characters, so that truncated ones are found, too."""
    patterns = [
        rf"{re.escape(secret[:8])}[^\s\"'<>]*" if len(secret) > 8 else rf"(?<!\w){re.escape(secret)}(?!\w)"
        for secret in secret_values(headers, key)
    ]
    return re.compile("|".join(patterns)) if patterns else None


def is_plain(text: str) -> bool:
    """Return whether `text` is valid in an HTTP header."""
    return text.isascii() and text.isprintable()


def checked_headers(headers: Mapping[str, str], what: str = "header") -> dict[str, str]:
    """Return a copy of valid HTTP `headers`, or raise an `InputError`."""
    try:
        headers = msgspec.convert(headers, dict[str, str])
    except msgspec.ValidationError:
        raise InputError(f"each {what} must be a name and a value as text, not {shown(headers)}") from None
    for name, value in headers.items():
        if not (is_plain(name) and name and not set(name) & set(' ":;,(){}[]<>@/\\?=') and is_plain(value)):
            raise InputError(f"the {what} {name[:40]!r} or its value contains invalid characters")
    return dict(headers)


def checked_name(name: object) -> str:
    """Return a valid model name, or raise an `InputError`."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > 500:
        raise InputError(f"the model's name is empty, too long or contains a line break: {shown(name)}")
    return name


def checked_url(url: object) -> str:
    """Return a valid base URL without its trailing slash, or raise an `InputError`."""
    try:
        parts = urlsplit(url.strip().rstrip("/") if isinstance(url, str) else "")
        host = (parts.hostname or "").encode("idna")  # raises for an invalid host name
        usable = parts.scheme in ("http", "https") and host and b" " not in host and parts.port != 0
    except ValueError:
        parts, usable = urlsplit(""), False
    if not usable:
        raise InputError(f"the base URL must look like http://host:port/v1, not {shown(url)}")
    if parts.username is not None or parts.query or parts.fragment:
        raise InputError(
            "the base URL must not contain a user, password, query or fragment: pass the key as api_key"
        )
    return parts.geturl()


def positive(name: str, value: Any, kind: type) -> None:
    """Raise an `InputError` unless `value` is a number above zero; a whole number if `kind` is int."""
    fits = isinstance(value, int) or (kind is float and isinstance(value, float))
    if isinstance(value, bool) or not fits or not value > 0:  # not `<=`, so that NaN fails, too
        raise InputError(
            f"{name} must be a {'whole ' if kind is int else ''}number above zero, not {shown(value)}"
        )


def checked_key(key: object) -> str:
    """Return a valid API key without surrounding spaces, or raise an `InputError`."""
    if not isinstance(key, str) or not key.strip().isascii() or not (key.strip() + "x").isprintable():
        raise InputError("the API key contains invalid characters: copy it again, completely")
    return key.strip()


def served_models(
    base_url: str,
    api_key: str | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    query: str = "",
    timeout: float = 10.0,
) -> dict[str, int | None]:
    """Return the names of the models that an endpoint lists, with their context windows if it reports them."""
    url = f"{checked_url(base_url)}/models{query}"
    key = checked_key(os.environ.get("OPENAI_API_KEY", "") if api_key is None else api_key)
    headers = dict(headers or ({"Authorization": f"Bearer {key}"} if key else {}))
    proxy = proxy_for(url)
    proxies = urllib.request.ProxyHandler({urlsplit(url).scheme: proxy} if proxy else {})
    try:
        opener = urllib.request.build_opener(proxies, _NoRedirects)
        with opener.open(urllib.request.Request(url, headers=headers), timeout=timeout) as response:  # noqa: S310 - checked
            listing = msgspec.json.decode(_read_within(response, timeout), type=_Listing)
    except (OSError, ValueError, RecursionError, http.client.HTTPException, msgspec.MsgspecError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        cause = error.reason if type(error) is urllib.error.URLError else error
        secrets = secrets_in(headers, key)
        told = wire.one_line(f"{url} does not list its models: {str(cause) or type(cause).__name__}")
        told = secrets.sub("[key]", told) if secrets else told
        if isinstance(error, urllib.error.HTTPError) and error.code in (401, 403):
            raise NotAuthorized(f"{told}. Check OPENAI_API_KEY", status=error.code) from None
        advice = "Check that the server is running. If it has no such list, name the model"
        if isinstance(error, urllib.error.HTTPError) and error.code == 404 and not url.endswith("/v1/models"):
            advice = "The base URL of most servers ends in /v1"
        raise Unreachable(f"{told}. {advice}") from None
    return {
        entry.id: entry.max_model_len or (entry.meta.n_ctx if entry.meta else None) for entry in listing.data
    }


OLLAMA = "ollama:"


def ollama_url() -> str:
    """Return the base URL of Ollama: OLLAMA_HOST as Ollama itself reads it (host, host:port or URL), or its default."""
    given = os.environ.get("OLLAMA_HOST", "").strip(" \t\"'")
    parts = re.fullmatch(r"(?:(https?)://)?(\[[\da-fA-F:.]+\]|[^:/]*)(?::(\d+))?(/.*)?", given)
    if not parts:
        raise InputError("OLLAMA_HOST must be a host, host:port or URL, without user and password")
    host = "127.0.0.1" if parts[2] in ("", "0.0.0.0") else parts[2]  # noqa: S104 - a listening address, not a destination
    port = parts[3] or {"http": 80, "https": 443}.get(parts[1] or "", 11434)
    return checked_url(f"{parts[1] or 'http'}://{host}:{port}{(parts[4] or '').rstrip('/')}/v1")


def check_ollama(name: str) -> None:
    """Raise an error with advice if Ollama does not answer or does not have the model."""
    url = ollama_url()
    try:
        served = served_models(url, "")
    except ModelError:
        raise InputError(
            f"Ollama does not answer at {url}: start it with `ollama serve`, then `ollama pull {name}`; "
            "OLLAMA_HOST sets its address"
        ) from None
    if not {name, f"{name}:latest"} & served.keys():
        raise InputError(f"Ollama has no {shown(name)}{similar(name, served)}: run `ollama pull {name}`")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirects, because the standard handler would send the API key to the new address."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """Reject the redirect."""


def _read_within(response: Any, seconds: float) -> bytes:
    """Read up to a megabyte within a total time, because the socket's own timeout restarts with every byte."""
    end, body = time.monotonic() + seconds, b""
    while len(body) < 2**20 and (data := response.read1(2**16)):
        body += data
        if time.monotonic() > end:
            raise TimeoutError(f"not complete after {seconds:g} s")
    return body


class _Meta(msgspec.Struct):
    n_ctx: int | None = None


class _Listed(msgspec.Struct):
    id: str
    max_model_len: int | None = None
    """The context window in vLLM's list."""
    meta: _Meta | None = None
    """The context window in llama.cpp's list."""


class _Listing(msgspec.Struct):
    data: list[_Listed]


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
