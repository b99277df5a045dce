"""Index files: names, metadata, and which ones are valid."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from camel.core.errors import CamelError, InputError
from camel.index.facets import FOLDER, VERSION
from camel.record.parquet import arrow
from camel.runs.markers import Marker, new_attempt
from camel.runs.run import RunFolder
from camel.storage.files import make_folder, taking_place
from camel.storage.store import BucketStore

T = TypeVar("T")


class Indexed(msgspec.Struct, frozen=True, omit_defaults=True):
    """A shard whose rows are in an index file."""

    shard: int
    file: str
    """The name of the shard's data file, without folder and ending."""
    rows: int
    looked: str = ""
    """Version of the detectors whose findings the rows include. Empty if they include none."""


class Header(msgspec.Struct, frozen=True):
    """The metadata of an index file, in its footer."""

    stage: str
    fingerprint: str
    """Fingerprint of the run's configuration."""
    shards: list[Indexed]
    """The shards in the order of their rows."""
    counts: dict[str, dict[str, dict[str, int]]] | None
    """Number of rows by set of labels, facet and value. Labels come first, because they decide which rows are visible.
    """
    version: int = VERSION

    @property
    def rows(self) -> int:
        """Number of rows of the file."""
        return sum(shard.rows for shard in self.shards)


@cache
def schema() -> Any:
    """Return the Arrow schema of an index."""
    pa = arrow()
    texts = ["id", "scenario", "assistant", "user", "others", "task", "stop", "model"]
    texts += ["labels", "findings", "marks"]
    kinds = {"messages": pa.int32(), "tokens": pa.int64(), "completion": pa.int64(), "calls": pa.int32()}
    kinds |= {"cost": pa.float64(), "shard": pa.int32(), "row": pa.int32(), "tools": pa.string()}
    return pa.schema([*((name, pa.string()) for name in texts), *kinds.items()])


def rows_sql(has_tools: bool) -> str:
    """Return the SQL of the rows of index files, which are its parameter. Files of earlier releases have no column `tools`."""
    return "read_parquet(?)" if has_tools else "(select *, '' as tools from read_parquet(?))"


def name_of(marker: Marker) -> str:
    """Return the name of the index file for the shard of a marker."""
    return f"{FOLDER}/{marker.stage}/{PurePosixPath(marker.file).stem}.parquet"


FOOTER_KEY = b"camel.index"


def footer_value(metadata: Any, key: bytes) -> bytes:
    """Return the value of a key in the footer of a Parquet file. It is empty if there is none."""
    pairs: dict[bytes, bytes] | None = metadata.metadata
    return (pairs or {}).get(key, b"")


def read_described(
    path: Path, key: bytes, kind: type[T], what: str, rows: Callable[[T], int]
) -> tuple[T, Any]:
    """Read the metadata and the footer of a file. Raise an `InputError` if the file is damaged or has another version."""
    try:
        metadata = arrow("pyarrow.parquet").read_metadata(path)
        found = msgspec.json.decode(footer_value(metadata, key), type=kind)
    except (OSError, ValueError, arrow().ArrowException) as error:
        raise InputError(f"'{path}' is not {what}: {' '.join(str(error).split())}") from None
    if cast("Any", found).version != VERSION or metadata.num_rows != rows(found):
        raise InputError(f"'{path}' is {what} of another version: rebuild it with `camel run index RUN`")
    return found, metadata


def read_footer(path: Path) -> tuple[Header, Any]:
    """Return the header and the whole footer of an index file."""
    return read_described(path, FOOTER_KEY, Header, "an index", lambda header: header.rows)


def read_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that reading a damaged index file can raise."""
    return (ValueError, TypeError, arrow().ArrowException)


def merged_name(stage: str, first: int, last: int) -> str:
    """Return a new, unique name for an index file of several shards."""
    return f"{FOLDER}/{stage}/m{first:06d}-{last:06d}-{new_attempt()}.parquet"


_MERGED = re.compile(r"m(\d{6,})-(\d{6,})-[0-9a-f]+\.parquet")
_ORDERED = re.compile(r"o\d{6,}-\d{6,}-[0-9a-f]+-[a-z]+\.parquet")
_SINGLE = re.compile(r"(\d{6,})-[0-9a-f]+\.parquet")


class Files(NamedTuple):
    """The names of the index files of a stage."""

    single: dict[str, str]
    """Index files of one shard, by the name of the data file without its ending."""
    merged: list[tuple[int, int, str]]
    """First shard, last shard and name of each merged file. A file comes before those within its range."""
    cubes: list[str]
    ordered: list[str]
    """Names of the copies that are sorted by a number."""


def files_of(folder: RunFolder, stage: str) -> Files:
    """List the index files of a stage."""
    found = Files({}, [], [], [])
    for name in folder.store.names(f"{FOLDER}/{stage}"):
        file = f"{FOLDER}/{stage}/{name}"
        if match := _MERGED.fullmatch(name):
            found.merged.append((int(match[1]), int(match[2]), file))
        elif _SINGLE.fullmatch(name):
            found.single[name.removesuffix(".parquet")] = file
        elif _ORDERED.fullmatch(name):
            found.ordered.append(file)
        elif name.startswith("cube-") and name.endswith(".parquet"):
            found.cubes.append(file)
    found.merged.sort(key=lambda one: (one[0], -one[1], one[2]))
    return found


class Readable:
    """Provides local paths of a run's index files. Files in an object store are downloaded."""

    def __init__(self, folder: RunFolder, scratch: Path) -> None:
        self.folder, self._scratch = folder, scratch

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Use a temporary folder of this machine if another one sent this object."""
        self.__dict__.update(state)
        if not self._scratch.is_dir():
            self._own = TemporaryDirectory(prefix="camel-index-", ignore_cleanup_errors=True)
            self._scratch = Path(self._own.name)

    def path(self, name: str) -> Path:
        """Return the local path of an index file. Download the file if necessary."""
        if not isinstance(self.folder.store, BucketStore):
            return self.folder.path(name)
        path = self._scratch / name
        if not path.exists():
            make_folder(path.parent)
            writing = path.with_suffix(".partial")
            self.folder.store.fetch(name, writing)
            writing.replace(path)
        return path

    def header(self, name: str) -> Header:
        """Return the header of an index file."""
        return read_footer(self.path(name))[0]

    @contextlib.contextmanager
    def writing(self, name: str) -> Generator[Path]:
        """Yield a temporary path. The file written there atomically becomes the run's file `name`."""
        path = self.folder.path(name)
        make_folder(path.parent)
        with taking_place(path) as writing:
            yield writing
        self.keep(name)

    def keep(self, name: str) -> None:
        """Upload a file that was written in the run's local folder. Does nothing for a run on a disk."""
        if isinstance(self.folder.store, BucketStore):
            path = self.folder.path(name)
            self.folder.store.upload(path, name)
            make_folder((self._scratch / name).parent)
            shutil.move(path, self._scratch / name)


def valid_merged_files(files: Readable, stage: str, fingerprint: str) -> list[tuple[str, Header]]:
    """Return the merged files to read: intact, of this run, and not within the range of another."""
    chosen: list[tuple[str, Header]] = []
    reached, anew = -1, rewritten_files(files.folder, stage)
    for first, last, name in files_of(files.folder, stage).merged:
        if first <= reached:
            continue
        with contextlib.suppress(CamelError, OSError):
            header = files.header(name)
            if is_of(header, stage, fingerprint, first, last, anew):
                chosen.append((name, header))
                reached = last
    return chosen


def rewritten_files(folder: RunFolder, stage: str) -> dict[int, str]:
    """Return the current data file names, without ending, of the shards that a retry has rewritten."""
    anew = folder.markers(stage, sorted(folder.rewritten(stage)))
    return {marker.shard: PurePosixPath(marker.file).stem for marker in anew}


def is_of(
    header: Header, stage: str, fingerprint: str, first: int, last: int, anew: Mapping[int, str]
) -> bool:
    """Return whether a merged file matches its name, this run, and the current shards according to `rewritten_files`."""
    wanted = (stage, fingerprint, list(range(first, last + 1)))
    found = (header.stage, header.fingerprint, [one.shard for one in header.shards])
    return found == wanted and are_newest(header.shards, anew)


def are_newest(shards: Iterable[Indexed], anew: Mapping[int, str]) -> bool:
    """Return whether no retry has rewritten these shards since they were indexed, according to `rewritten_files`."""
    return all(anew.get(one.shard, one.file) == one.file for one in shards)


def is_for(header: Header, marker: Marker) -> bool:
    """Return whether an index file belongs to the data file of a marker."""
    wanted = [(marker.shard, PurePosixPath(marker.file).stem, marker.rows)]
    return (
        header.stage == marker.stage and [(one.shard, one.file, one.rows) for one in header.shards] == wanted
    )
