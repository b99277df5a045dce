"""Reads JSON documents from files, JSON lines, folders and archives, one at a time and with size limits."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, cast
from urllib.parse import unquote

import msgspec

from camel.core.checks import shown
from camel.core.errors import InputError, MissingExtra
from camel.core.message import well_formed
from camel.inputs.settings import split_hub_name
from camel.models.hub import HUB
from camel.models.wire import cleaned
from camel.record.parquet import arrow, open_parquet, readable
from camel.runs.reader import need_module

MAX_DOCUMENT = 64 * 2**20
"""Maximum size of one document in bytes."""
_MOST_VALUES = 1_000_000
"""Maximum number of values in a document above a megabyte: an empty list takes 3 bytes there, and 64 in memory."""
_MOST_HEADER = 2**20
"""Maximum size of a header in an archive, which is read as a whole."""
_MOST_PACKED, _MOST_RATIO = 2**30, 200
"""A compressed file larger than the first number, unpacked, may not exceed its own size times the second. JSON reaches about 20."""
_MOST_LEAVES, _MOST_COLUMN = 20_000_000, 256 * 2**20
"""Maximum number of values of a column in a row group, and of its bytes unless they are packed loosely."""
_OBJECT = 32
"""About how many bytes a Python object takes, in addition to its content."""
_CHUNK = 2**20
_ROWS = 500
"""Number of rows of a table that are read at a time."""


class Document(NamedTuple):
    """One JSON document of a file, an archive or a folder."""

    where: str
    """The file and the position in the file, for error messages."""
    stem: str
    """The file's name without its ending, or a number. It is the id of a document that has no other."""
    data: Any
    """The document as JSON text or as a decoded value."""

    def row(self) -> dict[str, Any]:
        """Return the document as a dictionary. Raises an `InputError` if it is not a JSON object."""
        data = self.data
        if isinstance(data, bytes | str):
            try:
                _check_values(self.where, data)
                data = _decoded(data)
            except (ValueError, RecursionError) as error:
                raise InputError(f"{self.where} is not valid JSON: {error}") from None
        if not isinstance(data, dict):
            raise InputError(f"{self.where} must be a JSON object, not {shown(data)}")
        return cast("dict[str, Any]", data)

    def id(self, row: dict[str, Any], *keys: str) -> str:
        """Return the id of the document: the first of `keys` that `row` contains, or the name of the file."""
        found = next((key for key in keys if row.get(key) is not None), None)
        return self.stem if found is None else text_of(row, found, self.where)


def documents_in(path: Path) -> Iterator[Document]:
    """Yield every JSON document of a file, an archive or a folder, one at a time."""
    if is_table(path):
        return _in_tables(path)
    if path.is_dir():
        return _in_folder(path)
    if not path.is_file():
        raise InputError(f"there is no file '{path}'")
    for endings, read in (
        ((".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz"), _in_tar),
        ((".zip",), _in_zip),
        ((".jsonl", ".jsonl.gz", ".ndjson"), _in_lines),
        ((".json", ".json.gz"), _in_json),
    ):
        if path.name.lower().endswith(endings):
            return _whole(path, read(path))
    raise InputError(
        f"'{path}' must be a .tar.gz, .zip, .json, .jsonl or .parquet file, a folder of such files, or hf:OWNER/NAME"
    )


def is_table(path: Path) -> bool:
    """Return whether `path` is a dataset: Parquet or Arrow files, or `hf:OWNER/NAME`."""
    return str(path).startswith(HUB) or bool(_table_files(path))


def tables_in(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the rows of a dataset as tables, each with the name of its file.

    Reads Parquet files, folders that `save_to_disk` of the package `datasets` wrote, and `hf:OWNER/NAME[/CONFIG][:SPLIT]`.
    """
    if str(path).startswith(HUB):
        yield from ((str(path), table) for table in _hub_tables(str(path)))
    for file in _table_files(path):
        if file.suffix == ".arrow":
            opened = readable(
                file, lambda file=file: arrow("pyarrow.ipc").open_stream(arrow().memory_map(str(file)))
            )
            schema, batches = opened.schema, iter(opened)
        else:
            schema, batches = _parquet(file)
        while (batch := readable(file, lambda batches=batches: next(batches, None))) is not None:
            for part in _parts(str(file), arrow().Table.from_batches([batch])):
                yield str(file), part.cast(schema)


def _parquet(path: Path) -> tuple[Any, Iterator[Any]]:
    """Return the schema and the rows of a Parquet file. Text has each value once, so that `_parts` sees how much it will be."""
    with open_parquet(path) as file:
        schema, leaves = file.schema_arrow, file.schema
        groups = (file.metadata.row_group(number) for number in range(file.metadata.num_row_groups))
        for column in (group.column(number) for group in groups for number in range(group.num_columns)):
            size = column.total_uncompressed_size
            if (
                column.num_values > _MOST_LEAVES
                or size > max(_MOST_COLUMN, 5_000 * column.total_compressed_size)
                or "DELTA_BYTE_ARRAY" in column.encodings  # a page of this encoding has no limit at all
            ):
                raise InputError(
                    f"'{path}': the column {shown(column.path_in_schema)} unpacks to too many bytes"
                )
        kinds = [
            (leaves.column(number).path, leaves.column(number).physical_type) for number in range(len(leaves))
        ]
    texts = [path for path, kind in kinds if kind == "BYTE_ARRAY"]
    opened = readable(path, lambda: arrow("pyarrow.parquet").ParquetFile(path, read_dictionary=texts))
    return schema, opened.iter_batches(_ROWS)


def _parts(where: str, table: Any) -> Iterator[Any]:
    """Yield the rows of a table in parts that fit into memory."""
    size = sum(_size(chunk) for column in table.columns for chunk in column.chunks)
    if size <= MAX_DOCUMENT:
        yield table
    elif table.num_rows == 1:
        raise InputError(f"{where}: a row has more than {MAX_DOCUMENT:,} bytes")
    else:
        half = table.num_rows // 2
        yield from _parts(where, table.slice(0, half))
        yield from _parts(where, table.slice(half))


def _size(array: Any) -> int:
    """Return about how many bytes an array takes as Python objects."""
    types, kind = arrow("pyarrow.types"), array.type
    if types.is_dictionary(kind):
        texts = array.dictionary.to_pylist()
        sizes = arrow().array([len(text) if isinstance(text, str | bytes) else 8 for text in texts], "int64")
        total = arrow("pyarrow.compute").sum(sizes.take(array.indices)).as_py() or 0
    elif types.is_struct(kind):
        total = sum(map(_size, array.flatten()))
    elif types.is_map(kind):  # its keys and items are those of all rows, also of a slice
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        total = sum(_size(one.slice(first, last - first)) for one in (array.keys, array.items))
    elif types.is_list(kind) or types.is_large_list(kind):
        total = _size(array.flatten())
    else:
        total = array.nbytes
    return total + _OBJECT * len(array)


def _table_files(path: Path) -> list[Path]:
    files = sorted(path.rglob("*")) if path.is_dir() else [path] if path.is_file() else []
    return [
        one
        for one in files
        if one.suffix in (".parquet", ".arrow") and not one.name.startswith((".", "cache-"))
    ]


def _hub_tables(name: str) -> Iterator[Any]:
    place, config, split = split_hub_name(name)
    try:
        found = need_module("datasets").load_dataset(place, config, streaming=True)
        if split and split not in found:
            raise InputError(f"'{name}' has no split {split!r}. Use one of {', '.join(found)}")
        for part in [found[split]] if split else found.values():
            yield from part.with_format("arrow").iter(_ROWS)
    except (InputError, MissingExtra):
        raise
    except Exception as error:  # the errors of the package and its transport have no common base
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise InputError(f"cannot read '{name}': {reason}") from error


def _in_tables(path: Path) -> Iterator[Document]:
    number = 0
    for where, table in tables_in(path):
        for row in table.to_pylist():
            number += 1
            yield Document(f"{where}: row {number}", f"{number:06d}", row)


def _whole(path: Path, documents: Iterator[Document]) -> Iterator[Document]:
    """Yield `documents`. If the file or archive is damaged, raise an error that names it."""
    try:
        yield from documents
    except (OSError, EOFError, ValueError, zlib.error, tarfile.TarError, zipfile.BadZipFile) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"'{path}' is damaged: {' '.join(str(error).split())}") from None


def _in_folder(path: Path) -> Iterator[Document]:
    for file in sorted([*path.rglob("*.json"), *path.rglob("*.jsonl")]):
        if not file.name.startswith(".") and file.suffix == ".json":
            with file.open("rb") as opened:
                yield _document(f"{file}", file.name, opened)
        elif not file.name.startswith("."):
            for line in _in_lines(file):
                yield line._replace(stem=f"{file.stem}-{line.stem}")


def _in_tar(path: Path) -> Iterator[Document]:
    with _opened(path) as file, tarfile.open(fileobj=file, mode="r|", tarinfo=_Member) as archive:
        while (member := archive.next()) is not None:
            if member.isfile() and _is_json(member.name) and (opened := archive.extractfile(member)):
                yield _document(f"{path}: {member.name}", member.name, opened)
            cast("Any", archive).members = []


class _Member(tarfile.TarInfo):
    """A member of an archive. Headers that would fill the memory are refused."""

    def _proc_member(self, archive: Any) -> Any:
        if not self.isreg() and self.size > _MOST_HEADER:
            raise tarfile.ReadError(f"a header has {self.size:,} bytes")
        return cast("Any", super())._proc_member(archive)


def _in_zip(path: Path) -> Iterator[Document]:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if _is_json(member.filename):
                with archive.open(member) as opened:
                    yield _document(f"{path}: {member.filename}", member.filename, opened)


def _is_json(name: str) -> bool:
    """Return whether a file name is that of a document, and not metadata of an operating system."""
    *folders, last = PurePosixPath(name).parts or ("",)
    return last.endswith(".json") and not last.startswith(".") and folders[:1] != ["__MACOSX"]


def _document(where: str, name: str, opened: IO[bytes]) -> Document:
    data = opened.read(MAX_DOCUMENT + 1)
    _check_size(where, len(data))
    return Document(where, _stem(PurePosixPath(name).name), data)


def _stem(name: str) -> str:
    """Return the id in the name of a file."""
    stem = name.split(".json")[0] if name.endswith(".gz") else name.removesuffix(".json")
    return "" if stem == "%" else unquote(stem)


def _check_size(where: str, size: int) -> None:
    if size > MAX_DOCUMENT:
        raise InputError(f"{where}: the document has more than {MAX_DOCUMENT:,} bytes")


def _check_values(where: str, data: bytes | str) -> None:
    signs: Any = "[{," if isinstance(data, str) else (b"[", b"{", b",")
    if len(data) > _CHUNK and sum(data.count(sign) for sign in signs) > _MOST_VALUES:
        raise InputError(f"{where}: the document has more than {_MOST_VALUES:,} values")


def _opened(path: Path) -> IO[bytes]:
    """Open a file, decompressed by its content."""
    file = path.open("rb")
    start = file.read(6)
    file.seek(0)
    for magic, opener in _COMPRESSED.items():
        if start.startswith(magic):
            return cast("IO[bytes]", io.BufferedReader(_Unpacked(file, opener)))
    return file


_COMPRESSED: dict[bytes, Callable[[IO[bytes]], Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}  # fmt: skip


class _Unpacked(io.RawIOBase):
    """The content of a compressed file, up to a multiple of its size."""

    def __init__(self, packed: IO[bytes], opener: Callable[[IO[bytes]], Any]) -> None:
        self._packed, self._file = packed, opener(packed)
        self._left = max(_MOST_PACKED, os.fstat(packed.fileno()).st_size * _MOST_RATIO)

    def close(self) -> None:
        self._file.close()
        self._packed.close()
        super().close()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise InputError("the file unpacks to far more than its size: unpack it yourself if you trust it")
        buffer[: len(data)] = data
        return len(data)


def _in_lines(path: Path) -> Iterator[Document]:
    with _opened(path) as file:
        number = 0
        while line := file.readline(MAX_DOCUMENT + 1):
            number += 1
            _check_size(f"{path}:{number}", len(line))
            if line.strip():
                yield Document(f"{path}:{number}", f"{number:06d}", line)


def _in_json(path: Path) -> Iterator[Document]:
    """Yield the elements of a JSON array, or the one object in the file."""
    with _opened(path) as binary, io.TextIOWrapper(binary, "utf-8-sig", newline="") as file:
        start = file.read(_CHUNK).lstrip()
        if start.startswith("["):
            yield from _elements(path, start[1:], file)
            return
        text = start + file.read(MAX_DOCUMENT)
        _check_size(str(path), len(text))
        yield Document(str(path), _stem(path.name), text)


_DEPTH = 100
"""Maximum nesting depth of JSON that is not quite valid."""
_ODD = re.compile(r"\\u[dD]|NaN|Infinity")
"""Pattern of JSON with values that cannot be written again: half a surrogate pair, or a number that JSON does not have."""
_BETWEEN = re.compile(r"[\s,]*")


def _elements(path: Path, text: str, file: IO[str]) -> Iterator[Document]:
    """Yield the elements of a JSON array that may be larger than memory."""
    scan = json.JSONDecoder().raw_decode
    at = number = 0
    while True:
        at = cast("re.Match[str]", _BETWEEN.match(text, at)).end()
        if text.startswith("]", at):
            return
        where = f"{path}: element {number + 1}"
        try:
            value, end = scan(text, at)
        except (ValueError, RecursionError) as error:
            # Probably incomplete. Reading at least as much again keeps the time linear.
            text = text[at:]
            _check_size(where, len(text))
            _check_values(where, text)
            more = file.read(max(_CHUNK, len(text)))
            if not more:
                raise InputError(f"{where} is damaged or missing: {error}") from None
            text, at = text + more, 0
        else:
            is_odd = _ODD.search(text, at, end)
            number, at = number + 1, end
            yield Document(where, f"{number:06d}", cleaned(value, _DEPTH) if is_odd else value)


def _decoded(data: bytes | str) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.MsgspecError:
        # The standard library accepts some invalid JSON, and reports the position of other errors.
        return cleaned(json.loads(data), _DEPTH)


def text_of(row: dict[str, Any], key: str, where: str) -> str:
    """Return the text in a field of a row, or a number as text. Return an empty string if the field is missing."""
    value = row.get(key)
    if value is None:
        return ""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise InputError(f"{where}: {key} must be text, not {shown(value)}")
