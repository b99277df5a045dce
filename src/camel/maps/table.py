"""The table of a map: one row per text, in one Parquet file with metadata in its footer.

    map/<tasks|instructions>/map.parquet    the table
    map/<tasks|instructions>/vectors/       the stage it was made from (`camel.maps.embedding`)

The one decision to know: it is derived and optional, like an index. The folder `map` can be deleted; `camel map` makes it
again. It also has the columns of the index, so that every query of the explorer works on it.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from camel.core.errors import InputError
from camel.index.facets import elements
from camel.index.files import footer_value
from camel.index.files import schema as index_schema
from camel.maps.diversity import Diversity, Vectors
from camel.maps.embedding import KEPT, KINDS, home
from camel.record.parquet import arrow
from camel.record.release import Exported, Release, check_labels
from camel.runs.run import RunFolder
from camel.storage.files import taking_place

FILE = "map.parquet"
VERSION = 1
"""Version of the file format. Maps of other versions must be made again."""
ROW_GROUP = 8_192
KEY = b"camel.map"


class MapGroup(msgspec.Struct, frozen=True):
    """A cluster of points in a map."""

    label: str
    x: float
    y: float
    """Vertical position of the group's label. The label is at the center of the group's points."""
    texts: int
    open: int
    """Number of points without a restricted label."""


class Repeat(msgspec.Struct, frozen=True):
    """A pair of near-duplicates, identified by the conversations and messages that contain them."""

    one: str
    one_message: int
    other: str
    other_message: int
    cosine: float
    open: bool
    """Whether neither text has a restricted label."""


class MapHeader(msgspec.Struct, frozen=True):
    """The metadata of a map, in the footer of its file."""

    of: str
    model: str
    stage: str
    fingerprint: str
    """Fingerprint of the run."""
    conversations: int
    """Number of conversations of the run when the map was made."""
    rows: int
    method: str
    seed: int
    groups: list[MapGroup]
    all: Diversity
    open: Diversity | None
    """Diversity of the texts without a restricted label. None if there are no such texts."""
    repeats: list[Repeat] = []
    """The closest pairs of near-duplicates."""
    every: int = 1
    """One of so many conversations is in the map."""
    version: int = VERSION

    @property
    def about(self) -> str:
        """How the map was made, such as "UMAP of vectors by MODEL"."""
        sampled = f", of 1 in {self.every:,} conversations" if self.every > 1 else ""
        return f"{self.method} of vectors by {self.model}{sampled}"


@cache
def schema(width: int) -> Any:
    """Return the Arrow schema of a map with vectors of this width."""
    pa = arrow()
    index = index_schema()
    own = [("message", pa.int32()), ("text", pa.string()), ("x", pa.float32()), ("y", pa.float32())]
    own += [("cluster", pa.int32()), ("label", pa.string()), ("copy_of", pa.string())]
    return pa.schema(
        [
            ("id", pa.string()),
            *own,
            *(index.field(name) for name in KEPT if name != "id"),
            ("vector", pa.list_(pa.float32(), width)),
        ]
    )


def path_of(folder: RunFolder, of: str) -> Path:
    """Return the path of a run's map. `of` is the kind of texts."""
    return home(folder, of, FILE)


def write(path: Path, table: Any, header: MapHeader) -> None:
    """Write a map atomically."""
    pq = arrow("pyarrow.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    layout = table.schema.with_metadata({KEY: msgspec.json.encode(header)})
    with (
        taking_place(path) as writing,
        pq.ParquetWriter(
            writing,
            layout,
            compression="zstd",
            compression_level=3,
            # Columns with few values; the others differ from row to row, and vectors do not compress.
            use_dictionary=[
                "cluster",
                "label",
                *(n for n in KEPT if n not in ("id", "tokens", "cost", "row")),
            ],
        ) as writer,
    ):
        writer.write_table(table.replace_schema_metadata(layout.metadata), row_group_size=ROW_GROUP)


def read_header(path: Path) -> MapHeader:
    """Read the metadata of a map. Raises an `InputError` if the file is damaged or has another version."""
    try:
        metadata = arrow("pyarrow.parquet").read_metadata(path)
        header = msgspec.json.decode(footer_value(metadata, KEY), type=MapHeader)
    except (OSError, ValueError, arrow().ArrowException) as error:
        raise InputError(f"'{path}' is not a map: {' '.join(str(error).split())[:200]}") from None
    if header.version != VERSION or metadata.num_rows != header.rows:
        raise InputError(f"'{path}' is a map of another version: run `camel map` again")
    return header


def maps_of(folder: RunFolder) -> dict[str, Path]:
    """Return the paths of a run's maps, by kind of texts."""
    return {of: path for of in KINDS if (path := path_of(folder, of)).is_file()}


def point_name(id: str, message: int) -> str:
    """Return the unique name of a point in its map."""
    return id if message < 0 else f"{id}#{message}"


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
    """Write a map in another format.

        atlas   one Parquet file: every column of the map, `point`, and `neighbors` with the nearest others; open it with
                `embedding-atlas FILE --text text --x x --y y --neighbors neighbors`
        nomic   a folder: embeddings.npy and data.parquet with the same rows, for
                `atlas.map_data(embeddings=numpy.load(…), data=pandas.read_parquet(…), id_field="point")`

    Restricted rows are exported only with an acknowledgment, and then each has its canary.
    """
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
