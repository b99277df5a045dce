"""The index of one shard, made from its data."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import msgspec

from camel.core.errors import CamelError
from camel.core.message import Usage
from camel.core.transcript import Transcript
from camel.index.facets import COUNTED, FOLDER, MOST_VALUES, TASK_CHARS, Cost, Facet, bucket, elements, joined
from camel.index.files import FOOTER_KEY, Header, Indexed, read_errors, schema
from camel.record.arrow import batches, read_shard
from camel.record.arrow import schema as data_schema
from camel.record.parquet import Written, arrow, write_batches
from camel.runs.markers import Marker, new_attempt
from camel.runs.run import RunFolder
from camel.storage.files import make_folder, sync
from camel.storage.store import BucketStore

_SMALL = 10_000
"""Maximum number of rows for which counting in Python is faster than grouping in Arrow."""
CALLED = ["messages.list.element.actions.list.element.tool", "unspoken.list.element.tool"]
INDEX_COLUMNS = [
    *("id", "scenario", "task.original", "speakers.list.element.name", "speakers.list.element.role"),
    *("messages.list.element.model", "stop.reason", "labels", "num_messages", "prompt_tokens"),
    *("completion_tokens", "cached_tokens", "calls", "usd", *CALLED),
]
"""The columns of the data that an index is made from."""
_NEEDED = sorted({name.partition(".")[0] for name in INDEX_COLUMNS} - {"usd", "unspoken"})
_PAID = "usd"
"""The column with a conversation's cost; older records do not have it."""
TOOL_CHARS = 64
"""Maximum length of a tool's name. A model may write longer names of tools that do not exist."""
UNFINISHED = "unfinished"
"""The stop reason of a conversation that has not ended."""


class FacetValues(NamedTuple):
    """Values of the facets that the index and the text index derive in the same way."""

    assistant: str
    user: str
    stop: str
    model: str


def facet_values(
    names: Sequence[str], roles: Sequence[str], models: Iterable[str | None], reason: str | None
) -> FacetValues:
    """Derive facet values from speakers, models and the stop reason."""
    # If a name occurs twice, the first counts.
    seats = dict(zip(reversed(names), reversed(roles), strict=True))
    model = " + ".join(dict.fromkeys(filter(None, models)))
    return FacetValues(seats.get("assistant", ""), seats.get("user", ""), reason or UNFINISHED, model)


def no_cost(model: str, usage: Usage) -> float | None:
    """Return None: the cost function for models without a price."""
    return None


def table_of(data: Any, shard: int, cost: Cost = no_cost, start: int = 0) -> Any:
    """Build the index of a shard's rows, numbered from `start`, from an Arrow table or batch with the needed columns."""
    pa, pc = arrow(), arrow("pyarrow.compute")
    columns = {name: _whole(data, name) for name in _NEEDED}
    original = pc.utf8_slice_codeunits(pc.struct_field(columns["task"], "original"), 0, 4 * TASK_CHARS)
    task = pc.utf8_slice_codeunits(
        pc.utf8_trim_whitespace(pc.replace_substring_regex(original, r"\s+", " ")), 0, TASK_CHARS
    )
    seats = _parts(columns["speakers"], "name", "role")
    said = _parts(columns["messages"], "model")
    reasons = pc.struct_field(columns["stop"], "reason").to_pylist()
    told = [
        facet_values(names, roles, models, reason)
        for (names, roles), (models,), reason in zip(seats, said, reasons, strict=True)
    ]
    prompt, completion, cached, calls = (
        columns[name].to_pylist() for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "calls")
    )
    paid: list[float] = (
        _whole(data, _PAID).to_pylist() if _PAID in data.schema.names else [0.0] * data.num_rows
    )
    costs = [
        usd or (cost(one.model, Usage(*counts)) if counts[0] or counts[1] else None)
        for one, usd, *counts in zip(told, paid, prompt, completion, cached, calls, strict=True)
    ]
    made: dict[str, Any] = {
        "id": columns["id"],
        "scenario": columns["scenario"],
        **{name: _texts([getattr(one, name) for one in told]) for name in FacetValues._fields},
        "others": _texts([_others(names, roles) for names, roles in seats]),
        "task": task,
        "labels": _texts([joined(labels) for labels in columns["labels"].to_pylist()]),
        **dict.fromkeys(("findings", "marks"), _texts([""] * data.num_rows)),
        "messages": columns["num_messages"],
        "tokens": pc.add(columns["prompt_tokens"], columns["completion_tokens"]),
        "completion": columns["completion_tokens"],
        "calls": columns["calls"],
        "cost": pa.array(costs, pa.float64()),
        "shard": pa.repeat(shard, data.num_rows),
        "row": pa.array(range(start, start + data.num_rows), pa.int32()),
        "tools": _texts([joined(name[:TOOL_CHARS] for name in names) for names in called_tools(data)]),
    }
    layout = schema()
    arrays = [made[field.name].cast(field.type) for field in layout]
    return pa.Table.from_arrays(arrays, schema=layout)


def called_tools(data: Any, field: str = "tool") -> list[list[str]]:
    """Return the names of the tools that each row of the data called, or another field of its calls. Older records have none."""
    lists, names = _whole(data, "messages"), [list[str]()] * data.num_rows
    if lists.values.type.get_field_index("actions") >= 0 and len(lists.values.field("actions").values):
        said = _parts(lists.values.field("actions"), field)
        names = [[*chain(*chain(*said[low:high]))] for low, high in pairwise(lists.offsets.to_pylist())]
    if "unspoken" in data.schema.names and len(_whole(data, "unspoken").values):
        names = [[*a, *b] for a, (b,) in zip(names, _parts(_whole(data, "unspoken"), field), strict=True)]
    return names


def complete(table: Any) -> Any:
    """Return an index table with the column `tools`, which files of earlier releases do not have, and without metadata."""
    if "tools" not in table.schema.names:
        table = table.append_column("tools", _texts([""] * table.num_rows))
    return table.replace_schema_metadata(None)


def _whole(data: Any, name: str) -> Any:
    """Return a column as one contiguous array."""
    column = data.column(name)
    return column.combine_chunks() if hasattr(column, "combine_chunks") else column


def _texts(values: list[str]) -> Any:
    return arrow().array(values, arrow().string())


def _parts(lists: Any, *names: str) -> list[list[list[str]]]:
    """Return, for each list in a column, the values of the named fields of its structs."""
    ends: list[int] = lists.offsets.to_pylist()
    fields: list[list[str]] = [lists.values.field(name).to_pylist() for name in names]
    return [[field[start:end] for field in fields] for start, end in pairwise(ends)]


def _others(names: Sequence[str], roles: Sequence[str]) -> str:
    if len(names) <= 2 and {*names} <= {"assistant", "user"}:
        return ""
    return joined(role for name, role in zip(names, roles, strict=True) if name not in ("assistant", "user"))


def count(table: Any) -> dict[str, dict[str, dict[str, int]]] | None:
    """Count the rows of an index by labels, facet and value. Return None if there are too many sets of labels."""
    counted: dict[str, dict[str, dict[str, int]]] = {}
    for name, its in COUNTED.items():
        for label, value, number in _pairs(table, its.column):
            if label not in counted and len(counted) > MOST_VALUES:
                return None
            by = counted.setdefault(label, {}).setdefault(name, {})
            for each in _values(its, value):
                by[each] = by.get(each, 0) + number
    return bounded(counted)


def _pairs(table: Any, column: str) -> Iterable[tuple[str, Any, int]]:
    """Count each combination of labels and a value of the column."""
    labels, values = table.column("labels"), table.column(column)
    if table.num_rows < _SMALL:
        counted = Counter(zip(labels.to_pylist(), values.to_pylist(), strict=True))
        return ((label, value, number) for (label, value), number in counted.items())
    both = arrow().table([labels, values], ["label", "value"])
    found = both.group_by(["label", "value"]).aggregate([([], "count_all")])
    return zip(*(found.column(name).to_pylist() for name in ("label", "value", "count_all")), strict=True)


def _values(facet: Facet, value: Any) -> list[str]:
    if facet.many:
        return elements(value)
    return [bucket(facet, value) if facet.edges else str(value)]


def bounded(counted: dict[str, dict[str, dict[str, int]]]) -> dict[str, dict[str, dict[str, int]]] | None:
    """Return the counts without facets that have too many values. Return None if there are too many sets of labels."""
    if len(counted) > MOST_VALUES:
        return None
    large = {name for by in counted.values() for name, values in by.items() if len(values) > MOST_VALUES}
    return {
        label: {name: values for name, values in by.items() if name not in large}
        for label, by in counted.items()
    }


GROUP_ROWS = 8_192
"""Rows per row group. A page of a list loads at least one row group."""
_BLOOM = {"ndv": 1_024, "fpp": 0.05}
_MANY_VALUES = ("id", "task", "tokens", "completion", "cost", "row")


def write(path: Path, table: Any, header: Header) -> None:
    """Write an index file atomically."""
    writing = path.with_name(f".{path.name}.{new_attempt()}")
    if not path.parent.exists():
        make_folder(path.parent)
    try:
        with Writer(writing, header, small=True) as writer:
            writer.add(table)
        sync(writing)
        writing.replace(path)  # a power failure may lose the name; then the file is rebuilt
    finally:
        writing.unlink(missing_ok=True)


class Writer:
    """Writes an index file, one table after the other. Leaving the context writes the header."""

    def __init__(self, path: Path, header: Header, *, small: bool = False) -> None:
        pq = arrow("pyarrow.parquet")
        # For a small file, strong compression costs more time than it saves.
        how: dict[str, Any] = (
            {"compression": "snappy"} if small else {"compression": "zstd", "compression_level": 3}
        )
        self.header = header
        """The metadata of the file. It is written last, so that it can contain counts of the written rows."""
        self._writer = pq.ParquetWriter(
            path,
            schema(),
            **how,
            # Ids and tasks are all different, so a dictionary would not help.
            use_dictionary=[name for name in schema().names if name not in _MANY_VALUES],
            # A role occurs in few row groups, so statistics let readers skip the others.
            bloom_filter_options=None if small else dict.fromkeys(("assistant", "user"), _BLOOM),
        )

    def add(self, table: Any) -> None:
        """Write the rows of a table."""
        self._writer.write_table(complete(table).cast(schema()), row_group_size=GROUP_ROWS)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.add_key_value_metadata({FOOTER_KEY: msgspec.json.encode(self.header)})
        self._writer.close()


def build(path: Path, data: Path, marker: Marker, cost: Cost = no_cost, start: int = 0) -> Header:
    """Write the index of one shard from its data file. If the file holds several shards, this one begins with row `start`."""
    table = table_of(read_shard(data, INDEX_COLUMNS).slice(start, marker.rows), marker.shard, cost)
    indexed = Indexed(marker.shard, PurePosixPath(marker.file).stem, table.num_rows)
    header = Header(marker.stage, marker.fingerprint, [indexed], count(table))
    write(path, table, header)
    return header


def write_indexed(
    folder: RunFolder,
    stage: str,
    path: Path,
    transcripts: Iterable[Transcript],
    fingerprint: str,
    cost: Cost = no_cost,
) -> Written:
    """Write the data file of a shard and its index. If writing the index fails, readers use the data instead.

    The index is written before the shard is committed. If the process is stopped in between, readers ignore that index.
    """
    shard = int(path.stem.partition("-")[0])
    tables: list[Any] = []

    def noted() -> Iterator[Any]:
        start = 0
        for batch in batches(transcripts):
            with contextlib.suppress(*read_errors()):
                tables.append(table_of(batch, shard, cost, start))
            start += batch.num_rows
            yield batch

    written = write_batches(path, noted(), data_schema())
    with contextlib.suppress(OSError, CamelError, *read_errors()):
        table = arrow().concat_tables(tables) if tables else schema().empty_table()
        if table.num_rows == written.rows:
            name = f"{FOLDER}/{stage}/{path.stem}.parquet"
            header = Header(stage, fingerprint, [Indexed(shard, path.stem, written.rows)], count(table))
            place = folder.path(name)
            write(place, table, header)
            if isinstance(folder.store, BucketStore):
                folder.store.upload(place, name)
                place.unlink()
    return written


def merge_counts(headers: Iterable[Header]) -> dict[str, dict[str, dict[str, int]]] | None:
    """Add up the counts of several index files. Return None if a file has no counts."""
    total: dict[str, dict[str, dict[str, int]]] = {}
    known: set[str] = set(COUNTED)
    for header in headers:
        if header.counts is None:
            return None
        for label, by in header.counts.items():
            known &= by.keys()
            into = total.setdefault(label, {})
            for name, values in by.items():
                counts = into.setdefault(name, {})
                for value, number in values.items():
                    counts[value] = counts.get(value, 0) + number
    return bounded({label: {n: v for n, v in by.items() if n in known} for label, by in total.items()})
