"""Clusters of points, and labels for them.

k-means over the vectors. The words of a group are words and pairs of words that are at least twice as frequent in its texts
as in all other texts, ordered by share here * log(share here / share elsewhere): a phrase that every group has names none.

The one decision to know: the words come from texts without a restricted label. A group that has no such texts is named by
its own words, and is never shown to readers who may not see them.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from camel.maps.layout import Vectors, need_package

MOST = 40
WORDS = 3
"""Maximum number of terms in the label of a group."""
_SAMPLE = 3_000
"""Maximum number of texts per group whose words are counted."""
_SMALL = 20_000
_WORD = re.compile(r"[^\W\d_][^\W_]*(?:['’][^\W\d_]+)?")


def cluster_vectors(vectors: Vectors, *, seed: int = 0, groups: int | None = None) -> NDArray[np.int32]:
    """Return the index of the group of each vector. Groups are numbered by size, and the largest is 0."""
    count = groups or max(1, min(MOST, round(len(vectors) ** 0.5 / 2)))
    if count < 2 or len(vectors) <= count:
        return np.zeros(len(vectors), np.int32)
    library = need_package("sklearn.cluster", "Grouping the points of a map")
    small = len(vectors) <= _SMALL
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about fewer different vectors than groups
        kind, more = (library.KMeans, {}) if small else (library.MiniBatchKMeans, {"batch_size": 4_096})
        model = kind(count, random_state=seed, n_init=3, **more)
        found: list[int] = np.asarray(model.fit_predict(vectors)).tolist()
    order = [n for n, _ in Counter(found).most_common()]
    rank = {n: place for place, n in enumerate(order)}
    return np.array([rank[n] for n in found], np.int32)


def label_groups(
    texts: Sequence[str], groups: NDArray[np.int32], hidden: NDArray[np.bool_], *, seed: int = 0
) -> list[str]:
    """Return a label for each group: the terms that distinguish its texts from those of other groups."""
    rng = np.random.default_rng(seed)
    counted: list[tuple[Counter[str], int]] = []
    for group in range(int(groups.max()) + 1 if len(groups) else 0):
        members = np.flatnonzero(groups == group)
        free = members[~hidden[members]]
        members = free if len(free) else members
        if len(members) > _SAMPLE:
            members = np.sort(rng.choice(members, _SAMPLE, replace=False))
        words: Counter[str] = Counter()
        for at in members.tolist():
            words.update(set(_terms(texts[at])))
        counted.append((words, len(members)))
    total: Counter[str] = Counter()
    for words, _ in counted:
        total.update(words)
    texts_in_all = sum(size for _, size in counted)
    return [
        _best(words, size, total, texts_in_all - size) or f"group {n + 1}"
        for n, (words, size) in enumerate(counted)
    ]


def _best(words: Counter[str], size: int, total: Counter[str], others: int) -> str:
    """Return the best terms for a group of `size` texts, as one label. `others` is the number of texts in other groups."""
    score: dict[str, float] = {}
    for word, n in words.items():
        here, elsewhere = n / size, (total[word] - n) / max(1, others)
        if here >= 2 * elsewhere:
            score[word] = (
                here * np.log(here / (elsewhere + 0.5 / (others + size))) * (1.3 if " " in word else 1)
            )
    least = max(score.values(), default=0.0) / 4
    chosen: list[str] = []
    for word in sorted(score, key=lambda one: (-score[one], one)):
        # "stock market" makes "stock" and "market" superfluous, and words far worse than the best say little.
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
    """Return words that never become labels, because they occur in all groups or come from the prompts."""
    return frozenset((Path(__file__).parent / "common_words.txt").read_text("utf-8").split())
