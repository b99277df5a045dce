"""Readers of input tables: lazy, and each cell exactly as given.

The one decision to know: a cell is text. Nothing is stripped and no type is guessed, so `007`, `NA` and `1.0` stay as they
are. Tables are read in batches of Arrow arrays, so memory does not grow with the number of rows.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import json
import os
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import date, time
from functools import partial
from itertools import chain, islice
from numbers import Number
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import msgspec

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.inputs.settings import split_hub_name
from camel.models.hub import HUB
from camel.record.parquet import arrow
from camel.runs.reader import need_module

BATCH = 4096
"""Maximum number of rows in a batch."""
LONGEST_CELL = 200_000
"""Maximum number of characters in a cell that is used."""
_LONGEST_LINE = 10_000_000
"""Number of characters after which the reader gives up on a line or a cell. A quote is probably not closed."""
_LARGEST_LIST = 512 * 2**20
"""Maximum number of bytes of a JSON list, which is read at once."""
_LOOKED_AT = 100
"""Number of objects in which the reader looks for columns."""
_MOST_PROBLEMS = 5
_BOM = codecs.BOM_UTF8
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_SIGNATURES = {
    b"PAR1": "is a Parquet file: rename it to .parquet",
    b"\x1f\x8b": "is compressed with gzip: add .gz to its name",
    b"\x28\xb5\x2f\xfd": "is compressed with zstd: add .zst to its name",
    b"PK\x03\x04": "is an Excel or zip file: save the table as CSV",
    b'{"': "contains JSON objects: rename it to .jsonl, .ndjson or .json",
    b"[": "contains a JSON list: rename it to .json",
} | dict.fromkeys(_UTF16, 'is in UTF-16: save it as UTF-8, or set encoding = "utf-16" for a CSV file')
_ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".json")
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class TableProblems:
    """Collects problems of tables, so that an error reports the first five together."""

    def __init__(self) -> None:
        self._found: list[str] = []

    def add(self, problem: str) -> None:
        """Add a problem. The fifth one raises an `InputError`."""
        self._found.append(problem)
        if len(self._found) == _MOST_PROBLEMS:
            self.check()

    def check(self) -> None:
        """Raise an `InputError` if there are problems."""
        count = len(self._found)
        if count > 1:
            which = f"the first {count} are" if count == _MOST_PROBLEMS else f"there are {count}"
            raise InputError("\n  ".join([f"the inputs have problems, {which}:", *self._found]))
        if count:
            raise InputError(self._found[0])


class TableBatch(NamedTuple):
    """Some rows of a table."""

    lines: Sequence[int]
    columns: list[Any]
    """Arrow arrays of text, in the order in which the caller asked for the columns. A null is a missing value."""


class InputTable(NamedTuple):
    """An opened table."""

    name: str
    """The name for messages, such as the path in quotes."""
    columns: Sequence[str]
    read: Callable[[Sequence[str]], Iterator[TableBatch]]
    """Read these columns. Objects in memory can be read only once."""
    problems: TableProblems
    unit: str = "line"
    """What the numbers of `TableBatch.lines` count."""

    def report(self, line: int, column: str, problem: str) -> None:
        """Add a problem of a cell."""
        self.problems.add(f"{self.name}, {self.unit} {line}, column {shown(column)} {problem}")


def open_table(source: Any, encoding: str, problems: TableProblems) -> InputTable:
    """Open a file, a folder of text files, a dataset of the Hub, or an object in memory."""
    codec = "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding
    if not isinstance(source, str):
        table = _open_object(source, problems)
    elif source.startswith(HUB):
        table = _open_dataset(source, problems)
    else:
        table = _open_path(Path(source).expanduser(), codec, problems)
    for column, count in Counter(table.columns).items():
        if count > 1 or not column.strip():
            what = f"has {count} columns named {shown(column)}" if count > 1 else "has a column with no name"
            raise InputError(f"{table.name} {what}: give each column its own name")
    return table


def _open_path(path: Path, codec: str, problems: TableProblems) -> InputTable:
    if path.is_dir():
        return _open_folder(path, codec, problems)
    if not path.is_file():
        what = "is neither a file nor a folder" if path.exists() else "does not exist"
        raise InputError(f"'{path}' {what}: check `from` in [inputs]")
    compression = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix.lower(), "")
    ending = Path(path.stem if compression else path.name).suffix.lower()
    if ending == ".parquet" and not compression:
        with _reading(path):
            columns = arrow("pyarrow.parquet").read_schema(path).names
        return InputTable(f"'{path}'", columns, partial(_read_parquet, path), problems, "row")
    if ending not in _ENDINGS:
        raise InputError(
            f"'{path}' has an unknown ending: use {', '.join(_ENDINGS)} (also with .gz or .zst), or .parquet"
        )

    def opened() -> IO[bytes]:
        if not compression:
            return path.open("rb")
        return io.BufferedReader(arrow().input_stream(str(path), compression=compression))

    is_csv = ending in (".csv", ".tsv")
    with _reading(path), opened() as stream:
        start = stream.read(5)
    for signature, what in _SIGNATURES.items():
        found = start.removeprefix(_BOM).startswith(signature)
        allowed = is_csv and (signature == b"[" or (signature in _UTF16 and codec != "utf-8-sig"))
        if found and not allowed and ending not in what:
            raise InputError(f"'{path}' {what}")
    if is_csv:
        return _open_csv(
            path, partial(_csv_rows, path, opened, codec, "\t" if ending == ".tsv" else ","), problems
        )
    items = _json_items if ending == ".json" else _json_lines
    return _open_json(path, partial(items, path, opened), "row" if ending == ".json" else "line", problems)


@contextlib.contextmanager
def _reading(path: Path | str) -> Generator[None]:
    """Turn errors of files, encodings and formats into an `InputError` that names the file."""
    try:
        yield
    except (OSError, UnicodeError, arrow().ArrowException) as error:
        why = " ".join(str(error).split()).rstrip(".")
        raise InputError(
            f"cannot read '{path}': {why}. Check that the file is complete and its ending is right"
        ) from None


def _lines(stream: Any, path: Path) -> Iterator[Any]:
    """Yield the lines of a stream. A line that would fill the memory raises an `InputError`."""
    number = 1
    while line := stream.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE:
            raise InputError(
                f"'{path}', line {number} has more than {_LONGEST_LINE:,} characters: shorten it"
            )
        yield line
        number += 1


def _make_table(
    name: str,
    columns: Iterable[str],
    cells: Callable[[Sequence[str]], Iterator[tuple[int, Sequence[Any]]]],
    problems: TableProblems,
    unit: str = "line",
) -> InputTable:
    """Make a table of a function that yields rows with the wanted cells as Python texts."""

    def read(wanted: Sequence[str]) -> Iterator[TableBatch]:
        pa, rows = arrow(), cells(wanted)
        while some := list(islice(rows, BATCH)):
            found: list[Any] = []
            for number, column in enumerate(wanted):
                values = [row[number] for _, row in some]
                try:
                    found.append(pa.array(values, pa.string()))
                except UnicodeEncodeError:
                    for place, (line, _) in enumerate(some):
                        if not _is_text(values[place] or ""):
                            table.report(line, column, "is not valid text: save it as UTF-8, or set encoding")
                            values[place] = ""
                    found.append(pa.array(values, pa.string()))
            yield TableBatch([line for line, _ in some], found)

    table = InputTable(name, list(columns), read, problems, unit)
    return table


def _is_text(text: str) -> bool:
    """Return whether a text has no lone surrogate, which is a byte that could not be decoded."""
    try:
        return bool(text.encode()) or True
    except UnicodeEncodeError:
        return False


def _csv_rows(
    path: Path, opened: Callable[[], Any], codec: str, delimiter: str
) -> Generator[tuple[int, list[str]]]:
    """Yield the rows of a CSV file, the header too, with the number of their first line. Skips empty lines."""
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_LINE))
    start = 1
    with _reading(path), opened() as stream:
        # Bytes that cannot be decoded become lone surrogates. They are reported with their line if the column is used.
        text = io.TextIOWrapper(stream, codec, errors="surrogateescape", newline="")
        reader = csv.reader(_lines(text, path), delimiter=delimiter, strict=True)
        try:
            for row in reader:
                if row:
                    yield start, row
                start = reader.line_num + 1
        except csv.Error as error:
            raise InputError(
                f"'{path}', line {start}: {error}. Put double quotes around the whole cell, and double each quote in it"
            ) from None


def _open_csv(
    path: Path, rows: Callable[[], Generator[tuple[int, list[str]]]], problems: TableProblems
) -> InputTable:
    with contextlib.closing(rows()) as reader:
        _, header = next(reader, (0, list[str]()))
    if not header:
        raise InputError(f"'{path}' is empty: its first line must contain the names of the columns")
    if not _is_text("".join(header)):
        raise InputError(
            f"'{path}', line 1 is not valid text: save the file as UTF-8, or set encoding in [inputs]"
        )

    def cells(wanted: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
        places = [header.index(name) for name in wanted]
        for line, row in islice(rows(), 1, None):
            if len(row) == len(header):
                yield line, [row[place] for place in places]
            else:
                counts = f"has {len(row)} columns, the header has {len(header)}"
                problems.add(f"'{path}', line {line} {counts}: fix the line")

    return _make_table(f"'{path}'", header, cells, problems)


def _json_lines(path: Path, opened: Callable[[], Any]) -> Iterator[tuple[int, bytes]]:
    with _reading(path), opened() as stream:
        for number, line in enumerate(_lines(stream, path), 1):
            if data := (line.removeprefix(_BOM) if number == 1 else line).strip():
                yield number, data


def _json_items(path: Path, opened: Callable[[], Any]) -> Iterator[tuple[int, bytes]]:
    with _reading(path), opened() as stream:
        data = stream.read(_LARGEST_LIST + 1).removeprefix(_BOM)
    if len(data) > _LARGEST_LIST:
        raise InputError(
            f"'{path}' is larger than {_LARGEST_LIST >> 20} MB: use JSON Lines (.jsonl) or Parquet"
        )
    try:
        items = msgspec.json.decode(data, type=list[msgspec.Raw])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InputError(
            f"'{path}' is not a JSON list: {error}. If it has one object per line, rename it to .jsonl"
        ) from None
    yield from enumerate(map(bytes, items), 1)


def _open_json(
    path: Path, items: Callable[[], Iterator[tuple[int, bytes]]], unit: str, problems: TableProblems
) -> InputTable:
    def cells(wanted: Sequence[str]) -> Iterator[tuple[int, list[str | None]]]:
        for line, data in items():
            try:
                found = _json_object(data)
                yield line, [_json_cell(found[name]) if name in found else None for name in wanted]
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                problems.add(f"'{path}', {unit} {line} is not a valid JSON object: {error}")

    columns: dict[str, None] = {}
    for _, data in islice(items(), _LOOKED_AT):
        with contextlib.suppress(msgspec.DecodeError, ValueError, RecursionError):
            columns |= dict.fromkeys(_json_object(data))
    if not columns:
        for _ in cells([]):
            pass
        problems.check()
        raise InputError(f"'{path}' has no rows: add objects")
    return _make_table(f"'{path}'", columns, cells, problems, unit)


def _json_object(data: bytes) -> dict[str, msgspec.Raw]:
    """Decode an object, but not its values. A repeated key raises a `ValueError`."""
    found = _decode_object(data)
    # Each key has two quotes. If there are more quotes than those of all keys and values, a key may be repeated.
    if data.count(b'"') != 2 * len(found) + sum(bytes(value).count(b'"') for value in found.values()):
        pairs: list[Any] = json.loads(data, object_pairs_hook=list)
        repeated = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
        if repeated:
            raise ValueError(f"it has two values for {shown(repeated[0])}")
    return found


def _json_cell(value: msgspec.Raw) -> str | None:
    data = bytes(value)
    if data.startswith(b'"'):
        return msgspec.json.decode(data, type=str)
    if data.startswith((b"{", b"[")):
        return msgspec.json.format(data, indent=-1).decode()
    return None if data == b"null" else data.decode()


def _open_folder(path: Path, codec: str, problems: TableProblems) -> InputTable:
    """Open a folder as a table with one row per file. Links in it are not followed."""

    def files() -> Iterator[Path]:
        for place, folders, names in os.walk(path):
            folders.sort()
            links = [name for name in folders if Path(place, name).is_symlink()]
            yield from (Path(place, name) for name in sorted([*names, *links]) if not name.startswith("."))

    def rows(wanted: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
        for number, file in enumerate(files(), 1):
            values = {"name": file.stem, "file": str(file.relative_to(path)), "text": ""}
            if file.is_symlink() or not file.is_file():
                problems.add(
                    f"'{file}' is a link or a special file: replace it with a copy of the file, or remove it"
                )
                continue
            try:
                if "text" in wanted:
                    if file.stat().st_size > 4 * LONGEST_CELL:
                        problems.add(f"'{file}' has more than {LONGEST_CELL:,} characters: split it")
                        continue
                    values["text"] = file.read_bytes().decode(codec)
            except (OSError, UnicodeError) as error:
                problems.add(f"cannot read '{file}': {error}")
                continue
            yield number, [values[name] for name in wanted]

    if next(files(), None) is None:
        raise InputError(f"'{path}' has no files: add text files, or give another folder")
    return _make_table(f"'{path}'", ["name", "file", "text"], rows, problems, "file")


def _open_dataset(source: str, problems: TableProblems) -> InputTable:
    """Open a dataset of the Hub, without downloading all of it."""
    datasets = need_module("datasets")
    path, config, split = split_hub_name(source)

    def batches() -> Iterator[Any]:
        try:
            data = datasets.load_dataset(path, config, split=split or "train", streaming=True)
            for table in data.with_format("arrow").iter(512):
                yield from table.to_batches()
        except Exception as error:  # the package raises errors of many types
            why = " ".join(str(error).split()).rstrip(".")
            raise InputError(
                f"cannot load '{source}': {why}. Write it as hf:OWNER/NAME/CONFIG:SPLIT"
            ) from None

    found = batches()
    first = next(found, None)
    if first is None:
        raise InputError(f"'{source}' has no rows: choose another split")
    return InputTable(
        f"'{source}'",
        first.schema.names,
        partial(_read_arrow, source, chain([first], found)),
        problems,
        "row",
    )


def _open_object(source: Any, problems: TableProblems) -> InputTable:
    """Open a DataFrame, an Arrow table or an iterable of dictionaries."""
    pa = arrow()
    if hasattr(source, "to_arrow") and not hasattr(source, "__arrow_c_stream__"):
        source = source.to_arrow()
    if hasattr(source, "__arrow_c_stream__"):
        try:
            reader = pa.RecordBatchReader.from_stream(source)
            return InputTable(
                "inputs", reader.schema.names, partial(_read_arrow, "inputs", reader), problems, "row"
            )
        except pa.ArrowException:  # a column of pandas has values of several types
            source = source.to_dict("records")
    if isinstance(source, bytes | Mapping) or not isinstance(source, Iterable):
        raise InputError(
            f"inputs must be a DataFrame, an Arrow table or dictionaries, not {shown(cast('object', source))}"
        )
    rows = enumerate(cast("Iterable[Any]", source), 1)
    first = list(islice(rows, _LOOKED_AT))
    columns = dict.fromkeys(
        name
        for _, row in first
        if isinstance(row, Mapping)
        for name in cast("Any", row)
        if isinstance(name, str)
    )

    def cells(wanted: Sequence[str]) -> Iterator[tuple[int, list[str | None]]]:
        for number, row in chain(first, rows):
            if isinstance(row, Mapping):
                given = cast("Mapping[str, Any]", row)
                yield number, [cell_text(given.get(name)) for name in wanted]
            else:
                problems.add(f"inputs, row {number} must be a dictionary, not {shown(row)}")

    if first and not columns:
        for _ in cells([]):
            pass
        problems.check()
    return _make_table("inputs", columns, cells, problems, "row")


def parquet_file(path: Path) -> Any:
    """Open a Parquet file that is read row by row. With pre-buffering, pyarrow would keep all of it in memory."""
    return arrow("pyarrow.parquet").ParquetFile(path, buffer_size=2**20, pre_buffer=False)


def _read_parquet(path: Path, wanted: Sequence[str]) -> Iterator[TableBatch]:
    with _reading(path), parquet_file(path) as file:
        yield from _read_arrow(str(path), file.iter_batches(BATCH, columns=list(wanted)), wanted)


def _read_arrow(name: str, batches: Iterable[Any], wanted: Sequence[str]) -> Iterator[TableBatch]:
    row = 1
    with _reading(name):
        for batch in batches:
            places = [batch.schema.get_field_index(column) for column in wanted]
            for start in range(0, batch.num_rows, BATCH):
                some = batch.slice(start, BATCH)
                columns = [_text_array(some.column(place), name, wanted[n]) for n, place in enumerate(places)]
                yield TableBatch(range(row, row + some.num_rows), columns)
                row += some.num_rows


def _text_array(array: Any, name: str, column: str) -> Any:
    """Return an Arrow array as text."""
    pa, types = arrow(), arrow("pyarrow.types")
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if types.is_integer(kind) or types.is_decimal(kind):
        return array.cast(pa.string())
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        array = array.cast(pa.string())
        array.validate(full=True)  # other programs write bytes that are not UTF-8
        return array
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        raise InputError(f"'{name}', column {shown(column)} contains bytes: convert it to text")
    # A NumPy float keeps its precision: 0.1 in 32 bits is written as 0.1.
    values = array.to_numpy(zero_copy_only=False) if types.is_floating(kind) else array.to_pylist()
    return pa.array([cell_text(value) for value in values], pa.string())


def cell_text(value: Any) -> str | None:
    """Return the text of a Python value: text unchanged, lists and dictionaries as JSON, dates in ISO format."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Number):
        return None if value != value else str(value)
    if hasattr(value, "tolist"):
        return cell_text(value.tolist())
    if isinstance(value, date | time):
        return None if value != value else value.isoformat()
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        return msgspec.json.encode(value, enc_hook=str).decode()
    text = str(value)
    return None if text == "<NA>" else text
