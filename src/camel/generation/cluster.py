"""A campaign whose stages are worked on by a Ray cluster: the one place where the two meet."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from camel.core.errors import InputError
from camel.engine.halt import Halt
from camel.engine.site import WorkerReport
from camel.engine.stage import Stage
from camel.generation.campaign import Campaign
from camel.generation.site import CampaignFactory, Gathering, handed_over
from camel.jobs.account import ACCOUNTS
from camel.jobs.failures import ClusterFailures
from camel.jobs.shares import Shares
from camel.runs.run import RunFolder

if TYPE_CHECKING:
    from camel.engine.ray.supervisor import RaySupervisor


class Watched(NamedTuple):
    """What each worker may use, and what stops all of them. Sent to the coordinator."""

    shares: Shares
    failures: ClusterFailures

    def __call__(
        self, reports: Mapping[str, WorkerReport], live: Collection[str]
    ) -> tuple[Mapping[str, Mapping[str, float]], str]:
        """Divide, and decide."""
        given, halt = self.shares(reports, live)
        return given, self.failures(reports, live) or halt


class Cluster:
    """Where a campaign's stages are run, from the first to the last. Use `run_stage` as `Campaign.run`'s."""

    def __init__(
        self, campaign: Campaign, address: str, *, workers: int | None = None, ttl: float | None = None
    ) -> None:
        if workers is not None and workers < 1:
            raise InputError(f"--workers must be at least 1, not {workers}")
        self._campaign, self._address, self._workers, self._ttl = campaign, address, workers, ttl
        self._gathering = Gathering(campaign)
        self._supervisor: RaySupervisor | None = None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Cluster:
        from camel.engine.ray.connect import connected

        self._stack.enter_context(connected(self._address, workers=self._workers))
        return self

    def __exit__(self, *exc: Any) -> None:
        self._stack.__exit__(*exc)

    async def run_stage(
        self,
        stage: Stage,
        folder: RunFolder,
        *,
        concurrency: int,
        fingerprint: str,
        halt: Halt,
        committed: Callable[[int], None],
        attempt: int,
    ) -> bool:
        """Have the cluster work on a stage."""
        if self._supervisor is None or attempt:
            self._gathering.recounted()
        if self._supervisor is None:
            self._supervisor = await asyncio.to_thread(self._begin)

        def note(shard: int) -> None:
            self._gathering.committed(stage.name, shard)
            committed(shard)

        return await self._supervisor.run_stage(
            stage,
            folder,
            concurrency=concurrency,
            fingerprint=fingerprint,
            halt=halt,
            committed=note,
            attempt=attempt,
        )

    def _begin(self) -> RaySupervisor:
        from camel.engine.ray.supervisor import TTL, RaySupervisor

        campaign, meter = self._campaign, self._campaign.meter
        self._stack.callback(shutil.rmtree, campaign.folder.root / ACCOUNTS, ignore_errors=True)
        supervisor = RaySupervisor(
            CampaignFactory.here(campaign.config),
            campaign.folder,
            concurrency=campaign.config.run.concurrency,
            workers=self._workers,
            ttl=self._ttl or TTL,
            share=Watched(
                Shares(
                    meter.budget,
                    meter.price,
                    meter.before,
                    campaign.config.pool().rates,
                    dearer=meter.dearer,
                    accounts=campaign.folder.root.absolute(),
                ),
                ClusterFailures(meter.failures.patience),
            ),
            environment=handed_over(campaign.config.model.key_variable),
            watch=self._gathering.watch,
            tell=campaign.tell,
        )
        return self._stack.enter_context(supervisor)
