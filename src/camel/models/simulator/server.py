"""The server: one asyncio protocol per connection, which reads requests and executes their plans.

The one decision to know: an instant reply is written inside `buffer_updated`, without a task or a timer. Slower replies are
chains of timers that end with their connection. Every answer, good or faulty, is a `ReplyPlan`, decided before the first byte
is sent, so a new fault needs no new I/O code. A server in its own process stops when its standard input closes: the parent
holds the other end, so the child ends with the parent in any case.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, NamedTuple, Self, cast
from urllib.request import ProxyHandler, Request, build_opener

import msgspec

from camel.models.simulator import chat, wire
from camel.models.simulator.authors import Author, find_author
from camel.models.simulator.ledger import Counters, Ledger, LedgerRow, TokenCount
from camel.models.simulator.settings import FaultKind, SimulatorSettings, fraction, mix

_PATIENCE = 10.0


@dataclass(eq=False)
class SimulatorProcess:
    """A running simulator process. It prints these fields as a line of JSON when it is ready."""

    url: str
    base_url: str
    pid: int

    def ledger(self) -> Counters:
        """Return the current counters."""
        return msgspec.json.decode(self._call("GET", "/ledger"), type=Counters)

    def flush(self) -> None:
        """Write every finished row to the ledger's file."""
        self._call("POST", "/ledger/flush")

    def reset(self) -> None:
        """Reset the ledger."""
        self._call("POST", "/reset")

    def _call(self, method: str, path: str) -> bytes:
        request = Request(self.url + path, method=method)  # noqa: S310 - our own http URL
        # Loopback must not go through a proxy that the environment names.
        with build_opener(ProxyHandler({})).open(request, timeout=_PATIENCE) as response:
            return response.read()


@contextmanager
def spawn(settings: SimulatorSettings | None = None, *, port: int = 0) -> Generator[SimulatorProcess]:
    """Run a simulator as a child process for the duration of a `with` block."""
    encoded = msgspec.json.encode(settings or SimulatorSettings()).decode()
    command = [sys.executable, "-m", "camel.models.simulator", "--port", str(port), "--settings", encoded]
    # Pass the parent's path, so that the child finds the same camel, and authors in test files.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    # In its own session, Ctrl-C does not reach it, so the parent can still read its ledger.
    with subprocess.Popen(  # noqa: S603 - our own interpreter and module
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            line = child.stdout.readline()
            if not line:
                raise RuntimeError(f"the simulator did not start (exit status {child.wait()})")
            yield msgspec.json.decode(line, type=SimulatorProcess)
        finally:
            child.stdin.close()
            try:
                child.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                child.kill()


class ReplyPlan(NamedTuple):
    """One answer."""

    outcome: str
    status: int
    """The status for the ledger; 0 if none is sent."""
    pieces: Iterable[bytes]
    row: LedgerRow | None = None
    """The request's row in the ledger; `None` for requests that are not chat."""
    tokens: TokenCount | None = None
    """The tokens that the request is billed for, if any."""
    delay: float = 0.0
    """Seconds before the first piece."""
    interval: float = 0.0
    """Seconds between pieces. 0: all pieces are sent at once."""
    ending: Literal["keep", "close", "reset"] = "keep"


class ReplyPlanner:
    """Turns requests into plans. Owns all state beyond a request: ledger, prefix cache, clock."""

    def __init__(self, settings: SimulatorSettings, author: Author) -> None:
        self.ledger = Ledger(settings.ledger_path)
        self._settings = settings
        self._author = author
        self._cache = chat.PrefixCache(settings.prefix_cache)
        self._started = time.monotonic()
        self._routes: dict[tuple[str, str], Callable[[], bytes]] = {
            ("GET", "/v1/models"): self._models,
            ("GET", "/health"): lambda: b'{"status":"ok"}',
            ("GET", "/ledger"): lambda: msgspec.json.encode(self.ledger.counters),
            ("POST", "/ledger/flush"): lambda: self.ledger.flush() or b"{}",
            ("POST", "/reset"): self._reset,
        }

    def plan(self, request: wire.HttpRequest, client: int = 0) -> ReplyPlan:
        """Return the plan for a request; `client` is the client's port."""
        if request.path == "/v1/chat/completions" and request.method == "POST":
            return self._plan_chat(request, client)
        route = self._routes.get((request.method, request.path))
        if route is not None:
            return ReplyPlan("", 200, (wire.respond(200, route()),))
        return ReplyPlan("", 404, (chat.error(404, f"not found: {request.method} {request.path}"),))

    def _plan_chat(self, request: wire.HttpRequest, client: int) -> ReplyPlan:
        digest = int.from_bytes(sha256(request.body).digest()[:8], "big")
        row, settings = self.ledger.arrive(request.session, digest, client), self._settings
        try:
            asked = chat.decode_request(request.body)
            if settings.rejects:
                sent = msgspec.json.decode(request.body, type=dict[str, msgspec.Raw])
                for name in sent.keys() & {*settings.rejects}:
                    return self._error(row, "rejected", 400, f"Unsupported parameter: '{name}'")
            point = fraction(mix(settings.seed, digest, row.seen, 1)) if settings.faults else 1.0
            fault = settings.fault_at(point)
            refusal = self._refuse(row) or self._fail(row, fault)
            if refusal is not None:
                return refusal
            completion = chat.compose(asked, settings, self._author, self._cache)
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            return self._error(row, "rejected", 400, str(problem))
        except Exception as problem:
            return self._error(row, "error", 500, f"the author failed: {problem!r}")
        plan = self._serve(row, digest, asked, completion)
        return self._spoil(plan, fault, asked, completion)

    def _refuse(self, row: LedgerRow) -> ReplyPlan | None:
        settings = self._settings
        if settings.burst is None and settings.capacity is None and not settings.capacity_schedule:
            return None
        elapsed = time.monotonic() - self._started
        if settings.burst is not None and settings.burst.covers(elapsed):
            return self._error(row, "burst", 429, "too many requests at this hour")
        capacity = settings.capacity_at(elapsed)
        if capacity is not None and self.ledger.counters.in_flight > capacity:
            return self._error(row, "capacity", 429, f"at most {capacity} requests at a time")
        return None

    def _fail(self, row: LedgerRow, fault: FaultKind | None) -> ReplyPlan | None:
        """Return the plan for a fault before the model writes anything, so nothing is billed. None for other faults."""
        match fault:
            case "500" | "503" | "429":
                return self._error(row, fault, int(fault), "simulated fault")
            case "reset":
                return ReplyPlan(fault, 0, (), row, ending="reset")
            case "hang":
                return ReplyPlan(fault, 0, (), row, delay=self._settings.hang_seconds, ending="close")
            case _:
                return None

    def _serve(
        self, row: LedgerRow, digest: int, asked: chat.ChatRequest, completion: chat.Completion
    ) -> ReplyPlan:
        settings, delay, interval = self._settings, 0.0, 0.0
        if settings.latency is not None:
            delay = row.delay = settings.latency.at(fraction(mix(settings.seed, digest, row.seen, 2)))
        if not asked.stream:
            reply = (wire.respond(200, chat.body(completion)),)
            return ReplyPlan("served", 200, reply, row, completion.tokens, delay)
        if settings.tokens_per_second is not None:
            interval = settings.tokens_per_event / settings.tokens_per_second
        steps = [wire.chunk(step) for step in self._events(asked, completion)]
        steps[0] = wire.STREAM_HEAD + steps[0]
        steps[-1] += wire.LAST_CHUNK
        return ReplyPlan("served", 200, steps, row, completion.tokens, delay, interval)

    def _spoil(
        self, plan: ReplyPlan, fault: FaultKind | None, asked: chat.ChatRequest, completion: chat.Completion
    ) -> ReplyPlan:
        """Return the plan changed by a fault in the delivery of the reply. The reply has been written and is billed."""
        if fault is None:
            return plan
        plan, reply = plan._replace(outcome=fault), b"".join(plan.pieces)
        match fault:
            case "lost":
                return plan._replace(status=0, pieces=(), ending="close")
            case "truncate":
                body_at = reply.index(b"\r\n\r\n") + 4
                half = reply[: (body_at + len(reply)) // 2]
                return plan._replace(pieces=(half,), interval=0.0, ending="close")
            case "drip":
                drops = (reply[at : at + 1] for at in range(len(reply)))
                return plan._replace(pieces=drops, interval=self._settings.drip_seconds)
            case "malformed" if asked.stream:
                events = b"".join(self._events(asked, completion))
                broken = events[: len(events) // 2] + b'\n\ndata: {"choices":[{"delta":\n\n'
                return plan._replace(pieces=(wire.STREAM_HEAD, wire.chunk(broken), wire.LAST_CHUNK))
            case "malformed":
                whole = chat.body(completion)
                return plan._replace(pieces=(wire.respond(200, whole[: len(whole) // 2]),))
            case _:
                raise AssertionError(f"{fault} must happen before the reply is written")

    def _events(self, asked: chat.ChatRequest, completion: chat.Completion) -> Iterable[bytes]:
        include_usage = asked.stream_options is not None and asked.stream_options.include_usage
        return chat.events(completion, include_usage, self._settings.tokens_per_event)

    def _error(self, row: LedgerRow, outcome: str, status: int, message: str) -> ReplyPlan:
        headers = (
            b"Retry-After: %s\r\n" % f"{self._settings.retry_after:g}".encode() if status == 429 else b""
        )
        return ReplyPlan(outcome, status, (chat.error(status, message, headers),), row)

    def _models(self) -> bytes:
        model = {"object": "model", "created": chat.CREATED, "owned_by": "simulator"}
        return msgspec.json.encode({"object": "list", "data": [{"id": self._settings.model, **model}]})

    def _reset(self) -> bytes:
        """Reset the ledger, the prefix cache and the clock of bursts and capacity."""
        self.ledger.clear()
        self._cache = chat.PrefixCache(self._settings.prefix_cache)
        self._started = time.monotonic()
        return b"{}"


# Shared by all connections, since each empties it before the event loop handles the next one. A plain protocol would
# allocate 256 kB for every read.
_ARRIVALS = memoryview(bytearray(256 << 10))
_LINGER_ZERO = struct.pack("ii", 1, 0)


class _Connection(asyncio.BufferedProtocol):
    def __init__(self, planner: ReplyPlanner, open_connections: set[_Connection]) -> None:
        self._planner = planner
        self._open = open_connections
        self._reader = wire.RequestReader()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._plan: ReplyPlan | None = None
        self._pieces: Iterator[bytes] = iter(())
        self._next = b""
        self._begun = False
        self._closes = False
        self._transport: asyncio.Transport
        self._client = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._client = int((transport.get_extra_info("peername") or (0, 0))[1])
        self._open.add(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _ARRIVALS

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.feed(_ARRIVALS[:nbytes])
        if self._plan is None:
            self._advance()

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.discard(self)
        self.settle("client_gone")

    def settle(self, reason: str) -> None:
        """Abort the current plan, if any, and record it in the ledger."""
        plan, self._plan = self._plan, None
        if self._timer is not None:
            self._timer.cancel()
        if plan is not None and plan.row is not None:
            outcome = reason if plan.outcome == "served" else plan.outcome
            status = plan.status if self._begun else 0
            self._planner.ledger.finish(plan.row, outcome, status, plan.tokens)

    def abort(self) -> None:
        """Drop the connection because the server stops."""
        self.settle("stopped")
        self._transport.abort()

    def _advance(self) -> None:
        while self._plan is None and not self._transport.is_closing():
            try:
                request = self._reader.next()
            except wire.BadRequest as problem:
                self._transport.write(chat.error(problem.status, str(problem)))
                self._transport.close()
                return
            if request is None:
                if self._reader.wants_continue():
                    self._transport.write(wire.CONTINUE)
                return
            self._closes = request.closes
            plan = self._planner.plan(request, self._client)
            self._play(plan._replace(pieces=_announcing(plan.pieces)) if self._closes else plan)

    def _play(self, plan: ReplyPlan) -> None:
        self._plan, self._pieces, self._next, self._begun = plan, iter(plan.pieces), b"", False
        if plan.delay > 0:
            self._timer = self._loop.call_later(plan.delay, self._resume)
        else:
            self._step(plan)

    def _resume(self) -> None:
        if self._plan is not None:
            self._step(self._plan)
            self._advance()

    def _step(self, plan: ReplyPlan) -> None:
        if plan.interval <= 0:
            self._finish(plan, b"".join(self._pieces))
            return
        piece, self._next = self._next or next(self._pieces, b""), next(self._pieces, b"")
        if not self._next:  # a client may disconnect right after the last piece; it was served
            self._finish(plan, piece)
            return
        self._begun = True
        self._transport.write(piece)
        self._timer = self._loop.call_later(plan.interval, self._resume)

    def _finish(self, plan: ReplyPlan, rest: bytes) -> None:
        # Update the ledger first: a client that has read the reply must find it there.
        if plan.row is not None:
            self._planner.ledger.finish(plan.row, plan.outcome, plan.status, plan.tokens)
        self._plan = self._timer = None
        if rest:
            self._transport.write(rest)
        if plan.ending == "close" or (self._closes and plan.ending == "keep"):
            self._transport.close()
        elif plan.ending == "reset":
            raw = cast(socket.socket, self._transport.get_extra_info("socket"))
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
            self._transport.abort()


def _announcing(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Add `Connection: close` to a reply, so that clients do not reuse the connection."""
    rest = iter(pieces)
    yield next(rest, b"").replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
    yield from rest


class Simulator:
    """The endpoint in this event loop: `async with Simulator(settings) as sim`."""

    def __init__(
        self, settings: SimulatorSettings | None = None, *, author: Author | None = None, port: int = 0
    ) -> None:
        self.settings = settings or SimulatorSettings()
        self.url = ""
        """Root URL of the server, e.g. `http://127.0.0.1:8000`; set when it listens."""
        self._author = author or find_author(self.settings.author)
        self._port = port
        self._connections: set[_Connection] = set()
        self._planner: ReplyPlanner
        self._server: asyncio.Server

    @property
    def base_url(self) -> str:
        """The base URL for OpenAI clients."""
        return f"{self.url}/v1"

    @property
    def ledger(self) -> Ledger:
        """The ledger; readable after the server has stopped."""
        return self._planner.ledger

    async def __aenter__(self) -> Self:
        planner = self._planner = ReplyPlanner(self.settings, self._author)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(planner, self._connections), "127.0.0.1", self._port, backlog=4096
        )
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for connection in tuple(self._connections):
            connection.abort()
        await self._server.wait_closed()
        while self._connections:  # noqa: ASYNC110 - connection_lost comes with the loop's next rounds
            await asyncio.sleep(0)
        self._planner.ledger.close()
