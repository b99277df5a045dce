"""`credit`: which message of a conversation made the difference."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from camel.core.conversation import Turns
from camel.core.errors import InputError
from camel.core.identity import identity_of
from camel.core.model import Model
from camel.core.stops import StopRule
from camel.core.transcript import Transcript
from camel.core.turns import Policy
from camel.evaluation.cooperation.exercises import Exercise, read_exercises
from camel.evaluation.credit import Check as CreditCheck
from camel.evaluation.credit import Credit
from camel.evaluation.credit_report import CreditFigures
from camel.library.branches import Check, outcome, recorded_spec
from camel.library.execution import finish_job
from camel.models.spec import ModelSpec, spec_of
from camel.runs.reader import RunReader


def credit(
    conversations: RunReader | Sequence[Transcript],
    check: Check,
    *,
    samples: int = 96,
    using: Model | ModelSpec | str | None = None,
    rules: Sequence[StopRule] = (),
    turns: Policy | Turns | None = None,
    out: str | Path = "",
    seed: int | None = 0,
    **limits: Any,
) -> CreditFigures:
    """Measure the value of every message: the chance that the conversation succeeds if it is continued again from there.

        made = camel.credit(camel.Run("runs/math"), "gsm8k")
        made["000017"].decisive

    `check` is a function that returns whether a transcript succeeded (None leaves it out), `gsm8k` or `answer`, which compare
    the last number with the expected one (in `answer`, the input of that name), or an outcome of `Branches.effect` such as
    `done`. Nothing before a message is paid for again. `samples` is the maximum number of continuations per conversation.
    `using` is the model that continues, by default the recorded one. `rules` are the stop rules, by default those of a role
    play, and `turns` who speaks next, by default as recorded. The report is written to `out`. `limits` are arguments of `run_job`.
    """
    own: dict[str, Any] = {"rules": rules, "turns": turns, "out": out, "seed": seed}
    job = credit_job(conversations, check, samples=samples, using=using, **own)
    return finish_job(job, **limits)


def credit_job(
    conversations: RunReader | Sequence[Transcript],
    check: Check,
    *,
    samples: int = 96,
    using: Model | ModelSpec | str | None = None,
    rules: Sequence[StopRule] = (),
    turns: Policy | Turns | None = None,
    out: str | Path = "",
    seed: int | None = 0,
) -> Credit:
    """Return the job of `credit`."""
    if isinstance(conversations, RunReader):
        out = out or f"{conversations.folder.address.rstrip('/')}/credit"
    records = [one for one in conversations if not one.excluded]
    if not records or not out:
        raise InputError(
            "there is no conversation" if not records else "out is missing: pass the folder of the report"
        )
    model = recorded_spec(records) if using is None else spec_of(using)
    return Credit(
        records, find_check(check), identity_of(check), model, str(out), samples, tuple(rules), seed, turns
    )


def find_check(check: Check) -> CreditCheck:
    """Return the function behind the name of a check."""
    if check == "answer":
        return partial(_right, {})
    if check == "gsm8k":
        return partial(_right, {one.question: one.answer for one in read_exercises("gsm8k")})
    if isinstance(check, str) and check.startswith("score."):
        raise InputError("new continuations have no scores: use an ending, a detector or a function")
    return outcome(check)


def _right(answers: dict[str, str], one: Transcript) -> bool | None:
    """Return whether the last number of a conversation is the expected one. None if no answer is known."""
    task = one.task.original
    known = one.inputs.get("answer") or next(
        (answer for question, answer in answers.items() if question in task), None
    )
    if known is None:
        return None
    exercise = Exercise(one.id, task, known, "number")
    keys = (exercise.key(message.content) for message in reversed(one.messages))
    return exercise.right(next((key for key in keys if key), ""), None, None)
