"""Data derived from a run shard by shard in a separate folder; each file names its source shard."""

from __future__ import annotations

from typing import Any

from camel.core.errors import InputError
from camel.record.arrow import read_shard
from camel.runs.reader import RunReader
from camel.runs.run import RunFolder

_SOURCE = b"source"


def schema_with_source(schema: Any, sha256: str) -> Any:
    """Return the schema with the hash of the source shard in its metadata."""
    return schema.with_metadata({_SOURCE: sha256.encode()})


def source_of(table: Any) -> str:
    """Return the hash of the shard from which a table was made."""
    metadata: dict[bytes, bytes] = table.schema.metadata or {}
    return metadata.get(_SOURCE, b"").decode()


def valid_shards(kept: RunFolder, name: str, run: RunReader) -> set[int]:
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
    kept.remove_shards(name, gone)
    return there - gone


def _is_there(kept: RunFolder, name: str, shard: int) -> bool:
    """Return whether the marker of a shard is readable and its data file exists."""
    try:
        return kept.store.exists(kept.marker(name, shard).file)
    except InputError:
        return False
