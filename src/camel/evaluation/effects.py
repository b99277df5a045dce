"""The effect of one change on an outcome of conversations: a difference of means, with its 95% interval.

The one decision to know: conversations are the independent units, not the branches of one conversation. So the effect over
several conversations is the mean of their differences, with Student's interval. For one conversation, its branches are
independent, and shares have the interval of Agresti and Caffo, which is also valid if all branches end alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean

import msgspec

from camel.reports.intervals import paired

_LEVEL = 0.975


class Shift(msgspec.Struct, frozen=True):
    """The mean outcome with a change minus the mean outcome without it."""

    before: float
    """Mean outcome without the change."""
    after: float
    """Mean outcome with the change."""
    difference: float
    low: float
    high: float
    conversations: int
    branches: int
    """Number of branches of both kinds together."""
    p: float = 1.0
    """P-value: of McNemar's exact test if each conversation has one outcome of each kind and these are shares, otherwise from
    the interval."""

    @property
    def sure(self) -> bool:
        """Whether the interval does not contain zero."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        told = f"{self.difference:+.3f} (95%: {self.low:+.3f} to {self.high:+.3f})"
        return f"{self.before:.3f} → {self.after:.3f}, effect {told}"


def effect_of(outcomes: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Shift | None:
    """Return the effect, given the outcomes of each conversation's branches without and with the change. Conversations that
    lack one of the two are ignored. Return None if there are none."""
    pairs = [(without, changed) for without, changed in outcomes if without and changed]
    if not pairs:
        return None
    before, after = (fmean(fmean(one[side]) for one in pairs) for side in (0, 1))
    count = len(pairs)
    middle = after - before
    differences = [fmean(b) - fmean(a) for a, b in pairs]
    shares = all(value in (0, 1) for pair in pairs for side in pair for value in side)
    if shares and count > 1 and {*differences} <= {-1, 0, 1}:
        # Bonett and Price add one conversation of each sign.
        differences += [-1.0, 1.0]
    middle_of = fmean(differences)
    between = sum((one - middle_of) ** 2 for one in differences) / max(1, count - 1) / count
    if between:
        # Few conversations may have similar differences by chance, but not more similar than their branches allow.
        within = sum(_variance(side) / len(side) for pair in pairs for side in pair) / count**2
        half = max(quantile(count - 1) * math.sqrt(between), quantile(math.inf) * math.sqrt(within))
        low, high = middle_of - half, middle_of + half
    else:  # one conversation, or by chance the same difference in all
        low, high = difference([x for one, _ in pairs for x in one], [x for _, one in pairs for x in one])
    p = _p_value(low, high)
    if count > 1 and all(value in ([0], [1]) for pair in pairs for value in pair):
        p = paired(sum(a[0] > b[0] for a, b in pairs), sum(a[0] < b[0] for a, b in pairs), count).p
    if shares:
        low, high = max(-1.0, low), min(1.0, high)
    return Shift(before, after, middle, low, high, count, sum(len(a) + len(b) for a, b in pairs), p)


def difference(
    without: Sequence[float], changed: Sequence[float], level: float = _LEVEL
) -> tuple[float, float]:
    """Return the interval of the difference of the means of two independent samples. 95% by default; `level` is its quantile."""
    if all(value in (0, 1) for value in (*without, *changed)):
        # Agresti and Caffo add one success and one failure to each side.
        first, second = ((sum(side) + 1) / (len(side) + 2) for side in (without, changed))
        variance = first * (1 - first) / (len(without) + 2) + second * (1 - second) / (len(changed) + 2)
        middle, half = second - first, quantile(len(without) + len(changed) - 2, level) * math.sqrt(variance)
        return max(-1.0, middle - half), min(1.0, middle + half)
    sides = (without, changed)
    parts = [_variance(side) / len(side) for side in sides]
    # Welch's degrees of freedom.
    squares = sum(part**2 / max(1, len(side) - 1) for part, side in zip(parts, sides, strict=True))
    half = quantile(sum(parts) ** 2 / squares if squares else 1.0, level) * math.sqrt(sum(parts))
    middle = fmean(changed) - fmean(without)
    return middle - half, middle + half


def _p_value(low: float, high: float) -> float:
    normal = NormalDist()
    deviation, middle = (high - low) / 2 / normal.inv_cdf(_LEVEL), (high + low) / 2
    return 2 * (1 - normal.cdf(abs(middle) / deviation)) if deviation else float(middle == 0)


def _variance(values: Sequence[float]) -> float:
    middle = fmean(values)
    return sum((value - middle) ** 2 for value in values) / max(1, len(values) - 1)


def quantile(freedom: float, level: float = _LEVEL) -> float:
    """Return a quantile of Student's distribution: exact for one and two degrees of freedom, and otherwise with an error below
    0.5%, by the expansion of Cornish and Fisher."""
    if freedom <= 1:
        return math.tan(math.pi * (level - 0.5))
    if freedom < 2.5:
        return (2 * level - 1) * math.sqrt(2 / (1 - (2 * level - 1) ** 2))
    z = NormalDist().inv_cdf(level)
    if math.isinf(freedom):
        return z
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))
