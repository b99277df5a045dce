"""All settings of the simulator, as one frozen value that can be sent as JSON.

The one decision to know: nothing is random. A distribution returns its value at a point between 0 and 1, and that point is
a hash of the request, so the same settings and requests give the same results.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Literal

import msgspec

FaultKind = Literal["500", "503", "429", "hang", "truncate", "drip", "reset", "lost", "malformed"]
"""`lost`: served and billed, closed before the first byte. `reset`: RST, nothing billed. `hang`: no answer.
`truncate`: half a reply, then closed. `drip`: a byte at a time. `malformed`: status 200, broken JSON."""

_STANDARD = NormalDist()
_P99 = _STANDARD.inv_cdf(0.99)
_MASK = (1 << 64) - 1


def mix(*values: int) -> int:
    """Return a well-distributed 64-bit hash of `values` (splitmix64), the same in every process."""
    state = 0
    for value in values:
        state = (state ^ value) + 0x9E3779B97F4A7C15 & _MASK
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        state = (state ^ state >> 27) * 0x94D049BB133111EB & _MASK
        state ^= state >> 31
    return state


def fraction(draw: int) -> float:
    """Convert a 64-bit hash to a number strictly between 0 and 1."""
    return ((draw >> 11) + 0.5) / (1 << 53)


class Constant(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="constant"):
    """Always the same value."""

    value: float

    def at(self, point: float) -> float:
        """Return the value."""
        return self.value


class LogNormal(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="lognormal"):
    """A log-normal distribution, given by its median and its 99th percentile."""

    median: float
    p99: float

    def __post_init__(self) -> None:
        if not 0 < self.median <= self.p99:
            raise ValueError(f"log-normal needs 0 < median <= p99, not {self.median} and {self.p99}")

    def at(self, point: float) -> float:
        """Return the quantile at `point`, strictly between 0 and 1."""
        sigma = math.log(self.p99 / self.median) / _P99
        return self.median * math.exp(sigma * _STANDARD.inv_cdf(point))


class CapacityChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From `at` seconds after the start, this many requests may be in flight; `None` is no limit."""

    at: float
    capacity: int | None


class Burst(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last `length` seconds of every `period` seconds answer 429 to everything."""

    period: float
    length: float

    def __post_init__(self) -> None:
        if not 0 <= self.length <= self.period or self.period <= 0:
            raise ValueError(f"a burst of {self.length} s does not fit a period of {self.period} s")

    def covers(self, elapsed: float) -> bool:
        """Return whether `elapsed` seconds after the start is in a burst."""
        return elapsed % self.period >= self.period - self.length


class SimulatorSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Replies, speed and faults of the endpoint. Defaults: instant and without faults."""

    seed: int = 0
    model: str = "simulated"
    """The name in `/v1/models`, and in replies to requests that name no model."""
    author: str = "society"
    """The author of the replies: a name in `AUTHORS`, or `package.module:function`."""
    words: float = 160.0
    """Mean number of words of a solution or an answer; each has between half and one and a half of it. With the short
    instructions between them that is about 150 tokens per message, as in the paper's role plays."""
    length: Constant | LogNormal | None = LogNormal(median=16, p99=60)
    """Messages in a conversation, the closing `<CAMEL_TASK_DONE>` included; `None` never closes one. The user
    closes and speaks at odd numbers, so an even length ends one message later."""
    calls_per_message: Constant | LogNormal = Constant(0)
    """Tool calls before a message, if the request offers tools. A reply makes one of them, or two at once."""
    latency: Constant | LogNormal | None = None
    """Seconds before the first byte of a reply that the model writes."""
    tokens_per_second: float | None = None
    """Speed of a streamed reply; `None` sends it at once. A reply that is not streamed comes after `latency`."""
    tokens_per_event: int = 1
    prefix_cache: int = 0
    """Number of cached message prefixes, for `cached_tokens`; 0: none. This is the only part of a reply that
    depends on earlier requests."""
    capacity: int | None = None
    """Requests in flight beyond this get 429; `None` is no limit."""
    capacity_schedule: tuple[CapacityChange, ...] = ()
    """Later values of `capacity`, by rising `at`."""
    retry_after: float = 1
    """Seconds in the `Retry-After` of every 429."""
    faults: dict[FaultKind, float] = {}
    """Rate of each fault. A repeated request draws again."""
    rejects: tuple[str, ...] = ()
    """Fields of a request that the endpoint rejects, such as `response_format`."""
    burst: Burst | None = None
    hang_seconds: float = 600.0
    drip_seconds: float = 0.05
    """Pause between two bytes of a dripped reply."""
    ledger_path: str | None = None
    """File that receives one JSON line per request; `None` keeps counters only."""

    def __post_init__(self) -> None:
        if min(self.faults.values(), default=0) < 0 or sum(self.faults.values()) > 1 + 1e-9:
            raise ValueError(f"fault rates must be positive and sum to at most 1: {self.faults}")
        if self.words <= 0 or self.tokens_per_event < 1 or self.prefix_cache < 0:
            raise ValueError("words and tokens_per_event must be positive, prefix_cache not negative")
        if self.tokens_per_second is not None and self.tokens_per_second <= 0:
            raise ValueError(f"tokens_per_second must be positive, not {self.tokens_per_second}")
        moments = [change.at for change in self.capacity_schedule]
        if moments != sorted(moments):
            raise ValueError("capacity_schedule must be in order of time")

    def capacity_at(self, elapsed: float) -> int | None:
        """Return how many requests may be in flight `elapsed` seconds after the start."""
        capacity = self.capacity
        for change in self.capacity_schedule:
            if change.at <= elapsed:
                capacity = change.capacity
        return capacity

    def fault_at(self, point: float) -> FaultKind | None:
        """Return the fault at `point` between 0 and 1, where each fault occupies an interval as long as its rate."""
        for kind, rate in self.faults.items():
            if point < rate:
                return kind
            point -= rate
        return None
