"""Markers: files that commit a shard."""

from __future__ import annotations

import secrets

import msgspec

from camel.runs import again
from camel.runs.listing import shard_file
from camel.storage.inside import check_name


class Marker(msgspec.Struct, frozen=True):
    """The file that commits a shard. It names the data file that contains the shard."""

    stage: str
    shard: int
    file: str
    """Path of the data file relative to the run's folder."""
    rows: int
    sha256: str
    fingerprint: str
    totals: dict[str, float] = {}
    """Sums over the shard's records: conversations, calls, tokens, money."""
    size: int = 0
    """Size of the data file in bytes. It is 0 if unknown."""
    retry: int = 0
    """Number of the retry that has rewritten the shard. It is 0 if none has."""

    def __post_init__(self) -> None:
        check_name(self.file)


def new_attempt() -> str:
    """Return a unique name for an attempt."""
    return secrets.token_hex(6)


def marker_name(stage: str, shard: int, retry: int = 0) -> str:
    """Return the name of a shard's marker in the run's folder."""
    return f"committed/{again.StageName(stage, retry)}/{shard_file(shard)}"
