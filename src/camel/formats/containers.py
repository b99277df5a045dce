"""Reads JSON documents from files, JSON lines, folders and archives, one at a time and with size limits."""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, cast
from urllib.parse import unquote

import msgspec

from camel.core.checks import shown
from camel.core.errors import InputError, MissingExtra
from camel.core.message import well_formed
from camel.inputs.settings import split_hub_name
from camel.models.hub import HUB
from camel.record.parquet import arrow, open_parquet, readable
from camel.runs.reader import need_module

MAX_DOCUMENT = 64 * 2**20
"""Maximum size of one document in bytes."""
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
            batches = readable(
                file, lambda file=file: arrow("pyarrow.ipc").open_stream(arrow().memory_map(str(file)))
            )
        else:
            batches = open_parquet(file).iter_batches(_ROWS)
        batches = iter(batches)
        while (batch := readable(file, lambda batches=batches: next(batches, None))) is not None:
            yield str(file), arrow().Table.from_batches([batch])


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
    with tarfile.open(path, "r|*") as archive:
        while (member := archive.next()) is not None:
            if member.isfile() and _is_json(member.name) and (opened := archive.extractfile(member)):
                yield _document(f"{path}: {member.name}", member.name, opened)
            cast("Any", archive).members = []


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


def _opened(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path)) if path.name.lower().endswith(".gz") else path.open("rb")


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
            more = file.read(max(_CHUNK, len(text)))
            if not more:
                raise InputError(f"{where} is damaged or missing: {error}") from None
            text, at = text + more, 0
        else:
            number, at = number + 1, end
            yield Document(where, f"{number:06d}", value)


def _decoded(data: bytes | str) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.MsgspecError:
        # The standard library accepts some invalid JSON, and reports the position of other errors.
        return json.loads(data)


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
