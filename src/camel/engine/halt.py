"""How a worker is stopped or paused."""

from __future__ import annotations

import asyncio
import math
import time

from camel.core.errors import CamelError


class Unfinished(CamelError):
    """An item cannot be finished now; its shard stays open, and what it has journaled is kept for the next attempt."""


class Halted(Unfinished):
    """The run is being stopped; the step was not taken."""


PAUSED = 0.5
"""Seconds between two looks whether a pause is over."""
LEASE_LOST = "the lease of this worker has run out"


def clock() -> float:
    """Seconds that also pass while the machine sleeps, as they do for whoever waits for it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Halt:
    """Says that a run is to stop: no new items, no new steps; what is in flight ends and is journaled.

    With a lease it is also true once the lease has run out: a process that was paused finds, when it wakes up, that it
    may not go on, before anybody could have told it.
    """

    def __init__(self) -> None:
        self._reason = ""
        self._until = math.inf
        self.paused = False
        """Whether no new step is to be taken for now; those in flight end."""

    @property
    def reason(self) -> str:
        """Why to stop; empty while there is no reason."""
        if not self._reason and self._until < clock():
            self._reason = LEASE_LOST
        return self._reason

    def set(self, reason: str) -> None:
        """Stop, for the first reason given."""
        self._reason = self.reason or reason

    async def unpaused(self) -> None:
        """Return when no pause is on, or the run is to stop."""
        while self.paused and not self.reason:  # noqa: ASYNC110 - whoever ends a pause may be on another machine
            await asyncio.sleep(PAUSED)

    def lease(self, until: float) -> None:
        """Go on at most until then, by `clock`; cannot bring back a lease that has run out."""
        if not self.reason:
            self._until = until

    def revoke(self, reason: str) -> None:
        """Stop, and send nothing any more: somebody else may be at the same work."""
        self.set(reason)
        self._until = -math.inf

    def check_lease(self) -> None:
        """Raise `Halted` if the lease has run out or was revoked."""
        if self._until < clock():
            raise Halted(self.reason)
