"""Estimates a run, before it starts and while it runs.

Computed from the scenario's counts: nothing is listed, so 300 million items cost no more than ten. The one decision to know:
assumptions are used only until there are committed shards, of the run itself or of the run that it was forked from. The
result is a range in both cases.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from itertools import islice
from math import ceil, sqrt
from operator import mul
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from camel.core.errors import CamelError
from camel.generation.config import (
    ANSWERS,
    CONVERSATIONS,
    LISTS_PER_SHARD,
    SPECIFIED,
    Figure,
    GenerateConfig,
    Guess,
    last_stage,
    shard_size_for,
)
from camel.generation.guesses import Guesses, Need
from camel.generation.opening import changes
from camel.generation.seats import average_price
from camel.generation.table_plan import count_rows
from camel.jobs.budget import Budget
from camel.jobs.ledger import MONEY, usage_of
from camel.models.prices import ModelPrice
from camel.reports.numbers import counted
from camel.runs.markers import Marker
from camel.runs.run import RunFolder, open_folder

ONE_SHARD = 0.25
"""Assumed relative error of the average if only one shard is measured. Also the minimum if the settings differ."""
AT_LEAST = 0.01
"""Minimum relative error of an average."""


class Committed(NamedTuple):
    """The usage of a committed shard."""

    rows: int
    need: Need
    shard: int = 0
    """The index of the shard."""
    money: float | None = None
    """Cost in dollars, if its marker has it."""
    elsewhere: str = ""
    """The address of another run that the shard belongs to. Such a shard is only a sample and does not count as done."""


class Sample:
    """Sums over shards with calls, and the spread of their tokens per item."""

    def __init__(self) -> None:
        self.shards = self.rows = 0
        self.need = Need()
        self._filled = 0
        self._mean = self._squares = 0.0

    def add(self, shard: Committed, times: int) -> None:
        """Add a shard that counts `times` times."""
        self.shards += times
        self.rows += times * shard.rows
        self.need = self.need.plus(shard.need.times(times))
        if shard.rows:  # Welford's algorithm
            value = (shard.need.prompt + shard.need.completion) / shard.rows
            self._filled += times
            before = value - self._mean
            self._mean += before * times / self._filled
            self._squares += times * before * (value - self._mean)

    def uncertainty(self, left: float) -> float:
        """Return the relative error, as two standard errors, of the estimated mean of the `left` shards that remain."""
        if self._filled < 2 or not self._mean:
            return ONE_SHARD
        share = sqrt(max(0.0, self._squares) / (self._filled - 1)) / self._mean
        # Both means are of samples, and a few shards give a poor estimate of the spread.
        error = share * sqrt(1 / self._filled + 1 / max(1.0, left)) * (1 + 3 / self._filled)
        return min(0.9, max(AT_LEAST, 2 * error))


class ShardSums:
    """Sums over the committed shards of a stage, and over shards of another run that serve as a sample."""

    def __init__(self, shards: Iterable[Committed] = ()) -> None:
        self.shards = self.rows = self.most_rows = 0
        self.last = -1
        """The last committed shard."""
        self.known, self.sample = Sample(), Sample()
        """The stage's own shards with calls, and those of another run."""
        self.elsewhere = ""
        """The address of the other run."""
        self.money: float | None = None
        """The cost of the shards whose markers have it."""
        self.priced, self.paid = Need(), Need()
        """The usage of these shards, and of those that were not free."""
        for one in shards:
            self.add(one)

    def add(self, shard: Committed, times: int = 1) -> None:
        """Add a shard that counts `times` times, because the others were not read."""
        if not shard.elsewhere:
            self.shards += times
            self.rows += times * shard.rows
            self.most_rows, self.last = max(self.most_rows, shard.rows), max(self.last, shard.shard)
            if shard.money is not None:
                self.money = (self.money or 0.0) + times * shard.money
                self.priced = self.priced.plus(shard.need.times(times))
            if shard.money:
                self.paid = self.paid.plus(shard.need.times(times))
        # Lists that were reused from another run cost nothing here, so they are no sample.
        if shard.need.calls:
            self.elsewhere = self.elsewhere or shard.elsewhere
            (self.sample if shard.elsewhere else self.known).add(shard, times)

    def holes(self, left: int) -> int:
        """Return the number of items in open shards that come before the last committed shard, at most `left`."""
        return max(0, min(left, (self.last + 1 - self.shards) * self.most_rows))


WORKER = 256
"""Open conversations per worker process."""
SAMPLE = 2_000
"""Maximum number of markers to read for an estimate, so that it takes seconds for a run of any size."""


class Range(NamedTuple):
    """An estimate with low, likely and high values."""

    low: Need
    likely: Need
    high: Need


class StagePlan(msgspec.Struct, frozen=True):
    """One stage of a plan."""

    name: str
    items: int
    shards: int
    need: Range
    measured: int
    """Number of items that the estimate is based on; 0 if it is based on assumptions."""
    done: int
    """Number of committed items; `need` includes their actual usage."""
    shard_size: int
    """Items per shard."""
    spent: Need = Need()
    """Usage of the committed items."""
    elsewhere: str = ""
    """The other run that the estimate is based on, if any."""


class Plan(msgspec.Struct, frozen=True):
    """The estimate of a whole run."""

    scenario: str
    shape: str
    stages: tuple[StagePlan, ...]
    price: ModelPrice | None
    dearer: float = 0.0
    """Difference in dollars between the actual cost of committed items and their cost at the current price."""
    batched: frozenset[str] = frozenset()
    """Stages that use a batch API."""

    @property
    def need(self) -> Range:
        """The estimated need of all stages together."""
        cases = zip(*(stage.need for stage in self.stages), strict=True)
        return Range(*(Need().plus(*needs) for needs in cases))

    @property
    def left(self) -> Range:
        """The estimated need of the items that are not committed."""
        spent = Need().plus(*(stage.spent for stage in self.stages))
        return Range(*(case.plus(spent.times(-1)) for case in self.need))

    @property
    def items(self) -> int:
        """Number of conversations or answers."""
        return self.stages[-1].items

    @property
    def shards(self) -> int:
        """Number of shards of all stages."""
        return sum(stage.shards for stage in self.stages)

    @property
    def money(self) -> Figure | None:
        """The estimated cost in dollars, or None if the price is unknown."""
        price = self.price
        if price is None:
            return None
        share = [price.batch if stage.name in self.batched else 1 for stage in self.stages]
        costs = [[price.cost(case.usage()) for case in stage.need] for stage in self.stages]
        cases = (sum(map(mul, share, case)) for case in zip(*costs, strict=True))
        return Figure(*(case + self.dearer for case in cases))

    @property
    def direct(self) -> Figure | None:
        """The estimated cost in dollars if no batch API were used."""
        return replace(self, batched=frozenset()).money

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        whole: dict[str, Any] = {
            "scenario": self.scenario,
            "shape": self.shape,
            "items": self.items,
            "shards": self.shards,
            "money": self.money and self.money._asdict(),
            "money_without_batch": self.direct and self.direct._asdict(),
        }
        named = ("name", "items", "shards", "shard_size", "measured", "elsewhere", "done")
        stages = [{name: getattr(one, name) for name in named} | _figures(one.need) for one in self.stages]
        return whole | _figures(self.need) | {"stages": stages}


class Limit(NamedTuple):
    """One limit of a budget, and the estimate to compare it with."""

    name: str
    limit: float
    expected: Figure

    @property
    def enough(self) -> Literal["yes", "perhaps", "no"]:
        """Whether the run will be complete before the limit is reached."""
        if self.expected.likely > self.limit:
            return "no"
        return "perhaps" if self.expected.high > self.limit else "yes"


def limits(plan: Plan, budget: Budget, hours: Figure) -> list[Limit]:
    """Return the limits of a budget with their estimates. `hours` is the estimated duration of the next process."""
    need = plan.need
    expected = {
        "usd": plan.money,
        "tokens": Figure(*(case.prompt + case.completion for case in need)),
        "calls": Figure(*(case.calls for case in need)),
        "hours": hours,
    }
    return [
        Limit(name, float(limit), figure)
        for name, figure in expected.items()
        if figure is not None and (limit := getattr(budget, name)) is not None
    ]


def in_words(value: Guess) -> str:
    """Return an assumption as text: one number, or the likely one with its range."""
    if not isinstance(value, Figure) or min(value) == max(value):
        return f"{value.likely if isinstance(value, Figure) else value:g}"
    return f"{value.likely:g} ({min(value):g}–{max(value):g})"


def workers(calls_per_second: float, seconds_per_call: float) -> int:
    """Return the number of worker processes that a rate of calls needs."""
    return max(1, ceil(calls_per_second * seconds_per_call / WORKER))


def make_plan(
    config: GenerateConfig,
    *,
    counts: Mapping[str, int] | None = None,
    committed: Mapping[str, ShardSums] | None = None,
    items: int | None = None,
) -> Plan:
    """Estimate a run, based on committed shards of this run or a smaller one if there are any.

    `counts` replaces sizes of levels; shards of other sizes are then used only as a sample. `items` is the number of rows, if
    the items are rows of a table and have been counted.
    """
    actual = config.loaded_scenario()
    scenario = actual.resized(counts or {})
    committed = committed or {}
    guess = Guesses(scenario, config.plan, config.critic_of(scenario), config.result_of(scenario))
    stages: list[StagePlan] = []
    for level in scenario.asked:
        same = level.count == actual.level(level.name).count
        shards = (committed.get(level.name) if same else None) or ShardSums()
        lists = scenario.lists(level.name)
        kept = same and lists == actual.lists(level.name)
        stages.append(_stage(level.name, lists, LISTS_PER_SHARD, guess.of_list(level), shards, kept))
    name = last_stage(scenario)
    each = guess.of_answer if name == ANSWERS else guess.of_conversation
    kept = scenario.count == actual.count
    total = scenario.count if config.inputs is None else count_rows(config) if items is None else items
    size = config.shard_size or shard_size_for(total)
    if config.specifies_first(scenario):
        each, before = guess.of_rest, committed.get(SPECIFIED) or ShardSums()
        stages.append(_stage(SPECIFIED, total, size, guess.of_task, before, kept))

    def of_item(case: int) -> Need:
        return guess.with_result(each(case), case)

    stages.append(_stage(name, total, size, of_item, committed.get(name) or ShardSums(), kept))
    batched = {one.name for one in stages if config.model.batch and one.name != CONVERSATIONS}
    price = replace(config.model, batch=False).cost()
    own = {one.name: committed[one.name] for one in stages if one.done}
    if config.models:
        price = _scaled(average_price(guess.shares(config)), own.values())
    dearer = sum(_dearer(own[one], price and price.batched() if one in batched else price) for one in own)
    shape = scenario.shape if config.inputs is None else counted(total, "row")
    return Plan(scenario.name, shape, tuple(stages), price, dearer, frozenset(batched))


def _scaled(price: ModelPrice | None, stages: Collection[ShardSums]) -> ModelPrice | None:
    """Scale the average price of several models so that it matches the actual cost so far."""
    guessed = sum(price.cost(one.paid.usage()) for one in stages) if price else 0.0
    if price is None or not guessed:
        return price
    return price.times(sum(one.money or 0.0 for one in stages) / guessed)


def _dearer(shards: ShardSums, price: ModelPrice | None) -> float:
    """Return how much more the shards cost than they would at `price`. Shards without a recorded cost are ignored."""
    if price is None or shards.money is None:
        return 0.0
    return shards.money - price.cost(shards.priced.usage())


def committed_in(folder: RunFolder, config: GenerateConfig) -> dict[str, ShardSums]:
    """Return the committed shards of a run, by stage. Empty if the run has another scenario or model. The shards of a run with
    other settings, and of the run that it was forked from, are samples."""
    if not is_alike(folder, config):
        return {}
    if changes(folder, config, config.loaded_scenario()):
        return sample_of(folder, config)
    found = {stage: ShardSums() for stage in folder.stages()}
    for stage, sums in found.items():
        _read_stage(folder, stage, sums)
    if parent := folder.settings().forked_from:
        # It may have been removed, or be on another machine.
        with suppress(CamelError, OSError):
            sample_of(open_folder(parent), config, found)
    return found


def sample_of(
    folder: RunFolder, config: GenerateConfig, known: dict[str, ShardSums] | None = None
) -> dict[str, ShardSums]:
    """Return the committed shards of another run, as samples. Empty if its scenario or model differs. They are added to those
    that are known."""
    found = {} if known is None else known
    if not is_alike(folder, config):
        return found
    saved: dict[str, int] = folder.settings().config.get("counts") or {}
    levels = {level.name: level.count for level in config.loaded_scenario().levels}
    for stage in folder.stages():
        if levels.get(stage) == saved.get(stage):  # a list of another length is no sample
            _read_stage(folder, stage, found.setdefault(stage, ShardSums()), folder.address)
    return found


def _read_stage(folder: RunFolder, stage: str, sums: ShardSums, elsewhere: str = "") -> None:
    """Add the committed shards of a stage to sums. If there are very many, read a sample."""
    shards = folder.committed(stage)
    step = -(-len(shards) // SAMPLE) or 1
    for place, marker in enumerate(folder.markers(stage, islice(shards, 0, None, step))):
        times = min(step, len(shards) - place * step)
        sums.add(read_committed(folder, marker)._replace(elsewhere=elsewhere), times)
    if shards and not elsewhere:
        sums.last = max(islice(shards, len(shards) - 1, None))


def is_alike(folder: RunFolder, config: GenerateConfig) -> bool:
    """Return whether the folder has a run with the same scenario and model."""
    if not folder.exists:
        return False
    saved = folder.settings().config
    return (saved.get("scenario"), saved.get("model.name")) == (config.scenario, config.model.name)


def read_committed(folder: RunFolder, marker: Marker) -> Committed:
    """Return the usage of a committed shard."""
    used, size = usage_of(marker.totals), marker.size
    if not size and folder.on_disk and (data := folder.root / marker.file).exists():
        size = data.stat().st_size
    return Committed(
        marker.rows,
        Need(used.calls, used.prompt, used.completion, used.cached, size),
        marker.shard,
        marker.totals.get(MONEY),
    )


def _stage(
    name: str, items: int, shard_size: int, guess: Callable[[int], Need], shards: ShardSums, kept: bool
) -> StagePlan:
    """Estimate a stage from committed shards, or from a guess for one item. If `kept` is true, the shards are the stage's own."""
    done = min(shards.rows, items) if kept else 0
    known, elsewhere = shards.known, ""
    if not known.shards and done < items and shards.sample.shards:
        known, elsewhere = shards.sample, shards.elsewhere
    if not (rows := known.rows):
        need = Range(*(guess(case).times(items - done) for case in range(3)))
        return StagePlan(name, items, -(-items // shard_size), need, 0, done, shard_size)
    holes = 0 if elsewhere else shards.holes(items - done)
    # Items that started before finished ones and are still in progress are long.
    longer = max(known.need.times(1 / rows), guess(1), key=lambda need: need.prompt + need.completion)
    mean = known.need.plus(longer.times(holes)).times(1 / (rows + holes))
    off = known.uncertainty((items - done) * known.shards / rows)
    if elsewhere:
        off = max(off, ONE_SHARD)
    base = known.need if kept and not elsewhere else Need()
    rest = longer.times(holes).plus(mean.times(items - done - holes)) if kept else mean.times(items)
    need = Range(*(base.plus(rest.times(factor)) for factor in (1 - off, 1.0, 1 + off)))
    return StagePlan(name, items, -(-items // shard_size), need, rows, done, shard_size, base, elsewhere)


def _figures(need: Range) -> dict[str, Any]:
    return {
        name: Figure(*(getattr(case, name) for case in need))._asdict()
        for name in ("calls", "prompt", "completion", "cached", "bytes")
    }
