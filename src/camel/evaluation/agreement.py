"""How far raters agree beyond chance: Cohen's kappa for two, Fleiss' for any number. Pure functions of labels.

The one decision to know: where everybody always says the same, chance alone would agree as well, and there is no kappa
to give (None), however good that looks. The share of agreement is given beside it for that reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from math import sqrt
from typing import TypeVar

import msgspec

from camel.core.errors import InputError
from camel.reports.intervals import Z, wilson


class Kappa(msgspec.Struct, frozen=True):
    """Agreement beyond chance, from -1 over 0 (as by chance) to 1, with a 95% interval.

    Jackknife over the items; where all agree, from Wilson's interval of that.
    """

    kappa: float | None
    """None: there were no items, or nobody ever said a second thing."""
    low: float | None
    high: float | None
    observed: float
    """The share of pairs of ratings that agree."""
    expected: float
    """The share that would agree by chance, given how often each label is used."""
    items: int
    """Items with at least two ratings; others say nothing."""


def cohen(first: Sequence[Hashable], second: Sequence[Hashable]) -> Kappa:
    """Cohen's kappa of two raters, who labelled the same items in the same order."""
    if len(first) != len(second):
        raise InputError(
            f"two raters must have the same items: one has {len(first)}, the other {len(second)}"
        )
    return _kappa(Counter(zip(first, second, strict=True)), _cohen)


def fleiss(items: Iterable[Iterable[Hashable]]) -> Kappa:
    """Fleiss' kappa: for each item the labels that any raters gave it, in any order.

    Items may have different numbers of ratings; those with fewer than two are left out.
    """
    cells: Counter[frozenset[tuple[Hashable, int]]] = Counter()
    for item in items:
        ratings = Counter(item)
        if ratings.total() > 1:
            cells[frozenset(ratings.items())] += 1
    return _kappa(cells, _fleiss)


Cell = TypeVar("Cell", bound=Hashable)
"""A kind of item: all with the same ratings."""
Shares = tuple[float, float]
"""Observed and expected agreement."""


def _kappa(cells: Mapping[Cell, int], shares: Callable[[Mapping[Cell, int]], Shares]) -> Kappa:
    """Items that look alike are counted, not listed, so that the jackknife costs one step for each kind of item."""
    items = sum(cells.values())
    if not items:
        return Kappa(None, None, None, 0.0, 0.0, 0)
    observed, expected = shares(cells)
    kappa = _beyond(observed, expected)
    low = high = None
    if kappa is not None and items > 1:
        without: list[tuple[float, int]] = []
        for cell, count in cells.items():
            value = _beyond(*shares({**cells, cell: count - 1}))
            without.append((kappa if value is None else value, count))
        mean = sum(value * count for value, count in without) / items
        spread = sum(count * (value - mean) ** 2 for value, count in without)
        half = Z * sqrt((items - 1) / items * spread)
        low, high = max(-1.0, kappa - half), min(1.0, kappa + half)
        if observed >= 1 - 1e-12:
            # Nothing varies, and still the next item may be one that they disagree on.
            low = max(-1.0, (wilson(items, items).low - expected) / (1 - expected))
    return Kappa(kappa, low, high, observed, expected, items)


def _beyond(observed: float, expected: float) -> float | None:
    # Shares are sums of products of rounded numbers: "always the same" is 1 but for the last digits.
    return None if expected >= 1 - 1e-12 else (observed - expected) / (1 - expected)


def _cohen(cells: Mapping[tuple[Hashable, Hashable], int]) -> Shares:
    one: Counter[Hashable] = Counter()
    other: Counter[Hashable] = Counter()
    for (first, second), count in cells.items():
        one[first] += count
        other[second] += count
    items = sum(cells.values())
    same = sum(count for (first, second), count in cells.items() if first == second)
    return same / items, sum(one[label] * other[label] for label in one) / items**2


def _fleiss(cells: Mapping[frozenset[tuple[Hashable, int]], int]) -> Shares:
    agreeing, items = 0.0, sum(cells.values())
    shares: dict[Hashable, float] = {}
    for cell, count in cells.items():
        total = sum(one for _, one in cell)
        agreeing += count * sum(one * (one - 1) for _, one in cell) / (total * (total - 1))
        for label, one in cell:
            shares[label] = shares.get(label, 0.0) + count * one / total
    return agreeing / items, sum((share / items) ** 2 for share in shares.values())
