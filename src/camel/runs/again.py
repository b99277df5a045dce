"""Items of a run that are done again: which, and where their new records are.

    again/000001.json                    the first retry: by stage and shard, the items that are done again
    committed/<stage>~1/<shard>.json     the marker of a shard that the first retry has written anew

The one decision to know: a retry writes whole shards, with the records that stay and the new ones in their old order. Of
several markers of a shard the newest counts, so that readers of a run need not know that items were done again.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from camel.storage.store import Store

FOLDER = "again"
_BETWEEN = "~"


class Retry(msgspec.Struct, frozen=True):
    """Items that are done again. Made once and never changed; a retry that was stopped is continued."""

    number: int
    """From 1."""
    stages: dict[str, dict[int, list[int]]]
    """By stage and shard, the items in order."""


class StageName(NamedTuple):
    """The name of a stage, of which a retry has one of its own."""

    stage: str
    """Without the retry."""
    retry: int = 0

    def __str__(self) -> str:
        return f"{self.stage}{_BETWEEN}{self.retry}" if self.retry else self.stage

    @property
    def words(self) -> str:
        """For people."""
        return f"{self.stage}, retry {self.retry}" if self.retry else self.stage


def named(stage: str) -> StageName:
    """A stage's name in its parts."""
    base, _, number = stage.partition(_BETWEEN)
    return StageName(base, int(number)) if number.isdecimal() else StageName(stage)


def last_retry(store: Store) -> Retry | None:
    """The last retry of a run; None where there was none."""
    names = sorted(name for name in store.names(FOLDER) if name.endswith(".json"))
    return msgspec.json.decode(store.get(f"{FOLDER}/{names[-1]}"), type=Retry) if names else None


def add_retry(store: Store, stages: dict[str, dict[int, list[int]]]) -> Retry:
    """Begin another retry. The caller has locked the run."""
    last = last_retry(store)
    retry = Retry(last.number + 1 if last else 1, stages)
    if not store.create(f"{FOLDER}/{retry.number:06d}.json", msgspec.json.encode(retry)):
        raise AssertionError(f"retry {retry.number} was begun by another process")
    return retry


def newest(store: Store, stage: str) -> dict[int, int]:
    """By shard, the last retry that has written it anew; without those that none has."""
    found: dict[int, int] = {}
    several = [
        name for one in store.folders("committed") if (name := named(one)).retry and name.stage == stage
    ]
    for name in sorted(several, key=lambda one: one.retry):
        for file in store.names(f"committed/{name}"):
            if file.removesuffix(".json").isdecimal():
                found[int(file.removesuffix(".json"))] = name.retry
    return found
