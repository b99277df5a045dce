"""The table of a map: one row per text, in one Parquet file with metadata in its footer.

    map/<tasks|instructions>/map.parquet    the table
    map/<tasks|instructions>/vectors/       the stage it was made from (`camel.maps.embedding`)

The one decision to know: it is derived and optional, like an index. The folder `map` can be deleted; `camel map` makes it
again. It also has the columns of the index, so that every query of the explorer works on it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from camel.core.errors import InputError
from camel.index.files import footer_value
from camel.index.files import schema as index_schema
from camel.maps.diversity import Diversity
from camel.maps.embedding import KEPT, KINDS, home
from camel.record.parquet import arrow
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
