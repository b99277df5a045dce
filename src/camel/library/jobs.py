"""Generates runs from a program or a notebook."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from camel.core.errors import InputError
from camel.core.model import Model
from camel.core.play import Declaration
from camel.core.results import read_settings
from camel.core.stops import StopRule
from camel.core.transcript import Transcript
from camel.generation.config import GenerateConfig, read_config
from camel.generation.dialogues import Dialogues
from camel.generation.generate import Generation
from camel.generation.validation import Validator
from camel.inputs.settings import Inputs
from camel.jobs.job import Job
from camel.library.execution import run_job
from camel.library.run import Run
from camel.models.spec import ModelSpec, spec_of


def generate(
    what: Declaration | GenerateConfig | str | Path,
    *,
    inputs: Any = None,
    model: Model | ModelSpec | str | None = None,
    models: Mapping[str, Model | ModelSpec | str] | None = None,
    rules: Sequence[StopRule] | None = None,
    result: Any = None,
    out: str | Path = "",
    seed: int | None = None,
    preview: int = 0,
    validate: str | Callable[[Transcript], Any] | None = None,
    attempts: int = 3,
    concurrency: int | None = None,
    budget_usd: float | None = None,
    budget_tokens: int | None = None,
    budget_calls: int | None = None,
    budget_tool_calls: int | None = None,
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

    `what` is a role play, a society or a dialogue whose `<placeholders>` are filled from each row of `inputs`, one
    conversation per row; or a configuration, or the path of its TOML file. `inputs` is the path of a table (CSV, JSON lines,
    Parquet, a folder of texts, `hf:OWNER/NAME`), a DataFrame, an Arrow table, any iterable of dictionaries, or
    `camel.Inputs` with more settings. The id of a conversation is its row's `id`, or a hash of the values that are used.
    Rows can be added, moved, changed and removed between two calls: only new and changed ones are paid for.

    `model` and `rules` replace those of `what`, and `models` are those of seats, by name. Your own rule is identified by its
    `name` and `version`. `result`, a Pydantic class or a JSON schema, adds a structured result to each conversation:
    `run[0].result`. `validate` is a filter expression, or a function that returns whether a conversation passes; others are
    tried again up to `attempts` times, and then rejected. `preview=5` makes only the first five. For the other arguments see
    `run_job`.
    """
    wanted = None if result is None else read_settings(result)
    given = {"usd": budget_usd, "tokens": budget_tokens, "calls": budget_calls, "hours": budget_hours}
    given["tool_calls"] = budget_tool_calls
    spec = None if model is None else spec_of(model)
    if isinstance(what, Declaration):
        if not out:
            raise InputError("out is missing: pass the run's folder, such as out='runs/name'")
        job: Job = Dialogues(
            what if rules is None else what.with_rules(rules),
            Inputs(source=str(inputs)) if isinstance(inputs, str | Path) else inputs,
            spec if spec is not None else what.own_model(),
            str(out),
            seed=seed,
            preview=preview,
            result_settings=wanted,
            validator=None if validate is None else Validator(validate, attempts),
            seats={name: spec_of(one) for name, one in (models or {}).items()},
        )
        patience, in_flight = 30.0, concurrency or 64
    else:
        if any(one is not None for one in (inputs, models, rules, validate)):
            raise InputError(
                "inputs, models, rules and validate need a RolePlaying, a Dialogue or a Society, not a configuration"
            )
        config = what if isinstance(what, GenerateConfig) else read_config(Path(what))
        if isinstance(spec, ModelSpec):
            config = replace(config, model=spec)
        config = replace(config, result=wanted) if wanted else config
        config = config.adjusted(concurrency=concurrency, out=str(out), budget=given)
        given = msgspec.structs.asdict(config.budget)
        job = Generation(config, spec if isinstance(spec, Model) else None, preview=preview)
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
