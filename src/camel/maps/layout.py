"""Where the points lie: UMAP from many dimensions to two, with a fixed seed.

The one decision to know: UMAP is fitted on at most `FIT` of the points, drawn with the seed, and the others are placed by
what it learned; below `FEW` points it has no neighbourhoods to keep, and the two main directions (PCA) are drawn instead.
Coordinates are scaled to lie between -1 and 1, with one scale for both.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from camel.core.errors import MissingExtra

FEW = 30
FIT = 50_000
NEIGHBOURS = 25
CLOSEST = 0.4
"""How many neighbours UMAP keeps, and how close it packs them: looser than its defaults, so that points can be told apart."""

Vectors = NDArray[np.float32]


class Layout(NamedTuple):
    """Points in the plane."""

    points: Vectors
    method: str
    """How they were placed, in words."""


def place(vectors: Vectors, *, seed: int = 0, fit: int = FIT) -> Layout:
    """Points for vectors, close where the vectors are."""
    if len(vectors) < FEW:
        return Layout(scaled(_main(vectors)), "the two main directions (PCA)")
    rng = np.random.default_rng(seed)
    chosen = np.arange(len(vectors))
    if len(vectors) > fit:
        chosen = np.sort(rng.choice(len(vectors), fit, replace=False))
    points = np.zeros((len(vectors), 2), np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numba and of scikit-learn, about their own insides
        model = _umap().UMAP(
            n_neighbors=min(NEIGHBOURS, len(chosen) - 1),
            min_dist=CLOSEST,
            metric="cosine",
            random_state=seed,
            n_jobs=1,
            # The spectral start fails on sets of copies; the main directions always exist.
            init=scaled(_main(vectors[chosen])) * 10,
        )
        points[chosen] = model.fit_transform(vectors[chosen])
        rest = np.setdiff1d(np.arange(len(vectors)), chosen, assume_unique=True)
        for start in range(0, len(rest), fit):
            some = rest[start : start + fit]
            points[some] = model.transform(vectors[some])
    method = "UMAP" if not len(rest) else f"UMAP, fitted on {len(chosen):,} points"
    return Layout(scaled(points), method)


def scaled(points: Vectors) -> Vectors:
    """The same, between -1 and 1; what is not a number is in the middle."""
    points = np.nan_to_num(points.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    low, high = points.min(0), points.max(0)
    half = float((high - low).max()) / 2 or 1.0
    return ((points - (low + high) / 2) / half).astype(np.float32)


def _main(vectors: Vectors) -> Vectors:
    """The vectors along their two main directions."""
    centred = vectors - vectors.mean(0)
    if len(vectors) < 2 or vectors.shape[1] < 2:
        return np.hstack([centred, np.zeros_like(centred)])[:, :2]
    _, directions = np.linalg.eigh(np.cov(centred, rowvar=False))
    found = centred @ directions[:, [-1, -2]]
    # A direction may point either way: the same one on every machine.
    signs = np.sign(found[np.abs(found).argmax(0), [0, 1]])
    return (found * np.where(signs == 0, 1, signs)).astype(np.float32)


def _umap() -> Any:
    try:
        return import_module("umap.umap_")
    except ImportError:
        raise MissingExtra("Laying out a map", "map") from None
