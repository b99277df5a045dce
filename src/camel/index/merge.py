"""The index of a run: the columns of a list of its conversations, in narrow files that are fast to read.

    index/<stage>/<shard>-<attempt>.parquet            of one shard, named after its data file
    index/<stage>/m<first>-<last>-<attempt>.parquet    of many shards, merged by `camel run index`
    index/<stage>/cube-<digest>.parquet                counts of every combination of facets
    index/<stage>/o<first>-<last>-<attempt>-….parquet  copies of large ones, sorted by a number

A row is a conversation: roles, task, stop reason, length, cost, labels, findings, and its place (shard, and row in the
shard, which stay the same after a compaction). The footer of each file has counts of its rows by facet, and the shards
whose findings are included.

The one decision to know: an index is derived and optional. It is valid only for the data file that a marker names, so it
needs no marker of its own. A missing, damaged or outdated index is rebuilt from the data.

Detectors cost ten times as much as indexing (3.5 ms per conversation), so they do not run while conversations are generated.
`camel run index --findings` runs them, stores their findings where `camel study` does, and rewrites the index files. Each
file records the version of the detectors, so that an upgrade runs them again.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from msgspec.structs import replace

from camel.core.errors import CamelError
from camel.detectors.marks import Mark
from camel.index.build import GROUP_ROWS, Writer, build, complete, count, merge_counts, no_cost
from camel.index.cube import digest_of, write_cubes
from camel.index.facets import FOLDER, NUMBERS, Cost, joined
from camel.index.files import (
    Header,
    Indexed,
    Readable,
    files_of,
    is_for,
    merged_name,
    name_of,
    valid_merged_files,
)
from camel.index.sorted import missing_copies, ordered_name, write_ordered
from camel.record.parquet import arrow
from camel.runs.compact import Part, parts_of, ranges
from camel.runs.garbage import OLD, shard_of
from camel.runs.markers import Marker
from camel.runs.run import RunFolder
from camel.storage.processes import workers
from camel.storage.store import FileEntry, ahead

MERGED = 4_194_304
"""Maximum number of rows per merged file."""
FEW = 50_000
"""Maximum number of rows that are indexed in one process. For so few, starting more processes takes longer."""
_GATHERED = 8 * GROUP_ROWS
_BATCH = 65_536


class Merged(NamedTuple):
    """The result of merging indexes."""

    built: int
    """Number of shards that had no index before."""
    made: int
    """Number of files written."""
    files: int
    """Number of files that a reader of the stage opens."""
    rows: int


def merge(
    folder: RunFolder,
    stage: str,
    *,
    cost: Cost = no_cost,
    target: int = MERGED,
    looking: Looking | None = None,
    processes: int = 1,
    note: Callable[[str, int, int], None] = lambda what, done, of: None,
) -> Merged:
    """Index the shards without an index, merge the indexes into few files, and write cubes with their counts. Files are written
    atomically. So an interrupted call can be repeated, several processes may call it at once, and the run may be in
    progress. Shards that are committed later need another call. If `looking` is given, findings are added. `note` is called
    with the kind of progress, the number of finished steps and the number of all steps.
    """
    fingerprint = folder.settings().fingerprint
    markers = {one.shard: one for one in folder.markers(stage, sorted(folder.committed(stage)))}
    sizes = {shard: marker.rows for shard, marker in markers.items()}
    some = processes if sum(sizes.values()) > FEW else 1
    with tempfile.TemporaryDirectory(prefix="camel-index-") as scratch, workers(some) as executor:

        def call(what: str, work: Callable[[Any], None], given: Sequence[Any]) -> None:
            for done, _ in enumerate(ahead(work, given, 2 * some, executor)):
                note(what, done + 1, len(given))

        files = Readable(folder, Path(scratch))
        merged = valid_merged_files(files, stage, fingerprint)
        covered = {one.shard for _, header in merged for one in header.shards}
        missing = _missing(files, [one for n, one in markers.items() if n not in covered])
        built = [marker for _, its in missing for marker in its]
        call("files indexed", partial(_build_part, files, cost), missing)
        existing = [(header.shards[0].shard, header.shards[-1].shard) for _, header in merged]
        wanted = [
            (
                first,
                last,
                [name for name, header in merged if first <= header.shards[0].shard <= last]
                + [name_of(markers[n]) for n in range(first, last + 1) if n not in covered],
            )
            for first, last in ranges(sizes, target, existing)
        ]
        call("files merged", partial(_merge_range, files, stage, fingerprint), wanted)
        found = valid_merged_files(files, stage, fingerprint)
        if looking is not None:
            held = {one.shard for _, header in found for one in header.shards}
            alone = [
                (name_of(one), files.header(name_of(one))) for n, one in markers.items() if n not in held
            ]
            if add_findings(files, [*found, *alone], looking, note):
                found = valid_merged_files(files, stage, fingerprint)
        call("copies sorted", partial(write_ordered, files), missing_copies(folder, found))
        names = [name for name, _ in found]
        if names:
            digest = digest_of(names)
            cube = f"{FOLDER}/{stage}/cube-{digest}.parquet"
            if not folder.store.exists(cube):
                paths = [files.path(name) for name in names]
                with files.writing(cube) as writing:
                    write_cubes(writing, paths, digest, note=lambda done, of: note("cubes counted", done, of))
        held = {one.shard for _, header in found for one in header.shards}
        return Merged(len(built), len(wanted), len(names) + len(markers.keys() - held), sum(sizes.values()))


def _missing(files: Readable, markers: Sequence[Marker]) -> list[tuple[Part, list[Marker]]]:
    """Return the data files that have shards without an index, each with those shards."""
    folder = files.folder
    if not markers:
        return []
    stage = markers[0].stage
    listed = files_of(folder, stage).single
    missing: list[Marker] = []
    for marker in markers:
        try:
            if PurePosixPath(marker.file).stem in listed and is_for(files.header(name_of(marker)), marker):
                continue
        except (CamelError, OSError):
            pass
        missing.append(marker)
    where = {n: part for part in parts_of(folder, stage, missing) for n in range(part.first, part.last + 1)}
    held: dict[str, tuple[Part, list[Marker]]] = {}
    for marker in missing:
        part = where[marker.shard]
        held.setdefault(part.file, (part, []))[1].append(marker)
    return list(held.values())


def _build_part(files: Readable, cost: Cost, given: tuple[Part, list[Marker]]) -> None:
    """Index some shards of a data file."""
    part, markers = given
    with files.folder.opened([part.file]) as opened:
        data = next(opened)
        for marker in markers:
            name = name_of(marker)
            build(files.folder.path(name), data, marker, cost, sum(part.rows[: marker.shard - part.first]))
            files.keep(name)


def _merge_range(
    files: Readable, stage: str, fingerprint: str, given: tuple[int, int, Sequence[str]]
) -> None:
    first, last, sources = given
    headers = sorted(((files.header(name), name) for name in sources), key=lambda one: one[0].shards[0].shard)
    shards = [shard for header, _ in headers for shard in header.shards]
    whole = Header(stage, fingerprint, shards, merge_counts(header for header, _ in headers))
    pa, pq = arrow(), arrow("pyarrow.parquet")
    with files.writing(merged_name(stage, first, last)) as writing, Writer(writing, whole) as writer:
        held: list[Any] = []
        for _, source in headers:
            with pq.ParquetFile(files.path(source)) as file:
                for batch in file.iter_batches(_GATHERED):
                    held.append(complete(pa.Table.from_batches([batch])))
                    if sum(table.num_rows for table in held) >= _GATHERED:
                        together = pa.concat_tables(held)
                        even = together.num_rows // GROUP_ROWS * GROUP_ROWS
                        writer.add(together.slice(0, even))
                        held = [together.slice(even)]
        if held:
            writer.add(pa.concat_tables(held))


def unused(folder: RunFolder, replaced: bool) -> Iterator[FileEntry]:
    """Yield index files that are invalid. If `replaced` is true, also yield those of shards that a merged file covers.

    Those of shards without a marker stay: they are small, and a worker may be about to commit them.
    """
    for stage in folder.store.folders(FOLDER):
        yield from _unused_of(folder, stage, replaced)


def _unused_of(folder: RunFolder, stage: str, replaced: bool) -> Iterator[FileEntry]:
    entries = list(folder.store.entries(f"{FOLDER}/{stage}"))
    names = files_of(folder, stage)
    committed = folder.committed(stage)
    kept: list[tuple[int, int, str]] = []
    merged = names.merged
    if folder.rewritten(stage):
        with tempfile.TemporaryDirectory(prefix="camel-gc-") as scratch:
            fingerprint = folder.settings().fingerprint
            good = {
                name for name, _ in valid_merged_files(Readable(folder, Path(scratch)), stage, fingerprint)
            }
        merged = [one for one in merged if one[2] in good]
    # Temporary files of a killed writer.
    useless = [entry.name for entry in entries if "/." in entry.name and time.time() - entry.modified > OLD]
    useless += [one[2] for one in names.merged if one not in merged]
    for first, last, name in merged:
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
        by_shard.setdefault(shard_of(name), []).append(name)
    # If there are several, the marker decides. A single invalid one is small and harmless.
    several = [shard for shard in committed if len(by_shard.get(shard, ())) > 1]
    named_by = {marker.shard: name_of(marker) for marker in folder.markers(stage, several)}
    for shard, files in by_shard.items():
        if replaced and shard in covered:
            useless += files
        elif isinstance(shard, int) and shard in named_by:
            useless += [name for name in files if name != named_by[shard]]
    gone = set(useless)
    return (entry for entry in entries if entry.name in gone)


# --- findings of detectors: by name for facets and filters, by message and seat for plots ---------------------------


def marked(table: Any, found: Sequence[Sequence[Mark]]) -> Any:
    """Return an index table with the findings of each row filled in: by name, and as `3 role_flipping assistant`."""
    columns = {
        "findings": [joined(mark.detector for mark in marks) for marks in found],
        "marks": [joined(f"{mark.message} {mark.detector} {mark.seat}" for mark in marks) for marks in found],
    }
    for name, texts in columns.items():
        column = arrow().array(texts, arrow().string())
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table


def add_findings(
    files: Readable,
    indexes: Sequence[tuple[str, Header]],
    looking: Looking,
    note: Callable[[str, int, int], None],
) -> int:
    """Rewrite the index files that lack findings of the current detectors. Return the number of rewritten files.

    The old file is removed after the new one is complete: an interruption leaves both, and either is valid.
    """
    wanted = [one for one in indexes if any(shard.looked != looking.by for shard in one[1].shards)]
    for number, (name, header) in enumerate(wanted):
        _rewrite(files, name, header, looking)
        note("findings added", number + 1, len(wanted))
    return len(wanted)


def _rewrite(files: Readable, old: str, header: Header, looking: Looking) -> None:
    shards: list[Indexed] = []

    def rows() -> Iterator[Sequence[Mark]]:
        for one in header.shards:
            found = looking.found(one.shard)
            if found is None or len(found) != one.rows:
                shards.append(replace(one, looked=""))
                yield from ((),) * one.rows
            else:
                shards.append(replace(one, looked=looking.by))
                yield from found

    name = merged_name(header.stage, header.shards[0].shard, header.shards[-1].shard)
    counts: list[Header] = []
    found = rows()
    with (
        files.writing(name) as writing,
        arrow("pyarrow.parquet").ParquetFile(files.path(old)) as file,
        Writer(writing, header) as writer,
    ):
        for batch in file.iter_batches(_BATCH):
            table = complete(arrow().Table.from_batches([batch]))
            table = marked(table, list(islice(found, table.num_rows)))
            counts.append(Header(header.stage, header.fingerprint, [], count(table)))
            writer.add(table)
        assert not list(found)
        writer.header = Header(header.stage, header.fingerprint, shards, merge_counts(counts))
    if old.rpartition("/")[2].startswith("m"):
        files.folder.store.remove([old, *(ordered_name(old, number) for number in NUMBERS)])


class Looking(NamedTuple):
    """Access to the findings of a run, so that the index does not depend on the detectors."""

    by: str
    """A text that identifies the detectors and their versions."""
    found: Callable[[int], Sequence[Sequence[Mark]] | None]
    """Returns the findings of each row of a shard. Returns None if the detectors have not run on the shard."""
