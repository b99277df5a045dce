"""Exports a map for other viewers: embedding-atlas and Nomic Atlas.

    atlas   one Parquet file: every column of the map, `point`, and `neighbors` with the nearest others; open it with
            `embedding-atlas FILE --text text --x x --y y --neighbors neighbors`
    nomic   a folder: embeddings.npy and data.parquet with the same rows, for
            `atlas.map_data(embeddings=numpy.load(…), data=pandas.read_parquet(…), id_field="point")`

The one decision to know: restricted rows are exported only with an acknowledgment, and then each has its canary.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from camel.core.errors import InputError
from camel.index.facets import elements
from camel.maps.layout import Vectors
from camel.maps.table import point_name, read_header
from camel.record.parquet import arrow
from camel.record.release import Exported, Release, check_labels

FORMATS = ("atlas", "nomic")
NEIGHBORS = 10
MOST_ID = 36
"""Maximum number of characters of an id in Nomic Atlas."""
_BLOCK = 1_024
_MOST_COMPARED = 100_000
"""Maximum number of points for which nearest neighbors are computed. For more, comparing all pairs takes hours."""


def export_map(
    source: Path,
    out: Path,
    format: str,
    *,
    release: Release = Release(),  # noqa: B008 - frozen
    force: bool = False,
) -> Exported:
    """Write a map in another format."""
    if format not in FORMATS:
        raise InputError(f"unknown format {format!r}: choose from {', '.join(FORMATS)}")
    if out.exists() and not force:
        raise InputError(f"'{out}' already exists: add --force to replace it")
    read_header(source)
    table = _released(arrow("pyarrow.parquet").read_table(source).replace_schema_metadata(None), release)
    conversations = len(set(table.column("id").to_pylist()))
    (_atlas if format == "atlas" else _nomic)(table, out)
    return Exported(out, conversations, table.num_rows)


def _released(table: Any, release: Release) -> Any:
    pa = arrow()
    labels = [elements(one) for one in table.column("labels").to_pylist()]
    ids = table.column("id").to_pylist()
    restricted = [bool(check_labels(id, one, release)) for id, one in zip(ids, labels, strict=True)]
    for name in ("labels", "findings", "others"):
        plain = [", ".join(elements(one)) for one in table.column(name).to_pylist()]
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(plain, pa.string()))
    if any(restricted):
        canaries = [release.canary if bad else "" for bad in restricted]
        table = table.append_column("canary", pa.array(canaries, pa.string()))
    names = zip(table.column("id").to_pylist(), table.column("message").to_pylist(), strict=True)
    return table.add_column(0, "point", pa.array([point_name(*one) for one in names], pa.string()))


def _vectors(table: Any) -> Vectors:
    column = table.column("vector").combine_chunks()
    return column.values.to_numpy(zero_copy_only=False).reshape(table.num_rows, -1)


def _atlas(table: Any, out: Path) -> None:
    pa, pq = arrow(), arrow("pyarrow.parquet")
    # Neighbors are identified by their rows in the file.
    table = table.append_column("row_id", pa.array(range(table.num_rows), pa.int64()))
    if 1 < table.num_rows <= _MOST_COMPARED:
        ids, distances = _nearest(_vectors(table), min(NEIGHBORS, table.num_rows - 1))
        lists = [
            pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1]).cast(pa.list_(kind))
            for rows, kind in ((ids, pa.int64()), (distances, pa.float32()))
        ]
        table = table.append_column("neighbors", pa.StructArray.from_arrays(lists, ["ids", "distances"]))
    out.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, out, compression="zstd")


def _nearest(vectors: Vectors, count: int) -> tuple[Any, Any]:
    """Return the indices of the `count` nearest other vectors of each vector, and their distances (1 - cosine)."""
    ids = np.zeros((len(vectors), count), np.int64)
    distances = np.zeros((len(vectors), count), np.float32)
    for start in range(0, len(vectors), _BLOCK):
        cosines = vectors[start : start + _BLOCK] @ vectors.T
        here = np.arange(len(cosines))
        cosines[here, start + here] = -2.0
        best = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
        order = np.argsort(-np.take_along_axis(cosines, best, 1), axis=1, kind="stable")
        ids[start : start + _BLOCK] = np.take_along_axis(best, order, 1)
        distances[start : start + _BLOCK] = 1 - np.take_along_axis(cosines, ids[start : start + _BLOCK], 1)
    return ids, np.maximum(distances, 0)


def _nomic(table: Any, out: Path) -> None:
    pa, pq = arrow(), arrow("pyarrow.parquet")
    out.mkdir(parents=True, exist_ok=True)
    np.save(out / "embeddings.npy", _vectors(table))
    names = [_short(one) for one in table.column("point").to_pylist()]
    table = table.set_column(0, "point", pa.array(names, pa.string())).drop_columns(["vector"])
    pq.write_table(table, out / "data.parquet", compression="zstd")


def _short(name: str) -> str:
    """Return a valid id for Nomic Atlas. A long name is shortened and ends in a hash."""
    if len(name) <= MOST_ID:
        return name
    return f"{name[: MOST_ID - 13]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
