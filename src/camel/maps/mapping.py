"""The map job: embeds a run's texts, then computes layout, labeled clusters, near-duplicates and figures in one table.

The layout is UMAP to two dimensions, with a fixed seed. It is fitted on at most `FIT` of the points, chosen with the seed, and
then places the others. With fewer than `FEW` points, the first two principal components (PCA) are used instead. Coordinates
are scaled to between -1 and 1, with one scale for both axes.
"""

from __future__ import annotations

import re
import shlex
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from camel.core.errors import InputError
from camel.core.model import Model
from camel.index.facets import elements
from camel.jobs.job import Job, Step
from camel.maps.diversity import THRESHOLD, Diversity, Vectors, diversity, duplicates
from camel.maps.embedding import KEPT, SAMPLE, Embedder, Embedding, Of, checked, common_words, home
from camel.maps.table import MapGroup, MapHeader, Repeat, path_of, point_name, schema, write
from camel.models.spec import ModelSpec
from camel.record.parquet import arrow
from camel.record.release import RESTRICTED
from camel.runs.reader import RunReader, need_module
from camel.runs.run import RunFolder, open_folder

MOST = 40
FEW = 30
FIT = 50_000
NEIGHBORS = 25
CLOSEST = 0.4
"""UMAP's number of neighbors and minimum distance: looser than its defaults, so that points do not overlap."""
WORDS = 3
"""Maximum number of terms in the label of a group."""
_SAMPLE = 3_000
"""Maximum number of texts per group whose words are counted."""
_SMALL = 20_000
_WORD = re.compile(r"[^\W\d_][^\W_]*(?:['’][^\W\d_]+)?")


def place(vectors: Vectors, *, seed: int = 0, fit: int = FIT) -> tuple[Vectors, str]:
    """Return points in two dimensions that are close if their vectors are similar, and a description of the method."""
    if len(vectors) < FEW:
        return scaled(_project(vectors)), "the first two principal components (PCA)"
    rng = np.random.default_rng(seed)
    chosen = np.arange(len(vectors))
    if len(vectors) > fit:
        chosen = np.sort(rng.choice(len(vectors), fit, replace=False))
    points = np.zeros((len(vectors), 2), np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # internal warnings of numba and scikit-learn
        model = need_module("umap.umap_", "map", "Laying out a map").UMAP(
            n_neighbors=min(NEIGHBORS, len(chosen) - 1),
            min_dist=CLOSEST,
            metric="cosine",
            random_state=seed,
            n_jobs=1,
            # The spectral initialization fails on sets of copies; the principal components always exist.
            init=scaled(_project(vectors[chosen])) * 10,
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


def _project(vectors: Vectors) -> Vectors:
    """Project vectors on their first two principal components."""
    centered = vectors - vectors.mean(0)
    if len(vectors) < 2 or vectors.shape[1] < 2:
        return np.hstack([centered, np.zeros_like(centered)])[:, :2]
    _, directions = np.linalg.eigh(np.cov(centered, rowvar=False))
    found = centered @ directions[:, [-1, -2]]
    # The sign of a component is arbitrary: choose the same on every machine.
    signs = np.sign(found[np.abs(found).argmax(0), [0, 1]])
    return (found * np.where(signs == 0, 1, signs)).astype(np.float32)


def cluster_vectors(vectors: Vectors, *, seed: int = 0, groups: int | None = None) -> NDArray[np.int32]:
    """Return the index of the group of each vector. Groups are numbered by size, and the largest is 0."""
    count = groups or max(1, min(MOST, round(len(vectors) ** 0.5 / 2)))
    if count < 2 or len(vectors) <= count:
        return np.zeros(len(vectors), np.int32)
    library = need_module("sklearn.cluster", "map", "Grouping the points of a map")
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
    """Return a label for each group: the terms that are at least twice as frequent in its texts as in all other texts.

    They come from texts without a restricted label. A group that has no such texts is named by its own words, and is never
    shown to readers who may not see them.
    """
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
    """Return the best terms for a group of `size` texts, as one label. `others` is the number of texts in other groups.

    They are ordered by share here * log(share here / share elsewhere): a phrase that every group has names none.
    """
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
    return 2 < len(word) < 30 and word not in common_words()


REPEATS = 1_000
"""Maximum number of near-duplicate pairs that are stored in the map."""


class Made(msgspec.Struct, frozen=True):
    """The result of a map job: the path and the header of the map."""

    path: Path
    header: MapHeader


@dataclass(frozen=True)
class MapJob(Job):
    """A job that makes the map of a run's texts."""

    name = "map"
    run: str
    embedder: Embedder
    of: Of = "tasks"
    seed: int = 0
    groups: int | None = None
    threshold: float = THRESHOLD
    fit: int = FIT
    sample: int = SAMPLE
    """Maximum number of conversations. Of a larger run, one of two, four or more is chosen, by its id."""
    models: Mapping[str, Model | ModelSpec] = field(default_factory=dict[str, Model | ModelSpec], init=False)
    place: str = field(init=False)

    def __post_init__(self) -> None:
        checked(self.of)
        object.__setattr__(self, "place", str(home(open_folder(self.run), self.of, "vectors")))

    @cached_property
    def embedding(self) -> Embedding:
        """The embedding of the run's texts."""
        records = RunReader(self.run)
        if not len(records):
            raise InputError(
                f"no conversation is finished yet: see `camel run status {shlex.quote(self.run)}`"
            )
        return Embedding(records, self.embedder, of=self.of, sample=self.sample)

    def stages(self, run: RunFolder) -> Iterator[Step]:
        """Yield the embedding stage."""
        yield from self.embedding.stages()

    def result(self, run: RunFolder) -> Made:
        """Compute the map and write it next to the run."""
        records, seed = self.embedding.run, self.seed
        rows, vectors = _read(self.embedding)
        texts: list[str] = rows.column("text").to_pylist()
        ids: list[str] = rows.column("id").to_pylist()
        messages: list[int] = rows.column("message").to_pylist()
        sets = [RESTRICTED.intersection(elements(one)) for one in rows.column("labels").to_pylist()]
        hidden = np.array(list(map(bool, sets)), np.bool_)
        numbers = cluster_vectors(vectors, seed=seed, groups=self.groups)
        labels = label_groups(texts, numbers, hidden, seed=seed)
        found = duplicates(vectors, self.threshold, same=_same(texts))
        figures = diversity(vectors, found, self.threshold, seed=seed)
        points, method = place(vectors, seed=seed, fit=self.fit)
        header = MapHeader(
            of=self.of,
            model=self.embedder.name,
            stage=records.stage,
            fingerprint=records.settings.fingerprint,
            conversations=len(records),
            every=self.embedding.every,
            rows=rows.num_rows,
            method=method,
            seed=seed,
            groups=_groups(labels, numbers, points, hidden),
            all=figures,
            open=_open_figures(vectors, texts, hidden, figures, seed),
            repeats=[
                Repeat(
                    ids[a], messages[a], ids[b], messages[b], round(cosine, 4), not (hidden[a] or hidden[b])
                )
                for a, b, cosine in found.pairs[:REPEATS]
            ],
        )
        # For each text, the name of the point that it repeats, or an empty string.
        firsts: list[int] = found.first.tolist()
        copies = ["" if n == at else point_name(ids[n], messages[n]) for at, n in enumerate(firsts)]
        pa, width, layout = arrow(), vectors.shape[1], schema(vectors.shape[1])
        flat = pa.array(np.ascontiguousarray(vectors).reshape(-1))
        columns = {
            **{name: rows.column(name) for name in rows.schema.names},
            "x": pa.array(points[:, 0]),
            "y": pa.array(points[:, 1]),
            "cluster": pa.array(numbers),
            "label": pa.array([labels[n] for n in numbers.tolist()], pa.string()),
            "copy_of": pa.array(copies, pa.string()),
            "vector": pa.FixedSizeListArray.from_arrays(flat, width),
        }
        path = path_of(records.folder, self.of)
        write(path, pa.table([columns[name] for name in layout.names], schema=layout), header)
        return Made(path, header)

    @property
    def title(self) -> str:
        """The kind of texts and the run, such as "tasks of runs/trial"."""
        return f"{self.of} of {self.run}"


def _read(embedding: Embedding) -> tuple[Any, Vectors]:
    """Return a table of the stored columns of all texts, and their unit vectors. At most two copies are in memory at a time."""
    rows: list[Any] = []
    parts: list[Any] = []
    for table in embedding.tables():
        rows.append(table.select([*KEPT, "message", "text"]))
        chunks = [chunk for chunk in table.column("vector").chunks if len(chunk)]
        parts += [chunk.values.to_numpy().reshape(len(chunk), -1) for chunk in chunks]
    if not parts:
        raise InputError(f"'{embedding.run.folder.address}' has no {embedding.of} with text")
    if len({part.shape[1] for part in parts}) > 1:
        raise InputError("the vectors come from different models: remove the run's folder 'map'")
    vectors = np.concatenate(parts)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    np.divide(vectors, lengths, out=vectors, where=lengths > 0)
    return arrow().concat_tables(rows), vectors


def _same(texts: list[str]) -> NDArray[np.int64]:
    """Return for each text the index of the first text that is equal except for spaces and case."""
    first: dict[str, int] = {}
    return np.array(
        [first.setdefault(" ".join(text.lower().split()), n) for n, text in enumerate(texts)], np.int64
    )


def _open_figures(
    vectors: Vectors, texts: list[str], hidden: NDArray[np.bool_], figures: Diversity, seed: int
) -> Diversity | None:
    """Return the diversity of the texts without a restricted label, which every reader may see. Return None if there are
    none."""
    if not hidden.any():
        return figures
    if hidden.all():
        return None
    free, threshold = vectors[~hidden], figures.threshold
    same = _same([text for text, no in zip(texts, hidden, strict=True) if not no])
    return diversity(free, duplicates(free, threshold, same=same, most=1), threshold, seed=seed)


def _groups(
    labels: list[str], numbers: NDArray[np.int32], points: Vectors, hidden: NDArray[np.bool_]
) -> list[MapGroup]:
    made: list[MapGroup] = []
    for number, label in enumerate(labels):
        members = np.flatnonzero(numbers == number)
        free = members[~hidden[members]]
        # Positions of restricted points must not show for readers who may not see them.
        x, y = np.median(points[free if len(free) else members], axis=0).tolist()
        made.append(MapGroup(label, x, y, len(members), len(free)))
    return made
