"""Compaction: merges many small shards of a stage into one larger Parquet file, so that a reader opens fewer files.

    data/<stage>/c<first>-<last>-<attempt>.parquet     the rows of the shards first to last, in their order
    compacted/<stage>/<first>-<last>.json              its marker, created last and only once

The shards' own markers stay and say what is done. A compaction's marker only names another file to read, so a process
that is killed during a compaction leaves a file without a marker. `camel run gc` removes the small files on request, after
it has compared them with the large one.

The one decision to know: a compaction holds 2, 4, 8, … shards and begins at a multiple of that number. Two such ranges
are disjoint or nested and never overlap partly. So the larger one always replaces the smaller ones, in whatever order
they were made.

Once a retry rewrites a shard of a compaction, the compaction is no longer read: its shards are read from their own files
until they are compacted again.
"""

from __future__ import annotations

import contextlib
import hashlib
import shlex
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from camel.core.errors import Damaged, InputError
from camel.record.arrow import ROW_GROUP, is_transcripts, schema, stream_groups
from camel.record.parquet import arrow, shape_of, write_batches
from camel.runs.again import StageName, named
from camel.runs.markers import Marker, new_attempt
from camel.runs.run import RunFolder
from camel.storage.inside import check_name
from camel.storage.processes import workers
from camel.storage.store import ahead

TARGET = 256 * 2**20
"""Target size of a compacted file, in bytes."""
FEW = 2**25
"""Maximum size of a stage in bytes that is compacted in one process. For so few, starting more processes takes longer."""
_MOST_BYTES = 2**28
"""Maximum size of a row group in memory, in bytes."""


class Compaction(msgspec.Struct, frozen=True):
    """The marker of a compacted file, which has the rows of several shards."""

    stage: str
    first: int
    last: int
    file: str
    rows: list[int]
    """Number of rows of each shard."""
    sha256: str
    fingerprint: str
    size: int
    retry: int = 0
    """Number of the last retry that had rewritten one of the shards. It is 0 if none had."""

    def __post_init__(self) -> None:
        check_name(self.file)
        if not is_range(self.first, self.last) or len(self.rows) != self.last - self.first + 1:
            raise ValueError(f"{self.first} to {self.last} is not a range that can be compacted")

    @property
    def name(self) -> str:
        """The name of the compaction's marker file."""
        return _name(self.stage, self.first, self.last, self.retry)

    @property
    def shards(self) -> range:
        """The shards whose rows are in the compacted file."""
        return range(self.first, self.last + 1)

    def holds_newest(self, rewritten: Mapping[int, int]) -> bool:
        """Return whether the file has the current rows, because no later retry has rewritten one of its shards."""
        return self.retry == max((rewritten.get(shard, 0) for shard in self.shards), default=0)


def _name(stage: str, first: int, last: int, retry: int) -> str:
    return f"compacted/{stage}/{StageName(f'{first:06d}-{last:06d}', retry)}.json"


class Part(NamedTuple):
    """A data file to read, with the range of shards that it contains."""

    file: str
    first: int
    last: int
    rows: Sequence[int]
    """Number of rows of each shard."""
    sha256: str
    size: int
    """Size of the file in bytes. It is 0 if unknown."""


class Compacted(NamedTuple):
    """The result of a compaction."""

    made: int
    """Number of files written."""
    shards: int
    files: int
    """Number of files that a reader of the stage opens."""
    alone: int
    """Number of shards that stay in their own file, because they are large or have no neighbors yet."""


def is_range(first: int, last: int) -> bool:
    """Return whether `first` to `last` can be compacted: the number of shards is a power of two, and divides `first`."""
    count = last - first + 1
    return count >= 2 and count & (count - 1) == 0 and first >= 0 and first % count == 0


def compactions(folder: RunFolder, stage: str) -> list[Compaction]:
    """Return the compactions of a stage that readers use, in order. Those within a larger one are excluded."""
    chosen: list[Compaction] = []
    rewritten = folder.rewritten(stage)
    for one in all_compactions(folder, stage):
        if (not chosen or one.first > chosen[-1].last) and one.holds_newest(rewritten):
            chosen.append(one)
    return chosen


def all_compactions(folder: RunFolder, stage: str) -> list[Compaction]:
    """Return all compactions of a stage, each one before the smaller ones within it."""
    found: list[tuple[int, int, int]] = []
    for name in folder.store.names(f"compacted/{stage}"):
        both, retry = named(name.removesuffix(".json"))
        first, _, last = both.partition("-")
        if first.isdecimal() and last.isdecimal() and is_range(int(first), int(last)):
            found.append((int(first), int(last), retry))
    found.sort(key=lambda one: (one[0], -one[1], -one[2]))
    return [read_compaction(folder, stage, *one) for one in found]


def read_compaction(folder: RunFolder, stage: str, first: int, last: int, retry: int = 0) -> Compaction:
    """Read the marker of a compaction."""
    name = _name(stage, first, last, retry)
    found = folder.decoded(name, Compaction)
    if found.name != name:
        raise damaged(folder, name, f"is damaged: it contains the marker of {found.name}")
    return found


def parts_of(folder: RunFolder, stage: str, markers: Sequence[Marker]) -> list[Part]:
    """Return the data files that contain the shards of `markers`, in order."""
    large = compactions(folder, stage)
    held = {shard for one in large for shard in one.shards}
    parts = [Part(one.file, one.first, one.last, one.rows, one.sha256, one.size) for one in large]
    parts += [
        Part(marker.file, marker.shard, marker.shard, [marker.rows], marker.sha256, marker.size)
        for marker in markers
        if marker.shard not in held
    ]
    return sorted(parts, key=lambda part: part.first)


@contextlib.contextmanager
def open_parts(
    folder: RunFolder, parts: Sequence[Part], sound: set[str] | None = None
) -> Generator[Iterator[Path]]:
    """Yield the files of parts as local paths, one after the other, after comparing each with its marker.

    For readers of whole files, for which hashing costs little: Parquet has no checksum here, and a changed byte would
    look like text. `sound` collects the names of files that passed.
    """
    with folder.opened(part.file for part in parts) as files:

        def each() -> Iterator[Path]:
            for part in parts:
                try:
                    path = next(files)
                    if sound is None or part.file not in sound:
                        _check(folder, part, path)
                except FileNotFoundError:
                    raise damaged(folder, part.file, "is missing") from None
                if sound is not None:
                    sound.add(part.file)
                yield path

        yield each()


def _check(folder: RunFolder, part: Part, path: Path) -> None:
    """Raise `Damaged` if the size or hash of a file differs from the committed ones."""
    size = path.stat().st_size
    if part.size and size != part.size:
        raise damaged(folder, part.file, f"is damaged: it has {size:,} bytes instead of {part.size:,}")
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != part.sha256:
            raise damaged(folder, part.file, "is damaged: its SHA-256 differs from the marker's")


def damaged(folder: RunFolder, file: str, what: str) -> Damaged:
    """Return the error for a damaged or missing data file of a run."""
    return Damaged(
        f"{folder.address}/{file} {what}. Restore it from a copy, or run `camel run verify {shlex.quote(folder.address)}` for a list of all damage and other ways to fix it"
    )


def compact(
    folder: RunFolder,
    stage: str,
    *,
    target: int = TARGET,
    processes: int = 1,
    note: Callable[[Compaction], None] = lambda made: None,
) -> Compacted:
    """Compact the committed shards of a stage into files of at most about `target` bytes.

    Takes the run's lock, because `collect_garbage` must not find a file whose marker is about to be created. Can be
    repeated: it includes newly committed shards, and merges smaller compactions into larger ones.
    """
    with folder.locked():
        markers = list(folder.markers(stage, sorted(folder.committed(stage))))
        if any(not marker.file.endswith(".parquet") for marker in markers):
            raise InputError(f"stage {stage} has no Parquet files: only Parquet files can be compacted")
        existing = [(one.first, one.last) for one in compactions(folder, stage)]
        parts, sizes = parts_of(folder, stage, markers), _sizes(folder, stage, markers)
        wanted = [
            [part for part in parts if first <= part.first <= last]
            for first, last in ranges(sizes, target, existing)
        ]
        work = partial(_compact_range, folder, stage, markers[0].fingerprint if markers else "")
        some = processes if sum(sizes.values()) > FEW else 1
        with workers(some) as executor:
            for one in ahead(work, wanted, some, executor):
                note(one)
        parts = parts_of(folder, stage, markers)
    alone = sum(part.first == part.last for part in parts)
    return Compacted(len(wanted), len(markers), len(parts), alone)


def ranges(
    sizes: Mapping[int, int], target: int, existing: Sequence[tuple[int, int]] = ()
) -> Iterator[tuple[int, int]]:
    """Return the largest ranges of shards with at most `target` bytes. Existing ranges are excluded."""
    taken: set[int] = set()
    made = {shard: (first, last) for first, last in existing for shard in range(first, last + 1)}
    count = 1 << max(0, len(sizes).bit_length() - 1)
    while count >= 2:
        for first in sorted({shard - shard % count for shard in sizes}):
            group = range(first, first + count)
            if any(shard in taken or shard not in sizes for shard in group):
                continue
            if sum(sizes[shard] for shard in group) > target:
                continue
            taken.update(group)
            its = made.get(first)
            if its is None or its[1] < group[-1]:
                yield first, group[-1]
        count //= 2


def _sizes(folder: RunFolder, stage: str, markers: Sequence[Marker]) -> dict[int, int]:
    """Return the size of each shard in bytes. If a marker lacks the size, list the files."""
    sizes = {marker.shard: marker.size for marker in markers}
    if not all(sizes.values()):
        listed = {entry.name: entry.size for entry in folder.store.entries(f"data/{stage}")}
        sizes = {marker.shard: marker.size or listed.get(marker.file, 0) for marker in markers}
    return sizes


def _compact_range(folder: RunFolder, stage: str, fingerprint: str, sources: Sequence[Part]) -> Compaction:
    """Write the compacted file of some parts, and its marker. An existing compaction of the same range is not replaced."""
    first, last = sources[0].first, sources[-1].last
    rows = [count for part in sources for count in part.rows]
    path = folder.data_path(stage, first, new_attempt(), ".parquet")
    path = path.with_name(f"c{first:06d}-{last:06d}-{path.name.partition('-')[2]}")
    with open_parts(folder, sources) as files:
        written = write_batches(path, _gathered(files), schema())
    if written.rows != sum(rows):
        path.unlink(missing_ok=True)
        raise InputError(
            f"shards {first} to {last} of {stage} do not have the rows that their markers say: run `camel run verify {shlex.quote(folder.address)}`"
        )
    file, size = folder.persist(path)
    rewritten = folder.rewritten(stage)
    retry = max(rewritten.get(shard, 0) for shard in range(first, last + 1))
    made = Compaction(stage, first, last, file, rows, written.sha256, fingerprint, size, retry)
    if not folder.store.create(made.name, msgspec.json.encode(made)):
        folder.discard(path)
        return read_compaction(folder, stage, first, last, retry)
    return made


def _gathered(files: Iterable[Path]) -> Iterator[Any]:
    """Yield the rows of files as record batches that have the size of a row group."""
    held: list[Any] = []
    for path in files:
        if not is_transcripts(shape_of(path)[1]):
            raise InputError(f"'{path.name}' was written by another version of camel and cannot be compacted")
        for table in stream_groups(path):
            held.append(table)
            if (
                sum(one.num_rows for one in held) >= ROW_GROUP
                or sum(one.nbytes for one in held) > _MOST_BYTES
            ):
                yield _joined(held)
                held = []
    if held:
        yield _joined(held)


def _joined(tables: list[Any]) -> Any:
    return arrow().concat_tables(tables).combine_chunks().to_batches()[0]
