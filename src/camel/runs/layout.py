"""The layout of a stage: which items are in which shard.

Items and shards are numbered from 0, without gaps. A stage has one or more segments. Each begins a new shard and has its
own shard size, so that a run can grow without moving the items that it has. Inactive items keep their numbers, but have
no record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from camel.runs.bits import BitSet


class Segment(NamedTuple):
    """Items that were planned together."""

    items: int
    shard_size: int

    @property
    def shards(self) -> int:
        """Number of shards."""
        return -(-self.items // self.shard_size)


class Layout:
    """The segments of a stage, in order, and its inactive items."""

    __slots__ = ("_items", "_shards", "inactive", "segments")

    def __init__(self, segments: Iterable[Segment], inactive: BitSet | None = None) -> None:
        self.segments, self.inactive = tuple(segments), inactive
        self._items = [0, *accumulate(one.items for one in self.segments)]
        self._shards = [0, *accumulate(one.shards for one in self.segments)]

    @property
    def count(self) -> int:
        """Number of items, inactive ones included."""
        return self._items[-1]

    @property
    def active(self) -> int:
        """Number of active items."""
        return self.count - (len(self.inactive) if self.inactive else 0)

    @property
    def shards(self) -> int:
        """Number of shards."""
        return self._shards[-1]

    def numbers(self, shard: int) -> range:
        """Return the numbers of all items of a shard. The range is empty for a shard that is not planned."""
        if not 0 <= shard < self.shards:
            return range(self.count, self.count)
        place = bisect_right(self._shards, shard) - 1
        size, end = self.segments[place].shard_size, self._items[place + 1]
        first = self._items[place] + (shard - self._shards[place]) * size
        return range(first, min(end, first + size))

    def items(self, shard: int) -> Sequence[int]:
        """Return the active items of a shard, in order. They have the rows of the shard's file."""
        numbers = self.numbers(shard)
        return numbers if self.inactive is None else self.inactive.without(numbers)

    def count_items(self, shards: BitSet) -> int:
        """Return the number of active items in planned shards."""
        if self.inactive:
            return sum(len(self.items(shard)) for shard in shards)
        found = 0
        for place, one in enumerate(self.segments):
            start, stop = self._shards[place : place + 2]
            found += len(shards & BitSet.of_range(start, stop)) * one.shard_size
            if stop > start and stop - 1 in shards:  # the last shard may have fewer items
                found -= one.shards * one.shard_size - one.items
        return found

    def shard_of(self, item: int) -> int:
        """Return the shard of an item."""
        place = bisect_right(self._items, item) - 1
        return self._shards[place] + (item - self._items[place]) // self.segments[place].shard_size
