"""The replicas that a conversation would use, in order, the same in every process.

The one decision to know: candidates are drawn lazily. Each replica has some points on a ring, and each draw is a hash of
the conversation's name, which stands for the next point. So a draw costs a binary search however many replicas there are,
and a replica that comes or goes moves only its own conversations.
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Generic, Protocol, TypeVar

POINTS = 48
"""Points of each replica. More of them make the parts of the ring more even."""
DRAWS = 8
"""Candidates per conversation."""


class Placed(Protocol):
    """What can be on a ring."""

    url: str


P = TypeVar("P", bound=Placed)


class Ring(Generic[P]):
    """A consistent hash of names to replicas."""

    def __init__(self, replicas: Iterable[P] = ()) -> None:
        self._owners: dict[int, P] = {point: one for one in replicas for point in _points(one.url)}
        self._places = sorted(self._owners)

    def draw(self, name: str) -> Iterator[P]:
        """Yield candidates for a name, best first. Some may be repeated."""
        places, owners = self._places, self._owners
        if not places:
            return
        digest = hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=8 * DRAWS).digest()
        for place in struct.iter_unpack(">Q", digest):
            yield owners[places[bisect_right(places, place[0]) % len(places)]]


@lru_cache(8_192)
def _points(url: str) -> tuple[int, ...]:
    digest = hashlib.shake_128(url.encode("utf-8", "replace")).digest(8 * POINTS)
    return struct.unpack(f">{POINTS}Q", digest)
