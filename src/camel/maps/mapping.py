"""The map job: embeds a run's texts, then computes layout, labeled clusters, near-duplicates and figures in one table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from camel.core.errors import InputError
from camel.core.model import Model
from camel.index.facets import elements
from camel.jobs.job import Job, Step
from camel.maps.clusters import cluster_vectors, label_groups
from camel.maps.diversity import THRESHOLD, Diversity, diversity, duplicates
from camel.maps.embedders import Embedder
from camel.maps.embedding import KEPT, SAMPLE, Embedding, home
from camel.maps.layout import FIT, Vectors, place
from camel.maps.table import MapGroup, MapHeader, Repeat, path_of, point_name, schema, write
from camel.maps.texts import Of, checked
from camel.models.spec import ModelSpec
from camel.record.parquet import arrow
from camel.record.release import RESTRICTED
from camel.runs.reader import RunReader
from camel.runs.run import RunFolder, open_folder

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
            raise InputError(f"no conversation is finished yet: see `camel run status {self.run}`")
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
        hidden = _hidden(rows.column("labels").to_pylist())
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


def _hidden(labels: list[str]) -> NDArray[np.bool_]:
    bad = {one for one in set(labels) if RESTRICTED.intersection(elements(one))}
    return np.array([one in bad for one in labels], np.bool_)


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
