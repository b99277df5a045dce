"""The table of a map: one row for each text, in one Parquet file that says in its footer what it is of.

    map/<tasks|instructions>/map.parquet    the table
    map/<tasks|instructions>/vectors/       the stage it was made from (`camel.maps.embedding`)

The one decision to know: it is derived and never needed, like an index. The whole folder `map` can be deleted; `camel map`
makes it anew. It has the columns of the index beside its own, so that every query of the explorer can be asked of it.
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
from camel.maps.embedding import KEPT, home
from camel.maps.texts import KINDS
from camel.record.parquet import arrow
from camel.runs.run import RunFolder
from camel.storage.files import taking_place

FILE = "map.parquet"
VERSION = 1
"""Of the layout; a file of another version is made anew."""
ROW_GROUP = 8_192
KEY = b"camel.map"


class MapGroup(msgspec.Struct, frozen=True):
    """A group of points that lie close in meaning."""

    label: str
    x: float
    y: float
    """Where its label stands: in the middle of its points."""
    texts: int
    open: int
    """Of them, without a restricted label."""


class Repeat(msgspec.Struct, frozen=True):
    """Two near-duplicates, by the ids of their conversations and their messages."""

    one: str
    one_message: int
    other: str
    other_message: int
    cosine: float
    open: bool
    """Whether neither has a restricted label."""


class MapHeader(msgspec.Struct, frozen=True):
    """What a map says about itself, in the footer of its file."""

    of: str
    model: str
    stage: str
    fingerprint: str
    """Of the run."""
    conversations: int
    """That the run had when it was made."""
    rows: int
    method: str
    seed: int
    groups: list[MapGroup]
    all: Diversity
    open: Diversity | None
    """The figures of the texts without a restricted label; None where there are none."""
    repeats: list[Repeat] = []
    """The closest near-duplicates."""
    version: int = VERSION


@cache
def schema(width: int) -> Any:
    """The Arrow schema of a map with vectors of this width."""
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
    """Where a run's map is, if it has one."""
    return home(folder, of, FILE)


def write(path: Path, table: Any, header: MapHeader) -> None:
    """Write a map whole or not at all."""
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
            # Few values; the others differ from row to row, and vectors do not compress at all.
            use_dictionary=[
                "cluster",
                "label",
                *(n for n in KEPT if n not in ("id", "tokens", "cost", "row")),
            ],
        ) as writer,
    ):
        writer.write_table(table.replace_schema_metadata(layout.metadata), row_group_size=ROW_GROUP)


def read_header(path: Path) -> MapHeader:
    """What a map says about itself; an `InputError` where it is damaged, or of another version."""
    try:
        metadata = arrow("pyarrow.parquet").read_metadata(path)
        header = msgspec.json.decode(footer_value(metadata, KEY), type=MapHeader)
    except (OSError, ValueError, arrow().ArrowException) as error:
        raise InputError(f"{path} is not a map: {' '.join(str(error).split())[:200]}") from None
    if header.version != VERSION or metadata.num_rows != header.rows:
        raise InputError(f"{path} is a map of another version: camel map makes it anew")
    return header


def maps_of(folder: RunFolder) -> dict[str, Path]:
    """The maps that a run has, by what they are of."""
    return {of: path for of in KINDS if (path := path_of(folder, of)).is_file()}


def point_name(id: str, message: int) -> str:
    """What tells a point from all others of its map."""
    return id if message < 0 else f"{id}#{message}"
