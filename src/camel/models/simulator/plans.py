"""Plans: the complete answer to a request, decided before the first byte is sent.

The one decision to know: every answer, good or faulty, is a `ReplyPlan`: bytes, their timing, how the connection ends, and
the ledger entry. The server only executes plans, so a new fault needs no new I/O code.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Literal, NamedTuple

import msgspec

from camel.models.simulator import chat, wire
from camel.models.simulator.authors import Author
from camel.models.simulator.ledger import Ledger, LedgerRow, TokenCount
from camel.models.simulator.settings import FaultKind, SimulatorSettings, fraction, mix


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
