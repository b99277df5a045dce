"""Stops or pauses a worker."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any, Protocol

from camel.core.errors import CamelError


class Tell(Protocol):
    """Takes a notice: its kind, a line of text, and fields for programs."""

    def __call__(self, event: str, text: str, **fields: Any) -> None:
        """Take a notice. Called on the event loop of the run."""
        ...


def ignore_notice(event: str, text: str, **fields: Any) -> None:
    """Ignore a notice."""


def describe_release(shards: list[int]) -> str:
    """Describe what happens to the shards of a worker that lost its lease."""
    if not shards:
        return "it had no shard"
    named = ", ".join(map(str, shards[:8])) + (f" and {len(shards) - 8} more" if len(shards) > 8 else "")
    its = "shard" if len(shards) == 1 else "shards"
    return f"its {its} {named} can be leased again; only its calls in flight are repeated"


class Unfinished(CamelError):
    """An item cannot be finished now. Its shard stays open, and its journal is kept for the next attempt."""


class Halted(Unfinished):
    """The run is stopping, so the step was not taken."""


PAUSED = 0.5
"""Seconds between two checks whether a pause is over."""
LEASE_LOST = "the lease of this worker has expired"


_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
"""Only on Linux is this a clock of its own. Windows has none by number."""


def clock() -> float:
    """Return a clock in seconds that also advances while the machine sleeps."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


class Halt:
    """Tells whether a run must stop: no new items and no new steps; steps in flight end and are journaled.

    An expired lease also counts as a stop, so a process that was suspended stops by itself when it wakes up.
    """

    def __init__(self) -> None:
        self._reason = ""
        self._until = math.inf
        self.paused = False
        """Whether new steps have to wait. Steps in flight end."""

    @property
    def reason(self) -> str:
        """The reason to stop; empty if there is none."""
        if not self._reason and self._until < clock():
            self._reason = LEASE_LOST
        return self._reason

    def set(self, reason: str) -> None:
        """Stop the run. If it is called several times, the first reason counts."""
        self._reason = self.reason or reason

    async def unpaused(self) -> None:
        """Wait until there is no pause, or the run must stop."""
        while self.paused and not self.reason:  # noqa: ASYNC110 - the pause may be ended from another machine
            await asyncio.sleep(PAUSED)

    def lease(self, until: float) -> None:
        """Extend the lease until a time of `clock`; an expired lease stays expired."""
        if not self.reason:
            self._until = until

    def revoke(self, reason: str) -> None:
        """Stop and make no further calls: another worker may be doing the same work."""
        self.set(reason)
        self._until = -math.inf

    @property
    def is_revoked(self) -> bool:
        """Whether no further calls may be made."""
        return self._until < clock()

    def check_lease(self) -> None:
        """Raise `Halted` if the lease has expired or was revoked."""
        if self.is_revoked:
            raise Halted(self.reason)
