"""Garbage: what attempts that came second, crashes and compactions have left in a run.

The one decision to know: a file is garbage only because a marker says so. A file of a shard whose marker names another
file can be removed at any time. A file of a shard without a marker may be about to be committed, so it must have a
minimum age: an hour where a process may be working on the run, ten minutes where none is. The small files that a
compaction has replaced are removed only on request, each range after its rows have been compared with those of the
large file.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from camel.core.errors import InputError
from camel.record.arrow import stream_shard
from camel.runs.again import FOLDER as AGAIN
from camel.runs.again import named
from camel.runs.compact import Compaction, all_compactions, compactions
from camel.runs.markers import Marker
from camel.runs.run import DRIVER, RunFolder
from camel.runs.verify import look_at
from camel.storage import inside
from camel.storage.store import DiskStore, FileEntry

OLD = 3600.0
"""Seconds after which no worker is still about to commit a file."""
IDLE = 600.0
"""The same where no process holds the run's lock: a process without it may still be writing."""


Derived = Callable[[RunFolder, bool], Iterator[FileEntry]]
"""Finds files that were derived from conversations and are not needed; whether those that larger ones replaced go too."""


class Garbage(msgspec.Struct):
    """What was removed, or would be."""

    run: str
    losers: list[str] = []
    """Data files that no marker names."""
    journals: list[str] = []
    """Journals, and copies on their way to a store, of committed shards."""
    compacted: list[str] = []
    """Files of which a larger one holds the rows."""
    indexes: list[str] = []
    """Index files of attempts that came second, or that a larger one has replaced."""
    bytes: int = 0
    kept: int = 0
    """Files without a marker that are younger than `age`, and stay."""
    age: float = 0.0
    """Seconds from which files without a marker are removed."""
    working: bool = False
    """Whether a process is working on the run."""
    removed: bool = False
    """Whether they were removed."""

    @property
    def files(self) -> int:
        """All of them."""
        return len(self.losers) + len(self.journals) + len(self.compacted) + len(self.indexes)


def collect_garbage(
    folder: RunFolder,
    *,
    dry_run: bool = False,
    compacted: bool = False,
    older: float = OLD,
    derived: Derived | None = None,
    confirm: Callable[[Garbage], bool] = lambda found: True,
) -> Garbage:
    """Remove what a run does not need; with `compacted` also the small files that larger ones have replaced.

    Files of shards without a marker are removed when they are older than `older` seconds, or than `IDLE` where the run is
    on a disk and no process works on it. A run in an object store may be worked on from anywhere.

    `derived` names files that are derived from the conversations and are not needed any more: `index.garbage.unused`.
    `confirm` gets what was found and says whether to remove it. Only what it was shown is removed.
    """
    folder.settings()
    with _alone(folder) as alone:
        found, replaced = _find(folder, alone, compacted, older, derived)
        if dry_run or not found.files or not confirm(found):
            return found
        if not alone:  # a file may have been committed while `confirm` waited for an answer
            still = set(_find(folder, alone, False, older, None)[0].losers)
            found.losers = [name for name in found.losers if name in still]
        folder.store.remove(found.losers)
        DiskStore(folder.root).remove(found.journals)
        # Markers of smaller compactions before their files: a marker without a file is damage.
        folder.store.remove(replaced)
        folder.store.remove(found.compacted)
        folder.store.remove(found.indexes)
        found.removed = True
    return found


def _find(
    folder: RunFolder, alone: bool, compacted: bool, older: float, derived: Derived | None
) -> tuple[Garbage, list[str]]:
    """What can be removed, and the markers of smaller compactions that go with it."""
    found, replaced = Garbage(folder.address, [], [], [], [], working=not alone), list[str]()
    # Workers of a driver that died may not have stopped yet: one may be about to commit.
    idle = alone and folder.on_disk and not inside.exists(folder.root, DRIVER)
    found.age = min(older, IDLE) if idle else older
    for stage in sorted({*folder.stages(), *folder.store.folders("data")}):
        _collect(folder, stage, found)
        if compacted:
            if not alone:
                raise InputError(
                    f"another process is working on {folder.address}: remove compacted files when it has finished"
                )
            replaced += _collect_compacted(folder, stage, found)
    for stage in folder.journal_stages():
        if named(stage).retry:
            _collect_journals(folder, stage, found)
    for entry in derived(folder, compacted) if derived else ():
        found.indexes.append(entry.name)
        found.bytes += entry.size
    return found, replaced


@contextlib.contextmanager
def _alone(folder: RunFolder) -> Generator[bool]:
    """Whether no other process on this machine works on the run; and none begins to while we do."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(folder.locked())
        except InputError:
            yield False
        else:
            yield True


def _collect(folder: RunFolder, stage: str, found: Garbage) -> None:
    # Data first, markers after: whatever was committed in between has its marker by now.
    entries = list(folder.store.entries(f"data/{stage}"))
    committed = folder.committed(stage)
    by_shard: dict[int | str, list[FileEntry]] = {}
    for entry in entries:
        by_shard.setdefault(shard_of(entry.name), []).append(entry)
    # A committed shard's only file is its own: of most shards no marker is read.
    several = [shard for shard in committed if len(by_shard.get(shard, ())) > 1]
    named = {marker.file for marker in folder.markers(stage, several)}
    named |= {one.file for one in all_compactions(folder, stage)}
    now, retried = time.time(), bool(folder.store.names(AGAIN))
    for shard, files in by_shard.items():
        if shard in committed and len(files) == 1:
            continue
        for entry in files:
            if entry.name in named:
                continue
            if (retried or shard not in committed) and now - entry.modified < found.age:
                found.kept += 1
                continue
            found.losers.append(entry.name)
            found.bytes += entry.size
    _collect_journals(folder, stage, found)


def _collect_journals(folder: RunFolder, stage: str, found: Garbage) -> None:
    """What lies on this disk of committed shards: journals, and files on their way to a store."""
    committed = folder.committed(stage)
    for part in ("journal",) if folder.on_disk else ("journal", "data"):
        for entry in DiskStore(folder.root).entries(f"{part}/{stage}"):
            if shard_of(entry.name) in committed:
                found.journals.append(entry.name)
                found.bytes += entry.size


def shard_of(name: str) -> int | str:
    """The shard whose file this is, or the name itself of one that is not a shard's."""
    number = name.rpartition("/")[2].partition("-")[0]
    return int(number) if number.isdecimal() else name


def _collect_compacted(folder: RunFolder, stage: str, found: Garbage) -> list[str]:
    """Find the files that a compaction has replaced; returns the markers of the smaller compactions within it."""
    large, markers_within = compactions(folder, stage), list[str]()
    sizes = {entry.name: entry.size for entry in folder.store.entries(f"data/{stage}")}
    within = [one for one in all_compactions(folder, stage) if one not in large]
    for one in large:
        markers = [marker for marker in folder.markers(stage, one.shards) if marker.file in sizes]
        replaced = [marker.file for marker in markers]
        inner = [small for small in within if small.first in one.shards]
        if markers or inner:
            compare(folder, one, markers)
        replaced += [small.file for small in inner if small.file in sizes]
        found.compacted += replaced
        found.bytes += sum(sizes[name] for name in replaced)
        markers_within += [small.name for small in inner]
    for one in within:
        # A retry has written some of its shards anew; the others have files of their own.
        if not one.holds_newest(folder.written_anew(stage)) and one.name not in markers_within:
            found.compacted.append(one.file)
            found.bytes += sizes.get(one.file, 0)
            markers_within.append(one.name)
    return markers_within


def compare(folder: RunFolder, large: Compaction, markers: Sequence[Marker]) -> None:
    """Raise unless a compaction's file is whole, and its rows are those of the shards that still have files."""
    with folder.opened([large.file]) as files:
        path = next(files)
        if problems := look_at(path, large).problems:
            raise InputError(f"{large.file} cannot replace its shards: {problems[0]}")
        with folder.opened([marker.file for marker in markers]) as small:
            for marker, file in zip(markers, small, strict=False):
                start = sum(large.rows[: marker.shard - large.first])
                nothing: Any = None
                theirs = stream_shard(path, start, start + marker.rows)
                if any(a != b for a, b in zip_longest(theirs, stream_shard(file), fillvalue=nothing)):
                    raise InputError(f"{large.file} does not hold the rows of {marker.file}: verify the run")
