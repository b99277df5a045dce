"""Runs jobs from a program or a notebook."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from camel.core.errors import CamelError, InputError
from camel.core.model import Model
from camel.core.play import Declaration
from camel.core.stops import StopRule
from camel.generation.config import GenerateConfig, read_config
from camel.generation.dialogues import Dialogues
from camel.generation.generate import Generation
from camel.jobs.budget import Budget
from camel.jobs.job import Job
from camel.jobs.launch import JobOptions, Launch
from camel.jobs.progress import Printed, Silent
from camel.jobs.runner import Outcome
from camel.library.run import Run
from camel.models.spec import ModelSpec, find_spec


def run_job(
    job: Job,
    *,
    budget_usd: float | None = None,
    budget_tokens: int | None = None,
    budget_calls: int | None = None,
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
        budget=Budget(usd=budget_usd, tokens=budget_tokens, calls=budget_calls, hours=budget_hours),
        concurrency=concurrency,
        patience=60 * outage_minutes,
        accept=accept,
        retry_failed=retry_failed,
        address=address,
        workers=workers,
        resume="the same call",
    )
    view = Printed() if progress else Silent()
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


def generate(
    what: Declaration | GenerateConfig | str | Path,
    *,
    inputs: Sequence[Mapping[str, Any]] | None = None,
    model: Model | ModelSpec | str | None = None,
    rules: Sequence[StopRule] | None = None,
    out: str | Path = "",
    seed: int | None = None,
    concurrency: int | None = None,
    budget_usd: float | None = None,
    budget_tokens: int | None = None,
    budget_calls: int | None = None,
    budget_hours: float | None = None,
    accept: Collection[str] = (),
    retry_failed: bool = False,
    address: str = "",
    workers: int | None = None,
    progress: bool = True,
) -> Run:
    """Generate a run and open it. The same call resumes a stopped run and pays for nothing twice.

        run = camel.generate(
            RolePlaying("Help <name> with <issue>", assistant="Agent", user="<persona>"),
            inputs=[{"name": "Ada", "issue": "a refund", "persona": "busy customer"}],
            model="gpt-4.1-mini",
            out="runs/support",
        )

    `what` is a role play, a society or a dialogue whose `<placeholders>` are filled from each row of `inputs`, one conversation per row;
    or a configuration, or the path of its TOML file. The id of a conversation is its row's `id`, or a hash of the row.
    `model` and `rules` replace those of `what`; your own rule is identified by its `name` and `version`. For the other
    arguments see `run_job`.
    """
    given = {"usd": budget_usd, "tokens": budget_tokens, "calls": budget_calls, "hours": budget_hours}
    spec = find_spec(model) if isinstance(model, str) else model
    if isinstance(what, Declaration):
        if not out:
            raise InputError("out is missing: pass the run's folder, such as out='runs/name'")
        rows: Sequence[Mapping[str, Any]] = [{}] if inputs is None else inputs
        job: Job = Dialogues(
            what if rules is None else what.with_rules(rules),
            tuple(dict(row) for row in rows),
            spec if spec is not None else what.own_model(),
            str(out),
            seed=seed,
        )
        patience, in_flight = 30.0, concurrency or 64
    else:
        if inputs is not None or rules is not None:
            raise InputError(
                "inputs and rules need a RolePlaying, a Society or a Dialogue, not a configuration"
            )
        config = what if isinstance(what, GenerateConfig) else read_config(Path(what))
        if isinstance(spec, ModelSpec):
            config = replace(config, model=spec)
        config = config.adjusted(concurrency=concurrency, out=str(out), budget=given)
        given = {name: getattr(config.budget, name) for name in given}
        job = Generation(config, spec if isinstance(spec, Model) else None)
        patience, in_flight = config.run.outage_patience, config.run.concurrency
    run_job(
        job,
        **{f"budget_{name}": value for name, value in given.items()},  # pyright: ignore[reportArgumentType]
        concurrency=in_flight,
        outage_minutes=patience,
        accept=accept,
        retry_failed=retry_failed,
        address=address,
        workers=workers,
        progress=progress,
    )
    return Run(job.place)
