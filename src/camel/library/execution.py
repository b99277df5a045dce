"""Runs jobs from a program or a notebook."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Generator
from contextvars import ContextVar
from typing import Any

from msgspec.structs import replace

from camel.core.errors import CamelError, InputError
from camel.core.message import Usage
from camel.jobs.budget import Budget
from camel.jobs.job import Job
from camel.jobs.launch import JobOptions, Launch
from camel.jobs.progress import Printed, View
from camel.jobs.runner import Outcome
from camel.jobs.state import name_of, price_of
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


def forecast(study: Callable[..., Any], *arguments: Any, **given: Any) -> dict[str, Usage]:
    """Return the usage by model that a study is expected to need. No model is called.

        camel.forecast(camel.credit, camel.Run("runs/math"), "gsm8k")

    `study` is `camel.fork`, `camel.credit` or `camel.compare_methods`. The other arguments are those of the study.
    """
    if getattr(study, "__name__", "") not in ("fork", "credit", "compare_methods"):
        raise InputError("forecast estimates only camel.fork, camel.credit and camel.compare_methods")
    forecasting = _forecasting.set(True)
    try:
        study(*arguments, **given)
    except _Forecast as found:
        return found.usage
    finally:
        _forecasting.reset(forecasting)
    return {}


class _Forecast(Exception):
    def __init__(self, job: Any) -> None:
        self.usage: dict[str, Usage] = {}
        for seat, need in job.expected().items():
            price = price_of(job.models[seat])
            self.usage[name_of(job.models[seat])] = replace(need, usd=price.cost(need) if price else 0.0)


_forecasting = ContextVar("forecasting", default=False)


def finish_job(job: Job, **options: Any) -> Any:
    """Run a job to its end and return its result. Raises a `CamelError` if something stopped it."""
    if _forecasting.get():
        raise _Forecast(job)
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
