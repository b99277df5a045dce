"""One HTTP server for every provider, and its ledger: the account that a run is compared with.

The one decision to know: the server is a witness. It is written from the providers' documentation, shares no code with
the client, refuses what its provider documents to refuse, and counts and bills by itself.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from aiohttp import web

from tests.support.endpoints import _THREAD
from tests.support.providers.provider import Call, Failure, Provider
from tests.support.providers.words import (
    REFUSAL,
    Count,
    PrefixCache,
    Said,
    prompt_tokens,
    speak,
    tokens,
)

KEY = "sk-conformance-9f2c"
"""The only key that providers accept."""
_SECRET = ("authorization", "api-key", "x-api-key")
_PIECE = 400
"""Bytes of a stream that are written at a time: lines are cut anywhere."""


@dataclass(frozen=True)
class Trouble:
    """What goes wrong, and with which requests. A kind is an error of the provider's, or a way to spoil a reply."""

    kind: str
    first: int = 0
    """How many of the requests in question are served before."""
    times: int = 1
    """How many meet it; 0: all that follow."""
    mentions: str = ""
    """Only requests in which this is said."""
    turns: int = 0
    """Only requests with at least so many turns, the system prompt included."""
    talks: bool | None = True
    """Only requests of agents; False: only others; None: all."""


@dataclass
class Row:
    """A request, and what became of it."""

    path: str
    body: dict[str, Any]
    raw: str
    headers: dict[str, str]
    """Without keys."""
    at: float
    status: int = 0
    error: str = ""
    """What was answered instead of a reply."""
    kind: str = ""
    """The trouble that it met."""
    ignored: tuple[str, ...] = ()
    """Fields without effect here, by the provider's documentation."""
    talks: bool = False
    said: tuple[Said, ...] = ()
    counted: Count | None = None
    """Tokens, where the request was billed."""
    reported: int = 0
    """Tokens of thoughts that the reply tells of."""
    shown: bool = False
    """Whether the reply holds what was thought."""
    dollars: float = 0.0

    @property
    def served(self) -> bool:
        return self.counted is not None

    @property
    def usable(self) -> bool:
        """Whether the reply says what it should."""
        whole = all(one.finish == "stop" for one in self.said)
        return self.served and whole and (not self.kind or self.kind in USABLE)


@dataclass
class Ledger:
    """All requests in the order of their arrival."""

    rows: list[Row] = field(default_factory=list[Row])

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    @property
    def served(self) -> list[Row]:
        return [row for row in self.rows if row.served]

    @property
    def refused(self) -> list[Row]:
        """Requests that were refused for what they hold, as no trouble demanded."""
        return [row for row in self.rows if row.status >= 400 and not row.kind]

    def total(self) -> Counter[str]:
        """Sums over what was billed, by the names that a run records."""
        sums: Counter[str] = Counter()
        for row in self.served:
            assert row.counted is not None
            sums.update(
                calls=1,
                prompt=row.counted.prompt,
                completion=row.counted.completion,
                cached=row.counted.cached,
                reasoning=row.reported,
            )
        return sums

    @property
    def dollars(self) -> float:
        return sum(row.dollars for row in self.rows)


class ProviderServer:
    """A provider on loopback."""

    def __init__(
        self,
        provider: Provider,
        *,
        troubles: tuple[Trouble, ...] = (),
        messages: int = 5,
        thought_tokens: int = 0,
    ) -> None:
        self.provider, self.troubles = provider, troubles
        self.messages, self.thought_tokens = messages, thought_tokens
        self.ledger = Ledger()
        self.url = ""
        self._cache = PrefixCache()
        self._met: Counter[Trouble] = Counter()

    @property
    def base_url(self) -> str:
        return self.url + self.provider.base

    async def start(self) -> web.AppRunner:
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        raw = await request.text()
        if request.method == "GET" and request.path == self.provider.base + "/models":
            return web.json_response({"object": "list", "data": []})
        headers = {name.lower(): value for name, value in request.headers.items()}
        try:
            body = json.loads(raw)
        except ValueError:
            body = {}
        plain = {name: value for name, value in headers.items() if name not in _SECRET}
        row = Row(request.path, body, raw, plain, time.monotonic())
        self.ledger.rows.append(row)
        call = Call(request.method, request.path, headers, dict(request.query), body, KEY)
        failure = self.provider.admit(call) or self.provider.refuse(call)
        if failure is None:
            return await self._serve(request, row, call)
        return self._fail(row, failure)

    def _fail(self, row: Row, failure: Failure) -> web.Response:
        row.status = failure.status
        row.error = text = failure.body if isinstance(failure.body, str) else json.dumps(failure.body)
        kind = "text/html" if text.startswith("<") else "application/json"
        return web.Response(status=failure.status, text=text, headers=failure.headers, content_type=kind)

    def _trouble(self, row: Row, call: Call) -> str:
        heard = self.provider.wire.heard(call.body)
        for trouble in self.troubles:
            if trouble.talks not in (None, heard.talks) or not heard.mentions(trouble.mentions):
                continue
            if len(heard.turns) < trouble.turns:
                continue
            number = self._met[trouble]
            self._met[trouble] += 1
            if number >= trouble.first and (not trouble.times or number < trouble.first + trouble.times):
                return trouble.kind
        return ""

    async def _serve(self, request: web.Request, row: Row, call: Call) -> web.StreamResponse:
        provider, wire, body = self.provider, self.provider.wire, call.body
        heard = wire.heard(body)
        row.talks, row.ignored = heard.talks, provider.ignores(call)
        row.kind = kind = self._trouble(row, call)
        if kind in provider.errors:
            return self._fail(row, provider.errors[kind])
        thinks = provider.thinks(call)
        said = tuple(
            speak(
                heard,
                thinks=thinks,
                limit=wire.limit(body, provider.limits),
                choice=choice,
                messages=self.messages,
                thought_tokens=self.thought_tokens,
            )
            for choice in range(wire.choices(body))
        )
        if kind:
            said = tuple(_spoil(one, kind) for one in said)
        row.status, row.said = 200, said
        count = self._count(call, said)
        row.shown = thinks and bool(provider.form(call))
        if kind in UNCOUNTED:
            row.counted = Count(0, 0)
        elif kind not in UNBILLED:
            row.counted = count
            row.reported = count.thought if provider.reports else 0
            row.dollars = provider.bill(count)
        self._cache.add(heard.turns)
        if not body.get("stream"):
            reply = wire.whole(provider, call, said, count)
            text = json.dumps(wire.spoil(provider, reply, kind) if kind else reply)
            return web.Response(
                text=provider.padding + text, headers=provider.headers, content_type="application/json"
            )
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **provider.headers})
        await response.prepare(request)
        data = b"".join(wire.events(provider, call, said, count, kind))
        for start in range(0, len(data), _PIECE):
            await response.write(data[start : start + _PIECE])
        if kind == "hang_up":
            assert request.transport is not None
            request.transport.close()
        return response

    def _count(self, call: Call, said: tuple[Said, ...]) -> Count:
        provider, turns = self.provider, self.provider.wire.heard(call.body).turns
        prompt = prompt_tokens(turns)
        cached = written = 0
        if provider.cache and (until := provider.caches_until(call)):
            prefix = turns[:until]
            size = prompt_tokens(prefix)
            cached = self._cache.look(prefix, provider.cache.least, provider.cache.unit)
            if provider.cache.write and size >= provider.cache.least:
                written = size - cached
        return Count(
            prompt,
            sum(one.speech_tokens + one.thought_tokens for one in said),
            cached,
            written,
            sum(one.thought_tokens for one in said),
        )


UNBILLED = ("finish_error", "finish:error", "error_in_200", "error_in_stream", "hang_up", "no_choices")
"""Replies that a provider does not charge for."""
UNCOUNTED = ("usage_null", "usage_absent")
"""Replies that do not say what they took."""
USABLE = (*UNCOUNTED, "redacted", "refused")
"""Replies whose text is as it should be."""


def _spoil(said: Said, kind: str) -> Said:
    """The reply as a trouble leaves it; the wire formats know the rest."""
    if kind == "empty":
        return replace(said, text="", speech_tokens=1)
    if kind == "empty_at_limit":
        return replace(said, text="", finish="length", speech_tokens=0)
    if kind == "refused":
        return replace(said, text=REFUSAL, speech_tokens=tokens(REFUSAL))
    if kind == "filtered":
        cut = f"SPOILED {said.text[:20]}"
        return replace(said, text=cut, finish="content_filter", speech_tokens=tokens(cut))
    if kind in ("cut", "finish:model_length"):
        cut = f"SPOILED {said.text[:20]}"
        return replace(said, text=cut, finish="length", speech_tokens=tokens(cut))
    return said


@contextmanager
def serving(provider: Provider, **settings: Any) -> Generator[ProviderServer]:
    """A provider for the length of a `with` block, on the thread of the other endpoints."""
    with _THREAD.used() as loop:
        server = ProviderServer(provider, **settings)
        runner = asyncio.run_coroutine_threadsafe(server.start(), loop).result()
        try:
            yield server
        finally:
            asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
