"""`compare_methods`: solve the same problems alone and together, with equal numbers of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from camel.core.errors import InputError
from camel.core.message import Sampling
from camel.core.model import Model
from camel.core.play import Declaration
from camel.evaluation.cooperation.exercises import Check, Exercise, read_exercises
from camel.evaluation.cooperation.methods import REFERENCE, find_methods
from camel.evaluation.cooperation.report import CooperationFigures
from camel.evaluation.cooperation.solving import BLOCK, SAMPLING, Cooperation
from camel.library.execution import finish_job
from camel.models.spec import ModelSpec, spec_of


def compare_methods(
    methods: Sequence[str | Declaration],
    problems: str | Iterable[Exercise] = "gsm8k",
    *,
    tokens: int = 4000,
    model: Model | ModelSpec | str | None = None,
    check: Check | None = None,
    sampling: Sampling | None = None,
    seed: int | None = 0,
    block: int = BLOCK,
    out: str | Path = "",
    **limits: Any,
) -> CooperationFigures:
    """Solve the same problems with several methods that have equal numbers of tokens, and compare the shares solved.

        made = camel.compare_methods(["self_consistency", "role_play", my_society], problems="gsm8k[:200]", model="gpt-4.1-mini")
        made.plot()

    `methods` are names from `camel evaluate cooperation --help`, or a `RolePlaying` or `Society` with one placeholder for the
    problem. `single`, one call per problem, is always added. `problems` are `gsm8k`, `humaneval+`, or a JSONL file with
    question and answer. `tokens` is the budget per problem. `check(answer, expected)` replaces the usual check. `block` is the
    number of problems over which tokens are carried. `limits` are arguments of `run_job`.
    """
    job = cooperation_job(
        methods,
        problems,
        tokens=tokens,
        model=model,
        check=check,
        sampling=sampling,
        seed=seed,
        block=block,
        out=out,
    )
    return finish_job(job, **limits)


def cooperation_job(
    methods: Sequence[str | Declaration],
    problems: str | Iterable[Exercise],
    *,
    tokens: int,
    model: Model | ModelSpec | str | None,
    check: Check | None = None,
    sampling: Sampling | None = None,
    seed: int | None = 0,
    block: int = BLOCK,
    out: str | Path = "",
) -> Cooperation:
    """Return the job of `compare_methods`."""
    if not out:
        raise InputError("out is missing: pass the folder of the results, such as out='runs/cooperation'")
    given = [REFERENCE, *(one for one in methods if one != REFERENCE)]
    if len(given) < 2:
        raise InputError("name at least one method to compare with single")
    return Cooperation(
        str(out),
        find_methods(given),
        read_exercises(problems),
        tokens,
        spec_of(model or ""),
        sampling or SAMPLING,
        seed,
        check,
        block,
    )
