"""A set of numbers with one bit each: 600,000 shards take 75 kB, and 300 million items 38 MB."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence, Set


class BitSet(Set[int]):
    """A set of numbers from 0, in order. It has the operators of sets, also together with other sets."""

    __slots__ = ("_bits",)

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._bits = bytearray(numbers._bits) if isinstance(numbers, BitSet) else bytearray()
        for number in () if isinstance(numbers, BitSet) else numbers:
            self.add(number)

    @classmethod
    def of_bits(cls, bits: bytes) -> BitSet:
        """Return the set with these bits. The first byte's lowest bit is number 0."""
        found = cls()
        found._bits += bits
        return found

    @classmethod
    def of_range(cls, start: int, stop: int) -> BitSet:
        """Return the set of the numbers from `start` up to `stop`."""
        return cls._of_int((1 << stop) - (1 << min(start, stop)))

    @classmethod
    def _of_int(cls, bits: int) -> BitSet:
        return cls.of_bits(bits.to_bytes(-(-bits.bit_length() // 8), "little"))

    def _int(self) -> int:
        return int.from_bytes(self._bits, "little")

    def add(self, number: int) -> None:
        """Add a number."""
        place = number >> 3
        if place >= len(self._bits):
            self._bits.extend(bytes(place + 1 - len(self._bits)))
        self._bits[place] |= 1 << (number & 7)

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int) or not 0 <= number >> 3 < len(self._bits):
            return False
        return bool(self._bits[number >> 3] >> (number & 7) & 1)

    def __len__(self) -> int:
        return self._int().bit_count()

    def __bool__(self) -> bool:
        return any(self._bits)

    def __iter__(self) -> Iterator[int]:
        for place, byte in enumerate(self._bits):
            if byte:
                yield from (8 * place + bit for bit in range(8) if byte >> bit & 1)

    def __le__(self, other: Set[object]) -> bool:
        return not self._int() & ~other._int() if isinstance(other, BitSet) else super().__le__(other)

    def __and__(self, other: Iterable[object]) -> BitSet:
        if isinstance(other, BitSet):
            return self._of_int(self._int() & other._int())
        return BitSet(one for one in other if isinstance(one, int) and one in self)

    def __or__(self, other: Iterable[int]) -> BitSet:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._of_int(self._int() | BitSet(other)._int())

    def __sub__(self, other: Iterable[object]) -> BitSet:
        if isinstance(other, BitSet):
            return self._of_int(self._int() & ~other._int())
        rest = frozenset(other)
        return BitSet(one for one in self if one not in rest)

    def shifted(self, by: int) -> BitSet:
        """Return the set of the numbers plus `by`, which is not negative."""
        return self._of_int(self._int() << by)

    def gaps(self, size: int) -> list[tuple[int, int]]:
        """Return the ranges that lack numbers, in multiples of `size`, which is a multiple of 8. The last one has no end: its
        end is -1."""
        width, full, found = size // 8, bytearray(b"\xff" * (size // 8)), list[tuple[int, int]]()
        blocks = len(self._bits) // width
        for block in range(blocks):
            if self._bits[block * width : (block + 1) * width] != full:
                if found and found[-1][1] == block * size:
                    found[-1] = found[-1][0], (block + 1) * size
                else:
                    found.append((block * size, (block + 1) * size))
        start = found.pop()[0] if found and found[-1][1] == blocks * size else blocks * size
        return [*found, (start, -1)]

    def without(self, numbers: range) -> Sequence[int]:
        """Return the numbers of a range that are not in this set."""
        if not self._bits[numbers.start >> 3 : (numbers.stop >> 3) + 1].strip(b"\0"):
            return numbers
        return [number for number in numbers if number not in self]

    def to_bytes(self) -> bytes:
        """Return the set in a compressed form."""
        return zlib.compress(self._bits)

    @classmethod
    def from_bytes(cls, data: bytes) -> BitSet:
        """Read what `to_bytes` returned."""
        return cls.of_bits(zlib.decompress(data))
