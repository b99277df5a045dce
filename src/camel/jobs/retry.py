"""Chooses the failed items to retry."""

from __future__ import annotations

from collections.abc import Sequence

from camel.core.errors import InputError
from camel.jobs.job import Stage
from camel.jobs.ledger import FAILED, committed_shards
from camel.runs.again import Retry, StageName, add_retry, last_retry
from camel.runs.compact import compactions
from camel.runs.run import RunFolder


def open_retry(folder: RunFolder) -> Retry | None:
    """Return the unfinished retry, or None."""
    retry = last_retry(folder.store)
    if retry is None:
        return None
    for stage, shards in retry.stages.items():
        if not shards.keys() <= folder.committed(str(StageName(stage, retry.number))):
            return retry
    return None


def begin_retry(folder: RunFolder, stages: Sequence[Stage]) -> Retry | None:
    """Start a retry of all failed items in committed shards. Return None if nothing failed. The run must be locked."""
    found: dict[str, dict[int, list[int]]] = {}
    for stage in stages:
        if stage.read is None:
            continue
        markers = folder.markers(stage.name, sorted(committed_shards(folder, stage)))
        failed = [marker for marker in markers if marker.totals.get(FAILED)]
        _need_own_files(folder, stage.name, {marker.shard for marker in failed})
        shards: dict[int, list[int]] = {}
        for marker in failed:
            both = zip(stage.layout.items(marker.shard), stage.read(marker), strict=False)
            if items := [item for item, record in both if stage.failure(record)]:
                shards[marker.shard] = items
        if shards:
            found[stage.name] = shards
    return add_retry(folder.store, found) if found else None


def _need_own_files(folder: RunFolder, stage: str, shards: set[int]) -> None:
    """Raise an `InputError` if a shard to retry was compacted and its own file removed."""
    for one in compactions(folder, stage) if shards else ():
        if shards.isdisjoint(one.shards):
            continue
        for other in folder.markers(stage, one.shards):
            if not folder.store.exists(other.file):
                raise InputError(
                    f"failed items of '{folder.address}' cannot be retried: `camel run gc --compacted` has removed files of "
                    f"its shards, such as '{other.file}'. Make a new run with `camel generate --reuse-lists NEWDIR`"
                )
