"""What is made from a run shard by shard and kept in a folder of its own: each file names the shard it was made from."""

from __future__ import annotations

from typing import Any

from camel.core.errors import InputError
from camel.record.arrow import read_shard
from camel.runs.markers import marker_name
from camel.runs.reader import RunReader
from camel.runs.run import RunFolder

_SOURCE = b"source"


def naming_source(schema: Any, sha256: str) -> Any:
    """A schema that names the shard, by its hash, from which a file is made."""
    return schema.with_metadata({_SOURCE: sha256.encode()})


def source_of(table: Any) -> str:
    """The hash of the shard that a table was made from."""
    metadata: dict[bytes, bytes] = table.schema.metadata or {}
    return metadata.get(_SOURCE, b"").decode()


def still_true(kept: RunFolder, name: str, run: RunReader) -> set[int]:
    """The shards of a stage in `kept` that need not be made again.

    Forgotten are damaged ones, and those that a retry of the run has written anew since: to make them again costs no call.
    """
    there = kept.committed(name)
    for shard in sorted(there):
        if not _is_there(kept, name, shard):
            kept.store.remove([marker_name(name, shard)])
            there.discard(shard)
    written_anew = run.folder.written_anew(run.stage)
    for marker in run.markers if written_anew else ():
        if marker.shard in there and marker.shard in written_anew:
            table = read_shard(kept.path(kept.marker(name, marker.shard).file), ["id"])
            if source_of(table) != marker.sha256:
                kept.store.remove([marker_name(name, marker.shard)])
                there.discard(marker.shard)
    return there


def _is_there(kept: RunFolder, name: str, shard: int) -> bool:
    """Whether the marker of a shard can be read, and its file exists."""
    try:
        return kept.store.exists(kept.marker(name, shard).file)
    except InputError:
        return False
