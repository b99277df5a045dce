"""The client: any model behind an OpenAI-compatible chat-completions endpoint.

The one decision to know: retries live here and nowhere else. A call has one total deadline that covers every attempt,
every wait and every byte of a dripping body; what comes back is a `Reply` or a `ModelError`, never anything else.
"""

from __future__ import annotations

import asyncio
import io
import os
import random
import urllib.request
import zlib
from collections.abc import AsyncIterator, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import msgspec

from camel.core.errors import (
    DeadlineExceeded,
    InputError,
    MalformedReply,
    ModelError,
    RateLimited,
    ReplyTooLarge,
    ServerFailed,
    Unreachable,
)
from camel.core.message import Sampling
from camel.core.model import Reply, Request, Retrying, Text
from camel.models import catalogue, wire
from camel.models.guided import Guide, guided_fields

if TYPE_CHECKING:
    import aiohttp

OPENAI_URL = "https://api.openai.com/v1"
_SAMPLING_FIELDS = ("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty")
_encode = msgspec.json.Encoder().encode


class ChatModel:
    """A model by name behind a base URL. Opens connections when first used; close with `aclose()` or `async with`."""

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        context_tokens: int | None = None,
        guided: Guide | None = None,
        deadline: float = 600.0,
        attempt_timeout: float = 300.0,
        max_attempts: int = 6,
        max_bytes: int = 16 * 2**20,
    ) -> None:
        """Describe the endpoint; nothing is sent yet.

        `base_url` and `api_key` default to OPENAI_BASE_URL and OPENAI_API_KEY. `context_tokens` is the model's window,
        by default what the catalogue knows. `guided` holds replies to the instruction grammar on servers that can.
        `deadline` bounds a whole call and `attempt_timeout` each try of it, in seconds; `max_bytes` bounds a reply's
        body, both as sent and as decompressed.
        """
        self.name = _checked_name(name)
        self.base_url = _checked_url(base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL)
        self._url = f"{self.base_url}/chat/completions"
        self._key = _checked_key(os.environ.get("OPENAI_API_KEY", "") if api_key is None else api_key)
        if not self._key and self.base_url == OPENAI_URL:
            raise InputError(
                "no API key: set OPENAI_API_KEY, or point OPENAI_BASE_URL at a server of your own, or use the local model"
            )
        if min(deadline, attempt_timeout) <= 0 or max_attempts < 1 or max_bytes < 1:
            raise InputError("deadline, attempt_timeout, max_attempts and max_bytes must be above zero")
        entry = catalogue.find(name)
        self.context_tokens = context_tokens or (entry.context if entry else None)
        self.guided = guided
        self._is_openai = urlsplit(self.base_url).hostname == "api.openai.com"
        self._deadline, self._attempt_timeout = deadline, attempt_timeout
        self._max_attempts, self._max_bytes = max_attempts, max_bytes
        # Compression is refused because replies are small and unpacking them costs more than it saves.
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", **(headers or {})}
        if self._key:
            self._headers.setdefault("Authorization", f"Bearer {self._key}")
        self._head = b'{"model":' + _encode(name) + b',"messages":['
        self._tails: dict[tuple[int, str | None, bool], tuple[Sampling, bytes]] = {}
        self._http: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        return f"ChatModel({self.name!r}, base_url={self.base_url!r})"

    async def __aenter__(self) -> ChatModel:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; the model can be used again and will open new ones."""
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    async def reply(self, request: Request) -> Reply:
        """Send one call, trying again where that can help, until the deadline."""
        loop = asyncio.get_running_loop()
        body = self._body(request)
        started = loop.time()
        deadline = started + self._deadline
        for attempt in count(1):
            try:
                async with asyncio.timeout_at(min(deadline, loop.time() + self._attempt_timeout)):
                    reply = await self._attempt(request, body)
                guided = f"{self.guided}:{request.expects}" if self.guided and request.expects else ""
                return Reply(
                    reply.choices,
                    reply.usage,
                    reply.model or self.name,
                    loop.time() - started,
                    attempt,
                    guided,
                )
            except TimeoutError:
                error: ModelError = Unreachable(f"no complete reply within {self._attempt_timeout:g} s")
                if loop.time() >= deadline:
                    error = DeadlineExceeded(f"no complete reply within the deadline of {self._deadline:g} s")
            except ModelError as failed:
                error = failed
            wait = self._wait_before_retry(error, attempt)
            if wait is None or loop.time() + wait >= deadline:
                error.attempts = attempt
                raise error
            if request.watch:
                request.watch(Retrying(request.speaker, str(error), wait))
            await asyncio.sleep(wait)
        raise AssertionError("unreachable: the loop returns or raises")

    def _wait_before_retry(self, error: ModelError, attempt: int) -> float | None:
        if not error.retryable or attempt >= self._max_attempts:
            return None
        # Full jitter: clients that failed together must not come back together.
        backoff = random.uniform(0, min(30.0, 0.5 * 2**attempt))  # noqa: S311 - not for secrets
        asked = error.retry_after if isinstance(error, RateLimited | ServerFailed) else None
        return backoff if asked is None else asked + backoff * 0.1

    async def _attempt(self, request: Request, body: bytes) -> Reply:
        """Send the request once."""
        import aiohttp

        headers = self._headers
        if request.session:
            headers = {**headers, "X-Session-ID": request.session}
        try:
            # As a file beyond a megabyte, which aiohttp then sends in pieces instead of blocking on it.
            data = body if len(body) < 2**20 else io.BytesIO(body)
            async with self._session().post(
                self._url, data=data, headers=headers, allow_redirects=False
            ) as response:
                if not 200 <= response.status < 300:
                    raise self._scrubbed(
                        wire.failure(response.status, await self._whole(response), response.headers)
                    )
                if request.watch and response.content_type == "text/event-stream":
                    return await self._streamed(request, response)
                reply = wire.read_reply(await self._whole(response))
        except (aiohttp.ClientError, OSError, ValueError, EOFError) as broken:
            raise self._scrubbed(Unreachable(f"{self.base_url}: {type(broken).__name__}: {broken}")) from None
        except ModelError as failed:
            raise self._scrubbed(failed) from None
        if request.watch:
            request.watch(Text(request.speaker, reply.content))
        return reply

    async def _streamed(self, request: Request, response: aiohttp.ClientResponse) -> Reply:
        streamed = wire.StreamedReply()
        async for data in self._chunks(response):
            for text in streamed.feed(data):
                if request.watch:
                    request.watch(Text(request.speaker, text))
        for text in streamed.feed(b"\n"):  # a last line without its newline
            if request.watch:
                request.watch(Text(request.speaker, text))
        return streamed.finished()

    async def _whole(self, response: aiohttp.ClientResponse) -> bytes:
        if "Content-Encoding" in response.headers:
            return b"".join([data async for data in self._chunks(response)])
        # Nearly every reply is one uncompressed piece; the general way costs a tenth of the call.
        content, data = response.content, await response.content.readany()
        while not content.at_eof() and len(data) <= self._max_bytes:
            data += await content.readany()
        if len(data) > self._max_bytes:
            raise ReplyTooLarge(f"the reply exceeds {self._max_bytes:,} bytes")
        return data

    async def _chunks(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        """The body, decompressed, as it comes; raises as soon as it exceeds the cap."""
        room = self._max_bytes
        if (response.content_length or 0) > room:
            raise ReplyTooLarge(
                f"the reply announces {response.content_length:,} bytes; at most {room:,} are read"
            )
        unpack = _unpacker(response.headers.get("Content-Encoding", ""))
        while data := await response.content.readany():
            if unpack:
                try:
                    data = unpack.decompress(data, room + 1)
                except zlib.error as error:
                    raise MalformedReply(f"the reply's compression is broken: {error}") from None
            room -= len(data)
            if room < 0 or (unpack and unpack.unconsumed_tail):
                raise ReplyTooLarge(f"the reply exceeds {self._max_bytes:,} bytes")
            if data:
                yield data
        if unpack and not unpack.eof:
            raise MalformedReply("the reply's compressed body ends early")

    def _body(self, request: Request) -> bytes:
        streaming = request.watch is not None
        parts = [
            self._head,
            request.history.encoded(),
            self._tail(request.sampling, request.expects, streaming),
        ]
        if self._is_openai and request.session:
            # Routes a speaker's growing prompt to the machine that has it cached; other servers may refuse the field.
            parts += [b',"prompt_cache_key":', _encode(f"{request.session}/{request.speaker}"[:64])]
        return b"".join([*parts, b"}"])

    def _tail(self, sampling: Sampling, expects: Any, streaming: bool) -> bytes:
        """Everything after the messages. The same few settings recur for millions of calls, so they are kept."""
        key = (id(sampling), expects, streaming)
        kept = self._tails.get(key)
        if kept is None:
            fields = self._fields(sampling, streaming)
            if self.guided and expects:
                fields |= guided_fields(self.guided, expects)
            encoded = _encode({**fields, **sampling.extra})
            if len(self._tails) >= 256:
                self._tails.clear()
            # Keeping the sampling beside its tail keeps its id from being given to another.
            kept = self._tails[key] = sampling, b"]" + (b"," + encoded[1:-1] if encoded != b"{}" else b"")
        return kept[1]

    def _fields(self, sampling: Sampling, streaming: bool) -> dict[str, Any]:
        values = {name: getattr(sampling, name) for name in _SAMPLING_FIELDS}
        fields: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
        if sampling.max_tokens is not None:
            # OpenAI's newer models know only the new name, most other servers only the old one.
            fields["max_completion_tokens" if self._is_openai else "max_tokens"] = sampling.max_tokens
        if sampling.n != 1:
            fields["n"] = sampling.n
        if sampling.stop:
            fields["stop"] = sampling.stop
        if sampling.logprobs is not None:
            fields |= {"logprobs": True, "top_logprobs": sampling.logprobs}
        if streaming:
            fields |= {"stream": True, "stream_options": {"include_usage": True}}
        return fields

    def _session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._http is None or self._loop is not loop or self._http.closed:
            import aiohttp

            self._loop = loop
            self._http = aiohttp.ClientSession(
                # How many calls are open at once is for the caller to decide, not for the connection pool.
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=30),
                proxy=_proxy_for(self.base_url),
            )
        return self._http

    def _scrubbed(self, error: ModelError) -> ModelError:
        """Take the key out of an error's text: some endpoints repeat it, and errors end up in logs and records."""
        if self._key and any(self._key in str(part) for part in error.args):
            error.args = tuple(str(part).replace(self._key, "[key]") for part in error.args)
        return error


def served_models(base_url: str, api_key: str | None = None) -> dict[str, int | None]:
    """Ask an endpoint which models it serves, and their windows where it says so."""
    url = f"{_checked_url(base_url)}/models"
    key = _checked_key(os.environ.get("OPENAI_API_KEY", "") if api_key is None else api_key)
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"} if key else {})  # noqa: S310 - checked
    try:
        with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310 - checked
            listing = msgspec.json.decode(response.read(2**20), type=_Listing)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise Unreachable(f"{url} does not list its models: {error}") from None
    return {entry.id: entry.max_model_len for entry in listing.data}


class _Listed(msgspec.Struct):
    id: str
    max_model_len: int | None = None


class _Listing(msgspec.Struct):
    data: list[_Listed]


def _unpacker(encoding: str) -> Any:
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return None
    if encoding in ("gzip", "x-gzip", "deflate"):
        return zlib.decompressobj(47)  # gzip or zlib, told apart by their headers
    raise MalformedReply(f"the reply is compressed as {encoding[:40]!r}, which was not asked for")


def _proxy_for(url: str) -> str | None:
    """The proxy that the environment names for `url`. Looked up once, because a look-up per call costs more than the call."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in ("localhost", "127.0.0.1", "::1") or cast("Any", urllib.request).proxy_bypass(host):
        return None
    return urllib.request.getproxies().get(parts.scheme)


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > 500:
        raise InputError(f"the model's name must be a short line of text, not {str(name)[:40]!r}")
    return name


def _checked_url(url: object) -> str:
    try:
        parts = urlsplit(url.strip().rstrip("/")) if isinstance(url, str) else None
        if parts and parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts.geturl()
    except ValueError:
        pass
    raise InputError(f"the base URL must look like http://host:port/v1, not {str(url)[:80]!r}")


def _checked_key(key: object) -> str:
    if not isinstance(key, str) or not key.strip().isascii() or not (key.strip() + "x").isprintable():
        raise InputError("the API key contains characters that no key has; was it pasted whole?")
    return key.strip()
