"""The client: any model behind an OpenAI-compatible chat-completions endpoint.

The one decision to know: retries live here and nowhere else. A call has one total deadline that covers every attempt,
every wait and every byte of a dripping body; what comes back is a `Reply` or a `ModelError`, never anything else.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import math
import os
import random
import re
import zlib
from collections.abc import AsyncGenerator, Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import quote, urlsplit

import msgspec

from camel.core.checks import shown
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
from camel.core.message import OWN_FIELDS, Sampling, well_formed
from camel.core.model import Expects, Model, Reply, Request, Retrying, Text
from camel.models import catalogue, wire
from camel.models.connections import (
    Opened,
    connection_errors,
    gated,
    open_session,
    root_of,
    unpacker,
    unreachable,
)
from camel.models.discovery import BaseUrl, find_replicas
from camel.models.endpoint import (
    checked_headers,
    checked_key,
    checked_name,
    is_plain,
    positive,
    secrets_in,
)
from camel.models.guided import CRITICS, Guide, guided_fields
from camel.models.pool import Pool
from camel.models.replica import PoolSettings, Replica, is_misplaced

if TYPE_CHECKING:
    import aiohttp

OPENAI_URL = "https://api.openai.com/v1"
MOVES = 3
"""Times that a call is sent to another replica because of what one said that may be its own fault."""
UNREACHED = 40.0
"""Seconds for a call where no replica was ever reached: the address is probably wrong."""
_SAMPLING_FIELDS = ("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty")
_BEFORE_SCHEMAS = re.compile(r"gpt-(?:3\.5|4(?![o.]))")
"""Models of OpenAI's that refuse a JSON schema."""
_COMMENT_BYTES, _COMMENT_SECONDS = 2**16, 2.0
"""How much of an error's body is read, and how long it is waited for: the status has said what matters."""
_encode = msgspec.json.Encoder().encode


class ChatModel(Model):
    """A model by name behind a base URL. Opens connections when first used; close with `aclose()` or `async with`."""

    def __init__(
        self,
        name: str,
        *,
        base_url: BaseUrl | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        context_tokens: int | None = None,
        max_choices: int | None = None,
        guided: Guide | None = None,
        pool: PoolSettings | None = None,
        session_field: str = "",
        deadline: float = 600.0,
        attempt_timeout: float = 300.0,
        max_attempts: int = 6,
        max_bytes: int = 4 * 2**20,
    ) -> None:
        """Describe the endpoint; nothing is sent yet.

        `base_url` and `api_key` default to OPENAI_BASE_URL and OPENAI_API_KEY. Several URLs, a file with one a line
        (`file:///path`) or a name (`dns+http://host:port/v1`) are replicas of one model: a conversation stays on one of
        them, and `pool` says how they are used. `session_field` names a field of the body that tells a gateway which
        calls belong together (OpenAI gets its `prompt_cache_key` in any case). `context_tokens` is the model's window,
        by default what the catalogue knows. `max_choices` is the most answers that the server gives in one call: no more
        are asked for, and whoever wants more calls again. `guided` holds replies to the instruction grammar on servers that can.
        `deadline` bounds a whole call and `attempt_timeout` each try of it, in seconds. `max_bytes` bounds a reply's
        body, both as sent and as decompressed (4 times as much for a stream, whose every word has a frame). A hostile body can take up to 25 times that in memory once it is
        parsed, which is why the default is no larger than about a million tokens of text.
        """
        self.name = checked_name(name)
        given = base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL
        source = find_replicas(given)
        self.base_url = given if isinstance(given, str) and not source.first else ", ".join(source.first)
        self.pool = Pool(source, pool)
        """Where calls go, and how the replicas are doing."""
        self._key = checked_key(os.environ.get("OPENAI_API_KEY", "") if api_key is None else api_key)
        if not self._key and self.base_url == OPENAI_URL:
            raise InputError(
                "no API key: set OPENAI_API_KEY, or point OPENAI_BASE_URL at a server of your own, or use the local model with --local, or local_model() in Python"
            )
        positive("deadline", deadline, float)
        positive("attempt_timeout", attempt_timeout, float)
        positive("max_attempts", max_attempts, int)
        positive("max_bytes", max_bytes, int)
        if context_tokens is not None:
            positive("context_tokens", context_tokens, int)
        if max_choices is not None:
            positive("max_choices", max_choices, int)
        self._max_choices = max_choices
        if guided not in (None, *get_args(Guide)):
            raise InputError(f"guided must be one of {', '.join(get_args(Guide))}, not {shown(guided)}")
        entry = catalogue.find(name)
        self.context_tokens = context_tokens or (entry.context if entry else None)
        # All of them: a field that only OpenAI knows must reach nobody else.
        hosts = {urlsplit(url).hostname for url in source.first}
        self._is_openai = hosts == {"api.openai.com"}
        schemas = self._is_openai and not _BEFORE_SCHEMAS.match(name)
        self.guided: Guide | None = guided or ("openai" if schemas else None)
        if session_field and not (is_plain(session_field) and session_field not in OWN_FIELDS):
            raise InputError(
                f"session_field must be the name of a field of your own, not {shown(session_field)}"
            )
        self._session_field = session_field or ("prompt_cache_key" if self._is_openai else "")
        self._deadline, self._attempt_timeout = deadline, attempt_timeout
        self._max_attempts, self._max_bytes = max_attempts, max_bytes
        # Compression is refused because replies are small and unpacking them costs more than it saves.
        self._headers = checked_headers(headers or {})
        own = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self._key:
            own["Authorization"] = f"Bearer {self._key}"
        own_words = {name.lower() for name in self._headers}
        self._headers |= {name: value for name, value in own.items() if name.lower() not in own_words}
        self._head = b'{"model":' + _encode(name) + b',"messages":['
        self._tails: dict[tuple[int, str | None, int, bool], tuple[Sampling, bytes]] = {}
        self._secrets = secrets_in(self._headers, self._key)
        self._opened: dict[asyncio.AbstractEventLoop, Opened] = {}

    def __repr__(self) -> str:
        return f"ChatModel({self.name!r}, base_url={self.base_url!r})"

    async def aclose(self) -> None:
        """Close the connections; the model can be used again and will open new ones."""
        if opened := self._opened.pop(asyncio.get_running_loop(), None):
            await opened[1].aclose()

    def release(self, session: str) -> None:
        """Say that a conversation has ended, so that its replica has room for another. Not needed, but kind."""
        self.pool.release(session)

    async def reply(self, request: Request) -> Reply:
        """Send one call, trying again where that can help, until the deadline."""
        loop = asyncio.get_running_loop()
        body = self._body(request)
        started = loop.time()
        deadline = started + self._deadline
        pool, limited, moved, slot = self.pool, 0, 0, None
        before = ""
        if pool.look_at < math.inf:
            await pool.refresh()
        for attempt in count(1):
            limit, hung = deadline, False
            try:
                slot = pool.take(request, body)
                if slot is None:
                    slot = await pool.wait(request, body, deadline)
                limit = min(deadline, loop.time() + self._attempt_timeout)
                if pool.unreached:
                    limit = min(limit, max(loop.time() + 1.0, started + UNREACHED))
                async with asyncio.timeout_at(limit):
                    reply = await self._attempt(request, body, slot.replica)
                pool.served(slot, reply.usage, request.speaker)
                guided = self._guided(request)
                return Reply(
                    reply.choices,
                    reply.usage,
                    reply.model or self.name,
                    loop.time() - started,
                    attempt,
                    guided,
                    limited,
                )
            except TimeoutError:
                hung = limit < deadline
                error: ModelError = Unreachable(f"no complete reply within {self._attempt_timeout:g} s")
                if not hung:
                    within = f"no complete reply within the deadline of {self._deadline:g} s"
                    error = DeadlineExceeded(f"{within}; the try before: {before}" if before else within)
            except ModelError as failed:
                error = self._scrubbed(failed)
            except BaseException:
                if slot is not None:
                    pool.left(slot)
                raise
            wait = self._wait_before_retry(error, attempt)
            if slot is not None:
                pool.failed(slot, error, hung=hung)
                if is_misplaced(error) and moved < MOVES and pool.has_other(slot.replica):
                    moved, wait = moved + 1, 0.0
                slot = None
            limited += isinstance(error, RateLimited)
            if wait is None or loop.time() + wait >= (started + UNREACHED if pool.unreached else deadline):
                error.attempts, error.limited = attempt, limited
                if error.retryable and self.pool.size > 1:
                    error.args = (f"{error} (the replicas: {self.pool.described()})",)
                # Errors are kept as data: without the frames behind them, which hold whole bodies, and the key.
                error.__context__ = None
                raise error.with_traceback(None)
            before = str(error)
            if request.watch:
                request.watch(Retrying(request.speaker, before, wait))
            await asyncio.sleep(wait)
        raise AssertionError("unreachable: the loop returns or raises")

    def _wait_before_retry(self, error: ModelError, attempt: int) -> float | None:
        if not error.retryable or attempt >= self._max_attempts:
            return None
        # Full jitter: clients that failed together must not come back together.
        backoff = random.uniform(0, min(30.0, 0.5 * 2 ** min(attempt, 6)))  # noqa: S311 - not for secrets
        asked = error.retry_after if isinstance(error, RateLimited | ServerFailed) else None
        return backoff if asked is None else asked + backoff * 0.1

    async def _attempt(self, request: Request, body: bytes, replica: Replica) -> Reply:
        """Send the request once."""
        if gate := self.pool.gate:
            gate()
        headers = self._headers
        if session := request.session:
            headers = {
                **headers,
                "X-Session-ID": session if is_plain(session) else quote(session, errors="replace"),
            }
        if request.watch and not self._is_openai:
            # llama.cpp promises to keep a connection and closes it after a stream, which fails the next call on it.
            headers = {**headers, "Connection": "close"}
        # As a file beyond a megabyte, which aiohttp then sends in pieces instead of blocking on it.
        data: Any = io.BytesIO(body) if len(body) >= 2**20 else body
        data = gated(data, gate) if gate else data
        opened = self._opened.get(asyncio.get_running_loop())
        client = opened[0] if opened else await self._open()
        # The connection's errors are caught only where it is used: those of the caller's `watch` are the caller's.
        try:
            response = await client.post(
                replica.endpoint, data=data, headers=headers, allow_redirects=False, proxy=replica.proxy
            )
        except connection_errors() as broken:
            if gate:
                gate()
            raise unreachable(replica.url, broken) from None
        async with response:
            if not 200 <= response.status < 300:
                raise wire.failure(response.status, await self._comment(response), response.headers)
            if (response.content_length or 0) > self._max_bytes:
                raise ReplyTooLarge(
                    f"the reply announces {response.content_length:,} bytes; at most {self._max_bytes:,} are read"
                )
            # Whether or not a stream was asked for: what came is what was paid for.
            if response.headers.get("Content-Type", "").lower().startswith("text/event-stream"):
                return await self._streamed(request, response)
            reply = wire.read_reply(await self._whole(response))
        if request.watch:
            request.watch(Text(request.speaker, reply.content))
        return reply

    async def _streamed(self, request: Request, response: aiohttp.ClientResponse) -> Reply:
        streamed = wire.StreamedReply()
        try:
            async with (
                asyncio.timeout(None) as patience,
                contextlib.aclosing(self._chunks(response, 4 * self._max_bytes)) as chunks,
            ):
                async for data in chunks:
                    _tell(request, streamed.feed(data))
                    if streamed.done:  # the connection can be used again if the stream is also closed soon
                        patience.reschedule(asyncio.get_running_loop().time() + 1)
        except (ModelError, TimeoutError):
            if not streamed.done:
                raise
        _tell(request, streamed.feed(b"\n"))  # a last line without its newline
        return streamed.finished()

    async def _whole(self, response: aiohttp.ClientResponse) -> bytes:
        if "Content-Encoding" in response.headers:
            return b"".join([data async for data in self._chunks(response, self._max_bytes)])
        # Nearly every reply is one uncompressed piece; the general way costs a tenth of the call.
        content = response.content
        try:
            data = await content.readany()
            if content.at_eof() and len(data) <= self._max_bytes:
                return data
            pieces, size = [data], len(data)
            while size <= self._max_bytes and (data := await content.readany()):
                pieces.append(data)
                size += len(data)
        except connection_errors() as broken:
            raise unreachable(root_of(response), broken) from None
        if size > self._max_bytes:
            raise ReplyTooLarge(f"the reply exceeds {self._max_bytes:,} bytes")
        return b"".join(pieces)

    async def _comment(self, response: aiohttp.ClientResponse) -> bytes:
        """What an error says beside its status, as far as it can be had: a broken body must not hide the status."""
        said = bytearray()
        with contextlib.suppress(ModelError, TimeoutError):
            async with (
                asyncio.timeout(_COMMENT_SECONDS),
                contextlib.aclosing(self._chunks(response, self._max_bytes)) as chunks,
            ):
                async for data in chunks:
                    said += data
                    if len(said) >= _COMMENT_BYTES:
                        break
        return bytes(said[:_COMMENT_BYTES])

    async def _chunks(self, response: aiohttp.ClientResponse, limit: int) -> AsyncGenerator[bytes]:
        """The body, decompressed, as it comes; raises as soon as it exceeds the cap."""
        sent = unpacked = 0
        unpack = unpacker(response.headers.get("Content-Encoding", ""))
        while True:
            try:
                data = await response.content.readany()
            except connection_errors() as broken:
                raise unreachable(root_of(response), broken) from None
            if not data:
                break
            sent += len(data)
            if unpack:
                try:
                    data = unpack.decompress(data, limit - unpacked + 1)
                except zlib.error as error:
                    raise MalformedReply(f"the reply's compression is broken: {error}") from None
                if unpack.unused_data:
                    raise MalformedReply("the reply's compressed body goes on after its end")
            unpacked += len(data)
            if max(sent, unpacked) > limit:
                raise ReplyTooLarge(f"the reply exceeds {limit:,} bytes")
            if data:
                yield data
        if unpack and not unpack.eof:
            raise MalformedReply("the reply's compressed body ends early")

    def _body(self, request: Request) -> bytes:
        streaming = request.watch is not None
        parts = [
            self._head,
            request.history.encoded(),
            self._tail(request.sampling, request.expects, request.options, streaming),
        ]
        if self._session_field and request.session:
            # Routes a speaker's growing prompt to the machine that has it cached; other servers may refuse the field.
            parts += [b",", _encode(self._session_field), b":", _encode(_session_key(request))]
        return b"".join([*parts, b"}"])

    def _guided(self, request: Request) -> str:
        """What the reply was held to, as the record has it."""
        if not self.guided or not request.expects:
            return ""
        held = self.guided != "openai" or request.expects in CRITICS
        return f"{self.guided}:{request.expects}" if held else ""

    def _tail(self, sampling: Sampling, expects: Expects | None, options: int, streaming: bool) -> bytes:
        """Everything after the messages. The same few settings recur for millions of calls, so they are kept."""
        key = (id(sampling), expects, options, streaming)
        kept = self._tails.get(key)
        if kept is None:
            fields = self._fields(sampling, streaming)
            if self.guided and expects:
                fields |= guided_fields(self.guided, expects, options)
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
        wanted = min(sampling.n, self._max_choices or sampling.n)
        if wanted != 1:
            fields["n"] = wanted
        if sampling.stop:
            fields["stop"] = sampling.stop
        if sampling.logprobs is not None:
            fields |= {"logprobs": True, "top_logprobs": sampling.logprobs}
        if streaming:
            fields |= {"stream": True, "stream_options": {"include_usage": True}}
        return fields

    async def _open(self) -> aiohttp.ClientSession:
        self._opened = {loop: its for loop, its in self._opened.items() if not loop.is_closed()}
        sessions = open_session()
        session = await anext(sessions)
        self._opened[asyncio.get_running_loop()] = session, sessions
        return session

    def _scrubbed(self, error: ModelError) -> ModelError:
        """Take secrets out of an error's text: some endpoints repeat them, and errors end up in logs and records."""
        if self._secrets:
            # A slash may come escaped, as JSON allows.
            error.args = tuple(
                self._secrets.sub("[key]", str(part).replace("\\/", "/")) for part in error.args
            )
        return error


def _session_key(request: Request) -> str:
    """Names a speaker's growing prompt in at most 64 characters, which is what OpenAI takes."""
    key = well_formed(f"{request.session}/{request.speaker}")
    return key if len(key) <= 64 else hashlib.blake2b(key.encode(), digest_size=32).hexdigest()


def _tell(request: Request, texts: Iterator[str]) -> None:
    for text in texts:
        if request.watch:
            request.watch(Text(request.speaker, text))
