"""The ledger: requests, their outcomes and what was billed, to compare with a client's own figures.

The one decision to know: a request is recorded when its last byte has arrived, so nothing that the client does afterwards,
including its death, can remove it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec


class TokenCount(NamedTuple):
    """Tokens of one request, as billed."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0


class LedgerRow(msgspec.Struct, gc=False):
    """One request."""

    seq: int
    """Order of arrival; rows are written in the order of completion."""
    time: float
    session: str
    hash: str
    """Hash of the whole request body, in hexadecimal."""
    seen: int
    """Number of earlier requests with the same body. 0 for the first."""
    client: int = 0
    """The client's port, which identifies the client."""
    outcome: str = ""
    """`served`, a fault's kind, `client_gone`, `capacity`, `burst`, `rejected` (a bad request), `error`
    (the author failed) or `stopped` (the simulator ended first)."""
    status: int = 0
    """The status that was sent; 0 if none."""
    billed: bool = False
    """Whether the model wrote a reply, delivered or not. A client that disconnects early is billed in full."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    delay: float = 0.0
    """Simulated seconds of the model: the minimum for any client."""


class Counters(msgspec.Struct):
    """Totals of the ledger, as returned by `GET /ledger`. Tokens are those of billed requests."""

    requests: int = 0
    served: int = 0
    billed: int = 0
    billed_repeats: int = 0
    """Billed requests with a body that was billed before: what a client paid for twice."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    in_flight: int = 0
    max_in_flight: int = 0
    digest: int = 0
    """Sum of the hashes of all requests: equal for two runs with the same requests in any order."""
    outcomes: dict[str, int] = {}


class Ledger:
    """Counters in memory, and rows in a file if a path is given."""

    def __init__(self, path: str | None = None) -> None:
        self.counters = Counters()
        self._sequence = 0
        # Twice the times a body was seen, plus 1 once it was billed: one small integer per body.
        self._known: dict[int, int] = {}
        self._encode = msgspec.json.Encoder().encode
        self._file: BinaryIO | None = None
        if path:
            self._file = Path(path).open("ab", buffering=1 << 18)  # noqa: SIM115 - closed by close()

    def arrive(self, session: str, digest: int, client: int = 0) -> LedgerRow:
        """Record a request whose body hashes to `digest`."""
        known = self._known.get(digest, 0)
        self._known[digest] = known + 2
        row = LedgerRow(self._sequence, time.time(), session, f"{digest:016x}", known >> 1, client)
        self._sequence += 1
        counters = self.counters
        counters.requests += 1
        counters.digest = (counters.digest + digest) % 2**63
        counters.in_flight += 1
        if counters.in_flight > counters.max_in_flight:
            counters.max_in_flight = counters.in_flight
        return row

    def finish(self, row: LedgerRow, outcome: str, status: int, tokens: TokenCount | None) -> None:
        """Complete a row; `tokens` is what it is billed for, if anything."""
        counters = self.counters
        counters.in_flight -= 1
        counters.outcomes[outcome] = counters.outcomes.get(outcome, 0) + 1
        counters.served += outcome == "served"
        row.outcome, row.status = outcome, status
        if tokens is not None:
            self._bill(row, tokens)
        if self._file is not None:
            self._file.write(self._encode(row) + b"\n")

    def flush(self) -> None:
        """Write every finished row to the file."""
        if self._file is not None:
            self._file.flush()

    def clear(self) -> None:
        """Remove everything except the requests in flight, which count as arrivals of the new ledger."""
        in_flight = self.counters.in_flight
        self.counters = Counters(requests=in_flight, in_flight=in_flight, max_in_flight=in_flight)
        self._known.clear()
        if self._file is not None:
            self._file.flush()
            self._file.truncate(0)

    def close(self) -> None:
        """Flush and close the file."""
        if self._file is not None:
            self._file.close()

    def _bill(self, row: LedgerRow, tokens: TokenCount) -> None:
        row.billed = True
        row.prompt_tokens, row.completion_tokens, row.cached_tokens = tokens
        counters, digest = self.counters, int(row.hash, 16)
        counters.billed += 1
        counters.prompt_tokens += tokens.prompt
        counters.completion_tokens += tokens.completion
        counters.cached_tokens += tokens.cached
        known = self._known.get(digest, 2)
        counters.billed_repeats += known & 1
        self._known[digest] = known | 1


def read_rows(path: str | Path) -> list[LedgerRow]:
    """Return the rows of a ledger file."""
    return msgspec.json.Decoder(LedgerRow).decode_lines(Path(path).read_bytes())
