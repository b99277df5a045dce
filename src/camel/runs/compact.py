"""Compaction: many small shards of a stage in one larger Parquet file, so that a reader opens fewer.

    data/<stage>/c<first>-<last>-<attempt>.parquet     the rows of the shards first to last, in their order
    compacted/<stage>/<first>-<last>.json              its marker, made last and only once

The shards' own markers stay: they say what is done. A compaction's says only where it can be read as well, so that
a process that is killed while making one leaves a file that no marker names. `camel run gc` removes the small files, on request
and only after it has compared them with the large one.

The one decision to know: a compaction holds 2, 4, 8, … shards and begins at a multiple of that number. Two such ranges
are apart or one is within the other, never half and half, so the larger can always be read in place of the smaller,
in whatever order they were made, and no reader ever needs what a larger one has replaced.

A compaction of which a retry has written a shard anew is not read any more: its shards are read from files of their own
until they are compacted again.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
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

TARGET = 256 * 2**20
"""Bytes at which a file is large enough."""
_MOST_BYTES = 2**28
"""Of a row group in memory."""


class Compaction(msgspec.Struct, frozen=True):
    """Says that a file holds the rows of several shards."""

    stage: str
    first: int
    last: int
    file: str
    rows: list[int]
    """Of each shard."""
    sha256: str
    fingerprint: str
    size: int
    retry: int = 0
    """The last retry that has written one of its shards; 0: none."""

    def __post_init__(self) -> None:
        check_name(self.file)
        if not is_range(self.first, self.last) or len(self.rows) != self.last - self.first + 1:
            raise ValueError(f"{self.first} to {self.last} is not a range that can be compacted")

    @property
    def name(self) -> str:
        """Its marker's."""
        return _name(self.stage, self.first, self.last, self.retry)

    @property
    def shards(self) -> range:
        """Those that it holds."""
        return range(self.first, self.last + 1)

    def holds_newest(self, written_anew: Mapping[int, int]) -> bool:
        """Whether no retry has written one of its shards since."""
        return self.retry == max((written_anew.get(shard, 0) for shard in self.shards), default=0)


def _name(stage: str, first: int, last: int, retry: int) -> str:
    return f"compacted/{stage}/{StageName(f'{first:06d}-{last:06d}', retry)}.json"


class Part(NamedTuple):
    """A file to read, and the shards that it holds."""

    file: str
    first: int
    last: int
    rows: Sequence[int]
    """Of each shard."""
    sha256: str
    size: int
    """Bytes; 0 where they were not noted."""


class Compacted(NamedTuple):
    """What a compaction came to."""

    made: int
    """Files written now."""
    shards: int
    files: int
    """That a reader of the stage opens."""
    alone: int
    """Shards that are read from a file of their own: they have no neighbours yet, or are large."""


def is_range(first: int, last: int) -> bool:
    """Whether the shards from `first` to `last` may be compacted: a power of two of them, at a multiple of it."""
    count = last - first + 1
    return count >= 2 and count & (count - 1) == 0 and first >= 0 and first % count == 0


def compactions(folder: RunFolder, stage: str) -> list[Compaction]:
    """Those of a stage that are to be read: none within another, in order."""
    chosen: list[Compaction] = []
    written_anew = folder.written_anew(stage)
    for one in all_compactions(folder, stage):
        if (not chosen or one.first > chosen[-1].last) and one.holds_newest(written_anew):
            chosen.append(one)
    return chosen


def all_compactions(folder: RunFolder, stage: str) -> list[Compaction]:
    """Those of a stage, each before the ones within it."""
    found: list[tuple[int, int, int]] = []
    for name in folder.store.names(f"compacted/{stage}"):
        both, retry = named(name.removesuffix(".json"))
        first, _, last = both.partition("-")
        if first.isdecimal() and last.isdecimal() and is_range(int(first), int(last)):
            found.append((int(first), int(last), retry))
    found.sort(key=lambda one: (one[0], -one[1], -one[2]))
    return [read_compaction(folder, stage, *one) for one in found]


def read_compaction(folder: RunFolder, stage: str, first: int, last: int, retry: int = 0) -> Compaction:
    """Read a compaction's marker."""
    name = _name(stage, first, last, retry)
    try:
        found = msgspec.json.decode(folder.read(name), type=Compaction)
    except FileNotFoundError:
        raise
    except (OSError, msgspec.MsgspecError) as error:
        raise damaged(folder, name, f"is damaged: {error}") from None
    if found.name != name:
        raise damaged(folder, name, f"is damaged: it is the marker of {found.name}")
    return found


def parts_of(folder: RunFolder, stage: str, markers: Sequence[Marker]) -> list[Part]:
    """The files that hold the shards of `markers`, in order."""
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
    """The files of parts as local ones, one after the other, each compared with its marker before it is given.

    For readers of whole files, compared with which a hash costs little: Parquet has no checksum of its own, and a changed
    byte would look like text. `sound` remembers the names of those that were compared.
    """
    with folder.opened(part.file for part in parts) as files:

        def each() -> Iterator[Path]:
            for part in parts:
                try:
                    path = next(files)
                    if sound is None or part.file not in sound:
                        _check(folder, part, path)
                except FileNotFoundError:
                    raise damaged(folder, part.file, "is gone") from None
                if sound is not None:
                    sound.add(part.file)
                yield path

        yield each()


def _check(folder: RunFolder, part: Part, path: Path) -> None:
    """Raise unless a file is the one that was committed."""
    size = path.stat().st_size
    if part.size and size != part.size:
        raise damaged(
            folder, part.file, f"is damaged: it has {size:,} bytes, and its marker says {part.size:,}"
        )
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != part.sha256:
            raise damaged(folder, part.file, "is damaged: its SHA-256 is not its marker's")


def damaged(folder: RunFolder, file: str, what: str) -> Damaged:
    """The error that a data file of a run is not as it was committed."""
    return Damaged(
        f"{folder.address}/{file} {what}. Restore it from a copy; camel run verify {folder.address} finds all that is damaged, and says what else can be done"
    )


def compact(
    folder: RunFolder,
    stage: str,
    *,
    target: int = TARGET,
    note: Callable[[Compaction], None] = lambda made: None,
) -> Compacted:
    """Compact the committed shards of a stage into files of at most about `target` bytes.

    Takes the run's lock: `collect_garbage` must not find a file whose marker is about to be made. Can be done again
    later: what has been committed since is taken in, and smaller compactions become part of larger ones.
    """
    with folder.locked():
        return _compact(folder, stage, target, note)


def _compact(folder: RunFolder, stage: str, target: int, note: Callable[[Compaction], None]) -> Compacted:
    markers = list(folder.markers(stage, sorted(folder.committed(stage))))
    if any(not marker.file.endswith(".parquet") for marker in markers):
        raise InputError(f"stage {stage} has no Parquet files, and only those are compacted")
    large = compactions(folder, stage)
    parts = parts_of(folder, stage, markers)
    made = 0
    for first, last in ranges(
        _sizes(folder, stage, markers), target, [(one.first, one.last) for one in large]
    ):
        sources = [part for part in parts if first <= part.first <= last]
        note(_compact_range(folder, stage, markers[0].fingerprint, sources))
        made += 1
    parts = parts_of(folder, stage, markers)
    alone = sum(part.first == part.last for part in parts)
    return Compacted(made, len(markers), len(parts), alone)


def ranges(
    sizes: Mapping[int, int], target: int, existing: Sequence[tuple[int, int]] = ()
) -> Iterator[tuple[int, int]]:
    """The largest ranges among shards of these sizes that have at most `target` bytes, but for those that exist."""
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
    """Bytes of each shard; listed where a marker does not know."""
    sizes = {marker.shard: marker.size for marker in markers}
    if not all(sizes.values()):
        listed = {entry.name: entry.size for entry in folder.store.entries(f"data/{stage}")}
        sizes = {marker.shard: marker.size or listed.get(marker.file, 0) for marker in markers}
    return sizes


def _compact_range(folder: RunFolder, stage: str, fingerprint: str, sources: Sequence[Part]) -> Compaction:
    """Write one file and its marker; a compaction of the same range that was made before stays."""
    first, last = sources[0].first, sources[-1].last
    rows = [count for part in sources for count in part.rows]
    path = folder.data_path(stage, first, new_attempt(), ".parquet")
    path = path.with_name(f"c{first:06d}-{last:06d}-{path.name.partition('-')[2]}")
    with open_parts(folder, sources) as files:
        written = write_batches(path, _gathered(files), schema())
    if written.rows != sum(rows):
        path.unlink(missing_ok=True)
        raise InputError(
            f"shards {first} to {last} of {stage} have not the rows that their markers say: verify the run"
        )
    kept = folder.keep(path)
    written_anew = folder.written_anew(stage)
    retry = max(written_anew.get(shard, 0) for shard in range(first, last + 1))
    made = Compaction(stage, first, last, kept.file, rows, written.sha256, fingerprint, kept.size, retry)
    if not folder.store.create(made.name, msgspec.json.encode(made)):
        folder.discard(path)
        return read_compaction(folder, stage, first, last, retry)
    return made


def _gathered(files: Iterable[Path]) -> Iterator[Any]:
    """The rows of files as record batches of the usual size of a row group."""
    held: list[Any] = []
    for path in files:
        if not is_transcripts(shape_of(path)[1]):
            raise InputError(
                f"{path.name} was written by another version of camel, which this one cannot compact"
            )
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
