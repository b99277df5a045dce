"""Diversity of texts: near-duplicates, distance to the nearest other text, and the effective number of different texts.

The one decision to know: the search for near-duplicates is exact. Every pair is checked, in blocks, and most are excluded by
their first `FIRST` principal components: the other components can add at most the product of both remaining norms to a
cosine (Cauchy-Schwarz), so nothing above the threshold is missed.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

THRESHOLD = 0.95
"""Minimum cosine similarity of two near-duplicates."""
FIRST = 64
BLOCK = 2_048
MOST_PAIRS = 10_000
"""Maximum number of pairs to return. These are the closest ones, but all pairs are counted."""
SAMPLE = 5_000
"""Maximum number of texts for which the nearest other text is searched."""
_ROOM = 1e-5
"""Tolerance for rounding errors of 32-bit sums."""

Vectors = NDArray[np.float32]


class Diversity(msgspec.Struct, frozen=True):
    """Measures of how different the texts of a set are."""

    texts: int
    threshold: float
    """Minimum cosine similarity of two near-duplicates."""
    pairs: int
    """Number of near-duplicate pairs."""
    copies: int
    """Number of texts that would be removed to keep one of each group of near-duplicates."""
    nearest: float | None
    """Mean distance (1 - cosine) of a text to the nearest other text. None if there are fewer than two texts."""
    sampled: int
    """Number of texts over which `nearest` is the mean."""
    effective: float
    """Effective number of different texts: the Vendi score with cosine similarity. It is at most the number of dimensions."""


class NearDuplicate(NamedTuple):
    """Two texts with nearly the same meaning."""

    one: int
    other: int
    cosine: float


class Duplicates(NamedTuple):
    """The near-duplicates in a set of texts."""

    total: int
    pairs: list[NearDuplicate]
    first: NDArray[np.int64]
    """For each text, the index of the first text in its group of near-duplicates, which may be the text itself."""


def duplicates(
    vectors: Vectors,
    threshold: float = THRESHOLD,
    *,
    same: NDArray[np.int64] | None = None,
    most: int = MOST_PAIRS,
) -> Duplicates:
    """Find all pairs of unit vectors whose cosine is at least the threshold.

    `same` gives for each text the first equal one: 10,000 copies of a text are 50 million pairs, which are counted without
    comparing them.
    """
    if same is None:
        same = np.arange(len(vectors))
    firsts, where, times = np.unique(same, return_inverse=True, return_counts=True)
    found = _pairs(vectors[firsts], threshold, times, most)
    repeated = np.flatnonzero(same != np.arange(len(same)))
    pairs = [NearDuplicate(int(same[at]), int(at), 1.0) for at in repeated[:most]]
    pairs += [NearDuplicate(int(firsts[a]), int(firsts[b]), cosine) for a, b, cosine in found.pairs]
    return Duplicates(
        found.total + int((times * (times - 1) // 2).sum()), pairs[:most], firsts[found.first[where]]
    )


def _pairs(vectors: Vectors, threshold: float, times: NDArray[np.int64], most: int) -> Duplicates:
    """Find near-duplicate pairs of different texts. Each pair is counted as often as its texts occur."""
    n, first = len(vectors), min(FIRST, vectors.shape[1])
    # An orthogonal matrix whose last columns are the principal components.
    _, directions = np.linalg.eigh((vectors.T @ vectors).astype(np.float64))
    turned = vectors @ np.ascontiguousarray(directions[:, ::-1], np.float32)
    left = np.linalg.norm(turned[:, first:], axis=1, keepdims=True)
    # The product of two of these rows is the bound: the first components, and the remaining norms.
    short = np.ascontiguousarray(np.hstack([turned[:, :first], left]))
    parent = np.arange(n)
    count = 0
    kept: list[NearDuplicate] = []
    for a in range(0, n, BLOCK):
        for b in range(a, n, BLOCK):
            bound = short[a : a + BLOCK] @ short[b : b + BLOCK].T
            if a != b and bound.max() < threshold - _ROOM:
                continue
            rows, columns = np.nonzero(bound >= threshold - _ROOM)
            if a == b:
                rows, columns = rows[rows < columns], columns[rows < columns]
            for start in range(0, len(rows), 65_536):
                ones, others = a + rows[start : start + 65_536], b + columns[start : start + 65_536]
                cosines = np.einsum("ij,ij->i", vectors[ones], vectors[others])
                good = cosines >= threshold - 1e-6  # tolerate rounding errors for copies
                ones, others, cosines = ones[good], others[good], cosines[good]
                count += int((times[ones] * times[others]).sum())
                apart = parent[ones] != parent[others]
                for one, other in zip(ones[apart].tolist(), others[apart].tolist(), strict=True):
                    _join(parent, one, other)
                kept += [
                    NearDuplicate(*pair)
                    for pair in zip(ones.tolist(), others.tolist(), cosines.tolist(), strict=True)
                ]
                if len(kept) > 4 * most:
                    kept = sorted(kept, key=lambda pair: -pair.cosine)[:most]
    return Duplicates(
        count,
        sorted(kept, key=lambda pair: (-pair.cosine, pair.one, pair.other))[:most],
        np.array([_root(parent, at) for at in range(n)], np.int64),
    )


def diversity(vectors: Vectors, found: Duplicates, threshold: float, *, seed: int = 0) -> Diversity:
    """Compute the diversity of unit vectors. `found` are the near-duplicates among them."""
    n = len(vectors)
    chosen = np.arange(n)
    if n > SAMPLE:
        chosen = np.sort(np.random.default_rng(seed).choice(n, SAMPLE, replace=False))
    best = np.full(len(chosen), -1.0, np.float32)
    for start in range(0, n if n > 1 else 0, BLOCK):
        cosines = vectors[chosen] @ vectors[start : start + BLOCK].T
        own = np.flatnonzero((chosen >= start) & (chosen < start + BLOCK))
        cosines[own, chosen[own] - start] = -1.0
        best = np.maximum(best, cosines.max(1))
    return Diversity(
        n,
        threshold,
        found.total,
        int((found.first != np.arange(n)).sum()),
        float(np.clip(1.0 - best, 0.0, 2.0).mean()) if n > 1 else None,
        len(chosen),
        effective_number(vectors),
    )


def effective_number(vectors: Vectors) -> float:
    """Return exp(H). H is the entropy of the eigenvalues of K / n, and K is the similarity matrix. Computed from X'X / n, which is smaller."""
    values = np.linalg.eigvalsh(vectors.astype(np.float64).T @ vectors.astype(np.float64) / len(vectors))
    values = values[values > 1e-12]
    values = values / values.sum() if len(values) else np.ones(1)
    return float(np.exp(-(values * np.log(values)).sum()))


def _root(parent: NDArray[np.int64], at: int) -> int:
    while parent[at] != at:
        parent[at] = parent[parent[at]]
        at = int(parent[at])
    return at


def _join(parent: NDArray[np.int64], one: int, other: int) -> None:
    a, b = _root(parent, one), _root(parent, other)
    parent[max(a, b)] = min(a, b)
