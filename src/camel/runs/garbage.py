"""Removes files that superseded attempts, crashes and compactions left in a run.

The one decision to know: markers decide what is garbage. A file can be removed at any time if its shard's marker names a
different file. A file of a shard without a marker may be about to be committed, so it must have a minimum age: one hour if
a process may be working on the run, otherwise ten minutes. The small files that a compaction has replaced are removed
only on request, after their rows have been compared with the large file.
"""

from __future__ import annotations

import contextlib
import shlex
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
from camel.runs.verify import compare_file
from camel.storage import inside
from camel.storage.store import DiskStore, FileEntry

OLD = 3600.0
"""Age in seconds after which no worker can still be about to commit a file."""
IDLE = 600.0
"""The same age if no process holds the run's lock. A process without the lock may still be writing."""


Derived = Callable[[RunFolder, bool], Iterator[FileEntry]]
"""Yields derived files that are not needed. If its flag is true, these include files that larger ones have replaced."""


class Garbage(msgspec.Struct):
    """The files that `collect_garbage` removed or, in a dry run, would remove."""

    run: str
    losers: list[str] = []
    """Data files that no marker names, for example of an attempt that another process overtook."""
    journals: list[str] = []
    """Journals of committed shards, and their local files that were uploaded."""
    copies: list[str] = []
    """Copies of journals of committed shards."""
    compacted: list[str] = []
    """Data files whose rows are also in a larger, compacted file."""
    indexes: list[str] = []
    """Index files of superseded attempts, and those that a larger one has replaced."""
    bytes: int = 0
    kept: int = 0
    """Number of files without a marker that are not removed, because they are younger than `age`."""
    age: float = 0.0
    """Minimum age in seconds of removed files without a marker."""
    working: bool = False
    """Whether another process is working on the run."""
    removed: bool = False
    """Whether the files were removed."""

    @property
    def files(self) -> int:
        """Number of files in all lists."""
        return (
            len(self.losers) + len(self.journals) + len(self.copies) + len(self.compacted) + len(self.indexes)
        )


def collect_garbage(
    folder: RunFolder,
    *,
    dry_run: bool = False,
    compacted: bool = False,
    older: float = OLD,
    derived: Derived | None = None,
    confirm: Callable[[Garbage], bool] = lambda found: True,
) -> Garbage:
    """Remove files that a run does not need. If `compacted` is true, this includes small files that larger ones have replaced.

    Files of shards without a marker are removed if they are older than `older` seconds, or than `IDLE` if the run is on a
    disk and no process works on it. Any machine may be working on a run in an object store.

    `derived` names files that are derived from the conversations and are not needed any more: `index.garbage.unused`.
    `confirm` gets what was found and returns whether to remove it. Nothing else is removed.
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
        folder.store.remove(found.copies)
        # Markers of smaller compactions go before their files, because a marker without a file counts as damage.
        folder.store.remove(replaced)
        folder.store.remove(found.compacted)
        folder.store.remove(found.indexes)
        found.removed = True
    return found


def _find(
    folder: RunFolder, alone: bool, compacted: bool, older: float, derived: Derived | None
) -> tuple[Garbage, list[str]]:
    """Return the files that can be removed, and the markers of compactions within larger ones that must be removed with them."""
    found, replaced = Garbage(folder.address, [], [], [], [], [], working=not alone), list[str]()
    # Workers of a dead driver may still be running, and one may be about to commit.
    idle = alone and folder.on_disk and not inside.exists(folder.root, DRIVER)
    found.age = min(older, IDLE) if idle else older
    for stage in sorted({*folder.stages(), *folder.store.folders("data")}):
        _collect(folder, stage, found)
        if compacted:
            if not alone:
                raise InputError(
                    f"another process is working on '{folder.address}': wait until it has finished before you remove compacted files"
                )
            replaced += _collect_compacted(folder, stage, found)
    for stage in folder.open_stages():
        if named(stage).retry:
            _collect_journals(folder, stage, found)
    for entry in derived(folder, compacted) if derived else ():
        found.indexes.append(entry.name)
        found.bytes += entry.size
    return found, replaced


@contextlib.contextmanager
def _alone(folder: RunFolder) -> Generator[bool]:
    """Yield whether no other process on this machine works on the run. If so, none can start inside this context."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(folder.locked())
        except InputError:
            yield False
        else:
            yield True


def _collect(folder: RunFolder, stage: str, found: Garbage) -> None:
    # List data before markers: a file that is committed in between has its marker by then.
    entries = list(folder.store.entries(f"data/{stage}"))
    committed = folder.committed(stage)
    by_shard: dict[int | str, list[FileEntry]] = {}
    for entry in entries:
        by_shard.setdefault(shard_of(entry.name), []).append(entry)
    # If a committed shard has only one file, it is the committed one: most markers need not be read.
    several = [shard for shard in committed if len(by_shard.get(shard, ())) > 1]
    named = {marker.file for shard in several for marker in folder.versions(stage, shard)}
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
    """Find local files of committed shards: journals, and files that were waiting for their upload."""
    committed = folder.committed(stage)
    for part in ("journal",) if folder.on_disk else ("journal", "data"):
        for entry in DiskStore(folder.root).entries(f"{part}/{stage}"):
            if shard_of(entry.name) in committed:
                found.journals.append(entry.name)
                found.bytes += entry.size
    for shard, copies in folder.copier.shards(stage).items() if folder.copier else ():
        if shard in committed:
            found.copies += [one.name for one in copies]
            found.bytes += sum(one.size for one in copies)


def shard_of(name: str) -> int | str:
    """Return the shard in a file's name. Return the name itself if it contains none."""
    number = name.rpartition("/")[2].partition("-")[0]
    return int(number) if number.isdecimal() else name


def _collect_compacted(folder: RunFolder, stage: str, found: Garbage) -> list[str]:
    """Find the files that a compaction has replaced. Return the markers of the smaller compactions within it."""
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
        # A retry has rewritten some of its shards; the others have files of their own.
        if not one.holds_newest(folder.rewritten(stage)) and one.name not in markers_within:
            found.compacted.append(one.file)
            found.bytes += sizes.get(one.file, 0)
            markers_within.append(one.name)
    return markers_within


def compare(folder: RunFolder, large: Compaction, markers: Sequence[Marker]) -> None:
    """Raise an error unless a compacted file is intact and has the rows of all shards that still have their own file."""
    with folder.opened([large.file]) as files:
        path = next(files)
        if problems := compare_file(path, large).problems:
            raise InputError(f"'{large.file}' cannot replace its shards: {problems[0]}")
        with folder.opened([marker.file for marker in markers]) as small:
            for marker, file in zip(markers, small, strict=False):
                start = sum(large.rows[: marker.shard - large.first])
                nothing: Any = None
                theirs = stream_shard(path, start, start + marker.rows)
                if any(a != b for a, b in zip_longest(theirs, stream_shard(file), fillvalue=nothing)):
                    raise InputError(
                        f"'{large.file}' does not contain the rows of '{marker.file}': run `camel run verify {shlex.quote(folder.address)}`"
                    )
