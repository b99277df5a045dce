"""The index of a run: the columns of a list of its conversations, in narrow files that are fast to read.

    index/<stage>/<shard>-<attempt>.parquet            of one shard, named after its data file
    index/<stage>/m<first>-<last>-<attempt>.parquet    of many shards, merged by `camel run index`
    index/<stage>/cube-<digest>.parquet                counts of every combination of facets
    index/<stage>/o<first>-<last>-<attempt>-….parquet  copies of large ones, sorted by a number

A row is a conversation: roles, task, stop reason, length, cost, labels, findings, and its place (shard, and row in the
shard, which stay the same after a compaction). The footer of each file has counts of its rows by facet, and the shards
whose findings are included (`marks.py` adds them).

The one decision to know: an index is derived and optional. It is valid only for the data file that a marker names, so it
needs no marker of its own. A missing, damaged or outdated index is rebuilt from the data.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from camel.core.errors import CamelError
from camel.index.build import GROUP_ROWS, Writer, build, complete, merge_counts, no_cost
from camel.index.cube import digest_of, write_cubes
from camel.index.facets import FOLDER, Cost
from camel.index.files import Header, Readable, files_of, is_for, merged_name, name_of, valid_merged_files
from camel.index.marks import Looking, add_findings
from camel.index.sorted import write_ordered
from camel.record.parquet import arrow
from camel.runs.compact import parts_of, ranges
from camel.runs.markers import Marker
from camel.runs.run import RunFolder

MERGED = 4_194_304
"""Maximum number of rows per merged file."""
_GATHERED = 8 * GROUP_ROWS


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
    note: Callable[[str, int, int], None] = lambda what, done, of: None,
) -> Merged:
    """Index the shards without an index, merge the indexes into few files, and write cubes with their counts. Files are written
    atomically. So an interrupted call can be repeated, several processes may call it at once, and the run may be in
    progress. Shards that are committed later need another call. If `looking` is given, findings are added. `note` is called
    with the kind of progress, the number of finished steps and the number of all steps.
    """
    fingerprint = folder.settings().fingerprint
    markers = {one.shard: one for one in folder.markers(stage, sorted(folder.committed(stage)))}
    with tempfile.TemporaryDirectory(prefix="camel-index-") as scratch:
        files = Readable(folder, Path(scratch))
        merged = valid_merged_files(files, stage, fingerprint)
        covered = {one.shard for _, header in merged for one in header.shards}
        built = _build_missing(files, [one for n, one in markers.items() if n not in covered], cost, note)
        sizes = {shard: marker.rows for shard, marker in markers.items()}
        existing = [(header.shards[0].shard, header.shards[-1].shard) for _, header in merged]
        wanted = list(ranges(sizes, target, existing))
        for number, (first, last) in enumerate(wanted):
            sources = [name for name, header in merged if first <= header.shards[0].shard <= last]
            sources += [name_of(markers[n]) for n in range(first, last + 1) if n not in covered]
            _merge_range(files, stage, fingerprint, first, last, sources)
            note("files merged", number + 1, len(wanted))
        found = valid_merged_files(files, stage, fingerprint)
        if looking is not None:
            held = {one.shard for _, header in found for one in header.shards}
            alone = [
                (name_of(one), files.header(name_of(one))) for n, one in markers.items() if n not in held
            ]
            if add_findings(files, [*found, *alone], looking, note):
                found = valid_merged_files(files, stage, fingerprint)
        write_ordered(files, found, note)
        names = [name for name, _ in found]
        if names:
            digest = digest_of(names)
            cube = f"{FOLDER}/{stage}/cube-{digest}.parquet"
            if not folder.store.exists(cube):
                paths = [files.path(name) for name in names]
                with files.writing(cube) as writing:
                    write_cubes(writing, paths, digest, note=lambda done, of: note("cubes counted", done, of))
        held = {one.shard for _, header in found for one in header.shards}
        return Merged(built, len(wanted), len(names) + len(markers.keys() - held), sum(sizes.values()))


def _build_missing(
    files: Readable, markers: Sequence[Marker], cost: Cost, note: Callable[[str, int, int], None]
) -> int:
    folder = files.folder
    if not markers:
        return 0
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
    with folder.opened(where[marker.shard].file for marker in missing) as opened:
        for number, (marker, data) in enumerate(zip(missing, opened, strict=True)):
            part, name = where[marker.shard], name_of(marker)
            start = sum(part.rows[: marker.shard - part.first])
            build(folder.path(name), data, marker, cost, start)
            files.keep(name)
            note("shards indexed", number + 1, len(missing))
    return len(missing)


def _merge_range(
    files: Readable, stage: str, fingerprint: str, first: int, last: int, sources: Sequence[str]
) -> None:
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
