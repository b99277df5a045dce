"""Finds index files that a run no longer needs, for `collect_garbage`."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from camel.index.cube import digest_of
from camel.index.facets import FOLDER, NUMBERS
from camel.index.files import Readable, files_of, name_of, valid_merged_files
from camel.index.sorted import ordered_name
from camel.runs.garbage import OLD, shard_of
from camel.runs.run import RunFolder
from camel.storage.store import FileEntry


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
