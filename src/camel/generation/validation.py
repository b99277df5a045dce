"""Validation during generation: a conversation that does not pass is tried again, a limited number of times.

The one decision to know: all attempts belong to one item. Their calls are in its journal, so that a resumed run makes the same
decisions, and the record contains the rejected attempts with their usage. If no attempt passes, the record has the last one,
with the stop reason `rejected`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from camel.core.checks import shown, whole
from camel.core.errors import InputError
from camel.core.expressions import ColumnKind, Expression, parse_expression
from camel.core.identity import identity_of
from camel.core.message import Usage
from camel.core.rubric import Rubric
from camel.core.stops import Stop
from camel.core.transcript import RejectedAttempt, Score, Transcript
from camel.jobs.item import Item, item_seed

JUDGE = "judge"
"""The seat of the judge, and the name of its score."""
_ATTEMPT = 500_009
"""Added to the index from which a conversation's seeds are derived, for each attempt after the first."""
_LATER = ("starred", "tag", "duplicate", "near_duplicate", "overlap")
"""Columns that a conversation does not have before its run is scored or annotated."""


def attempt_seed(seed: int | None, number: int, attempt: int) -> int | None:
    """Return the seed of an attempt at a conversation, whose seeds are derived from `number`. Later attempts always have one,
    so that no endpoint repeats the first one."""
    return item_seed(seed or 0 if attempt else seed, number + attempt * _ATTEMPT)


async def converse(
    validator: Validator | None,
    item: Item,
    attempt: Callable[[int, str], Awaitable[Transcript]],
    inputs: Collection[str],
    *,
    given_task: bool = False,
) -> Transcript:
    """Run a conversation once or, with a validator, until it passes. If no attempt passes, return the last one as rejected.

    `attempt` gets the number of the attempt and the session of its calls, and stores the record so far in `item.draft`.
    `given_task`: the usage of the task is that of an earlier stage.
    """
    if validator is None:
        return await attempt(0, item.id)
    validator.check_inputs(inputs)
    rejected: list[RejectedAttempt] = []
    for number in range(validator.attempts):
        session = f"{item.id}~{number + 1}" if number else item.id
        try:
            transcript = await attempt(number, session)
        finally:
            draft: Transcript | None = item.draft
            if draft is not None:
                draft.id, draft.rejected = item.id, rejected
            if number:
                item.release(session)
        transcript.id, transcript.rejected = item.id, rejected
        why = await validator.why_rejected(item, transcript)
        if not why:
            return transcript
        ended = transcript.stop.reason if transcript.stop else ""
        if number + 1 < validator.attempts:
            used = sum((message.usage for message in transcript.messages), Usage())
            used += Usage() if given_task else transcript.task.usage
            rejected = [*rejected, RejectedAttempt(ended, why, transcript.messages, used)]
        else:
            transcript.stop = Stop("rejected", f"{why}; attempt {number + 1} ended with {ended}")
            return transcript
    raise AssertionError("there is at least one attempt")


class ValidationJudge(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A judge that rates each conversation before the condition is checked, as `score.judge`."""

    rubric: str
    """What to rate."""
    scale: str = "1-5"

    def __post_init__(self) -> None:
        Rubric(self.rubric, self.scale)


class Validation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The condition that conversations must meet."""

    where: str
    """A filter expression, such as `messages >= 4 and not finding = "repeated_instruction"`."""
    attempts: int = 3
    """Maximum number of attempts at a conversation."""
    judge: ValidationJudge | None = None

    def __post_init__(self) -> None:
        self.validator()

    def validator(self) -> Validator:
        """Return the validator. Raises an `InputError` for a malformed condition."""
        rubric = Rubric(self.judge.rubric, self.judge.scale) if self.judge else None
        return Validator(self.where, self.attempts, rubric)


@dataclass(frozen=True)
class Validator:
    """Decides whether a conversation passes."""

    condition: str | Callable[[Transcript], Any]
    """A filter expression, or a function that returns whether a conversation passes, alone or with a reason."""
    attempts: int = 3
    rubric: Rubric | None = None

    def __post_init__(self) -> None:
        whole("attempts", self.attempts, 1, 100)
        if not isinstance(self.condition, str) and not callable(self.condition):
            raise InputError(f"validate must be an expression or a function, not {shown(self.condition)}")
        _ = self._expression

    def identity(self) -> dict[str, Any]:
        """Return what determines which conversations pass."""
        rubric = {"rubric": self.rubric.identity()} if self.rubric else {}
        return {"condition": identity_of(self.condition), "attempts": self.attempts, **rubric}

    @cached_property
    def _expression(self) -> Expression | None:
        if not isinstance(self.condition, str):
            return None
        from camel.query.columns import COLUMNS  # most configurations do not need it

        expression = parse_expression(self.condition)
        known: dict[str, ColumnKind] = {name: kind for name, kind in COLUMNS.items() if name not in _LATER}
        for name in expression.columns:
            if name.startswith("input.") or (self.rubric and name == f"score.{JUDGE}"):
                known[name] = "any" if name.startswith("input.") else "number"
        expression.check(known)
        return expression

    def check_inputs(self, names: Collection[str]) -> None:
        """Raise an `InputError` if the condition mentions an input that conversations do not have."""
        wanted = self._expression.columns if self._expression else ()
        for name in sorted(wanted):
            if name.startswith("input.") and name.removeprefix("input.") not in names:
                listed = ", ".join(f"input.{one}" for one in sorted(names))
                raise InputError(
                    f"the validation mentions {name}, which is not an input. Use one of {listed}"
                )

    async def why_rejected(self, item: Item, transcript: Transcript) -> str:
        """Return why a conversation does not pass. Empty if it passes."""
        if self.rubric is not None:
            answer = await self.rubric.rate(item.model(JUDGE), transcript, item.id)
            value, reason = answer.rating or (None, answer.text)
            transcript.scores = {**transcript.scores, JUDGE: Score(value, reason[:1_000], by=JUDGE)}
            _add_usage(transcript, answer.usage)
        if self._expression is None:
            return (await item.once(b"validate", partial(self._call, transcript))).decode()
        from camel.query.columns import transcript_values

        values = transcript_values(transcript, sorted(self._expression.columns))
        if self._expression.matches(values):
            return ""
        found = ", ".join(f"{name} is {shown(value)}" for name, value in values.items())
        return f"it does not meet {self.condition} ({found})"

    async def _call(self, transcript: Transcript) -> bytes:
        """Call the function, and return why it does not accept a conversation."""
        try:
            made: Any = cast("Callable[[Transcript], Any]", self.condition)(transcript)
            made = await made if inspect.isawaitable(made) else made
        except Exception as error:
            raise InputError(
                f"the validation raised {type(error).__name__} for the conversation {transcript.id}: {error}. Fix it, and resume "
                "with the same call; no call is paid for twice"
            ) from error
        pair: tuple[Any, Any] = cast("tuple[Any, Any]", made) if isinstance(made, tuple) else (made, "")
        if pair[0]:
            return b""
        return (str(pair[1]) or "the validation did not accept it").encode("utf-8", "replace")


def _add_usage(transcript: Transcript, usage: Usage) -> None:
    """Add the judge's usage to the last message, as for critics."""
    if transcript.messages:
        last = transcript.messages[-1]
        transcript.messages[-1] = replace(last, usage=last.usage + usage)
    else:
        transcript.task = replace(transcript.task, usage=transcript.task.usage + usage)
