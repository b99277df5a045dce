"""The layout of a stage: which items are in which shard.

Items and shards are numbered from 0, without gaps. A stage has one or more segments. Each begins a new shard and has its
own shard size, so that a run can grow without moving the items that it has. Inactive items keep their numbers, but have
no record.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple


class Segment(NamedTuple):
    """Items that were planned together."""

    items: int
    shard_size: int

    @property
    def shards(self) -> int:
        """Number of shards."""
        return -(-self.items // self.shard_size)


class ItemSet:
    """A set of item numbers, one bit each."""

    __slots__ = ("_bits",)

    def __init__(self, bits: bytes = b"") -> None:
        """`bits` has the lowest number in the lowest bit of the first byte."""
        self._bits = bits

    @classmethod
    def of(cls, numbers: Iterable[int]) -> ItemSet:
        """Return the set of these numbers."""
        bits = bytearray()
        for number in numbers:
            if number >> 3 >= len(bits):
                bits.extend(bytes((number >> 3) + 1 - len(bits)))
            bits[number >> 3] |= 1 << (number & 7)
        return cls(bytes(bits))

    def __contains__(self, number: int) -> bool:
        return number >> 3 < len(self._bits) and bool(self._bits[number >> 3] >> (number & 7) & 1)

    def __len__(self) -> int:
        return int.from_bytes(self._bits, "little").bit_count()

    def __iter__(self) -> Iterator[int]:
        for place, byte in enumerate(self._bits):
            if byte:
                yield from (8 * place + bit for bit in range(8) if byte >> bit & 1)

    def __or__(self, other: ItemSet) -> ItemSet:
        size = max(len(self._bits), len(other._bits))
        both = int.from_bytes(self._bits, "little") | int.from_bytes(other._bits, "little")
        return ItemSet(both.to_bytes(size, "little"))

    def without(self, numbers: range) -> Sequence[int]:
        """Return the numbers of a range that are not in this set."""
        if not self._bits[numbers.start >> 3 : (numbers.stop >> 3) + 1].strip(b"\0"):
            return numbers
        return [number for number in numbers if number not in self]

    def to_bytes(self) -> bytes:
        """Return the set in a compressed form."""
        return zlib.compress(self._bits)

    @classmethod
    def from_bytes(cls, data: bytes) -> ItemSet:
        """Read what `to_bytes` returned."""
        return cls(zlib.decompress(data))


class Layout:
    """The segments of a stage, in order, and its inactive items."""

    __slots__ = ("_items", "_shards", "inactive", "segments")

    def __init__(self, segments: Iterable[Segment], inactive: ItemSet | None = None) -> None:
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

    def shard_of(self, item: int) -> int:
        """Return the shard of an item."""
        place = bisect_right(self._items, item) - 1
        return self._shards[place] + (item - self._items[place]) // self.segments[place].shard_size
