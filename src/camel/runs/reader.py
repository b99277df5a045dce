"""Reads a run: its conversations one by one, or as a table for queries.

Uses only committed shards, so it works while the run is in progress. If small shards have been compacted, the larger
file is read instead. A run in an object store is read through temporary files: iteration keeps a few at a time, tables
and queries fetch what they need first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from camel.core.errors import InputError, MissingExtra
from camel.core.transcript import Transcript
from camel.record.arrow import read_shard, stream_rows, stream_shard
from camel.runs.compact import Part, open_parts, parts_of
from camel.runs.markers import Marker
from camel.runs.run import open_folder

LAST_STAGES = ("conversations", "answers")
"""Names of the stages that contain a run's final records."""


class RunReader:
    """The records of a run, in the order of their items.

    Programs and notebooks use `camel.Run`, which has more methods.
    """

    def __init__(self, path: str | Path, stage: str = "") -> None:
        self.folder = open_folder(path)
        self.settings = self.folder.settings()
        stages = [name for name in LAST_STAGES if self.folder.committed(name)]
        self.stage = stage or (stages[0] if stages else LAST_STAGES[0])
        self._sound: set[str] = set()
        """Names of the data files that were compared with their markers and match."""
        self.chosen: Mapping[str, Sequence[int]] | None = None
        """The rows of each data file that a filter expression selects; None: all."""

    @cached_property
    def markers(self) -> list[Marker]:
        """The markers, in order, of all shards that were committed when this property was first read."""
        return list(self.folder.markers(self.stage, sorted(self.folder.committed(self.stage))))

    @cached_property
    def parts(self) -> list[Part]:
        """The data files of the committed shards, in order. A compacted file contains several shards."""
        return parts_of(self.folder, self.stage, self.markers)

    @cached_property
    def files(self) -> list[Path]:
        """Local paths of the run's Parquet files. They outlive this object: the result of `sql` reads them later."""
        return self.folder.local_paths(part.file for part in self.parts)

    def __len__(self) -> int:
        if self.chosen is not None:
            return sum(map(len, self.chosen.values()))
        return sum(marker.rows for marker in self.markers)

    def __iter__(self) -> Iterator[Transcript]:
        for _, transcripts in self.by_part():
            yield from (transcript for _, transcript in transcripts)

    def by_part(self) -> Iterator[tuple[Part, Iterator[tuple[int, Transcript]]]]:
        """Yield each data file with its transcripts, numbered by their row in the file. Read one file before the next."""
        with self.opened(self.parts) as files:
            for part, file in zip(self.parts, files, strict=False):
                if self.chosen is None:
                    yield part, enumerate(stream_shard(file))
                elif self.chosen.get(part.file):
                    yield part, stream_rows(file, self.chosen[part.file])

    def opened(self, parts: Sequence[Part]) -> AbstractContextManager[Iterator[Path]]:
        """Open the files of some parts. Each file is compared with its marker the first time."""
        return open_parts(self.folder, parts, self._sound)

    def shard(self, number: int) -> list[Transcript]:
        """Return the records of the committed shard at index `number` of `markers`."""
        shard = self.markers[number].shard
        part = next(part for part in self.parts if part.first <= shard <= part.last)
        start = sum(part.rows[: shard - part.first])
        with self.opened([part]) as files:
            return list(stream_shard(next(files), start, start + self.markers[number].rows))

    def to_arrow(self, columns: list[str] | None = None) -> Any:
        """Return all records as one Arrow table. For a large run, pass `columns` to read only some."""
        pyarrow = need_module("pyarrow")
        self.need_some()
        with self.folder.opened(part.file for part in self.parts) as files:
            tables = [read_shard(file, columns) for file in files]
        if self.chosen is not None:
            rows = [pyarrow.array(self.chosen[part.file], "int64") for part in self.parts]
            tables = [table.take(some) for table, some in zip(tables, rows, strict=True)]
        return pyarrow.concat_tables(tables)

    def to_pandas(self, columns: list[str] | None = None) -> Any:
        """Return all records as a pandas data frame."""
        need_module("pandas")
        return self.to_arrow(columns).to_pandas()

    def need_some(self) -> None:
        """Raise an `InputError` if no shard is committed yet."""
        if not self.parts:
            raise InputError(
                f"'{self.folder.address}' has no finished conversations yet: wait until `camel run status` shows some"
            )


def need_module(module: str, extra: str = "data", use: str = "") -> Any:
    """Import a module. If it is missing, raise an error that names the extra to install, and `use`, which needs it."""
    try:
        return import_module(module)
    except ImportError:
        raise MissingExtra(use or f"Reading a run with {module}", extra) from None
