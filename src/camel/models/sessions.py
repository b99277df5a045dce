"""The conversations of a pool: which replica each of them is on.

The one decision to know: a conversation without calls for a while counts as ended, so that its replica can accept another
one. Its replica is remembered in case it continues.
"""

from __future__ import annotations

import math
from collections import OrderedDict

from camel.models.placement import Placement
from camel.models.replica import Session

IDLE = 30.0
"""Seconds without a call after which an unreleased conversation counts as ended."""
REMEMBERED = 65_536
"""Maximum number of conversations whose replica is remembered."""


class OpenSessions:
    """Open conversations, and ended ones that may continue."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self.open: OrderedDict[str, Session] = OrderedDict()
        """Open conversations, least recently used first."""
        self.ended: OrderedDict[str, Session] = OrderedDict()

    @property
    def next_end(self) -> float:
        """Time at which the next conversation may count as ended."""
        return next(iter(self.open.values())).used_at + IDLE if self.open else math.inf

    def find(self, name: str) -> Session | None:
        """Return a conversation that has begun."""
        return (self.open.get(name) or self.ended.get(name)) if name else None

    def use(self, session: Session, now: float) -> None:
        """Count a call of a conversation that begins."""
        session.busy += 1
        session.used_at = now
        if session.open:
            self.open.move_to_end(session.name)
        else:
            self.ended.pop(session.name, None)
            session.open = True
            self._placement.add_open(session.replica, 1)
            self.open[session.name] = session
            self.sweep(now)

    def release(self, name: str) -> Session | None:
        """Forget a conversation. Return it if it was open."""
        self.ended.pop(name, None)
        session = self.open.pop(name, None)
        if session is not None:
            session.open = False
            self._placement.add_open(session.replica, -1)
        return session

    def sweep(self, now: float) -> None:
        """Treat conversations that have been idle for too long as ended."""
        for _ in range(len(self.open)):
            name, session = next(iter(self.open.items()))
            full = len(self.open) > REMEMBERED
            if not full and session.used_at > now - IDLE:
                break
            if session.busy:
                session.used_at = now
                self.open.move_to_end(name)
                continue
            self.release(name)
            self.ended[name] = session
            if len(self.ended) > REMEMBERED:
                self.ended.popitem(last=False)
