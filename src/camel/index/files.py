"""Index files: their names, what they say about themselves, and which are believed."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import cache
from pathlib import Path, PurePosixPath
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
    """A shard that an index file covers."""

    shard: int
    file: str
    """The name of its data file, without folder and ending."""
    rows: int
    looked: str = ""
    """By which detectors it was looked through; empty where it was not."""


class Header(msgspec.Struct, frozen=True):
    """What an index file says about itself, in its footer."""

    stage: str
    fingerprint: str
    """Of the run."""
    shards: list[Indexed]
    """In the order of their rows."""
    counts: dict[str, dict[str, dict[str, int]]] | None
    """Rows by set of labels, facet and value; by labels first, because who may see them depends on those."""
    version: int = VERSION

    @property
    def rows(self) -> int:
        """Of the file."""
        return sum(shard.rows for shard in self.shards)


@cache
def schema() -> Any:
    """The Arrow schema of an index."""
    pa = arrow()
    texts = [
        "id",
        "scenario",
        "assistant",
        "user",
        "others",
        "task",
        "stop",
        "model",
        "labels",
        "findings",
        "marks",
    ]
    return pa.schema(
        [
            *((name, pa.string()) for name in texts),
            ("messages", pa.int32()),
            ("tokens", pa.int64()),
            ("completion", pa.int64()),
            ("calls", pa.int32()),
            ("cost", pa.float64()),
            ("shard", pa.int32()),
            ("row", pa.int32()),
        ]
    )


def name_of(marker: Marker) -> str:
    """Where the index of a marker's data file is, if it is there."""
    return f"{FOLDER}/{marker.stage}/{PurePosixPath(marker.file).stem}.parquet"


FOOTER_KEY = b"camel.index"


def said_in(metadata: Any, key: bytes) -> bytes:
    """What stands under a key in the footer of a Parquet file."""
    pairs: dict[bytes, bytes] | None = metadata.metadata
    return (pairs or {}).get(key, b"")


def read_described(
    path: Path, key: bytes, kind: type[T], what: str, rows: Callable[[T], int]
) -> tuple[T, Any]:
    """What a file says about itself, and all of its footer; an `InputError` where it is damaged, or of another version."""
    try:
        metadata = arrow("pyarrow.parquet").read_metadata(path)
        found = msgspec.json.decode(said_in(metadata, key), type=kind)
    except (OSError, ValueError, arrow().ArrowException) as error:
        raise InputError(f"{path} is not {what}: {' '.join(str(error).split())}") from None
    if cast("Any", found).version != VERSION or metadata.num_rows != rows(found):
        raise InputError(f"{path} is {what} of another version")
    return found, metadata


def read_footer(path: Path) -> tuple[Header, Any]:
    """What an index file says about itself, and all of its footer besides."""
    return read_described(path, FOOTER_KEY, Header, "an index", lambda header: header.rows)


def read_header(path: Path) -> Header:
    """What an index file says about itself."""
    return read_footer(path)[0]


def read_errors() -> tuple[type[Exception], ...]:
    """What reading a damaged index file raises."""
    return (ValueError, TypeError, arrow().ArrowException)


def merged_name(stage: str, first: int, last: int) -> str:
    """A new name for a file of several shards."""
    return f"{FOLDER}/{stage}/m{first:06d}-{last:06d}-{new_attempt()}.parquet"


_MERGED = re.compile(r"m(\d{6,})-(\d{6,})-[0-9a-f]+\.parquet")
_ORDERED = re.compile(r"o\d{6,}-\d{6,}-[0-9a-f]+-[a-z]+\.parquet")
_SINGLE = re.compile(r"(\d{6,})-[0-9a-f]+\.parquet")


class Files(NamedTuple):
    """The index files of a stage, by their names alone."""

    single: dict[str, str]
    """By the name of the data file, without its ending."""
    merged: list[tuple[int, int, str]]
    """First shard, last shard and name, the larger before those within it."""
    cubes: list[str]
    ordered: list[str]
    """Copies in the order of a number."""


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
    """Index files where they can be read; those of an object store are fetched."""

    def __init__(self, folder: RunFolder, scratch: Path) -> None:
        self.folder, self._scratch = folder, scratch

    def path(self, name: str) -> Path:
        """A file on this machine."""
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
        """What a file says about itself."""
        return read_header(self.path(name))

    @contextlib.contextmanager
    def writing(self, name: str) -> Generator[Path]:
        """Write a file of the run, whole or not at all."""
        path = self.folder.path(name)
        make_folder(path.parent)
        with taking_place(path) as writing:
            yield writing
        self.keep(name)

    def keep(self, name: str) -> None:
        """Have a file that was written at its place in `root` last."""
        if isinstance(self.folder.store, BucketStore):
            path = self.folder.path(name)
            self.folder.store.upload(path, name)
            make_folder((self._scratch / name).parent)
            shutil.move(path, self._scratch / name)


def believed(files: Readable, stage: str, fingerprint: str) -> list[tuple[str, Header]]:
    """The merged files that are to be read: whole, of this run, none within another."""
    chosen: list[tuple[str, Header]] = []
    reached, anew = -1, files_anew(files.folder, stage)
    for first, last, name in files_of(files.folder, stage).merged:
        if first <= reached:
            continue
        with contextlib.suppress(CamelError, OSError):
            header = files.header(name)
            if is_of(header, stage, fingerprint, first, last, anew):
                chosen.append((name, header))
                reached = last
    return chosen


def files_anew(folder: RunFolder, stage: str) -> dict[int, str]:
    """By shard that a retry has written anew, the name of its file now, without its ending."""
    anew = folder.markers(stage, sorted(folder.rewritten(stage)))
    return {marker.shard: PurePosixPath(marker.file).stem for marker in anew}


def is_of(
    header: Header, stage: str, fingerprint: str, first: int, last: int, anew: Mapping[int, str]
) -> bool:
    """Whether a merged file is what its name says, of this run, and of its shards as they are now (`files_anew`)."""
    shards = [one.shard for one in header.shards]
    return (header.stage, header.fingerprint, shards) == (
        stage,
        fingerprint,
        list(range(first, last + 1)),
    ) and are_newest(header.shards, anew)


def are_newest(shards: Iterable[Indexed], anew: Mapping[int, str]) -> bool:
    """Whether what was indexed is what the shards are now (`files_anew`)."""
    return all(anew.get(one.shard, one.file) == one.file for one in shards)


def is_for(header: Header, marker: Marker) -> bool:
    """Whether an index is that of a marker's data file."""
    its = [(one.shard, one.file, one.rows) for one in header.shards]
    return header.stage == marker.stage and its == [
        (marker.shard, PurePosixPath(marker.file).stem, marker.rows)
    ]
