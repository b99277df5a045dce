"""Clusters of points, and labels for them.

Clusters come from k-means over the vectors. A label has words that are frequent in the group and rare in the others (class
TF-IDF: the frequency in the group times log(1 + mean length of a group / frequency in all), over words and pairs of words).

The one decision to know: the words come from texts without a restricted label. Restricted texts are used only for a group
that has no others, and such a group is never shown to readers who may not see them.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from camel.core.errors import MissingExtra
from camel.maps.layout import Vectors

MOST = 40
WORDS = 3
"""Number of words of a label."""
_SAMPLE = 3_000
"""Maximum number of texts per group whose words are counted."""
_SMALL = 20_000
_WORD = re.compile(r"[^\W\d_][^\W_]*(?:['’][^\W\d_]+)?")


def cluster_vectors(vectors: Vectors, *, seed: int = 0, groups: int | None = None) -> NDArray[np.int32]:
    """Return the group of each vector, numbered by size, the largest is 0."""
    count = groups or max(1, min(MOST, round(len(vectors) ** 0.5 / 2)))
    if count < 2 or len(vectors) <= count:
        return np.zeros(len(vectors), np.int32)
    library = _sklearn()
    small = len(vectors) <= _SMALL
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about fewer different vectors than groups
        model = (
            library.KMeans(count, random_state=seed, n_init=3)
            if small
            else library.MiniBatchKMeans(count, random_state=seed, n_init=3, batch_size=4_096)
        )
        found: list[int] = np.asarray(model.fit_predict(vectors)).tolist()
    order = [n for n, _ in Counter(found).most_common()]
    rank = {n: place for place, n in enumerate(order)}
    return np.array([rank[n] for n in found], np.int32)


def label_groups(
    texts: Sequence[str], groups: NDArray[np.int32], hidden: NDArray[np.bool_], *, seed: int = 0
) -> list[str]:
    """Return a label for each group."""
    rng = np.random.default_rng(seed)
    counted: list[Counter[str]] = []
    for group in range(int(groups.max()) + 1 if len(groups) else 0):
        members = np.flatnonzero(groups == group)
        free = members[~hidden[members]]
        members = free if len(free) else members
        if len(members) > _SAMPLE:
            members = np.sort(rng.choice(members, _SAMPLE, replace=False))
        words: Counter[str] = Counter()
        for at in members.tolist():
            words.update(set(_terms(texts[at])))
        counted.append(words)
    total: Counter[str] = Counter()
    for words in counted:
        total.update(words)
    mean = sum(total.values()) / max(1, len(counted))
    return [_best(words, total, mean) or f"group {n + 1}" for n, words in enumerate(counted)]


def _best(words: Counter[str], total: Counter[str], mean: float) -> str:
    size = sum(words.values()) or 1
    score = {word: n / size * np.log1p(mean / total[word]) for word, n in words.items()}
    score = {word: value * (1.3 if " " in word else 1) for word, value in score.items()}
    least = max(score.values(), default=0.0) / 4
    chosen: list[str] = []
    for word in sorted(score, key=lambda one: (-score[one], one)):
        # "stock market" includes "stock" and "market"; and a word that fits far worse than the best says little.
        taken = {part for one in chosen for part in one.split()}
        if not taken & set(word.split()) and score[word] >= least:
            chosen.append(word)
        if len(chosen) == WORDS:
            break
    return ", ".join(chosen)


def _terms(text: str) -> list[str]:
    words = [word.lower() for word in _WORD.findall(text)]
    single = [word for word in words if _tells(word)]
    pairs = [f"{a} {b}" for a, b in pairwise(words) if _tells(a) and _tells(b)]
    return single + pairs


def _tells(word: str) -> bool:
    return 2 < len(word) < 30 and word not in _common()


@cache
def _common() -> frozenset[str]:
    """Return words that occur in all groups, or come from the prompts."""
    return frozenset((Path(__file__).parent / "common_words.txt").read_text("utf-8").split())


def _sklearn() -> Any:
    try:
        return import_module("sklearn.cluster")
    except ImportError:
        raise MissingExtra("Grouping the points of a map", "map") from None
