"""Runs jobs from a program or a notebook."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Generator
from typing import Any

from camel.core.errors import CamelError
from camel.jobs.budget import Budget
from camel.jobs.job import Job
from camel.jobs.launch import JobOptions, Launch
from camel.jobs.progress import Printed, View
from camel.jobs.runner import Outcome
from camel.storage.processes import working_on


def run_job(
    job: Job,
    *,
    budget_usd: float | None = None,
    budget_tokens: int | None = None,
    budget_calls: int | None = None,
    budget_tool_calls: int | None = None,
    budget_tool_seconds: float | None = None,
    budget_hours: float | None = None,
    concurrency: int = 64,
    outage_minutes: float = 30.0,
    accept: Collection[str] = (),
    retry_failed: bool = False,
    address: str = "",
    workers: int | None = None,
    progress: bool = True,
) -> Outcome:
    """Run a job until it is complete or something stops it. The same call resumes it, and it works in a notebook, too.

    Budgets apply to the whole job over all calls of this function, `budget_hours` only to this call. `accept` names changes
    of settings that you accept, such as `model.name`. With an `address` (local, auto or host:port) the job runs on a Ray
    cluster. `progress` prints a line from time to time. Ctrl-C waits for calls in flight and keeps their replies.
    """
    options = JobOptions(
        budget=Budget(
            budget_usd, budget_tokens, budget_calls, budget_hours, budget_tool_calls, budget_tool_seconds
        ),
        concurrency=concurrency,
        patience=60 * outage_minutes,
        accept=accept,
        retry_failed=retry_failed,
        address=address,
        workers=workers,
        resume="the same call",
    )
    view = Printed() if progress else View()
    outcome = Launch(job, options, view).run()
    if not outcome.complete:
        view.note(f"stopped: {outcome.reason}; the same call resumes it")
    for one in outcome.failed:
        view.note(f"failed: {one}")
    return outcome


def finish_job(job: Job, **options: Any) -> Any:
    """Run a job to its end and return its result. Raises a `CamelError` if something stopped it."""
    outcome = run_job(job, **options)
    if not outcome.complete:
        raise CamelError(f"{job.name} stopped: {outcome.reason}; the same call resumes it")
    return outcome.result


@contextlib.contextmanager
def on_cluster(address: str) -> Generator[int]:
    """Let verifications, indexes, compactions and exports use a Ray cluster: local, auto or host:port.

    The value of the `with` statement is the number of processes to pass to them:

        with camel.on_cluster("auto") as processes:
            camel.Run("s3://bucket/trial").export("messages", "rows.jsonl", processes=processes)
    """
    from camel.engine.ray.connect import connected

    with connected(address):
        from camel.engine.ray.bulk import ClusterExecutor  # imports ray, which reads settings of `connected`

        executor = ClusterExecutor()
        with working_on(executor):
            yield executor.cpus
