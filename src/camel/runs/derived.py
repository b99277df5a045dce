"""Data derived from a run shard by shard in a separate folder; each file names its source shard."""

from __future__ import annotations

from typing import Any

import msgspec

from camel.core.errors import InputError
from camel.record.arrow import read_shard
from camel.runs.bits import BitSet
from camel.runs.markers import Marker
from camel.runs.reader import RunReader
from camel.runs.run import RunFolder

_SOURCE = b"source"
_OUTDATED = ".outdated.json"
"""Ending of the marker of a file that was made from an earlier version of its shard."""


def schema_with_source(schema: Any, sha256: str) -> Any:
    """Return the schema with the hash of the source shard in its metadata."""
    return schema.with_metadata({_SOURCE: sha256.encode()})


def source_of(table: Any) -> str:
    """Return the hash of the shard from which a table was made."""
    metadata: dict[bytes, bytes] = table.schema.metadata or {}
    return metadata.get(_SOURCE, b"").decode()


def valid_shards(kept: RunFolder, name: str, run: RunReader) -> BitSet:
    """Return the shards of a stage in the folder `kept` whose derived data is still valid.

    Removes damaged ones, and those whose source a retry has rewritten.
    """
    there = kept.committed(name)
    gone = {shard for shard in there if not _is_there(kept, name, shard)}
    rewritten = run.folder.rewritten(run.stage)
    for marker in run.markers if rewritten else ():
        if marker.shard in there - gone and marker.shard in rewritten:
            with kept.opened([kept.marker(name, marker.shard).file]) as files:
                source = source_of(read_shard(next(files), ["id"]))
            if source != marker.sha256:
                gone.add(marker.shard)
                # The outdated file can still be read: unchanged conversations need not be paid for again.
                outdated = msgspec.json.encode(kept.marker(name, marker.shard))
                kept.store.put(_outdated(name, marker.shard), outdated)
    kept.remove_shards(name, gone)
    return there - gone


def outdated_rows(kept: RunFolder, name: str, shard: int) -> dict[str, dict[str, Any]]:
    """Return the rows that a stage had of a shard before the shard was rewritten, by id."""
    try:
        marker = msgspec.json.decode(kept.store.get(_outdated(name, shard)), type=Marker)
        with kept.opened([marker.file]) as files:
            return {row["id"]: row for row in read_shard(next(files)).to_pylist()}
    except (FileNotFoundError, InputError):
        return {}


def forget_outdated(kept: RunFolder, name: str) -> None:
    """Remove the markers of outdated files of a stage, because its settings have changed."""
    names = [one for one in kept.store.names(f"committed/{name}") if one.endswith(_OUTDATED)]
    kept.store.remove([f"committed/{name}/{one}" for one in names])


def _outdated(name: str, shard: int) -> str:
    return f"committed/{name}/{shard:06d}{_OUTDATED}"


def _is_there(kept: RunFolder, name: str, shard: int) -> bool:
    """Return whether the marker of a shard is readable and its data file exists."""
    try:
        return kept.store.exists(kept.marker(name, shard).file)
    except InputError:
        return False
