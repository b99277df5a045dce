"""The layout of a map: UMAP to two dimensions, with a fixed seed.

The one decision to know: UMAP is fitted on at most `FIT` of the points, chosen with the seed, and then places the others.
With fewer than `FEW` points, the first two principal components (PCA) are used instead. Coordinates are scaled to between -1
and 1, with one scale for both axes.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from camel.core.errors import MissingExtra

FEW = 30
FIT = 50_000
NEIGHBORS = 25
CLOSEST = 0.4
"""UMAP's number of neighbors and minimum distance: looser than its defaults, so that points do not overlap."""

Vectors = NDArray[np.float32]


def place(vectors: Vectors, *, seed: int = 0, fit: int = FIT) -> tuple[Vectors, str]:
    """Return points in two dimensions that are close if their vectors are similar, and a description of the method."""
    if len(vectors) < FEW:
        return scaled(_main(vectors)), "the first two principal components (PCA)"
    rng = np.random.default_rng(seed)
    chosen = np.arange(len(vectors))
    if len(vectors) > fit:
        chosen = np.sort(rng.choice(len(vectors), fit, replace=False))
    points = np.zeros((len(vectors), 2), np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # internal warnings of numba and scikit-learn
        model = need_package("umap.umap_", "Laying out a map").UMAP(
            n_neighbors=min(NEIGHBORS, len(chosen) - 1),
            min_dist=CLOSEST,
            metric="cosine",
            random_state=seed,
            n_jobs=1,
            # The spectral initialization fails on sets of copies; the principal components always exist.
            init=scaled(_main(vectors[chosen])) * 10,
        )
        points[chosen] = model.fit_transform(vectors[chosen])
        rest = np.setdiff1d(np.arange(len(vectors)), chosen, assume_unique=True)
        for start in range(0, len(rest), fit):
            some = rest[start : start + fit]
            points[some] = model.transform(vectors[some])
    method = "UMAP" if not len(rest) else f"UMAP, fitted on {len(chosen):,} points"
    return scaled(points), method


def scaled(points: Vectors) -> Vectors:
    """Scale points to the range from -1 to 1. NaN becomes 0."""
    points = np.nan_to_num(points.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    low, high = points.min(0), points.max(0)
    half = float((high - low).max()) / 2 or 1.0
    return ((points - (low + high) / 2) / half).astype(np.float32)


def _main(vectors: Vectors) -> Vectors:
    """Project vectors on their first two principal components."""
    centered = vectors - vectors.mean(0)
    if len(vectors) < 2 or vectors.shape[1] < 2:
        return np.hstack([centered, np.zeros_like(centered)])[:, :2]
    _, directions = np.linalg.eigh(np.cov(centered, rowvar=False))
    found = centered @ directions[:, [-1, -2]]
    # The sign of a component is arbitrary: choose the same on every machine.
    signs = np.sign(found[np.abs(found).argmax(0), [0, 1]])
    return (found * np.where(signs == 0, 1, signs)).astype(np.float32)


def need_package(module: str, what: str) -> Any:
    """Import and return a package of the extra `map`, which `what` needs."""
    try:
        return import_module(module)
    except ImportError:
        raise MissingExtra(what, "map") from None
