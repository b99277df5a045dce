"""Running jobs in tests."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from camel.core.model import Model
from camel.engine.halt import Halt
from camel.generation.config import GenerateConfig
from camel.generation.generate import Generation
from camel.jobs.job import Job
from camel.jobs.ledger import stops_of
from camel.jobs.runner import Outcome, Runner


def generation(
    config: GenerateConfig,
    model: Model | None = None,
    *,
    halt: Halt | None = None,
    accept: Collection[str] = (),
    retry_failed: bool = False,
) -> Runner:
    """A runner of a configuration, as `camel generate` makes it."""
    return Runner(
        Generation(config, model),
        budget=config.budget,
        concurrency=config.run.concurrency,
        patience=60 * config.run.outage_patience,
        accept=accept,
        retry_failed=retry_failed,
        halt=halt,
    )


def run(job: Job, **options: Any) -> Outcome:
    """Run a job to its end."""
    return asyncio.run(Runner(job, **options).run())


def stops(runner: Runner) -> dict[str, int]:
    """Why conversations ended, as the runner has counted."""
    totals = runner.state.tallies["conversations"].counts
    return stops_of({name: float(count) for name, count in totals.items()})
