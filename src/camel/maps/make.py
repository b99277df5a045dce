"""From vectors to a map: layout, groups with their words, near-duplicates, figures, one table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from camel.core.errors import InputError
from camel.index.facets import elements
from camel.maps.clusters import clustered, labelled
from camel.maps.diversity import THRESHOLD, Diversity, Duplicates, diversity, duplicates
from camel.maps.embedding import KEPT, Embedding
from camel.maps.layout import FIT, Vectors, place
from camel.maps.table import MapGroup, MapHeader, Repeat, path_of, schema, write
from camel.record.parquet import arrow
from camel.record.release import RESTRICTED

REPEATS = 1_000
"""Near-duplicate pairs that the map names."""


class Made(msgspec.Struct, frozen=True):
    """A map that was made."""

    path: Path
    header: MapHeader


def make_map(
    embedding: Embedding,
    *,
    seed: int = 0,
    groups: int | None = None,
    threshold: float = THRESHOLD,
    fit: int = FIT,
    note: Callable[[str], None] = lambda what: None,
) -> Made:
    """Make the map of a run whose texts have been embedded, and write it beside the run."""
    rows, vectors = _read(embedding)
    texts: list[str] = rows.column("text").to_pylist()
    hidden = _hidden(rows.column("labels").to_pylist())
    note("grouping")
    numbers = clustered(vectors, seed=seed, groups=groups)
    labels = labelled(texts, numbers, hidden, seed=seed)
    note("comparing")
    found = duplicates(vectors, threshold, same=_same(texts))
    figures = diversity(vectors, found, threshold, seed=seed)
    note("placing")
    layout = place(vectors, seed=seed, fit=fit)
    ids: list[str] = rows.column("id").to_pylist()
    messages: list[int] = rows.column("message").to_pylist()
    header = MapHeader(
        of=embedding.of,
        model=embedding.embedder.name,
        stage=embedding.run.stage,
        fingerprint=embedding.run.settings.fingerprint,
        conversations=len(embedding.run),
        rows=rows.num_rows,
        method=layout.method,
        seed=seed,
        groups=_groups(labels, numbers, layout.points, hidden),
        all=figures,
        open=_open_figures(vectors, texts, hidden, threshold, seed, figures),
        repeats=[
            Repeat(ids[a], messages[a], ids[b], messages[b], round(cosine, 4), not (hidden[a] or hidden[b]))
            for a, b, cosine in found.pairs[:REPEATS]
        ],
    )
    table = _table(rows, vectors, layout.points, numbers, labels, _copies(found, ids, messages))
    path = path_of(embedding.run.folder, embedding.of)
    write(path, table, header)
    return Made(path, header)


def point_name(id: str, message: int) -> str:
    """What tells a point from all others of its map."""
    return id if message < 0 else f"{id}#{message}"


def _copies(found: Duplicates, ids: list[str], messages: list[int]) -> list[str]:
    """Of each text, the point that it repeats; empty where it repeats none."""
    firsts: list[int] = found.first.tolist()
    return ["" if first == at else point_name(ids[first], messages[first]) for at, first in enumerate(firsts)]


def _read(embedding: Embedding) -> tuple[Any, Vectors]:
    """What is kept of all texts, and their vectors, of length 1; of these never more than two copies at a time."""
    rows: list[Any] = []
    parts: list[Any] = []
    for table in embedding.tables():
        rows.append(table.select([*KEPT, "message", "text"]))
        chunks = [chunk for chunk in table.column("vector").chunks if len(chunk)]
        parts += [chunk.values.to_numpy().reshape(len(chunk), -1) for chunk in chunks]
    if not parts:
        raise InputError(f"{embedding.run.folder.address} has no {embedding.of} that say anything")
    if len({part.shape[1] for part in parts}) > 1:
        raise InputError("the vectors are of different models: remove the run's folder 'map'")
    vectors = np.concatenate(parts)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    np.divide(vectors, lengths, out=vectors, where=lengths > 0)
    return arrow().concat_tables(rows), vectors


def _hidden(labels: list[str]) -> NDArray[np.bool_]:
    bad = {one for one in set(labels) if RESTRICTED.intersection(elements(one))}
    return np.array([one in bad for one in labels], np.bool_)


def _same(texts: list[str]) -> NDArray[np.int64]:
    """Of each text, the first that is the same but for spaces and capitals."""
    first: dict[str, int] = {}
    return np.array(
        [first.setdefault(" ".join(text.lower().split()), n) for n, text in enumerate(texts)], np.int64
    )


def _open_figures(
    vectors: Vectors,
    texts: list[str],
    hidden: NDArray[np.bool_],
    threshold: float,
    seed: int,
    figures: Diversity,
) -> Diversity | None:
    """The figures that anybody may see: those of texts without a restricted label."""
    if not hidden.any():
        return figures
    if hidden.all():
        return None
    free = vectors[~hidden]
    same = _same([text for text, no in zip(texts, hidden, strict=True) if not no])
    return diversity(free, duplicates(free, threshold, same=same, most=1), threshold, seed=seed)


def _groups(
    labels: list[str], numbers: NDArray[np.int32], points: Vectors, hidden: NDArray[np.bool_]
) -> list[MapGroup]:
    made: list[MapGroup] = []
    for number, label in enumerate(labels):
        members = np.flatnonzero(numbers == number)
        free = members[~hidden[members]]
        # Where the restricted ones lie says nothing to who may not see them.
        x, y = np.median(points[free if len(free) else members], axis=0).tolist()
        made.append(MapGroup(label, x, y, len(members), len(free)))
    return made


def _table(
    rows: Any,
    vectors: Vectors,
    points: Vectors,
    numbers: NDArray[np.int32],
    labels: list[str],
    copies: list[str],
) -> Any:
    pa = arrow()
    width = vectors.shape[1]
    flat = pa.array(np.ascontiguousarray(vectors).reshape(-1))
    made = {
        **{name: rows.column(name) for name in rows.schema.names},
        "x": pa.array(points[:, 0]),
        "y": pa.array(points[:, 1]),
        "cluster": pa.array(numbers),
        "label": pa.array([labels[n] for n in numbers.tolist()], pa.string()),
        "copy_of": pa.array(copies, pa.string()),
        "vector": pa.FixedSizeListArray.from_arrays(flat, width),
    }
    layout = schema(width)
    return pa.table([made[name] for name in layout.names], schema=layout)
