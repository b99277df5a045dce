"""What a run says about itself and its holder."""

from __future__ import annotations

import secrets
from functools import partial
from typing import Any, NamedTuple

import msgspec

SCHEMA = 1


class Planned(NamedTuple):
    """What a stage is to have."""

    items: int
    shard_size: int

    def rows(self, shard: int) -> int:
        """Of a shard."""
        return max(0, min(self.shard_size, self.items - shard * self.shard_size))


class Settings(msgspec.Struct, frozen=True):
    """What `run.json` holds."""

    fingerprint: str
    config: dict[str, Any]
    version: str
    """Of the package that made the run."""
    forked_from: str = ""
    schema: int = SCHEMA
    lists: dict[str, str] = {}
    """By level, a hash of what its lists are made from, so that a fork knows which it can take over."""
    planned: dict[str, Planned] = {}
    """By stage, what it is to have; runs of earlier versions do not say."""


class Holder(msgspec.Struct, frozen=True):
    """A folder that has journals of a run in an object store."""

    host: str
    folder: str
    token: str = msgspec.field(default_factory=partial(secrets.token_hex, 8))
    """Of this folder alone, also where many machines have the same name."""

    def __str__(self) -> str:
        return f"{self.folder} on {self.host}"
