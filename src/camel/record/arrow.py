"""Transcripts as Arrow tables and Parquet files, and back, without loss.

The structs of `core` are the only definition of a record. The column of a field follows from its annotation. Columns are
read by name: a missing column gets the field's default, an unknown column is ignored. After the fields come totals for
queries (`num_messages`, tokens, `calls`), which reading ignores.

The one decision to know: this runs for every generated message, so it works column by column, nested fields included,
and converts no value to a `dict`. Only trees that few rows have (deliberations, listeners, results) are stored as JSON.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate, chain, pairwise, repeat
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from camel.core.errors import InputError
from camel.core.message import Deliberation, Sampling, well_formed
from camel.core.model import ToolSchema
from camel.core.transcript import RejectedAttempt, ResultCall, Transcript, check_schema, upgrade
from camel.record.parquet import Table, Written, arrow, open_parquet, readable, write_batches

ROW_GROUP = 2_000
"""Number of rows per row group, the smallest unit that a reader loads: about 50 MB of text at the paper's lengths."""
_MOST_CHARS = 2**27
"""Maximum number of characters per row group. A column of Arrow strings holds at most 2 GiB of UTF-8."""
_READ_ROWS = 256
"""Number of rows converted to transcripts at a time, so that a sequential reader holds few in memory."""
_NEEDED = ("id", "task", "speakers", "messages", "stop", "schema")
"""Columns that identify a table of transcripts, in every version."""
_TOTALS = ("prompt", "completion", "cached", "calls")
_PROSE = frozenset(
    {"id", "content", "reasoning", "original", "specified", "detail", "arguments", "result", "said", "change"}
)
"""Fields whose texts differ from row to row. In all other text fields, equal values share one object after reading."""
_AS_JSON = (Sampling, Deliberation, RejectedAttempt, ResultCall, ToolSchema)
IN_DATASETS = {"role": "name"}
"""Fields of a message that have another name in exported datasets. There, trainers take `role` for that of a chat."""


class _Column:
    """Converts the values of one field to Arrow and back. Instances are created at the first use of pyarrow."""

    blank: Any = 0
    """Placeholder for a missing value, such as a field of an empty optional struct."""

    def __init__(self, type: Any) -> None:
        self.type = type

    def write(self, values: list[Any]) -> Any:
        """Return an Arrow array of these values."""
        return arrow().array(values, self.type)

    def read(self, array: Any) -> list[Any]:
        """Return the values of an Arrow array."""
        return array.to_pylist()


class _Text(_Column):
    blank = ""

    def __init__(self, *, prose: bool) -> None:
        super().__init__(arrow().string())
        self._prose = prose

    def write(self, values: list[Any]) -> Any:
        try:
            return super().write(values)
        except UnicodeEncodeError:
            # Half of a surrogate pair, in a record from another program.
            return super().write([well_formed(value) for value in values])

    def read(self, array: Any) -> list[Any]:
        return array.to_pylist() if self._prose else _shared(array)


class _Json(_Column):
    """Stores values as JSON, for trees and arbitrary values. Nearly all rows share one object."""

    blank = None

    def __init__(self, kind: Any) -> None:
        super().__init__(arrow().string())
        self._decode = msgspec.json.Decoder(kind).decode

    def write(self, values: list[Any]) -> Any:
        texts: dict[int, str | None] = {id(None): None}
        for value in values:
            if id(value) not in texts:
                texts[id(value)] = msgspec.json.encode(value).decode()
        return super().write([texts[id(value)] for value in values])

    def read(self, array: Any) -> list[Any]:
        encoded = array.dictionary_encode()
        values = [None if text is None else self._decode(text) for text in encoded.dictionary.to_pylist()]
        return [None if index is None else values[index] for index in encoded.indices.to_pylist()]


class _JsonObject(_Json):
    """Stores objects that differ from row to row and that a caller may change."""

    def read(self, array: Any) -> list[Any]:
        return [None if text is None else self._decode(text) for text in array.to_pylist()]


class _List(_Column):
    blank = ()

    def __init__(self, element: _Column) -> None:
        super().__init__(arrow().list_(element.type))
        self._element = element

    def write(self, values: list[Any]) -> Any:
        elements = self._element.write(list(chain.from_iterable(values)))
        return arrow().ListArray.from_arrays(_offsets(values), elements)

    def read(self, array: Any) -> list[Any]:
        return _cut(array, self._element.read)


class _Map(_Column):
    def __init__(self, value: _Column) -> None:
        self._key, self._value = _Text(prose=False), value
        super().__init__(arrow().map_(self._key.type, value.type))
        self.blank = dict[str, Any]()

    def write(self, values: list[Any]) -> Any:
        keys = self._key.write(list(chain.from_iterable(values)))
        items = self._value.write(list(chain.from_iterable([value.values() for value in values])))
        return arrow().MapArray.from_arrays(_offsets(values), keys, items)

    def read(self, array: Any) -> list[Any]:
        """Return the values of an Arrow array of maps. It may also contain lists of pairs, because `datasets` has no map
        type."""

        def pairs(elements: Any) -> list[Any]:
            read = self._key.read(elements.field(0)), self._value.read(elements.field(1))
            return list(zip(*read, strict=True))

        return [dict(pairs) for pairs in _cut(array, pairs)]


class _Struct(_Column):
    def __init__(self, info: inspect.StructType, *, optional: bool = False) -> None:
        self.cls, self.optional = info.cls, optional
        self._fields = {field.name: _column_of(field.name, field.type) for field in info.fields}
        self._defaults = {field.name: field for field in info.fields}
        self.blank = self.cls(*(column.blank for column in self._fields.values()))
        super().__init__(arrow().struct([(name, column.type) for name, column in self._fields.items()]))

    def arrays(self, values: list[Any]) -> list[Any]:
        """Return one Arrow array for each field of the structs."""
        return [column.write(list(map(attrgetter(name), values))) for name, column in self._fields.items()]

    def write(self, values: list[Any]) -> Any:
        pa, mask = arrow(), None
        if self.optional:
            none = [value is None for value in values]
            if all(none):
                return pa.nulls(len(values), self.type)
            mask = pa.array(none, pa.bool_())
            values = [self.blank if value is None else value for value in values]
        return pa.StructArray.from_arrays(self.arrays(values), fields=list(self.type), mask=mask)

    def read(self, array: Any) -> list[Any]:
        if arrow().types.is_null(array.type):  # other programs store a column of empty lists without a type
            return [None] * len(array)
        names = {field.name for field in array.type}
        there = array.drop_null() if self.optional else array
        places = {name: name if name in names else IN_DATASETS.get(name, name) for name in self._fields}
        made = self.made({name: there.field(at) for name, at in places.items() if at in names}, len(there))
        if len(there) == len(array):
            return made
        found = iter(made)
        return [next(found) if valid else None for valid in array.is_valid().to_pylist()]

    def made(self, arrays: dict[str, Any], count: int) -> list[Any]:
        """Return structs from the arrays of some fields. The other fields get their defaults."""
        return list(
            map(
                self.cls,
                *(
                    column.read(arrays[name]) if name in arrays else self._default(name, count)
                    for name, column in self._fields.items()
                ),
            )
        )

    def _default(self, name: str, count: int) -> Iterable[Any]:
        field = self._defaults[name]
        if field.default_factory is not msgspec.NODEFAULT:
            return [field.default_factory() for _ in range(count)]
        if field.default is msgspec.NODEFAULT:
            return repeat(self._fields[name].blank, count)
        return repeat(field.default, count)


def _column_of(name: str, info: inspect.Type) -> _Column:
    """Return the column that stores a field with this annotation."""
    optional = isinstance(info, inspect.UnionType)
    if optional:
        info = next(one for one in info.types if not isinstance(one, inspect.NoneType))
    match info:
        case inspect.StrType() | inspect.LiteralType():
            return _Text(prose=name in _PROSE)
        case inspect.BoolType():
            return _Column(arrow().bool_())
        case inspect.IntType():
            return _Column(arrow().int64())
        case inspect.FloatType():
            return _Column(arrow().float64())
        case inspect.StructType() if info.cls not in _AS_JSON:
            return _Struct(info, optional=optional)
        case inspect.StructType():
            return _Json(info.cls)
        case inspect.ListType():
            return _List(_column_of(name, info.item_type))
        case inspect.DictType() if isinstance(info.value_type, inspect.AnyType):
            return _JsonObject(dict[str, Any])
        case inspect.DictType() if isinstance(info.value_type, inspect.ListType):
            return _Json(dict[str, list[str]])
        case inspect.DictType():
            return _Map(_column_of(name, info.value_type))
        case _:
            raise TypeError(f"no column type for {name}: {info}")


@cache
def _transcript() -> _Struct:
    info = inspect.type_info(Transcript)
    assert isinstance(info, inspect.StructType)
    return _Struct(info)


@cache
def schema() -> Any:
    """Return the Arrow schema of a transcript."""
    pa = arrow()
    names = ("num_messages", *(name if name == "calls" else f"{name}_tokens" for name in _TOTALS))
    totals = [*((name, pa.int64()) for name in names), ("usd", pa.float64())]
    return pa.schema([*_transcript().type, *totals])


def is_transcripts(layout: Any) -> bool:
    """Return whether a schema is that of transcripts, in this version or an earlier one."""
    return {*_NEEDED} <= {*layout.names}


def upgraded(table: Table) -> Table:
    """Convert a table of transcripts or messages to this version's layout. Other tables stay unchanged."""
    if not is_transcripts(table.schema):
        return table
    layouts = schema(), table.schema
    ours, there = ({*one.names, *(f.name for f in one.field("messages").type.value_type)} for one in layouts)
    return table if ours <= there else to_table(rows(table))


def to_table(transcripts: Iterable[Transcript]) -> Table:
    """Return all transcripts as one table."""
    return arrow().Table.from_batches(list(batches(transcripts)), schema=schema())


def batches(transcripts: Iterable[Transcript]) -> Iterator[Any]:
    """Yield transcripts as record batches of the size of a row group. Only one is in memory at a time."""
    held: list[Transcript] = []
    chars = 0
    for transcript in transcripts:
        held.append(transcript)
        chars += sum([len(message.content) + len(message.reasoning) for message in transcript.messages])
        if len(held) == ROW_GROUP or chars > _MOST_CHARS:
            yield _batch(held)
            held, chars = [], 0
    if held:
        yield _batch(held)


def rows(table: Table) -> Iterator[Transcript]:
    """Yield the transcripts of a table. This is the exact inverse of `to_table`."""
    if missing := [name for name in _NEEDED if name not in table.schema.names]:
        raise InputError(f"not a table of transcripts: it has no column {', '.join(missing)}")
    for batch in table.to_batches(max_chunksize=_READ_ROWS):
        columns = {name: batch.column(name) for name in batch.schema.names}
        check_schema(max(columns["schema"].to_pylist(), default=0))
        if "facts" in columns:  # schema 1
            columns["inputs"] = columns.pop("facts")
        made: list[Transcript] = _transcript().made(columns, batch.num_rows)
        weighed = columns.get("deliberations")  # schema 1
        yield from map(upgrade, made, repeat(None) if weighed is None else weighed.to_pylist())


def write_shard(path: Path, transcripts: Iterable[Transcript]) -> Written:
    """Write transcripts as one Parquet file, durably. If this fails, there is no file at `path`."""
    return write_batches(path, batches(transcripts), schema())


def read_shard(path: Path, columns: Sequence[str] | None = None) -> Table:
    """Read a Parquet file, or only the given columns. `messages.list.element.content` names a nested column."""
    with open_parquet(path) as file:
        found = readable(path, lambda: file.read(columns=None if columns is None else list(columns)))
    return upgraded(found) if columns is None else found


def stream_shard(path: Path, start: int = 0, stop: int | None = None) -> Iterator[Transcript]:
    """Yield the transcripts from row `start` to row `stop` of a Parquet file. Only one row group is in memory at a time."""
    for group in _groups(path, start, stop):
        yield from rows(group)


def stream_rows(path: Path, wanted: Sequence[int]) -> Iterator[tuple[int, Transcript]]:
    """Yield some rows of a Parquet file, given in ascending order, with their numbers."""
    before = at = 0
    for group in stream_groups(path):
        end = bisect_left(wanted, before + group.num_rows, at)
        chosen = wanted[at:end]
        if chosen:
            yield from zip(chosen, rows(group.take([row - before for row in chosen])), strict=True)
        before, at = before + group.num_rows, end


def stream_groups(path: Path, start: int = 0, stop: int | None = None) -> Iterator[Table]:
    """Yield the rows from `start` to `stop` of a Parquet file as tables, one per row group."""
    yield from map(upgraded, _groups(path, start, stop))


def _groups(path: Path, start: int, stop: int | None) -> Iterator[Table]:
    with open_parquet(path) as file:
        before = 0
        for group in range(file.metadata.num_row_groups):
            count: int = file.metadata.row_group(group).num_rows
            first, last = max(0, start - before), min(count, count if stop is None else stop - before)
            before += count
            if first < last:
                table = readable(path, lambda group=group: file.read_row_group(group))
                yield table if last - first == count else table.slice(first, last - first)


def _batch(transcripts: list[Transcript]) -> Any:
    """Build one record batch, column by column."""
    pa = arrow()
    usages = [message.usage for transcript in transcripts for message in transcript.messages]
    ends = list(accumulate([len(transcript.messages) for transcript in transcripts], initial=0))
    totals = [pa.array([len(transcript.messages) for transcript in transcripts], pa.int64())]
    for name in (*_TOTALS, "usd"):
        of = attrgetter(name)
        sums = list(accumulate(map(of, usages), initial=0))
        others = [
            of(one.task.usage)
            + of(one.result_call.usage)
            + sum([of(attempt.usage) for attempt in one.rejected])
            for one in transcripts
        ]
        row_sums = [
            sums[end] - sums[start] + more for (start, end), more in zip(pairwise(ends), others, strict=True)
        ]
        totals.append(pa.array(row_sums, pa.float64() if name == "usd" else pa.int64()))
    return pa.RecordBatch.from_arrays([*_transcript().arrays(transcripts), *totals], schema=schema())


def _offsets(lists: Iterable[Sequence[Any] | dict[Any, Any]]) -> Any:
    return arrow().array(list(accumulate(map(len, lists), initial=0)), arrow().int32())


def _cut(lists: Any, read: Any) -> list[Any]:
    """Return the lists of a column. `read` is called once for all their elements."""
    ends: list[int] = lists.offsets.to_pylist()
    first = ends[0]
    elements = read(lists.values.slice(first, ends[-1] - first))
    return [elements[start - first : end - first] for start, end in pairwise(ends)]


def _shared(texts: Any) -> list[str]:
    """Read a column that has few different values. Equal strings share one object, which is faster and takes less memory."""
    encoded = texts.dictionary_encode()
    values = encoded.dictionary.to_pylist()
    return [values[index] for index in encoded.indices.to_pylist()]
