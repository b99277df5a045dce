"""Doing failed items again: which they are, and how a shard is written anew with their new records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from camel.core.errors import InputError
from camel.engine.stage import Stage, Written
from camel.runs.again import Retry, StageName, add_retry, last_retry
from camel.runs.compact import compactions
from camel.runs.markers import Marker
from camel.runs.run import RunFolder

Read = Callable[[Marker], list[Any]]
"""Reads the records of a shard, each of which says whether it `failed`."""
Write = Callable[[Path, Sequence[Any], Marker, Sequence[Any]], Written]
"""Writes records, given the shard's marker until now and which of the records are new."""


def open_retry(folder: RunFolder) -> Retry | None:
    """The retry that was begun and is not finished."""
    retry = last_retry(folder.store)
    if retry is None:
        return None
    for stage, shards in retry.stages.items():
        if not shards.keys() <= folder.committed(str(StageName(stage, retry.number))):
            return retry
    return None


def begin_retry(folder: RunFolder, stages: Sequence[Stage], read: Read) -> Retry | None:
    """Begin a retry of all failed items of committed shards; None where nothing failed. For whoever has locked the run."""
    found: dict[str, dict[int, list[int]]] = {}
    for stage in stages:
        markers = folder.markers(stage.name, sorted(folder.committed(stage.name)))
        failed = [marker for marker in markers if marker.totals.get("failed")]
        _need_own_files(folder, stage.name, {marker.shard for marker in failed})
        shards: dict[int, list[int]] = {}
        for marker in failed:
            both = zip(stage.indices(marker.shard), read(marker), strict=True)
            if items := [item for item, record in both if record.failed]:
                shards[marker.shard] = items
        if shards:
            found[stage.name] = shards
    return add_retry(folder.store, found) if found else None


def _need_own_files(folder: RunFolder, stage: str, shards: set[int]) -> None:
    """Raise where a shard that will be written anew is within a compaction whose small files were removed."""
    for one in compactions(folder, stage) if shards else ():
        if shards.isdisjoint(one.shards):
            continue
        for other in folder.markers(stage, one.shards):
            if not folder.store.exists(other.file):
                raise InputError(
                    f"failed items of {folder.address} cannot be retried any more: camel gc --compacted has removed the "
                    f"files of its shards, such as {other.file}; camel generate --fork NEWDIR makes a run beside it"
                )


def again(stage: Stage, retry: Retry, folder: RunFolder, read: Read, write: Write) -> Stage:
    """The stage of a retry: its items alone are worked on, and each shard is written whole."""

    def written(path: Path, records: Sequence[Any]) -> Written:
        shard = int(path.name.partition("-")[0])
        before = folder.marker(stage.name, shard)
        new = dict(zip(retry.stages[stage.name][shard], records, strict=True))
        kept = read(before)
        whole = [new.get(item, old) for item, old in zip(stage.indices(shard), kept, strict=True)]
        return write(path, whole, before, records)

    items = retry.stages[stage.name]
    name = str(StageName(stage.name, retry.number))
    return replace(stage, name=name, count=sum(map(len, items.values())), write=written, again=items)
