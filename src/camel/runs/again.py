"""Retries of items of a run: which items, and where their new records are.

    again/000001.json                    the first retry: the items to retry, by stage and shard
    committed/<stage>~1/<shard>.json     the marker of a shard that the first retry has rewritten

The one decision to know: a retry rewrites whole shards, with kept and new records in their original order. Of several
markers of a shard the newest counts, so readers of a run do not need to know about retries.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from camel.runs.bits import BitSet
from camel.runs.listing import list_shards
from camel.storage.store import Store

FOLDER = "again"
_BETWEEN = "~"


class Retry(msgspec.Struct, frozen=True):
    """The items of one retry. It is stored once and never changed. An interrupted retry is resumed."""

    number: int
    """Number of the retry, from 1."""
    stages: dict[str, dict[int, list[int]]]
    """The items to retry, in order, by stage and shard."""


class StageName(NamedTuple):
    """The name of a stage and the number of a retry. The records of each retry are in a separate stage."""

    stage: str
    """The stage without the retry number."""
    retry: int = 0

    def __str__(self) -> str:
        return f"{self.stage}{_BETWEEN}{self.retry}" if self.retry else self.stage

    @property
    def words(self) -> str:
        """The name as shown to the user."""
        return f"{self.stage}, retry {self.retry}" if self.retry else self.stage


def named(stage: str) -> StageName:
    """Parse a stage name, which may include the number of a retry."""
    base, _, number = stage.partition(_BETWEEN)
    return StageName(base, int(number)) if number.isdecimal() else StageName(stage)


def last_retry(store: Store) -> Retry | None:
    """Return the last retry of a run. Return None if there was none."""
    names = sorted(name for name in store.names(FOLDER) if name.endswith(".json"))
    return msgspec.json.decode(store.get(f"{FOLDER}/{names[-1]}"), type=Retry) if names else None


def add_retry(store: Store, stages: dict[str, dict[int, list[int]]]) -> Retry:
    """Create the next retry. The caller must have locked the run."""
    last = last_retry(store)
    retry = Retry(last.number + 1 if last else 1, stages)
    if not store.create(f"{FOLDER}/{retry.number:06d}.json", msgspec.json.encode(retry)):
        raise AssertionError(f"another process started retry {retry.number}")
    return retry


def retries(store: Store, stage: str) -> list[StageName]:
    """Return the names of a stage's retries, in order."""
    if not store.names(FOLDER):  # usual, and cheaper to list in an object store
        return []
    names = map(named, store.folders("committed"))
    return sorted((name for name in names if name.retry and name.stage == stage), key=lambda one: one.retry)


def newest(store: Store, stage: str) -> dict[int, int]:
    """Return, for each rewritten shard, the number of the last retry that rewrote it."""
    found: dict[int, int] = {}
    for name in retries(store, stage):
        found |= dict.fromkeys(list_shards(store, f"committed/{name}", BitSet()), name.retry)
    return found
