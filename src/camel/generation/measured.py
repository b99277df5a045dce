"""What committed shards have used, as running sums: an estimate takes the same time for any number of shards."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from typing import NamedTuple

from camel.generation.guesses import Need

ONE_SHARD = 0.25
"""Assumed relative error of the average if only one shard is measured. Also the minimum if the settings differ."""
AT_LEAST = 0.01
"""Minimum relative error of an average."""


class Committed(NamedTuple):
    """The usage of a committed shard."""

    rows: int
    need: Need
    shard: int = 0
    """The index of the shard."""
    money: float | None = None
    """Cost in dollars, if its marker has it."""
    elsewhere: str = ""
    """The address of another run that the shard belongs to. Such a shard is only a sample and does not count as done."""


class Sample:
    """Sums over shards with calls, and the spread of their tokens per item."""

    def __init__(self) -> None:
        self.shards = self.rows = 0
        self.need = Need()
        self._filled = 0
        self._mean = self._squares = 0.0

    def add(self, shard: Committed, times: int) -> None:
        """Add a shard that counts `times` times."""
        self.shards += times
        self.rows += times * shard.rows
        self.need = self.need.plus(shard.need.times(times))
        if shard.rows:  # Welford's algorithm
            value = (shard.need.prompt + shard.need.completion) / shard.rows
            self._filled += times
            before = value - self._mean
            self._mean += before * times / self._filled
            self._squares += times * before * (value - self._mean)

    def uncertainty(self, left: float) -> float:
        """Return the relative error, as two standard errors, of the estimated mean of the `left` shards that remain."""
        if self._filled < 2 or not self._mean:
            return ONE_SHARD
        share = sqrt(max(0.0, self._squares) / (self._filled - 1)) / self._mean
        # Both means are of samples, and a few shards give a poor estimate of the spread.
        error = share * sqrt(1 / self._filled + 1 / max(1.0, left)) * (1 + 3 / self._filled)
        return min(0.9, max(AT_LEAST, 2 * error))


class ShardSums:
    """Sums over the committed shards of a stage, and over shards of another run that serve as a sample."""

    def __init__(self, shards: Iterable[Committed] = ()) -> None:
        self.shards = self.rows = self.most_rows = 0
        self.last = -1
        """The last committed shard."""
        self.known, self.sample = Sample(), Sample()
        """The stage's own shards with calls, and those of another run."""
        self.elsewhere = ""
        """The address of the other run."""
        self.money: float | None = None
        """The cost of the shards whose markers have it."""
        self.priced, self.paid = Need(), Need()
        """The usage of these shards, and of those that were not free."""
        for one in shards:
            self.add(one)

    def add(self, shard: Committed, times: int = 1) -> None:
        """Add a shard that counts `times` times, because the others were not read."""
        if not shard.elsewhere:
            self.shards += times
            self.rows += times * shard.rows
            self.most_rows, self.last = max(self.most_rows, shard.rows), max(self.last, shard.shard)
            if shard.money is not None:
                self.money = (self.money or 0.0) + times * shard.money
                self.priced = self.priced.plus(shard.need.times(times))
            if shard.money:
                self.paid = self.paid.plus(shard.need.times(times))
        # Lists that were reused from another run cost nothing here, so they are no sample.
        if shard.need.calls:
            self.elsewhere = self.elsewhere or shard.elsewhere
            (self.sample if shard.elsewhere else self.known).add(shard, times)

    def holes(self, left: int) -> int:
        """Return the number of items in open shards that come before the last committed shard, at most `left`."""
        return max(0, min(left, (self.last + 1 - self.shards) * self.most_rows))
