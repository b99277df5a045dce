"""Reading a run: its conversations one by one, or as a table for whatever you like to ask.

Believes markers only, so that it can be used while the run goes on: what is not committed is not there yet. Where small
shards have been compacted, the larger file is read in their place. A run in an object store is read through temporary
files: iteration holds a few at a time, tables and queries fetch what they need first.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from camel.core.errors import InputError, MissingExtra
from camel.core.notebook import facts_html
from camel.core.transcript import Transcript
from camel.storage.compact import Part, open_parts, parts_of
from camel.storage.dataset import dataset_rows, dataset_schema
from camel.storage.run import Marker, open_folder
from camel.storage.table import read_shard, stream_shard

LAST_STAGES = ("conversations", "answers")
"""Names under which a campaign's records are kept."""


class Run:
    """The records of a run, in the order of their items.

    `for transcript in Run("runs/ai_society")`, `Run(…).to_pandas()`, `Run(…).sql("select stop.reason, count(*) …")`.
    """

    def __init__(self, path: str | Path, stage: str = "") -> None:
        self.folder = open_folder(path)
        self.settings = self.folder.settings()
        stages = [name for name in LAST_STAGES if self.folder.committed(name)]
        self.stage = stage or (stages[0] if stages else LAST_STAGES[0])
        self._sound: set[str] = set()
        """Files that were found to be as they were committed."""

    @cached_property
    def markers(self) -> list[Marker]:
        """The committed shards when first asked, in order."""
        return list(self.folder.markers(self.stage, sorted(self.folder.committed(self.stage))))

    @cached_property
    def parts(self) -> list[Part]:
        """Their files, in order: of shards, or of many shards together."""
        return parts_of(self.folder, self.stage, self.markers)

    @property
    def files(self) -> list[Path]:
        """Their Parquet files; those of an object store are fetched, and kept until the process ends."""
        names = [part.file for part in self.parts]
        if self.folder.on_disk:
            return [self.folder.path(name) for name in names]
        return self._fetched

    @cached_property
    def _fetched(self) -> list[Path]:
        scratch = tempfile.mkdtemp(prefix="camel-")
        # Not with this object: what `sql` returns reads them when it is asked.
        atexit.register(shutil.rmtree, scratch, ignore_errors=True)
        return self.folder.fetch_all((part.file for part in self.parts), Path(scratch))

    def __len__(self) -> int:
        return sum(marker.rows for marker in self.markers)

    def __iter__(self) -> Iterator[Transcript]:
        with self.opened(self.parts) as files:
            for file in files:
                yield from stream_shard(file)

    def opened(self, parts: Sequence[Part]) -> AbstractContextManager[Iterator[Path]]:
        """The files of some parts, each compared with its marker when it is first opened."""
        return open_parts(self.folder, parts, self._sound)

    def shard(self, number: int) -> list[Transcript]:
        """The records of one committed shard, the `number`th of `markers`."""
        shard = self.markers[number].shard
        part = next(part for part in self.parts if part.first <= shard <= part.last)
        start = sum(part.rows[: shard - part.first])
        with self.opened([part]) as files:
            return list(stream_shard(next(files), start, start + self.markers[number].rows))

    def to_arrow(self, columns: list[str] | None = None) -> Any:
        """All records as one Arrow table; give `columns` when the run is large."""
        pyarrow = _need("pyarrow")
        self._need_some()
        with self.folder.opened(part.file for part in self.parts) as files:
            return pyarrow.concat_tables([read_shard(file, columns) for file in files])

    def to_pandas(self, columns: list[str] | None = None) -> Any:
        """All records as a pandas frame."""
        _need("pandas")
        return self.to_arrow(columns).to_pandas()

    def to_hf(self) -> Any:
        """All records as a Hugging Face `Dataset` of the export's layout, on disk in the cache of `datasets`."""
        datasets = _need("datasets")
        self._need_some()
        # `datasets` knows what it has in its cache by these: the hashes tell apart runs that lay in the same place.
        given = {
            "files": [str(file.resolve()) for file in self.files],
            "content": " ".join(marker.sha256 for marker in self.markers),
        }
        features = datasets.Features.from_arrow_schema(dataset_schema())
        return datasets.Dataset.from_generator(dataset_rows, features=features, gen_kwargs=given)

    def sql(self, query: str) -> Any:
        """Ask DuckDB; the records are the table `run`. Returns DuckDB's relation: `.fetchall()`, `.df()`, `.show()`."""
        duckdb = _need("duckdb")
        self._need_some()
        connection = duckdb.connect()
        # By name: shards of earlier versions have a column less.
        connection.read_parquet([str(file) for file in self.files], union_by_name=True).create_view("run")
        return connection.sql(query)

    def view(self, *, port: int = 0, height: int = 640) -> Any:
        """Open the explorer over this run on this machine: a notebook shows it in a frame, its `url` opens it elsewhere.

        It runs in a thread of this process and stops with it, or with `.stop()`. Needs the extra `explore`.
        """
        # By name, as other parts that need not be there: the explorer is above this floor of the house.
        explorer = _need("camel.explorer.notebook", "explore")
        return explorer.view(self.folder.address, port=port, height=height)

    def _repr_html_(self) -> str:
        """How a notebook shows it: by its markers alone, so that it is quick however large the run is."""
        config, totals = self.settings.config, Counter[str]()
        for marker in self.markers:
            totals.update(marker.totals)  # pyright: ignore[reportArgumentType] - they are numbers, of any kind
        facts = [
            ("scenario", str(config.get("scenario", ""))),
            (
                self.stage,
                f"{len(self):,} in {len(self.markers):,} {'shard' if len(self.markers) == 1 else 'shards'}",
            ),
            *(
                (name.replace("_", " "), f"${value:,.2f}" if name == "money" else f"{value:,.0f}")
                for name, value in sorted(totals.items())
                if value
            ),
            ("fingerprint", self.settings.fingerprint),
            ("made with", f"camel {self.settings.version}"),
        ]
        return facts_html(
            self.folder.address, [fact for fact in facts if fact[1]], "run.view() opens the explorer"
        )

    def _need_some(self) -> None:
        if not self.parts:
            raise InputError(f"{self.folder.address} has no finished conversations yet")


def _need(module: str, extra: str = "data") -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise MissingExtra(f"Reading a run with {module}", extra) from None
