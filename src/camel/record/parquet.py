"""Parquet files: written durably with their hash, read with errors that name the file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

from camel.core.errors import Damaged, MissingExtra
from camel.storage.files import open_private, sync_folder

T = TypeVar("T")
Table = Any
"""A `pyarrow.Table`. It is `Any` because pyarrow publishes no types."""
_ZSTD_LEVEL = 3
"""Compression level, measured on text like the paper's: level 1 takes the same time for 25 % more bytes, level 6 twice the time for 14 % fewer."""
_PAGE = 4 * 2**20
"""Size of a data page in bytes, the unit of compression. Near-equal prompts in one page take almost no space after the
first."""
_FEW_VALUES = {
    *("attempts", "by", "calls", "failure", "fingerprint", "finish", "guided", "history", "key", "labels"),
    *("model", "name", "reason", "role", "sampling", "scenario", "schema", "speaker", "tool", "tool_form"),
    *("tools", "unknown", "value", "version", "wording"),
}
"""Columns that have few different values and are written with a dictionary. For prose, a dictionary would only be discarded."""


class Written(NamedTuple):
    """A written shard."""

    rows: int
    sha256: str
    totals: dict[str, float] = {}  # noqa: RUF012 - never changed
    """Sums over the records, stored in the marker."""


def arrow(module: str = "pyarrow") -> Any:
    """Import and return `pyarrow` or one of its modules, when it is first needed."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise MissingExtra("reading and writing Parquet", "data") from None


def write_batches(path: Path, groups: Iterable[Any], layout: Any) -> Written:
    """Write record batches with the schema `layout` as the row groups of one Parquet file, durably."""
    pa, pq = arrow(), arrow("pyarrow.parquet")
    count = 0
    try:
        with open(path, "wb", opener=open_private) as file:
            hashed = _Hashed(file)
            with pq.ParquetWriter(
                pa.PythonFile(hashed, mode="w"),
                layout,
                compression="zstd",
                compression_level=_ZSTD_LEVEL,
                use_dictionary=_few_values(layout),
                data_page_size=_PAGE,
            ) as writer:
                for batch in groups:
                    writer.write_batch(batch)
                    count += batch.num_rows
            file.flush()
            os.fsync(file.fileno())
        sync_folder(path.parent)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return Written(count, hashed.digest.hexdigest())


def _few_values(layout: Any) -> list[str]:
    """Return the names of those columns of a schema that have few different values."""
    types = arrow("pyarrow.types")

    def leaves(path: str, name: str, kind: Any) -> Iterator[tuple[str, str]]:
        if types.is_struct(kind):
            for field in kind:
                yield from leaves(f"{path}.{field.name}", field.name, field.type)
        elif types.is_map(kind):
            yield f"{path}.key_value.key", "key"
            yield from leaves(f"{path}.key_value.value", "value", kind.item_type)
        elif types.is_list(kind):
            yield from leaves(f"{path}.list.element", name, kind.value_type)
        else:
            yield path, name

    found = (leaf for field in layout for leaf in leaves(field.name, field.name, field.type))
    return [path for path, name in found if name in _FEW_VALUES]


def shape_of(path: Path) -> tuple[int, Any]:
    """Return the number of rows and the schema of a Parquet file. Only its footer is read."""
    with open_parquet(path) as file:
        return file.metadata.num_rows, file.schema_arrow


def open_parquet(path: Path) -> Any:
    """Open a Parquet file. The caller must close it."""
    return readable(path, lambda: arrow("pyarrow.parquet").ParquetFile(path))


def readable(path: Path, read: Callable[[], T]) -> T:
    """Call `read` and return its result. If the file is damaged, raise an error that names it."""
    try:
        return read()
    except (OSError, arrow().ArrowException) as error:
        said = " ".join(str(error).split()).rstrip(".")
        raise Damaged(f"cannot read '{path}': {said}; camel run verify RUN lists damaged files") from None


class _Hashed:
    """A file that is hashed while it is written."""

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        """Do nothing: the caller that opened the file still has to sync it."""
