"""pass@k: the probability that at least one of k samples passes, with the unbiased estimate from n samples.

The one decision to know: the intervals are a percentile bootstrap over problems, because the 164 problems are a sample of all
possible ones. The samples of a problem are not resampled.
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
    """Return the probability that k of n samples, of which `passed` pass, contain at least one that passes."""
    if not 0 < k <= n or not 0 <= passed <= n:
        raise ValueError(f"pass@{k} of {n} samples, {passed} passed: k must be from 1 to {n}")
    # Integers are exact; there is only one division.
    return 1.0 if n - passed < k else (comb(n, k) - comb(n - passed, k)) / comb(n, k)


def passing(n: int, passed: Sequence[int], ks: Sequence[int]) -> list[Passing]:
    """Return pass@k for every k. `passed` contains, for each problem, how many of its n samples passed."""
    rates = {k: {c: pass_at(n, c, k) for c in set(passed)} for k in ks}
    rng, count = random.Random(SEED), len(passed)  # noqa: S311 - no secret
    # The same resamples for every k, so that intervals can be compared.
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
            # The bootstrap has no spread if all problems are alike, so use Wilson's interval over the problems.
            whole = wilson(round(rate) * count, count)
            found.append(Passing(k, rate, whole.low, whole.high))
            continue
        means[k].sort()
        low, high = (means[k][min(RESAMPLES - 1, round(RESAMPLES * q))] for q in (0.025, 0.975))
        found.append(Passing(k, rate, min(low, rate), max(high, rate)))
    return found
