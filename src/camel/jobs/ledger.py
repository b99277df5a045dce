"""A job's usage and results, from its markers and journals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from camel.core.message import Usage
from camel.engine.journaled import journaled
from camel.engine.site import ToolUse
from camel.jobs.failures import FailedItems
from camel.jobs.job import Stage
from camel.runs.bits import BitSet
from camel.runs.markers import Marker
from camel.runs.run import RunFolder

USED = ("prompt", "completion", "cached", "calls", "unknown", "reasoning", "written")
_USUAL = USED[:4]
"""Fields of a shard's usage in its marker."""
MONEY = "money"
"""The name of dollars in a marker's totals; stored, so that later price changes do not affect them."""
FAILED, FAILED_AS = "failed", "failed."
"""Names in a marker's totals: failed items, and, after the dot, failed items by class."""
TOOLS = ("tool_calls", "tool_seconds")
"""Names in a marker's totals: executed tool calls, and their duration."""
_NOT_COUNTS = {*USED, *TOOLS, MONEY, FAILED}
OF_MODEL = "model."
"""Prefix of the names of per-model usage in a marker's totals."""
STOPPED = "stop."
"""Prefix of the names of stop reasons in a marker's totals."""


def usage_of(totals: Mapping[str, float]) -> Usage:
    """Return the usage in a marker's totals."""
    return Usage(**{name: int(totals.get(name, 0)) for name in USED}, usd=totals.get(MONEY, 0.0))


def tools_of(totals: Mapping[str, float]) -> ToolUse:
    """Return the tool calls in a marker's totals."""
    return ToolUse(int(totals.get(TOOLS[0], 0)), totals.get(TOOLS[1], 0.0))


def totals_of(usage: Usage, *, priced: bool = False) -> dict[str, float]:
    """Return a usage in the format of a marker's totals. If `priced` is true, it includes the cost."""
    kept = {name: float(count) for name in USED if (count := getattr(usage, name)) or name in _USUAL}
    return {**kept, MONEY: usage.usd} if priced else kept


def model_totals(by_model: Mapping[str, Usage]) -> dict[str, float]:
    """Return the usage of several models as totals of a marker."""
    return {
        f"{OF_MODEL}{name}.{field}": float(count)
        for name, usage in by_model.items()
        for field in (*USED, "usd")
        if (count := getattr(usage, field))
    }


def models_in(totals: Mapping[str, float]) -> dict[str, Usage]:
    """Return the per-model usage in a marker's totals; empty if there was one model."""
    fields: dict[str, dict[str, float]] = {}
    for key, count in totals.items():
        if key.startswith(OF_MODEL):
            name, _, field = key.removeprefix(OF_MODEL).rpartition(".")
            fields.setdefault(name, {})[field] = count if field == "usd" else int(count)
    return {name: msgspec.convert(its, Usage) for name, its in fields.items()}


def stops_of(totals: Mapping[str, float]) -> dict[str, int]:
    """Return the stop reasons in a marker's totals."""
    return {
        name.removeprefix(STOPPED): int(count) for name, count in totals.items() if name.startswith(STOPPED)
    }


def totals_in(stage: Stage, records: Sequence[Any]) -> dict[str, float]:
    """Return the counts of a shard's records for its marker, without their usage."""
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
    """The progress of a stage, in memory only."""

    planned: int
    committed: int = 0
    finished: int = 0
    """Items that have ended, committed or not."""
    open: int = 0
    """Items in progress."""
    failed: int = 0
    usage: Usage = field(default_factory=Usage)
    """Usage of the finished items."""
    counts: Counter[str] = field(default_factory=Counter[str])
    """Number of the stage's records, by the names that `Stage.counts` returns."""

    def add(self, counted: Counted) -> None:
        """Add counts from markers."""
        self.usage += counted.usage
        self.failed += counted.failed
        self.counts.update(counted.counts)


@dataclass(slots=True)
class Counted:
    """Counts from the markers of a stage that have been read."""

    shards: BitSet = field(default_factory=BitSet)
    usage: Usage = field(default_factory=Usage)
    by_model: dict[str, Usage] = field(default_factory=dict[str, Usage])
    """Usage by model, if there are several."""
    failed: int = 0
    counts: Counter[str] = field(default_factory=Counter[str])
    tools: ToolUse = field(default_factory=ToolUse)

    def add(self, marker: Marker, price: Callable[[Usage], Usage] = lambda usage: usage) -> Counted:
        """Add a marker's counts, and return the sum. `price` adds the cost if the marker does not have it."""
        self.shards.add(marker.shard)
        usage = usage_of(marker.totals)
        self.usage += usage if MONEY in marker.totals else price(usage)
        for name, its in models_in(marker.totals).items():
            self.by_model[name] = self.by_model.get(name, Usage()) + its
        self.failed += int(marker.totals.get(FAILED, 0))
        self.tools += tools_of(marker.totals)
        for name, count in marker.totals.items():
            if name not in _NOT_COUNTS and not name.startswith((FAILED_AS, OF_MODEL)):
                self.counts[name] += int(count)
        return self


def committed_shards(folder: RunFolder, stage: Stage) -> BitSet:
    """Return the committed shards of a stage, without shards beyond its current number of items."""
    return folder.committed(stage.name) & BitSet.of_range(0, stage.layout.shards)


def spent_on(folder: RunFolder, stages: Iterable[str]) -> Usage:
    """Return the total usage of stages, from markers and open journals."""
    used = Usage()
    for stage in stages:
        for marker in folder.markers(stage, sorted(folder.committed(stage))):
            used += usage_of(marker.totals)
        used = sum((usage for _, usage, _ in journaled(folder, stage)), used)
    return used


def failed_items(folder: RunFolder, stage: Stage) -> list[FailedItems]:
    """Return the failed items of a stage by class, most frequent first, each with an example."""
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
            items = stage.layout.items(where[name].shard)
            for place, record in enumerate(stage.read(where[name])):
                if (why := stage.failure(record)).startswith(name):
                    example, words = stage.id(items[place]), why.partition(": ")[2]
                    break
        found.append(FailedItems(stage.name, name, count, example, words))
    return found
