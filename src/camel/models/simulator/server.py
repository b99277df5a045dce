"""The server: one asyncio protocol per connection, which reads requests and executes their plans.

The one decision to know: an instant reply is written inside `buffer_updated`, without a task or a timer. Slower replies are
chains of timers that end with their connection.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterable, Iterator
from typing import Self, cast

from camel.models.simulator import chat, wire
from camel.models.simulator.authors import Author, find_author
from camel.models.simulator.ledger import Ledger
from camel.models.simulator.plans import ReplyPlan, ReplyPlanner
from camel.models.simulator.settings import SimulatorSettings

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
