"""Shares and their 95% confidence intervals.

The one decision to know: messages are not treated as independent, because messages of one conversation are similar. Their
number is first reduced to the effective sample size, from the variance between conversations. Then shares of conversations and
of messages both have Wilson's interval, which stays between 0 and 1 and is also valid for counts of none and all.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, sqrt
from typing import Any, ClassVar

import msgspec

Z = 1.959963984540054
"""Number of standard deviations from the middle to each end of a 95% interval."""
UNSEEN = 0.25
"""Number of conversations of either extreme to add when the variance between conversations is computed."""


class ReportFigures(msgspec.Struct, frozen=True):
    """Base class of the figures of a report, which are stored next to it."""

    file: ClassVar[str] = ""
    """The name of the report's files, without their endings."""

    def to_json(self) -> bytes:
        """Return the figures as indented JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2)


class Rate(msgspec.Struct, frozen=True):
    """A share with its 95% interval."""

    count: int
    of: int
    rate: float
    low: float
    high: float


class Difference(msgspec.Struct, frozen=True):
    """The difference of two shares over the same items: the second minus the first."""

    difference: float
    low: float
    high: float
    p: float
    """P-value of McNemar's exact test."""


def wilson(count: int, of: int, effective: float | None = None) -> Rate:
    """Return a share with Wilson's score interval. `effective` is the number of independent items, by default all."""
    size = float(of) if effective is None else effective
    if of <= 0 or size <= 0:
        return Rate(count, of, 0.0, 0.0, 1.0)
    share = count / of
    middle = (share + Z * Z / (2 * size)) / (1 + Z * Z / size)
    half = Z / (1 + Z * Z / size) * sqrt(share * (1 - share) / size + Z * Z / (4 * size * size))
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    # The exact bounds for counts of none and all, without rounding errors.
    return Rate(count, of, share, 0.0 if count == 0 else low, 1.0 if count == of else high)


class Clusters(msgspec.Struct):
    """Sums over conversations, from which the share of their messages and its interval are computed."""

    clusters: int = 0
    count: int = 0
    of: int = 0
    count2: int = 0
    of2: int = 0
    both: int = 0

    def add(self, counts: Any, sizes: Any) -> None:
        """Add conversations, from arrays of the counts and of the sizes. Those without a message are skipped."""
        self.clusters += int((sizes > 0).sum())
        self.count += int(counts.sum())
        self.of += int(sizes.sum())
        self.count2 += int((counts**2).sum())
        self.of2 += int((sizes**2).sum())
        self.both += int((counts * sizes).sum())

    def rate(self) -> Rate:
        """Return the share of messages with its interval."""
        if not self.of:
            return wilson(0, 0, 0.0)
        share = self.count / self.of
        # The smallest effective size: all messages of a conversation are equal, so that it is one observation.
        least = self.of**2 / self.of2
        if self.clusters < 2 or self.count in (0, self.of):
            return wilson(self.count, self.of, least)
        residual = max(0.0, self.count2 - 2 * share * self.both + share * share * self.of2)
        # Rare events in clusters are often missing from a sample, and so is their variance. So a quarter of a conversation
        # with the event in all messages is added, and a quarter of one without it. The worst coverage of the intervals is
        # then 94 % instead of 86 % (`benchmarks/vote_intervals.py`).
        mean = self.of / self.clusters
        unseen = UNSEEN * mean**2 * ((1 - share) ** 2 + share**2)
        variance = (residual * self.clusters / (self.clusters - 1) + unseen) / self.of**2
        size = share * (1 - share) / variance
        # At most the number of messages, because the variance may be small by chance.
        return wilson(self.count, self.of, min(float(self.of), max(least, size)))


def paired(only_first: int, only_second: int, of: int) -> Difference:
    """Compare two shares of the same `of` items, given the items that count only for the first and only for the second.

    The interval is that of Bonett and Price (Wald's with one observation added to each discordant cell).
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
    """Return the p-value of the exact two-sided test that both kinds of discordant pairs are equally likely."""
    total, least = one + other, min(one, other)
    if not total:
        return 1.0
    tail = sum(comb(total, k) for k in range(least + 1))
    return min(1.0, 2 * tail / 2**total)


def holm(values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for their number with Holm's method, which controls the family-wise error rate."""
    order = sorted(range(len(values)), key=values.__getitem__)
    adjusted, least = [0.0] * len(values), 0.0
    for rank, place in enumerate(order):
        least = max(least, min(1.0, values[place] * (len(values) - rank)))
        adjusted[place] = least
    return adjusted
