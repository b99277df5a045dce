"""Markers: what says that a shard is committed."""

from __future__ import annotations

import secrets

import msgspec

from camel.runs import again
from camel.storage.inside import check_name


class Marker(msgspec.Struct, frozen=True):
    """Says that a shard is finished, and which file holds it."""

    stage: str
    shard: int
    file: str
    """Relative to the run's folder."""
    rows: int
    sha256: str
    fingerprint: str
    totals: dict[str, float] = {}
    """Sums over its records: conversations, calls, tokens, money."""
    size: int = 0
    """Bytes of the file; 0 where it was not noted."""
    retry: int = 0
    """Which retry has written the shard anew; 0: none."""

    def __post_init__(self) -> None:
        check_name(self.file)


def new_attempt() -> str:
    """A name that no other attempt has."""
    return secrets.token_hex(6)


def marker_name(stage: str, shard: int, retry: int = 0) -> str:
    """Of a shard's marker, in the run's folder."""
    return f"committed/{again.StageName(stage, retry)}/{shard:06d}.json"
