"""What a job has used and made, by its markers and its journals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from camel.core.message import Usage
from camel.engine.journaled import journaled
from camel.jobs.failures import FailedItems
from camel.jobs.job import Stage
from camel.runs.markers import Marker
from camel.runs.run import RunFolder

USED = ("prompt", "completion", "cached", "calls", "unknown", "reasoning", "written")
_USUAL = USED[:4]
"""What of a shard's usage its marker keeps."""
MONEY = "money"
"""Dollars, under that name in a marker's totals: a price that changes later does not change what was paid."""
FAILED, FAILED_AS = "failed", "failed."
"""In a marker's totals: how many items failed, and, after the dot, how many with which class of failure."""
OF_MODEL = "model."
"""Begins the names under which a marker keeps what one of several models was used for."""
STOPPED = "stop."
"""Begins the names under which a marker counts why its conversations ended."""


def usage_of(totals: Mapping[str, float]) -> Usage:
    """The usage in a marker's totals."""
    return Usage(**{name: int(totals.get(name, 0)) for name in USED}, usd=totals.get(MONEY, 0.0))


def totals_of(usage: Usage, *, priced: bool = False) -> dict[str, float]:
    """A usage as a marker keeps it; `priced` where it says what it cost."""
    kept = {name: float(count) for name in USED if (count := getattr(usage, name)) or name in _USUAL}
    return {**kept, MONEY: usage.usd} if priced else kept


def model_totals(by_model: Mapping[str, Usage]) -> dict[str, float]:
    """What each of several models was used for, as a marker keeps it."""
    return {
        f"{OF_MODEL}{name}.{field}": float(count)
        for name, usage in by_model.items()
        for field in (*USED, "usd")
        if (count := getattr(usage, field))
    }


def models_in(totals: Mapping[str, float]) -> dict[str, Usage]:
    """What each of several models was used for, in a marker's totals; nothing where there was one."""
    fields: dict[str, dict[str, float]] = {}
    for key, count in totals.items():
        if key.startswith(OF_MODEL):
            name, _, field = key.removeprefix(OF_MODEL).rpartition(".")
            fields.setdefault(name, {})[field] = count if field == "usd" else int(count)
    return {name: msgspec.convert(its, Usage) for name, its in fields.items()}


def stops_of(totals: Mapping[str, float]) -> dict[str, int]:
    """Why conversations ended, in a marker's totals."""
    return {
        name.removeprefix(STOPPED): int(count) for name, count in totals.items() if name.startswith(STOPPED)
    }


def totals_in(stage: Stage, records: Sequence[Any]) -> dict[str, float]:
    """What a marker counts of a shard's records besides their usage."""
    counted: Counter[str] = Counter()
    failed = 0
    for record in records:
        counted.update(stage.counts(record))
        if why := stage.failure(record):
            failed += 1
            counted[f"{FAILED_AS}{why.partition(':')[0]}"] += 1
    totals = {name: float(count) for name, count in sorted(counted.items())}
    return {FAILED: float(failed), **totals} if failed or counted else totals


@dataclass(slots=True)
class Tally:
    """How far a stage is, as whoever watches it wants to know; in memory only."""

    planned: int
    committed: int = 0
    finished: int = 0
    """Items that have ended, committed or about to be."""
    open: int = 0
    """Items being worked on."""
    failed: int = 0
    usage: Usage = field(default_factory=Usage)
    """What the finished items have used."""
    counts: Counter[str] = field(default_factory=Counter[str])
    """What the stage counts of its records."""

    def add(self, counted: Counted) -> None:
        """What markers say, on top of it."""
        self.usage += counted.usage
        self.failed += counted.failed
        self.counts.update(counted.counts)


@dataclass(slots=True)
class Counted:
    """What the markers of a stage say, those that have been read."""

    shards: set[int] = field(default_factory=set[int])
    usage: Usage = field(default_factory=Usage)
    by_model: dict[str, Usage] = field(default_factory=dict[str, Usage])
    """Where there are several."""
    failed: int = 0
    counts: Counter[str] = field(default_factory=Counter[str])

    def add(self, marker: Marker, price: Callable[[Usage], Usage]) -> None:
        """Take note of a marker; `price` adds what it cost to one that does not say."""
        self.shards.add(marker.shard)
        usage, failed, counts = counted_in(marker.totals)
        self.usage += usage if MONEY in marker.totals else price(usage)
        for name, its in models_in(marker.totals).items():
            self.by_model[name] = self.by_model.get(name, Usage()) + its
        self.failed += failed
        self.counts.update(counts)


def counted_in(totals: Mapping[str, float]) -> tuple[Usage, int, dict[str, int]]:
    """The usage, the failed items and the counts in a marker's totals."""
    other = {*USED, MONEY, FAILED}
    counts = {
        name: int(count)
        for name, count in totals.items()
        if name not in other and not name.startswith((FAILED_AS, OF_MODEL))
    }
    return usage_of(totals), int(totals.get(FAILED, 0)), counts


def committed_shards(folder: RunFolder, stage: Stage) -> set[int]:
    """The committed shards of a stage, without those of an earlier start that had more items."""
    return {shard for shard in folder.committed(stage.name) if shard * stage.shard_size < stage.count}


def spent_on(folder: RunFolder, stages: Iterable[str]) -> Usage:
    """What all starts have used for stages, by their markers and the journals of what is still open."""
    used = Usage()
    for stage in stages:
        for marker in folder.markers(stage, sorted(folder.committed(stage))):
            used += usage_of(marker.totals)
        used = sum((usage for _, usage in journaled(folder, stage)), used)
    return used


def failed_items(folder: RunFolder, stage: Stage) -> list[FailedItems]:
    """The failed items of a stage by class, the most frequent first, each with an example."""
    counts: Counter[str] = Counter()
    where: dict[str, Marker] = {}
    for marker in folder.markers(stage.name, sorted(committed_shards(folder, stage))):
        for name, count in marker.totals.items():
            if name.startswith(FAILED_AS):
                counts[name.removeprefix(FAILED_AS)] += int(count)
                where.setdefault(name.removeprefix(FAILED_AS), marker)
    found: list[FailedItems] = []
    for name, count in counts.most_common():
        example, words = "", name
        if stage.read is not None:
            first = where[name].shard * stage.shard_size
            for place, record in enumerate(stage.read(where[name])):
                if (why := stage.failure(record)).startswith(name):
                    example, words = stage.id(first + place), why.partition(": ")[2]
                    break
        found.append(FailedItems(stage.name, name, count, example, words))
    return found
