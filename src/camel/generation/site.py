"""A campaign on a cluster: what a worker makes of a configuration, what it reports, and what the driver makes of reports.

The one decision to know: what counts comes from two places. What was *used* is the sum over all workers that ever were;
how *far* the run is comes from the markers, and from the living for items in shards that are not committed yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from camel.core.message import Usage
from camel.core.model import Reply, Request
from camel.engine.coordinator import Totals
from camel.engine.site import Report
from camel.engine.stage import Stage
from camel.generation.campaign import STOPPED, Campaign, Tally, stops_of, usage_of
from camel.generation.config import Budget, GenerateConfig
from camel.generation.meter import Grant
from camel.models.catalogue import Entry
from camel.models.traced import flush

USED = ("calls", "prompt", "completion", "cached", "unknown")
BUDGET = "budget."
"""Begins the names of what a worker is granted of the budget, in its share."""
HANDED_OVER = ("OPENAI_", "AWS_", "OTEL_", "CAMEL_")
"""Beginnings of the names of environment variables that workers get from the driver where they have none themselves."""


class Elsewhere:
    """Stands in the driver for the model that its workers talk to."""

    context_tokens: int | None = None

    async def __aenter__(self) -> Elsewhere:
        return self

    async def __aexit__(self, *exc: object) -> None:
        return None

    async def reply(self, request: Request) -> Reply:
        """Nobody asks it."""
        raise AssertionError("the driver of a cluster makes no calls")


def handed_over() -> dict[str, str]:
    """What of this process's environment workers may need, keys included: to be kept nowhere."""
    return {name: value for name, value in os.environ.items() if name.startswith(HANDED_OVER)}


class CampaignFactory(msgspec.Struct, frozen=True):
    """Makes a campaign's site in a worker. Holds no key."""

    config: GenerateConfig
    cwd: str

    @staticmethod
    def here(config: GenerateConfig) -> CampaignFactory:
        """A factory whose paths mean the same on every node that sees the same file system."""
        out = str(config.folder.absolute())
        return CampaignFactory(msgspec.structs.replace(config, out=out), str(Path.cwd()))

    async def __call__(self) -> CampaignSite:
        """Make the site: the scenario may lie in the folder in which the driver was started."""
        with contextlib.suppress(OSError):  # a node without it needs it only if the scenario is there
            os.chdir(self.cwd)
        return CampaignSite(self.config)


class CampaignSite:
    """A campaign in a worker."""

    def __init__(self, config: GenerateConfig) -> None:
        self._model = config.chat_model()
        # Budgets are the driver's; a worker has what it is granted of them.
        unlimited = msgspec.structs.replace(config, budget=Budget())
        self._campaign = Campaign(unlimited, self._model)
        self.folder, self.halt = self._campaign.folder, self._campaign.halt

    def stage(self, name: str, attempt: int) -> Stage:
        """The stage of that name."""
        campaign = self._campaign
        campaign.try_for_the(attempt)
        campaign.tallies = {stage.name: Tally(stage.count) for stage in campaign.stages}
        campaign.stops.clear()
        return next(stage for stage in campaign.stages if stage.name == name)

    def committed(self, stage: str, shard: int) -> None:
        """What a marker counts is not counted here any more."""
        totals = self.folder.marker(stage, shard).totals
        tally = self._campaign.tallies[stage]
        tally.finished -= len(self._stage_named(stage).indices(shard))
        tally.failed -= int(totals.get("failed", 0))
        self._campaign.stops.subtract(stops_of(totals))

    def report(self) -> Report:
        """What the meter and the tallies say."""
        campaign, meter = self._campaign, self._campaign.meter
        counters = {name: float(getattr(meter.usage, name)) for name in USED}
        counters |= {f"errors.{kind}": float(times) for kind, times in meter.errors.items()}
        counters |= {"retries": float(meter.retries), "rate_limited": float(meter.rate_limited)}
        gauges = {"in_flight": float(meter.in_flight), "starved": float(meter.starved)}
        for name, tally in campaign.tallies.items():
            gauges[f"open.{name}"] = float(tally.open)
            gauges[f"finished.{name}"] = float(tally.finished)
            gauges[f"failed.{name}"] = float(tally.failed)
        gauges |= {f"{STOPPED}{reason}": float(times) for reason, times in campaign.stops.items()}
        return Report(counters, gauges)

    def obey(self, share: Mapping[str, float]) -> None:
        """Take over what may be used."""
        budget = _under(BUDGET, share)
        self._campaign.meter.grant = Grant(**budget) if budget else None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._model.aclose()
        await asyncio.to_thread(flush)

    def _stage_named(self, name: str) -> Stage:
        return next(stage for stage in self._campaign.stages if stage.name == name)


class Gathering:
    """What the driver shows of a campaign whose work is done elsewhere."""

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign
        self._base: dict[str, Tally] = {}
        self._stops: Counter[str] = Counter()

    def recounted(self) -> None:
        """Take over what the campaign has counted by its markers."""
        campaign = self._campaign
        self._base = {
            name: Tally(tally.planned, tally.committed, tally.committed, 0, tally.failed, tally.usage)
            for name, tally in campaign.tallies.items()
        }
        self._stops = campaign.stops.copy()

    def committed(self, stage: str, shard: int) -> None:
        """Take note of a finished shard."""
        totals = self._campaign.folder.marker(stage, shard).totals
        base = self._base[stage]
        base.usage += usage_of(totals)
        base.failed += int(totals.get("failed", 0))
        self._stops.update(stops_of(totals))

    def watch(self, totals: Totals) -> None:
        """Show what the workers report."""
        campaign, meter, gauges = self._campaign, self._campaign.meter, totals.gauges
        meter.usage = Usage(**{name: int(totals.counters.get(name, 0)) for name in USED})
        meter.errors = Counter(
            {name: int(times) for name, times in _under("errors.", totals.counters).items()}
        )
        meter.retries = int(totals.counters.get("retries", 0))
        meter.rate_limited = int(totals.counters.get("rate_limited", 0))
        meter.in_flight = int(gauges.get("in_flight", 0))
        for name, tally in campaign.tallies.items():
            base = self._base[name]
            tally.open = int(gauges.get(f"open.{name}", 0))
            tally.finished = min(
                tally.planned, tally.committed + max(0, int(gauges.get(f"finished.{name}", 0)))
            )
            tally.failed = base.failed + int(gauges.get(f"failed.{name}", 0))
            tally.usage = base.usage
        campaign.stops.clear()
        campaign.stops.update(self._stops)
        campaign.stops.update(
            {name: int(times) for name, times in _under(STOPPED, gauges).items() if times > 0}
        )
        if over := meter.over_budget():
            campaign.halt.set(over)


def _under(prefix: str, figures: Mapping[str, float]) -> dict[str, float]:
    return {name.removeprefix(prefix): value for name, value in figures.items() if name.startswith(prefix)}


class Grants:
    """Gives each worker a piece of the run's budget at a time, so that all pieces together never exceed it.

    What a dead worker had left of its piece counts as used until the next start, which knows better from the journals.
    """

    def __init__(self, budget: Budget, price: Entry | None, before: Usage) -> None:
        self._budget, self._price = budget, price
        money = None if price is None else price.cost(before)
        limits = {
            "calls": None if budget.calls is None else budget.calls - before.calls,
            "tokens": None if budget.tokens is None else budget.tokens - before.total,
            "money": None if budget.money is None or money is None else budget.money - money,
        }
        self._limits = {name: float(limit) for name, limit in limits.items() if limit is not None}
        self._granted: dict[str, dict[str, float]] = {}

    def __call__(
        self, reports: Mapping[str, Report], live: Collection[str]
    ) -> tuple[Mapping[str, Mapping[str, float]], str]:
        """Top up who has used half of what it had."""
        halt = ""
        for name, limit in self._limits.items():
            for worker in live:
                report = reports.get(worker, Report())
                used, mine = self._used(name, report), self._granted.setdefault(worker, {})
                free = limit - sum(granted.get(name, 0.0) for granted in self._granted.values())
                piece = free / (2 * max(1, len(live)))
                if name == "calls":
                    piece = min(free, max(1.0, piece // 1))
                if free <= (0 if name == "calls" else limit * 1e-4):
                    if report.gauges.get("starved"):
                        halt = f"the budget of {name} is used up"
                elif used >= mine.get(name, 0.0) / 2:
                    mine[name] = mine.get(name, 0.0) + piece
        shares = {
            worker: {f"{BUDGET}{name}": granted for name, granted in self._granted[worker].items()}
            for worker in live
            if worker in self._granted
        }
        return shares, halt

    def _used(self, name: str, report: Report) -> float:
        usage = Usage(**{name: int(report.counters.get(name, 0)) for name in USED})
        if name == "money":
            return self._price.cost(usage) if self._price else 0.0
        return float(usage.calls + report.gauges.get("in_flight", 0) if name == "calls" else usage.total)
