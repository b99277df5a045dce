"""A campaign on a cluster: what a worker makes of a configuration, what it reports, and what the driver makes of reports.

The one decision to know: what counts comes from two places. What was *used* is the sum over all workers that ever were;
how *far* the run is comes from the markers, and from the living for items in shards that are not committed yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import msgspec

from camel.core.errors import InputError
from camel.core.model import Model, Reply, Request
from camel.engine.coordinator import Totals
from camel.engine.site import WorkerReport
from camel.engine.stage import Stage
from camel.generation.campaign import STOPPED, Campaign, Tally, stops_of, usage_of
from camel.generation.config import GenerateConfig
from camel.jobs.account import Account
from camel.jobs.budget import Budget
from camel.jobs.shares import (
    ACCOUNT,
    ENDPOINT,
    OFFER,
    USED,
    allowed,
    granted,
    told_of,
    under,
    used_by,
)
from camel.models.connect import pool_of
from camel.models.replica import ReplicaState
from camel.models.sharing import nested
from camel.models.traced import flush
from camel.runs.again import named
from camel.runs.run import DRIVER, JOURNALS, journals
from camel.storage.store import is_remote

HANDED_OVER = ("OPENAI_", "AWS_", "OTEL_", "CAMEL_")
"""Beginnings of the names of environment variables that workers get from the driver where they have none themselves."""


class Elsewhere(Model):
    """Stands in the driver for the model that its workers talk to."""

    async def reply(self, request: Request) -> Reply:
        """Nobody asks it."""
        raise AssertionError("the driver of a cluster makes no calls")


def handed_over(key_variable: str = "") -> dict[str, str]:
    """What of this process's environment workers may need, keys included: to be kept nowhere."""
    found = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(HANDED_OVER) or name == key_variable
    }
    # A relative path would be another folder in each worker, and its journals lost to the next start.
    return found | {JOURNALS: str(journals().absolute())}


class CampaignFactory(msgspec.Struct, frozen=True):
    """Makes a campaign's site in a worker. Holds no key."""

    config: GenerateConfig
    cwd: str

    @staticmethod
    def here(config: GenerateConfig) -> CampaignFactory:
        """A factory whose paths mean the same on every node that sees the same file system."""
        out = config.where if is_remote(config.where) else str(config.folder.absolute())
        return CampaignFactory(msgspec.structs.replace(config, out=out), str(Path.cwd()))

    async def __call__(self, worker: str = "") -> CampaignSite:
        """Make the site: the scenario may lie in the folder in which the driver was started."""
        with contextlib.suppress(OSError):  # a node without it needs it only if the scenario is there
            os.chdir(self.cwd)
        return CampaignSite(self.config, worker)


def _see_the_driver(config: GenerateConfig) -> None:
    """Raise where this node's folder is not the one in which the driver works: what is journaled there, nobody finds."""
    root = config.open_folder().root
    # Listed, not looked up: over a network an answer from before may still be believed.
    if root.is_dir() and DRIVER in os.listdir(root):  # noqa: PTH208 - a name is enough
        return
    mend = f"set {JOURNALS} to" if is_remote(config.where) else "put the run into"
    raise InputError(
        f"this node does not see {root} as the driver does: {mend} a folder that every node sees under the same name"
    )


class CampaignSite:
    """A campaign in a worker."""

    def __init__(self, config: GenerateConfig, worker: str = "") -> None:
        _see_the_driver(config)
        self._model = config.open_model()
        self._pool = pool_of(self._model)
        if self._pool:
            self._pool.allow({})  # nothing, until the coordinator has said how much
        # Budgets are the driver's; a worker has what it is granted of them.
        unlimited = msgspec.structs.replace(config, budget=Budget())
        self._campaign = Campaign(unlimited, self._model, shared=True)
        self.folder, self.halt = self._campaign.folder, self._campaign.halt
        if self._pool:
            self._pool.gate = self._gate
        shared = (config.budget.calls, config.budget.tokens, config.budget.money) != (None, None, None)
        self._account: Account | None = None
        if worker and shared:
            with contextlib.suppress(OSError):  # without one, all that it was granted counts once it is dead
                self._account = Account(self.folder.root, worker)
        self._offer = 0.0

    def stage(self, name: str, attempt: int) -> Stage:
        """The stage of that name."""
        campaign = self._campaign
        campaign.try_for_the(attempt)
        campaign.tallies = {stage.name: Tally(stage.count) for stage in campaign.stages}
        campaign.stops.clear()
        return self._stage_named(name)

    def committed(self, stage: str, shard: int) -> None:
        """What a marker counts is not counted here any more."""
        totals = self.folder.marker(stage, shard).totals
        tally = self._campaign.tallies[stage]
        if named(stage).retry:  # its markers count whole shards; the driver counts anew at the end
            return
        tally.finished -= len(self._stage_named(stage).indices(shard))
        tally.failed -= int(totals.get("failed", 0))
        self._campaign.stops.subtract(stops_of(totals))

    def report(self) -> WorkerReport:
        """What the meter and the tallies say."""
        campaign, meter = self._campaign, self._campaign.meter
        counters = {name: float(getattr(meter.usage, name)) for name in USED}
        counters |= {f"errors.{kind}": float(times) for kind, times in meter.errors.items()}
        counters |= {"retries": float(meter.retries), "rate_limited": float(meter.rate_limited)}
        failures = meter.failures
        counters |= {"served": float(failures.served), "rejected": float(failures.rejected)}
        counters["answered"] = float(failures.answered)
        gauges = {
            "in_flight": float(meter.in_flight),
            "starved": float(meter.starved),
            "down": failures.down(),
        }
        for name, tally in campaign.tallies.items():
            gauges[f"open.{name}"] = float(tally.open)
            gauges[f"finished.{name}"] = float(tally.finished)
            gauges[f"failed.{name}"] = float(tally.failed)
        gauges |= {f"{STOPPED}{reason}": float(times) for reason, times in campaign.stops.items()}
        if self._pool:
            gauges |= told_of(self._pool)
        gauges[OFFER] = self._offer
        if self._account:
            gauges[ACCOUNT] = float(self._account.number)
        return WorkerReport(counters, gauges, failures.words)

    def obey(self, share: Mapping[str, float]) -> None:
        """Take over what may be used."""
        self._campaign.meter.grant, self._offer = granted(share), share.get(OFFER, 0.0)
        if self._pool:
            self._pool.allow(allowed(share))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._model.aclose()
        await asyncio.to_thread(flush)
        if self._account:
            self._account.close()

    def _gate(self) -> None:
        """Write the account, then look at the lease: a call that is sent is always in the account."""
        if self._account and self._pool:
            in_flight = sum(replica.in_flight for replica in self._pool.states())
            self._account.write(self._campaign.meter.usage, in_flight)
        self.halt.check_lease()

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
        if named(stage).retry:
            return
        totals = self._campaign.folder.marker(stage, shard).totals
        base = self._base[stage]
        base.usage += usage_of(totals)
        base.failed += int(totals.get("failed", 0))
        self._stops.update(stops_of(totals))

    def watch(self, totals: Totals) -> None:
        """Show what the workers report."""
        campaign, meter, gauges = self._campaign, self._campaign.meter, totals.gauges
        meter.usage = used_by(totals.counters)
        meter.errors = Counter(
            {name: int(times) for name, times in under("errors.", totals.counters).items()}
        )
        meter.retries = int(totals.counters.get("retries", 0))
        meter.rate_limited = int(totals.counters.get("rate_limited", 0))
        meter.failures.served = int(totals.counters.get("served", 0))
        meter.failures.rejected = int(totals.counters.get("rejected", 0))
        meter.failures.words = totals.words
        campaign.workers = len(totals.live)
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
            {name: int(times) for name, times in under(STOPPED, gauges).items() if times > 0}
        )
        campaign.elsewhere = _replicas(nested(under(ENDPOINT, gauges)))
        if over := meter.over_budget():
            campaign.halt.set(over)


def _replicas(endpoints: Mapping[str, Mapping[str, float]]) -> list[ReplicaState]:
    """The endpoints as the workers together see them."""
    return [
        ReplicaState(
            url=url,
            state="open" if its.get("broken") else "closed",
            limit=its["allowed"] if its.get("allowed", -1) >= 0 else None,
            in_flight=int(its.get("in_flight", 0)),
            waiting=int(its.get("waiting", 0)),
            open=int(its.get("open", 0)),
            most_open=None,
            calls=int(its.get("calls", 0)),
            refused=int(its.get("refused", 0)),
            failed=int(its.get("failed", 0)),
            cached=its.get("cached", 0.0) / its["prompt"] if its.get("prompt") else 0.0,
            failing=int(its.get("failing", 0)),
        )
        for url, its in sorted(endpoints.items())
    ]
