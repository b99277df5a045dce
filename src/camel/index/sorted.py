"""Copies of a large index, sorted by a number, so that a sorted list needs no sorting when it is read.

    index/<stage>/o<first>-<last>-<attempt>-<number>.parquet     of the index file m<first>-<last>-<attempt>.parquet

A row is a value, its place (shard, row) and the facets with few values, which are the usual filters. Equal values are in
the order of the run. The footer has the range of values of each row group and its counts by facet, so even a row far down
is found by reading one row group of each file.

The one decision to know: there is one copy per index file, not one per run. Index files never change, so a growing run
sorts only its new rows; a page merges the values of several files. The copies take about as much space as the index, and
are derived and optional like it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from camel.index.facets import FACETS, FOLDER, NUMBERS, VERSION
from camel.index.files import Header, Readable, read_described
from camel.record.parquet import arrow
from camel.runs.run import RunFolder

FROM = 50_000
"""Minimum number of rows of an index file that gets sorted copies. Fewer rows are sorted when they are read."""
KEPT = ("stop", "finding", "label", "model", "scenario")
"""Facets by which a copy can be filtered."""
_COLUMNS = ["shard", "row", *(FACETS[name].column for name in KEPT)]
_GROUP = 8_192
_FEW = 256
"""Maximum number of combinations of values that are counted per row group."""
_KEY = b"camel.ordered"


class GroupCounts(msgspec.Struct, frozen=True):
    """The number of rows in each row group, by combination of values of some facets."""

    facets: tuple[str, ...]
    cells: list[tuple[list[str], list[int]]]
    """Pairs of a combination (a set of labels and one value per facet) and the number of its rows in each row group."""


class Ordered(msgspec.Struct, frozen=True):
    """The metadata of a sorted copy."""

    number: str
    low: list[float]
    """The smallest value of each row group."""
    high: list[float]
    rows: list[int]
    counts: list[GroupCounts]
    """Counts for all facets together and for each facet. Those with too many combinations are omitted."""
    version: int = VERSION


def ordered_name(index: str, number: str) -> str:
    """Return the name of the copy of an index file that is sorted by a number."""
    folder, _, file = index.rpartition("/")
    return f"{folder}/o{file.removeprefix('m').removesuffix('.parquet')}-{number}.parquet"


def missing_copies(folder: RunFolder, indexes: Sequence[tuple[str, Header]]) -> list[tuple[str, str]]:
    """Return the large index files without a sorted copy, each with the number by which to sort."""
    there = {name for _, header in indexes[:1] for name in folder.store.names(f"{FOLDER}/{header.stage}")}
    return [
        (name, number)
        for name, header in indexes
        for number in NUMBERS
        if header.rows >= FROM and ordered_name(name, number).rpartition("/")[2] not in there
    ]


def write_ordered(files: Readable, copy: tuple[str, str]) -> None:
    """Write a sorted copy of an index file, given its name and the number."""
    name, number = copy
    with files.writing(ordered_name(name, number)) as writing:
        write_copy(writing, files.path(name), number)


def write_copy(path: Path, index: Path, number: str) -> None:
    """Write a copy of an index file, sorted by a number."""
    pa, pc, pq = arrow(), arrow("pyarrow.compute"), arrow("pyarrow.parquet")
    table = pq.read_table(index, columns=[number, *_COLUMNS], read_dictionary=_COLUMNS[2:])
    value = table.column(number)
    # Unknown values come first.
    value = pc.fill_null(value, -1.0) if number == "cost" else value.cast(pa.int64())
    table = table.drop_columns([number]).add_column(0, "value", value)
    table = table.take(
        pc.sort_indices(table, sort_keys=[(name, "ascending") for name in ("value", "shard", "row")])
    )
    table = table.replace_schema_metadata(None).combine_chunks()
    low, high, rows = _limits(table)
    combinations = [KEPT, *((name,) for name in KEPT)]
    said = Ordered(
        number, low, high, rows, [one for each in combinations if (one := _counted(table, each)) is not None]
    )
    few = _COLUMNS[2:]
    packed = {"row": "DELTA_BINARY_PACKED"} | ({} if number == "cost" else {"value": "DELTA_BINARY_PACKED"})
    with pq.ParquetWriter(
        path,
        table.schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=["shard", *few],
        column_encoding=packed,
        store_schema=False,  # some columns are dictionary-encoded in memory; readers expect text
    ) as writer:
        writer.write_table(table, row_group_size=_GROUP)
        writer.add_key_value_metadata({_KEY: msgspec.json.encode(said)})


def _limits(table: Any) -> tuple[list[float], list[float], list[int]]:
    values, total, pa = table.column("value"), table.num_rows, arrow()
    starts = range(0, total, _GROUP)
    sizes = [min(_GROUP, total - start) for start in starts]
    lasts = [start + size - 1 for start, size in zip(starts, sizes, strict=True)]
    low, high = (values.take(pa.array(places, pa.int64())).to_pylist() for places in (starts, lasts))
    return low, high, sizes


def _counted(table: Any, facets: tuple[str, ...]) -> GroupCounts | None:
    """Count each combination of labels and values per row group. Return None if there are too many combinations."""
    pa = arrow()
    groups = -(-table.num_rows // _GROUP)
    numbers = pa.array([n for n in range(groups) for _ in range(_GROUP)][: table.num_rows], pa.int32())
    names = ["labels", *(FACETS[name].column for name in facets)]
    keys = [f"k{n}" for n in range(len(names))]
    # As plain text, because the dictionaries of two chunks may differ.
    texts = [table.column(name).cast(pa.string()) for name in names]
    grouped = pa.table([numbers, *texts], ["group", *keys]).group_by(["group", *keys])
    found = grouped.aggregate([([], "count_all")])
    columns = (found.column(name).to_pylist() for name in ("group", "count_all", *keys))
    cells: dict[tuple[str, ...], list[int]] = {}
    for group, number, *values in zip(*columns, strict=True):
        if tuple(values) not in cells and len(cells) >= _FEW:
            return None
        cells.setdefault(tuple(values), [0] * groups)[group] = number
    return GroupCounts(facets, [(list(values), counts) for values, counts in sorted(cells.items())])


def read_ordered(path: Path) -> Ordered:
    """Read the metadata of a sorted copy."""
    return read_described(path, _KEY, Ordered, "a sorted copy", lambda found: sum(found.rows))[0]
