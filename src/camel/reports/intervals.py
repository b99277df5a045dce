"""Shares and their 95% confidence intervals.

The one decision to know: what is counted in messages is not counted as if messages were independent. Those of one
conversation are alike, so the number of messages is first reduced to as many as would say the same if they were
(their effective number, from the variance between conversations); then both kinds of share have Wilson's interval,
which stays between 0 and 1 and is honest where nothing, or everything, was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, sqrt

import msgspec

Z = 1.959963984540054
"""Standard deviations to each side for 95%."""


UNSEEN = 0.25
"""Conversations of either extreme that a variance between conversations is reckoned with beyond those there are."""


class Rate(msgspec.Struct, frozen=True):
    """A share with its interval."""

    count: int
    of: int
    rate: float
    low: float
    high: float


class Difference(msgspec.Struct, frozen=True):
    """How two shares of the same items differ: the second less the first."""

    difference: float
    low: float
    high: float
    p: float
    """How likely a difference at least as large is where there is none (McNemar's test, exact)."""


def wilson(count: int, of: int) -> Rate:
    """The share of independent items, by Wilson's score interval."""
    return _wilson(count, of, float(of))


def _wilson(count: int, of: int, size: float) -> Rate:
    if of <= 0 or size <= 0:
        return Rate(count, of, 0.0, 0.0, 1.0)
    share = count / of
    middle = (share + Z * Z / (2 * size)) / (1 + Z * Z / size)
    half = Z / (1 + Z * Z / size) * sqrt(share * (1 - share) / size + Z * Z / (4 * size * size))
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    # In exact arithmetic these are the bounds; rounding must not say that nothing is impossible.
    return Rate(count, of, share, 0.0 if count == 0 else low, 1.0 if count == of else high)


class Clusters(msgspec.Struct):
    """Sums over conversations from which a share of their messages and its interval follow. Can be added to for ever."""

    clusters: int = 0
    count: int = 0
    of: int = 0
    count2: int = 0
    of2: int = 0
    both: int = 0

    def add(self, clusters: int, count: int, of: int, count2: int, of2: int, both: int) -> None:
        """Add some conversations: their number and the sums of counts, sizes, their squares and products."""
        self.clusters += clusters
        self.count += count
        self.of += of
        self.count2 += count2
        self.of2 += of2
        self.both += both

    def rate(self) -> Rate:
        """The share of messages."""
        if not self.of:
            return _wilson(0, 0, 0.0)
        share = self.count / self.of
        # The most careful view: each conversation all of one kind, so that it counts as one observation.
        least = self.of**2 / self.of2
        if self.clusters < 2 or self.count in (0, self.of):
            return _wilson(self.count, self.of, least)
        residual = max(0.0, self.count2 - 2 * share * self.both + share * share * self.of2)
        # What is rare and comes in clusters is mostly not seen, and its variance neither: it is counted with a quarter of a
        # conversation more that shows it throughout, and a quarter of one that never does. Without them 86 of 100
        # intervals hold the truth at worst, with them 94 (`benchmarks/vote_intervals.py`).
        mean = self.of / self.clusters
        unseen = UNSEEN * mean**2 * ((1 - share) ** 2 + share**2)
        variance = (residual * self.clusters / (self.clusters - 1) + unseen) / self.of**2
        size = share * (1 - share) / variance
        # Never more than the messages there are: a variance that is small by chance is no information.
        return _wilson(self.count, self.of, min(float(self.of), max(least, size)))


def paired(only_first: int, only_second: int, of: int) -> Difference:
    """The difference of two shares of the same `of` items, of which some show it only in the first, some only in the second.

    The interval is Bonett and Price's (Wald's with one observation added to each discordant cell).
    """
    if of <= 0:
        return Difference(0.0, -1.0, 1.0, 1.0)
    first, second = (only_first + 1) / (of + 2), (only_second + 1) / (of + 2)
    half = Z * sqrt(max(0.0, first + second - (second - first) ** 2) / (of + 2))
    return Difference(
        (only_second - only_first) / of,
        max(-1.0, second - first - half),
        min(1.0, second - first + half),
        _mcnemar(only_first, only_second),
    )


def _mcnemar(one: int, other: int) -> float:
    """The exact two-sided test that both kinds of discordant pair are equally likely."""
    total, least = one + other, min(one, other)
    if not total:
        return 1.0
    tail = sum(comb(total, k) for k in range(least + 1))
    return min(1.0, 2 * tail / 2**total)


def holm(values: Sequence[float]) -> list[float]:
    """p-values adjusted for how many there are (Holm's step-down): below 0.05, the whole family errs at most 1 in 20 times."""
    order = sorted(range(len(values)), key=values.__getitem__)
    adjusted, least = [0.0] * len(values), 0.0
    for rank, place in enumerate(order):
        least = max(least, min(1.0, values[place] * (len(values) - rank)))
        adjusted[place] = least
    return adjusted
