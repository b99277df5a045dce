"""pass@k: how likely at least one of k samples passes, estimated without bias from n of them, with intervals.

The one decision to know: the intervals are over problems. The 164 problems stand for those that one might have asked, so
they are drawn anew, with replacement (a percentile bootstrap); the samples of a problem stay as they are.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import comb

import msgspec

from camel.reports.intervals import wilson

RESAMPLES = 5_000
SEED = 164


class Passing(msgspec.Struct, frozen=True):
    """pass@k with its 95% interval."""

    k: int
    rate: float
    low: float
    high: float


def pass_at(n: int, passed: int, k: int) -> float:
    """The share of choices of k out of n samples, of which `passed` pass, that have at least one that does."""
    if not 0 < k <= n or not 0 <= passed <= n:
        raise ValueError(f"pass@{k} of {n} samples, {passed} passed: k must be 1 to n")
    # Exact in whole numbers; one division at the end.
    return 1.0 if n - passed < k else (comb(n, k) - comb(n - passed, k)) / comb(n, k)


def passing(n: int, passed: Sequence[int], ks: Sequence[int]) -> list[Passing]:
    """pass@k over problems of which `passed` samples each passed, for every k."""
    rates = {k: {c: pass_at(n, c, k) for c in set(passed)} for k in ks}
    rng, count = random.Random(SEED), len(passed)  # noqa: S311 - no secret
    # The same draws for every k, so that intervals can be compared.
    means: dict[int, list[float]] = {k: [] for k in ks}
    for _ in range(RESAMPLES if count else 0):
        drawn = rng.choices(passed, k=count)
        for k in ks:
            means[k].append(sum(map(rates[k].__getitem__, drawn)) / count)
    found: list[Passing] = []
    for k in ks:
        if not count:
            found.append(Passing(k, 0.0, 0.0, 1.0))
            continue
        rate = sum(rates[k][c] for c in passed) / count
        if rate in (0.0, 1.0):
            # Draws of what is all alike are all alike too, and know nothing: Wilson's interval for the problems does.
            whole = wilson(round(rate) * count, count)
            found.append(Passing(k, rate, whole.low, whole.high))
            continue
        means[k].sort()
        low, high = (means[k][min(RESAMPLES - 1, round(RESAMPLES * q))] for q in (0.025, 0.975))
        found.append(Passing(k, rate, min(low, rate), max(high, rate)))
    return found
