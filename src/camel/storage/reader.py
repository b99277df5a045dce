"""Reading a run: its conversations one by one, or as a table for whatever you like to ask.

Believes markers only, so that it can be used while the run goes on: what is not committed is not there yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from camel.core.errors import InputError, MissingExtra
from camel.core.transcript import Transcript
from camel.storage.dataset import dataset_rows, dataset_schema
from camel.storage.run import Marker, RunFolder
from camel.storage.table import read_shard, stream_shard

LAST_STAGES = ("conversations", "answers")
"""Names under which a campaign's records are kept."""


class Run:
    """The records of a run, in the order of their items.

    `for transcript in Run("runs/ai_society")`, `Run(…).to_pandas()`, `Run(…).sql("select stop.reason, count(*) …")`.
    """

    def __init__(self, path: str | Path, stage: str = "") -> None:
        self.folder = RunFolder(Path(path))
        self.settings = self.folder.settings()
        stages = [name for name in LAST_STAGES if self.folder.committed(name)]
        self.stage = stage or (stages[0] if stages else LAST_STAGES[0])

    @cached_property
    def markers(self) -> list[Marker]:
        """The committed shards when first asked, in order."""
        return [self.folder.marker(self.stage, shard) for shard in sorted(self.folder.committed(self.stage))]

    @property
    def files(self) -> list[Path]:
        """Their Parquet files."""
        return [self.folder.root / marker.file for marker in self.markers]

    def __len__(self) -> int:
        return sum(marker.rows for marker in self.markers)

    def __iter__(self) -> Iterator[Transcript]:
        for file in self.files:
            yield from stream_shard(file)

    def to_arrow(self, columns: list[str] | None = None) -> Any:
        """All records as one Arrow table; give `columns` when the run is large."""
        pyarrow = _need("pyarrow")
        return pyarrow.concat_tables([read_shard(file, columns) for file in self._some_files()])

    def to_pandas(self, columns: list[str] | None = None) -> Any:
        """All records as a pandas frame."""
        _need("pandas")
        return self.to_arrow(columns).to_pandas()

    def to_hf(self) -> Any:
        """All records as a Hugging Face `Dataset` of the export's layout, on disk in the cache of `datasets`."""
        datasets = _need("datasets")
        # `datasets` knows what it has in its cache by these: the hashes tell apart runs that lay in the same place.
        given = {
            "files": [str(file.resolve()) for file in self._some_files()],
            "content": " ".join(marker.sha256 for marker in self.markers),
        }
        features = datasets.Features.from_arrow_schema(dataset_schema())
        return datasets.Dataset.from_generator(dataset_rows, features=features, gen_kwargs=given)

    def sql(self, query: str) -> Any:
        """Ask DuckDB; the records are the table `run`. Returns DuckDB's relation: `.fetchall()`, `.df()`, `.show()`."""
        duckdb = _need("duckdb")
        connection = duckdb.connect()
        connection.read_parquet([str(file) for file in self._some_files()]).create_view("run")
        return connection.sql(query)

    def _some_files(self) -> list[Path]:
        if not self.files:
            raise InputError(f"{self.folder.root} has no finished conversations yet")
        return self.files


def _need(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise MissingExtra(f"Reading a run with {module}", "data") from None
