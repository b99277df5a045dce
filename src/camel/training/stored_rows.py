"""Rows for training as they lie on a disk or in a bucket."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from camel.core.errors import Damaged, InputError
from camel.record.arrow import stream_groups
from camel.record.parquet import Table
from camel.runs.run import RunFolder, open_folder
from camel.runs.verify import compare_file
from camel.storage.files import taking_place

SHAPED, MIXED = "rows", "mixed"
"""The stages in which rows are made."""


class Rows:
    """Rows that were made: `for row in Rows("rows")`, or `opened` and `local` for whoever reads Parquet."""

    def __init__(self, path: str | Path) -> None:
        self.folder = open_folder(path)
        if self.folder.on_disk and self.folder.root.is_file():
            raise InputError(
                f"{path} is a file, and not a folder of rows: camel rows RUN makes one from a run"
            )
        if not self.folder.committed(MIXED):
            raise InputError(f"{self.folder.address} has no rows yet: camel rows makes them")
        if self.folder.committed(MIXED) != self.folder.committed(SHAPED):
            raise InputError(f"{self.folder.address} is not finished yet: run the same camel rows again")
        self.markers = list(self.folder.markers(MIXED, sorted(self.folder.committed(MIXED))))

    def __len__(self) -> int:
        return sum(marker.rows for marker in self.markers)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for group in self.groups():
            yield from group.to_pylist()

    def groups(self) -> Iterator[Table]:
        """The rows as tables, a row group at a time."""
        with self.opened() as files:
            for file in files:
                yield from stream_groups(file)

    @contextmanager
    def opened(self) -> Generator[Iterator[Path]]:
        """The Parquet files as local ones, each until the next is asked for."""
        with self.folder.opened(marker.file for marker in self.markers) as files:
            yield files

    def local(self, into: Path) -> list[Path]:
        """The Parquet files, for whoever needs them all at once; those of an object store are copied to a folder first."""
        if self.folder.on_disk:
            return [self.folder.path(marker.file) for marker in self.markers]
        # By content, so that whoever goes on fetches only what is not there yet.
        wanted = {marker.file: into / f"{marker.sha256}.parquet" for marker in self.markers}
        into.mkdir(parents=True, exist_ok=True)
        missing = [file for file, path in wanted.items() if not path.exists()]
        with self.folder.opened(missing) as files:
            for file, fetched in zip(missing, files, strict=True):
                with taking_place(wanted[file]) as path:
                    shutil.copyfile(fetched, path)
        return list(wanted.values())

    def check(self) -> None:
        """Raise unless the files are those that were committed: a training is dearer than their hashes."""
        with anew(self.folder), self.opened() as files:
            for file, marker in zip(files, self.markers, strict=True):
                if problems := compare_file(file, marker).problems:
                    raise InputError(f"{marker.file}: {problems[0]}")


@contextmanager
def anew(folder: RunFolder) -> Generator[None]:
    """What is damaged of rows needs no copy: they can be made again."""
    try:
        yield
    except (InputError, FileNotFoundError) as error:
        raise Damaged(
            f"{folder.address} is damaged ({str(error).partition(';')[0]}): make its rows again with camel rows --force"
        ) from None
