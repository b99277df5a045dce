"""Reads finished training rows from a disk or an object store."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from camel.core.errors import Damaged, InputError
from camel.record.arrow import stream_groups
from camel.record.parquet import Table
from camel.runs.run import RunFolder, open_folder
from camel.runs.verify import compare_file
from camel.storage.files import taking_place

SHAPED, MIXED = "rows", "mixed"
"""Names of the stages that make rows: from conversations, then without duplicates and with weights."""


class Rows:
    """Finished training rows. Iterate over them, or get their Parquet files with `opened` or `local`."""

    def __init__(self, path: str | Path) -> None:
        self.folder = open_folder(path)
        if self.folder.on_disk and self.folder.root.is_file():
            raise InputError(
                f"'{path}' is a file, not a folder of rows. Make a folder of rows from a run with camel rows RUN"
            )
        if not self.folder.committed(MIXED):
            raise InputError(f"'{self.folder.address}' has no rows yet. Make them with camel rows")
        if self.folder.committed(MIXED) != self.folder.committed(SHAPED):
            raise InputError(f"'{self.folder.address}' is not finished. Rerun its camel rows command")
        self.markers = list(self.folder.markers(MIXED, sorted(self.folder.committed(MIXED))))

    def __len__(self) -> int:
        return sum(marker.rows for marker in self.markers)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for group in self.groups():
            yield from group.to_pylist()

    def groups(self) -> Iterator[Table]:
        """Yield the rows as tables, one row group at a time."""
        with self.opened() as files:
            for file in files:
                yield from stream_groups(file)

    def opened(self) -> AbstractContextManager[Iterator[Path]]:
        """Provide the Parquet files as local files, one at a time. Each is available until the next is requested."""
        return self.folder.opened(marker.file for marker in self.markers)

    def local(self, into: Path) -> list[Path]:
        """Return all Parquet files as local files. Those in an object store are copied to the folder `into`."""
        if self.folder.on_disk:
            return [self.folder.path(marker.file) for marker in self.markers]
        # Named by content, so that a resumed training downloads only the missing files.
        wanted = {marker.file: into / f"{marker.sha256}.parquet" for marker in self.markers}
        into.mkdir(parents=True, exist_ok=True)
        missing = [file for file, path in wanted.items() if not path.exists()]
        with self.folder.opened(missing) as files:
            for file, fetched in zip(missing, files, strict=True):
                with taking_place(wanted[file]) as path:
                    shutil.copyfile(fetched, path)
        return list(wanted.values())

    def check(self) -> None:
        """Raise `Damaged` if the content of a file has changed since it was committed."""
        with reporting_damage(self.folder), self.opened() as files:
            for file, marker in zip(files, self.markers, strict=True):
                if problems := compare_file(file, marker).problems:
                    raise InputError(f"{marker.file}: {problems[0]}")


@contextmanager
def reporting_damage(folder: RunFolder) -> Generator[None]:
    """Convert errors about the rows of a folder into `Damaged`, with the command that makes the rows again."""
    try:
        yield
    except (InputError, FileNotFoundError) as error:
        raise Damaged(
            f"'{folder.address}' is damaged ({str(error).partition(';')[0]}). Make its rows again with camel rows --force"
        ) from None
