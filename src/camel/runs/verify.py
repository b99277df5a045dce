"""Verifies a run: every marker is readable and its file is the one that was committed.

The one decision to know: everything is read again. Each file is hashed, its rows are counted from its footer and its ids
are read; files in an object store are downloaded for this. Lists are text files that users may edit, so an edited list is
a note, not a fault.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from camel.core.errors import CamelError, InputError
from camel.record.arrow import read_shard
from camel.record.parquet import shape_of
from camel.runs.bits import BitSet
from camel.runs.compact import Compaction, compactions
from camel.runs.layout import Layout
from camel.runs.markers import Marker, marker_name
from camel.runs.run import RunFolder
from camel.storage.journal import Damage, JournalBroken
from camel.storage.processes import workers
from camel.storage.store import ahead

FILES_AT_ONCE = 4
FEW = 64
"""Maximum number of files that are checked in one process. For so few, starting more processes takes longer."""
MOST_IDS = 5_000_000
"""Maximum number of rows for which ids are compared across all files of a stage. Above it, only within each file."""


class Fault(msgspec.Struct, frozen=True):
    """A problem that a verification has found in a run."""

    stage: str
    what: str
    file: str = ""
    marker: str = ""
    """The marker of the damaged file. If both are removed, `generate` makes the shard again."""


class Verification(msgspec.Struct):
    """The result of a verification."""

    run: str
    files: int = 0
    rows: int = 0
    bytes: int = 0
    problems: list[Fault] = []
    missing: dict[str, int] = {}
    """Number of planned shards that are not committed, by stage. Empty or 0 if the run is complete."""
    notes: list[str] = []

    @property
    def sound(self) -> bool:
        """Whether no committed file is damaged or missing."""
        return not self.problems

    @property
    def complete(self) -> bool:
        """Whether all planned shards are committed."""
        return not any(self.missing.values())


class _Found(NamedTuple):
    """The size, rows, ids and problems of one checked file."""

    size: int
    rows: int
    ids: list[bytes]
    problems: list[str]
    notes: list[str]


def verify(
    folder: RunFolder,
    planned: Mapping[str, Layout] | None = None,
    *,
    processes: int = 1,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Verification:
    """Check every marker and every file of a run. `progress` is called with the numbers of checked files and of all files.

    `planned` gives the planned size of each stage; without it, only gaps are reported.
    """
    settings = folder.settings()
    report = Verification(folder.address, problems=[], missing={}, notes=[])
    stages = folder.stages()
    shards = {stage: sorted(folder.committed(stage)) for stage in {*stages, *(planned or {})}}
    total, done = sum(map(len, shards.values())), 0
    some = processes if total > FEW else 1
    with workers(some, threads=FILES_AT_ONCE) as executor:
        for stage in sorted(shards):
            plan = (planned or {}).get(stage)
            _count_shards(report, stage, shards[stage], plan)
            markers = _markers(folder, stage, shards[stage], report)
            large = _compactions(folder, stage, report)
            held = {shard for one in large for shard in one.shards}
            total += len(large)
            # Shards whose own file was removed because a compaction contains them.
            gone: set[int] = set()
            if held:
                listed = {entry.name for entry in folder.store.entries(f"data/{stage}")}
                gone = {
                    marker.shard for marker in markers if marker.shard in held and marker.file not in listed
                }
            seen: dict[bytes, str] = {}
            expected, whose = settings.fingerprint, "the run's"
            # A translation has its own fingerprint.
            if markers and folder.has_own_settings(stage):
                expected, whose = markers[0].fingerprint, "the stage's"
            small = [marker for marker in markers if marker.shard not in gone]
            looks = ahead(partial(_look, folder), [*large, *small], max(FILES_AT_ONCE, 2 * some), executor)
            for one, found in zip([*large, *small], looks, strict=True):
                done += 1
                progress(done, total)
                again = isinstance(one, Marker) and one.shard in held
                report.files += 1
                report.bytes += found.size
                report.rows += 0 if again else found.rows
                report.notes += found.notes
                wrong = [*found.problems]
                if one.fingerprint != expected:
                    wrong.append(f"its fingerprint {one.fingerprint!r} is not {whose}, {expected!r}")
                if isinstance(one, Marker) and plan and one.rows != (rows := len(plan.items(one.shard))):
                    wrong.append(f"it has {one.rows:,} rows instead of the planned {rows:,}")
                if not again:
                    wrong += _repeated(found.ids, one.file, seen)
                named = one.name if isinstance(one, Compaction) else marker_name(stage, one.shard)
                report.problems += [Fault(stage, text, one.file, named) for text in wrong]
                if len(seen) > MOST_IDS:
                    report.notes.append(
                        f"{stage}: ids were compared within each file only, because there are too many for one comparison"
                    )
                    seen.clear()
            done += len(gone)
            report.problems += _compared(large, {marker.shard: marker for marker in markers}, stage)
    for stage in sorted({*stages, *folder.open_stages()}):
        report.problems += _journals(folder, stage)
    progress(total, total)
    report.notes = list(dict.fromkeys(report.notes))
    return report


def _journals(folder: RunFolder, stage: str) -> list[Fault]:
    """Return the damage in journals of shards that are not committed."""
    found: list[Damage] = []
    problems: list[Fault] = []
    for shard in sorted(folder.journaled(stage)):
        try:
            for _ in folder.replay(stage, shard, found.append):
                pass
        except (FileNotFoundError, JournalBroken) as error:
            if not folder.is_committed(stage, shard):  # otherwise its worker has removed them meanwhile
                problems.append(Fault(stage, str(error), f"journal/{stage}"))
    cost = "to fix it, rerun the command; this reply is paid for again, and later replies of the item if the new one differs"
    return problems + [
        Fault(stage, f"{one.where}: {cost}", str(one.path.relative_to(folder.root))) for one in found
    ]


def missing_files(folder: RunFolder, stage: str, committed: BitSet | None = None) -> list[str]:
    """Return the names of missing data files of committed shards, on a local disk. Object stores are not checked.

    For the check before a run is reported as complete: fast, but finds no other damage. `committed` has the committed shards
    if they are known.
    """
    if not folder.on_disk:
        return []
    committed = folder.committed(stage) if committed is None else committed
    lost = committed - folder.shards_with_data(stage)
    if not lost:
        return []
    held = {
        shard for one in compactions(folder, stage) if folder.store.exists(one.file) for shard in one.shards
    }
    return [folder.marker(stage, shard).file for shard in sorted(lost - held)]


def _count_shards(report: Verification, stage: str, shards: list[int], plan: Layout | None) -> None:
    """Add missing and unplanned shards of a stage to the report."""
    if plan is None:
        if missing := sorted(set(range(shards[-1] + 1 if shards else 0)) - set(shards)):
            report.missing[stage] = len(missing)
        return
    count = plan.shards
    report.missing[stage] = len(set(range(count)) - set(shards))
    if beyond := [shard for shard in shards if shard >= count]:
        report.problems.append(Fault(stage, f"shard {beyond[0]} is beyond the {count:,} planned shards"))


def _markers(folder: RunFolder, stage: str, shards: Iterable[int], report: Verification) -> list[Marker]:
    """Return the markers that are readable and match their names. The others are added to the report."""
    good: list[Marker] = []

    def one(shard: int) -> Marker | str:
        try:
            return folder.marker(stage, shard)
        except InputError as error:  # damaged; errors of the store are not caught
            return str(error)
        except FileNotFoundError:
            return "it was listed but cannot be found"

    for shard, marker in zip(shards, ahead(one, shards, 1 if folder.on_disk else 64), strict=True):
        name = marker_name(stage, shard)
        if isinstance(marker, str):
            report.problems.append(Fault(stage, marker, name, name))
        elif (marker.stage, marker.shard) != (stage, shard):
            said = f"it contains the marker of shard {marker.shard} of {marker.stage}"
            report.problems.append(Fault(stage, said, name, name))
        else:
            good.append(marker)
    return good


def _compactions(folder: RunFolder, stage: str, report: Verification) -> list[Compaction]:
    try:
        return compactions(folder, stage)
    except InputError as error:
        report.problems.append(Fault(stage, str(error), f"compacted/{stage}"))
        return []


def _look(folder: RunFolder, one: Marker | Compaction) -> _Found:
    """Check the data file of a marker."""
    try:
        with folder.opened([one.file]) as files:
            return compare_file(next(files), one)
    except FileNotFoundError:
        return _Found(0, 0, [], ["it does not exist"], [])


def compare_file(path: Path, one: Marker | Compaction) -> _Found:
    """Compare a local data file with its marker."""
    rows = one.rows if isinstance(one, Marker) else sum(one.rows)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    size = path.stat().st_size
    if path.suffix != ".parquet":
        edited = [f"{one.file} was edited since it was committed"] if digest != one.sha256 else []
        return _Found(size, rows, [], [], edited)
    problems: list[str] = []
    if one.size and size != one.size:
        problems.append(f"it has {size:,} bytes instead of {one.size:,}")
    changed = digest != one.sha256
    if changed:
        problems.append("its SHA-256 differs from the marker's")
    ids: list[bytes] = []
    try:
        count, _ = shape_of(path)
        if count != rows:
            problems.append(f"it has {count:,} rows instead of {rows:,}")
        column = read_shard(path, ["id"]).column("id")
        ids = [hashlib.blake2b(name.encode(), digest_size=8).digest() for name in column.to_pylist()]
    except CamelError as error:
        if not changed:  # otherwise this follows from the changed bytes
            problems.append(str(error))
    return _Found(size, rows, ids, problems, [])


def _repeated(ids: list[bytes], file: str, seen: dict[bytes, str]) -> list[str]:
    """Return problems with ids that occur twice in this file, or also in another file."""
    problems: list[str] = []
    if len(set(ids)) < len(ids):
        problems.append(f"{len(ids) - len(set(ids)):,} of its rows repeat the id of another row")
    if also := [seen[one] for one in ids if one in seen]:
        problems.append(f"{len(also):,} of its ids are also in {also[0]}")
    seen.update(dict.fromkeys(ids, file))
    return problems


def _compared(large: list[Compaction], markers: dict[int, Marker], stage: str) -> list[Fault]:
    """Return the differences between compacted files and the markers of their shards."""
    return [
        Fault(stage, f"its rows of shard {shard} differ from the committed ones", one.file, one.name)
        if shard in markers
        else Fault(stage, f"it contains shard {shard}, which is not committed", one.file, one.name)
        for one in large
        for shard, rows in zip(one.shards, one.rows, strict=True)
        if shard not in markers or markers[shard].rows != rows
    ]
