"""Garbage: what attempts that came second, crashes and compactions have left in a run.

The one decision to know: a file is garbage only because a marker says so. That of a shard with a marker that names
another file can go at any time; that of a shard without a marker may be somebody's who is about to commit it, so it
must be old, or nobody may be working, here or for a driver that has just died. And the small files that a compaction has replaced go only when asked, each
range after its rows have been compared with those of the large file.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from camel.core.errors import InputError
from camel.storage.compact import Compaction, all_compactions, compactions
from camel.storage.cube import digest_of
from camel.storage.index import FOLDER, NUMBERS, files_of, name_of
from camel.storage.ordered import ordered_name
from camel.storage.run import DRIVER, Marker, RunFolder
from camel.storage.store import DiskStore, Entry
from camel.storage.table import stream_shard
from camel.storage.verify import look_at

OLD = 3600.0
"""Seconds after which nobody is still about to commit a file."""


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
    """Files without a marker that were left: too young to tell from one about to be committed."""
    working: bool = False
    """Whether a process is working on the run."""

    @property
    def files(self) -> int:
        """All of them."""
        return len(self.losers) + len(self.journals) + len(self.compacted) + len(self.indexes)


def collect_garbage(
    folder: RunFolder, *, dry_run: bool = False, compacted: bool = False, older: float = OLD
) -> Garbage:
    """Remove what a run does not need; with `compacted` also the small files that larger ones have replaced.

    Files of shards without a marker go when they are older than `older` seconds, and younger ones too where the run is
    on a disk and nobody works on it. A run in an object store may be worked on from anywhere.
    """
    folder.settings()
    with _alone(folder) as alone:
        found = Garbage(folder.address, [], [], [], [], working=not alone)
        # A driver that died has not said that its workers are out: one may be about to commit.
        nobody = alone and folder.on_disk and not (folder.root / DRIVER).exists()
        for stage in sorted({*folder.stages(), *folder.store.folders("data")}):
            _collect(folder, stage, found, dry_run, 0.0 if nobody else older)
            if compacted:
                if not alone:
                    raise InputError(
                        f"somebody is working on {folder.address}: remove compacted files when they have finished"
                    )
                _collect_compacted(folder, stage, found, dry_run)
        for stage in folder.store.folders(FOLDER):
            _collect_indexes(folder, stage, found, dry_run, compacted)
    return found


@contextlib.contextmanager
def _alone(folder: RunFolder) -> Generator[bool]:
    """Whether nobody else on this machine works on the run; and nobody begins to while we do."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(folder.locked())
        except InputError:
            yield False
        else:
            yield True


def _collect(folder: RunFolder, stage: str, found: Garbage, dry_run: bool, older: float) -> None:
    # Data first, markers after: whatever was committed in between has its marker by now.
    entries = list(folder.store.entries(f"data/{stage}"))
    committed = folder.committed(stage)
    by_shard: dict[int | str, list[Entry]] = {}
    for entry in entries:
        by_shard.setdefault(_shard(entry.name), []).append(entry)
    # A committed shard's only file is its own: of most shards no marker is read.
    several = [shard for shard in committed if len(by_shard.get(shard, ())) > 1]
    named = {marker.file for marker in folder.markers(stage, several)}
    named |= {one.file for one in all_compactions(folder, stage)}
    now = time.time()
    for shard, files in by_shard.items():
        if shard in committed and len(files) == 1:
            continue
        for entry in files:
            if entry.name in named:
                continue
            if shard not in committed and now - entry.modified < older:
                found.kept += 1
                continue
            found.losers.append(entry.name)
            found.bytes += entry.size
    beside = DiskStore(folder.root)
    for part in ("journal",) if folder.on_disk else ("journal", "data"):
        for entry in beside.entries(f"{part}/{stage}"):
            if _shard(entry.name) in committed:
                found.journals.append(entry.name)
                found.bytes += entry.size
    if not dry_run:
        folder.store.remove([name for name in found.losers if name.startswith(f"data/{stage}/")])
        beside.remove([name for name in found.journals if name.split("/")[1] == stage])


def _collect_indexes(folder: RunFolder, stage: str, found: Garbage, dry_run: bool, replaced: bool) -> None:
    """Index files that nobody believes; with `replaced` also those of shards that a larger one covers.

    Those of shards without a marker stay: they are small, and somebody may be about to commit them.
    """
    entries = list(folder.store.entries(f"{FOLDER}/{stage}"))
    sizes = {entry.name: entry.size for entry in entries}
    names = files_of(folder, stage)
    committed = folder.committed(stage)
    kept: list[tuple[int, int, str]] = []
    # What a writer that was killed has left.
    useless = [entry.name for entry in entries if "/." in entry.name and time.time() - entry.modified > OLD]
    for first, last, name in names.merged:
        if kept and first <= kept[-1][1]:
            useless.append(name)
        else:
            kept.append((first, last, name))
    covered = {shard for first, last, _ in kept for shard in range(first, last + 1)}
    cube = f"{FOLDER}/{stage}/cube-{digest_of([name for _, _, name in kept])}.parquet"
    useless += [name for name in names.cubes if name != cube]
    copies = {ordered_name(name, number) for _, _, name in kept for number in NUMBERS}
    useless += [name for name in names.ordered if name not in copies]
    by_shard: dict[int | str, list[str]] = {}
    for name in names.single.values():
        by_shard.setdefault(_shard(name), []).append(name)
    # Which of several is believed the marker says; a lone one that is not is small, and does no harm.
    several = [shard for shard in committed if len(by_shard.get(shard, ())) > 1]
    believed = {marker.shard: name_of(marker) for marker in folder.markers(stage, several)}
    for shard, files in by_shard.items():
        if replaced and shard in covered:
            useless += files
        elif isinstance(shard, int) and shard in believed:
            useless += [name for name in files if name != believed[shard]]
    found.indexes += useless
    found.bytes += sum(sizes.get(name, 0) for name in useless)
    if not dry_run:
        folder.store.remove(useless)


def _shard(name: str) -> int | str:
    """The shard whose file this is, or the name itself of one that is not a shard's."""
    number = name.rpartition("/")[2].partition("-")[0]
    return int(number) if number.isdecimal() else name


def _collect_compacted(folder: RunFolder, stage: str, found: Garbage, dry_run: bool) -> None:
    """The files, and the markers of smaller compactions, that a compaction has replaced."""
    large = compactions(folder, stage)
    if not large:
        return
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
        if not dry_run:
            folder.store.remove([small.name for small in inner])
            folder.store.remove(replaced)


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
