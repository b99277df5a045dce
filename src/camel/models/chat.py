"""The client for a model behind an endpoint, with any of the three protocols.

The one decision to know: all retries are here. A call has one total deadline that covers every attempt, every wait and
every byte of a slow body. The result is a `Reply` or a `ModelError`, never anything else.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import math
import os
import random
from collections.abc import AsyncGenerator, Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import quote, urlencode

import msgspec

from camel.core.checks import shown
from camel.core.errors import (
    DeadlineExceeded,
    InputError,
    ModelError,
    RateLimited,
    ReplyTooLarge,
    RequestRejected,
    ServerFailed,
    Unreachable,
)
from camel.core.message import OWN_FIELDS
from camel.core.model import Model, Reply, Request, Retrying, Text
from camel.models import endpoint, prices
from camel.models.completions import ChatCompletions, OpenAIResponses
from camel.models.dialects import default_url, find_dialect
from camel.models.discovery import BaseUrl, find_replicas
from camel.models.endpoint import (
    Opened,
    connection_errors,
    gated,
    open_session,
    read_chunks,
    read_comment,
    read_whole,
    unreachable,
)
from camel.models.guided import Guide
from camel.models.messages import AnthropicMessages
from camel.models.pool import Pool
from camel.models.protocol import Wire
from camel.models.replica import PoolSettings, Replica, is_misplaced
from camel.models.wire import failure

if TYPE_CHECKING:
    import aiohttp

WIRES: dict[str, type[Wire]] = {
    "completions": ChatCompletions,
    "messages": AnthropicMessages,
    "responses": OpenAIResponses,
}
MOVES = 3
"""Maximum number of times that a call moves to another replica, after an error that may be specific to one replica."""
UNREACHED = 40.0
"""Deadline in seconds if no replica was ever reached: the address is probably wrong."""


class ChatModel(Model):
    """A model by name behind a base URL. It connects at first use. Close it with `aclose()` or `async with`."""

    def __init__(
        self,
        name: str,
        *,
        base_url: BaseUrl | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        dialect: str = "",
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

        `base_url` and `api_key` default to OPENAI_BASE_URL and OPENAI_API_KEY, or to those of the model's provider. `dialect`
        names what the endpoint accepts (`dialects.toml`); by default it follows from the host. `query` is added to the URL of
        every call. Several URLs, a file with one per line (`file:///path`) or a name (`dns+http://host:port/v1`) are replicas
        of one model: a conversation stays on one of them, and `pool` configures their use. `session_field` is a field of the
        body by which a gateway groups calls (OpenAI always gets `prompt_cache_key`). `context_tokens` is the model's window,
        by default from the catalog. `max_choices` is the maximum number of choices per call. `guided` constrains replies to
        the instruction grammar on servers that support it. `deadline` limits a whole call and `attempt_timeout` each attempt,
        in seconds. `max_bytes` limits a reply's body, both as sent and decompressed (4 times as much for a stream). A hostile
        body can take 25 times that in memory when it is parsed.
        """
        self.name = endpoint.checked_name(name)
        given = base_url or os.environ.get("OPENAI_BASE_URL") or default_url(name, dialect)
        source = find_replicas(given)
        spoken = find_dialect(name, source.first, dialect)
        self.base_url = given if isinstance(given, str) and not source.first else ", ".join(source.first)
        self.pool = Pool(source, pool)
        """The replicas and their state."""
        self._key = endpoint.checked_key(spoken.api_key() if api_key is None else api_key)
        self._headers = endpoint.checked_headers(headers or {})
        if not self._key and not self._headers and spoken.hosts and not dialect:
            raise InputError(
                f"no API key: set {spoken.key}, or set OPENAI_BASE_URL to your own server, or use the local model with --local (in Python: local_model())"
            )
        endpoint.positive("deadline", deadline, float)
        endpoint.positive("attempt_timeout", attempt_timeout, float)
        endpoint.positive("max_attempts", max_attempts, int)
        endpoint.positive("max_bytes", max_bytes, int)
        if context_tokens is not None:
            endpoint.positive("context_tokens", context_tokens, int)
        if max_choices is not None:
            endpoint.positive("max_choices", max_choices, int)
        if guided not in (None, *get_args(Guide)):
            raise InputError(f"guided must be one of {', '.join(get_args(Guide))}, not {shown(guided)}")
        if session_field and not (endpoint.is_plain(session_field) and session_field not in OWN_FIELDS):
            raise InputError(
                f"session_field must be a field that the client does not set itself, not {shown(session_field)}"
            )
        entry = prices.find(name)
        self.context_tokens = context_tokens or (entry.context if entry else None)
        self.wire = WIRES[spoken.wire](
            name, spoken, guided=guided, max_choices=max_choices, session_field=session_field
        )
        """The endpoint's protocol."""
        asked = {**spoken.query, **endpoint.checked_headers(query or {}, "query")}
        self._query = f"?{urlencode(asked)}" if asked else ""
        self._path = self.wire.path + self._query
        self._deadline, self._attempt_timeout = deadline, attempt_timeout
        self._max_attempts, self._max_bytes = max_attempts, max_bytes
        # No compression: replies are small, and decompressing them costs more than it saves.
        own = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        own |= spoken.headers
        if self._key and spoken.key_header:
            own[spoken.key_header] = self._key
        elif self._key:
            own["Authorization"] = f"Bearer {self._key}"
        given_names = {name.lower() for name in self._headers}
        self._headers |= {name: value for name, value in own.items() if name.lower() not in given_names}
        self._secrets = endpoint.secrets_in(self._headers, self._key)
        # Shorter ones may occur in a reply by chance.
        self._echoes = [one for one in endpoint.secret_values(self._headers, self._key) if len(one) >= 16]
        self._opened: dict[asyncio.AbstractEventLoop, Opened] = {}

    def __repr__(self) -> str:
        return f"ChatModel({self.name!r}, base_url={self.base_url!r})"

    async def aclose(self) -> None:
        """Close the connections; the next call opens new ones."""
        if opened := self._opened.pop(asyncio.get_running_loop(), None):
            await opened[1].aclose()

    def served_models(self, url: str) -> dict[str, int | None]:
        """Return the names of the models that an endpoint lists, with their context windows if it reports them."""
        return endpoint.served_models(url, self._key, headers=self._headers, query=self._query)

    def release(self, session: str) -> None:
        """Release the conversation's place on its replica, so that another conversation can use it. Optional."""
        self.pool.release(session)

    async def reply(self, request: Request) -> Reply:
        """Send one call, with retries until the deadline."""
        loop = asyncio.get_running_loop()
        body = self.wire.encode(request)
        started = loop.time()
        deadline = started + self._deadline
        pool, limited, moved, slot = self.pool, 0, 0, None
        adjusted: set[str] = set()
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
                latency, constraint = loop.time() - started, self.wire.constraint(request)
                model = reply.model or self.name
                return self.redacted(
                    Reply(reply.choices, reply.usage, model, latency, attempt, constraint, limited)
                )
            except TimeoutError:
                hung = limit < deadline
                error: ModelError = Unreachable(f"no complete reply within {self._attempt_timeout:g} s")
                if not hung:
                    within = f"no complete reply within the deadline of {self._deadline:g} s"
                    error = DeadlineExceeded(f"{within}; previous attempt: {before}" if before else within)
            except ModelError as failed:
                error = self._scrubbed(failed)
            except BaseException:
                if slot is not None:
                    pool.left(slot)
                raise
            moves = False
            if slot is not None:
                pool.failed(slot, error, hung=hung)
                if is_misplaced(error):
                    moves = moved < MOVES and pool.has_other(slot.replica)
                    if not moves and not error.retryable and pool.others_are_out(slot.replica):
                        error = Unreachable(f"only this replica answers: {error}")
                slot = None
            wait = 0.0 if moves else self._wait_before_retry(error, attempt)
            moved += moves
            if type(error) is RequestRejected:
                field = self.wire.adjust(str(error), request.sampling)
                if field and field not in adjusted:  # rejected again, so the reason is another
                    adjusted.add(field)
                    body, wait = self.wire.encode(request), 0.0
            limited += isinstance(error, RateLimited)
            if wait is None or loop.time() + wait >= (started + UNREACHED if pool.unreached else deadline):
                error.attempts, error.limited = attempt, limited
                if error.retryable and self.pool.size > 1:
                    error.args = (f"{error} (the replicas: {self.pool.described()})",)
                # Errors are stored: drop their traceback, whose frames hold whole bodies and the key.
                error.__context__ = None
                raise error.with_traceback(None)
            before = str(error)
            if request.watch:
                request.watch(Retrying(request.speaker, before, wait))
            await asyncio.sleep(wait)
        raise AssertionError("unreachable: the loop returns or raises")

    def _wait_before_retry(self, error: ModelError, attempt: int) -> float | None:
        # The workers of a cluster may have to learn first how many calls an endpoint accepts from all of them.
        counts = not (self.pool.is_shared and isinstance(error, RateLimited))
        if not error.retryable or (counts and attempt >= self._max_attempts):
            return None
        # Full jitter, so that clients that failed together do not retry together.
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
                "X-Session-ID": session if endpoint.is_plain(session) else quote(session, errors="replace"),
            }
        if request.watch and not self.wire.dialect.hosts:
            # llama.cpp announces keep-alive but closes the connection after a stream, and the next call on it would fail.
            headers = {**headers, "Connection": "close"}
        # Above a megabyte, pass it as a file: aiohttp then sends it in pieces without blocking.
        data: Any = io.BytesIO(body) if len(body) >= 2**20 else body
        data = gated(data, gate) if gate else data
        opened = self._opened.get(asyncio.get_running_loop())
        client = opened[0] if opened else await self._open()
        # Catch connection errors only around the connection: errors of the caller's `watch` must pass.
        try:
            response = await client.post(
                replica.url + self._path,
                data=data,
                headers=headers,
                allow_redirects=False,
                proxy=replica.proxy,
            )
        except connection_errors() as broken:
            if gate:
                gate()
            raise unreachable(replica.url, broken) from None
        async with response:
            if not 200 <= response.status < 300:
                said = await read_comment(response, replica.url, self._max_bytes)
                raise failure(response.status, said, response.headers)
            if (response.content_length or 0) > self._max_bytes:
                raise ReplyTooLarge(
                    f"the reply announces {response.content_length:,} bytes; the limit is {self._max_bytes:,}"
                )
            # Read a stream even if none was requested: it was paid for.
            if response.headers.get("Content-Type", "").lower().startswith("text/event-stream"):
                return await self._streamed(request, response, replica.url)
            reply = self.wire.read(await read_whole(response, replica.url, self._max_bytes))
        if request.watch:
            request.watch(Text(request.speaker, reply.content))
        return reply

    async def _streamed(self, request: Request, response: aiohttp.ClientResponse, url: str) -> Reply:
        streamed = self.wire.stream()
        try:
            async with (
                asyncio.timeout(None) as patience,
                contextlib.aclosing(read_chunks(response, url, 4 * self._max_bytes)) as chunks,
            ):
                async for data in chunks:
                    _tell(request, streamed.feed(data))
                    if streamed.done:  # the connection is reusable if the stream closes soon
                        patience.reschedule(asyncio.get_running_loop().time() + 1)
        except (ModelError, TimeoutError):
            if not streamed.done:
                raise
        _tell(request, streamed.feed(b"\n"))  # a last line without its newline
        return streamed.finished()

    async def exchange(self, method: str, path: str, data: Any = None) -> AsyncGenerator[bytes]:
        """Call another path of the endpoint once, such as batches. Yield the body of a 2xx response as it arrives."""
        import aiohttp

        opened, url = self._opened.get(asyncio.get_running_loop()), self.base_url
        client = opened[0] if opened else await self._open()
        form = isinstance(data, aiohttp.FormData)  # sets its own content type
        headers = {name: one for name, one in self._headers.items() if not form or name != "Content-Type"}
        wait = aiohttp.ClientTimeout(sock_connect=30, sock_read=self._attempt_timeout)
        given: dict[str, Any] = {"data": data, "headers": headers, "timeout": wait}
        proxy = endpoint.proxy_for(url)
        try:
            async with client.request(
                method, url + path, allow_redirects=False, proxy=proxy, **given
            ) as response:
                if not 200 <= response.status < 300:
                    said = await read_comment(response, url, self._max_bytes)
                    raise failure(response.status, said, response.headers)
                async for part in read_chunks(response, url, 1024 * self._max_bytes):
                    yield part
        except connection_errors() as broken:
            raise self._scrubbed(unreachable(url, broken)) from None
        except ModelError as error:
            raise self._scrubbed(error) from None

    async def _open(self) -> aiohttp.ClientSession:
        self._opened = {loop: its for loop, its in self._opened.items() if not loop.is_closed()}
        sessions = open_session()
        session = await anext(sessions)
        self._opened[asyncio.get_running_loop()] = session, sessions
        return session

    def redacted(self, reply: Reply) -> Reply:
        """Return a reply without the client's own secrets, which some endpoints and gateways echo."""
        for secret in self._echoes:
            for one in reply.choices:
                if (
                    secret in one.content
                    or secret in one.reasoning
                    or (one.calls and secret in str(one.calls))
                ):
                    break
            else:
                if secret not in reply.model:
                    continue
            written = msgspec.json.encode(reply).replace(msgspec.json.encode(secret)[1:-1], b"[key]")
            reply = msgspec.json.decode(written, type=Reply)
        return reply

    def _scrubbed(self, error: ModelError) -> ModelError:
        """Remove secrets from an error's text: some endpoints echo them, and errors go to logs and records."""
        if self._secrets:
            # A slash may be escaped, as JSON allows.
            error.args = tuple(
                self._secrets.sub("[key]", str(part).replace("\\/", "/")) for part in error.args
            )
        return error


def _tell(request: Request, texts: Iterator[str]) -> None:
    for text in texts:
        if request.watch:
            request.watch(Text(request.speaker, text))
