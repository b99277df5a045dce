"""Agreement of raters beyond chance: Cohen's kappa for two raters, Fleiss' kappa for any number.

The one decision to know: if all raters always give the same label, chance alone would also agree, and kappa is undefined
(None). This is why the observed share of agreement is reported as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from math import sqrt
from typing import TypeVar

import msgspec

from camel.reports.intervals import Z, wilson


class Kappa(msgspec.Struct, frozen=True):
    """Agreement beyond chance, from -1 to 1, with a 95% interval; 0 is chance.

    The interval is a jackknife over the items, or follows from Wilson's interval if all ratings agree.
    """

    kappa: float | None
    """The kappa. None if there are no items, or if all raters used one and the same label."""
    low: float | None
    high: float | None
    observed: float
    """Share of pairs of ratings of the same item that agree."""
    expected: float
    """Share of pairs that would agree by chance, given how often each label is used."""
    items: int
    """Number of items with at least two ratings. Other items are skipped."""


def cohen(both: Iterable[tuple[Hashable, Hashable]]) -> Kappa:
    """Return Cohen's kappa of two raters, from the two labels of each item."""
    return _kappa(Counter(both), _cohen)


def fleiss(items: Iterable[Iterable[Hashable]]) -> Kappa:
    """Return Fleiss' kappa. Each element of `items` contains all labels of one item, in any order.

    Items may have different numbers of ratings. Items with fewer than two are skipped.
    """
    cells: Counter[frozenset[tuple[Hashable, int]]] = Counter()
    for item in items:
        ratings = Counter(item)
        if ratings.total() > 1:
            cells[frozenset(ratings.items())] += 1
    return _kappa(cells, _fleiss)


Cell = TypeVar("Cell", bound=Hashable)
"""A combination of ratings. All items with the same ratings are counted in one cell."""
Shares = tuple[float, float]
"""The observed agreement and the agreement expected by chance."""


def _kappa(cells: Mapping[Cell, int], shares: Callable[[Mapping[Cell, int]], Shares]) -> Kappa:
    """Compute kappa from the number of items per cell. The jackknife then takes one step per cell, not per item."""
    items = sum(cells.values())
    if not items:
        return Kappa(None, None, None, 0.0, 0.0, 0)
    observed, expected = shares(cells)
    kappa = _beyond_chance(observed, expected)
    low = high = None
    if kappa is not None and items > 1:
        without: list[tuple[float, int]] = []
        for cell, count in cells.items():
            value = _beyond_chance(*shares({**cells, cell: count - 1}))
            without.append((kappa if value is None else value, count))
        mean = sum(value * count for value, count in without) / items
        spread = sum(count * (value - mean) ** 2 for value, count in without)
        half = Z * sqrt((items - 1) / items * spread)
        low, high = max(-1.0, kappa - half), min(1.0, kappa + half)
        if observed >= 1 - 1e-12:
            # The jackknife has no variance here, although the raters may disagree on another item.
            low = max(-1.0, (wilson(items, items).low - expected) / (1 - expected))
    return Kappa(kappa, low, high, observed, expected, items)


def _beyond_chance(observed: float, expected: float) -> float | None:
    # Rounding: the expected share may be slightly below 1 even if all labels are the same.
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
