"""What one visitor of a public server may use: requests, open streams, conversations, and a share of the budget.

The one decision to know: a visitor is an address, because everyone can delete cookies. IPv6 addresses count by their network of
64 bits, which is what one household or machine has. Behind a proxy, start the server with FORWARDED_ALLOW_IPS, so that
the proxy's header with the address is believed.
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict, deque
from collections.abc import Callable

import msgspec

from camel.core.errors import InputError
from camel.core.message import Usage
from camel.jobs.budget import Budget, reached

KNOWN = 10_000
"""Number of visitors that are remembered."""


class VisitorLimits(msgspec.Struct, frozen=True):
    """Limits per visitor."""

    requests: int = 120
    """Number of pages per minute. Scripts, styles and images of the app are not counted."""
    streams: int = 8
    """Number of pages with live updates that are open at the same time."""
    at_once: int = 1
    """Number of conversations in progress."""
    per_hour: int = 6
    """Number of conversations that start within an hour."""
    share: float = 0.1
    """Share of the server's budget."""


class TooMany(InputError):
    """Raised if a visitor reached a limit."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds
        """Seconds after which the limit no longer applies."""


class Visitor:
    """One visitor, and what they used."""

    def __init__(self, limits: VisitorLimits, budget: Budget, clock: Callable[[], float]) -> None:
        self._limits, self._clock = limits, clock
        self._budget = Budget(
            usd=budget.usd and budget.usd * limits.share,
            tokens=budget.tokens and max(1, int(budget.tokens * limits.share)),
        )
        self.used = Usage()
        self.streams = 0
        self._starts: deque[float] = deque()
        self._allowed, self._since = float(limits.requests), clock()

    def request(self) -> None:
        """Count a request. Raise `TooMany` if there were too many."""
        now, per_second = self._clock(), self._limits.requests / 60
        self._allowed = min(self._limits.requests, self._allowed + (now - self._since) * per_second)
        self._since = now
        if self._allowed < 1:
            raise TooMany("you sent too many requests: wait a moment", (1 - self._allowed) / per_second)
        self._allowed -= 1

    def start(self, in_progress: int) -> None:
        """Count a new conversation. Raise `TooMany` if the visitor, who has some in progress, may not start one now."""
        now, limits = self._clock(), self._limits
        self.check_budget()
        if in_progress >= limits.at_once:
            raise TooMany(f"you have {in_progress} in progress, which is the limit: stop one first", 60)
        while self._starts and self._starts[0] <= now - 3600:
            self._starts.popleft()
        if len(self._starts) >= limits.per_hour:
            raise TooMany(
                f"you started {len(self._starts)} conversations within an hour, which is the limit: come back later",
                self._starts[0] + 3600 - now,
            )
        self._starts.append(now)

    def check_budget(self) -> None:
        """Raise `TooMany` if the visitor's share of the budget is used up."""
        if reached(self._budget, self.used.filled()):
            raise TooMany("your share of this server's budget is used up", 3600)

    def check_streams(self) -> None:
        """Raise `TooMany` if the visitor may not open another stream."""
        if self.streams >= self._limits.streams:
            raise TooMany("you have too many pages with live updates open: close some", 10)


class Visitors:
    """The visitors of a server. If it is not public, they have no limits."""

    def __init__(
        self,
        public: bool,
        limits: VisitorLimits = VisitorLimits(),  # noqa: B008 - frozen
        budget: Budget = Budget(),  # noqa: B008 - frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.public, self._limits, self._budget, self._clock = public, limits, budget, clock
        self._known: OrderedDict[str, Visitor] = OrderedDict()

    def of(self, address: str) -> Visitor | None:
        """Return the visitor with an address. Return None if there are no limits."""
        if not self.public:
            return None
        key = network_of(address)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Visitor(self._limits, self._budget, self._clock)
            for old in list(self._known)[: max(0, len(self._known) - KNOWN)]:
                if not self._known[old].streams:
                    del self._known[old]
        self._known.move_to_end(key)
        return found


def network_of(address: str) -> str:
    """Return the network that counts as one visitor."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "unknown"
    if ip.version == 4:
        return str(ip)
    if ip.ipv4_mapped:
        return str(ip.ipv4_mapped)
    return str(ipaddress.ip_network((ip, 64), strict=False))
