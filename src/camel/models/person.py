"""A seat taken by a person: a model whose replies come from a function.

The one decision to know: people write plain text, and the seat adds the grammar's markers. Text in the user's seat becomes
`Instruction: … Input: …`, in the assistant's seat `Solution: … Next request.`, unless it has the markers already. The
record has `person` as the model's name and counts no call.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from camel.core.checks import at_least, shown
from camel.core.critic import Case, Verdict
from camel.core.errors import InputError, Left
from camel.core.grammar import parse
from camel.core.judge import ModelJudge
from camel.core.message import Usage, well_formed
from camel.core.model import Choice, Expects, Model, Reply, Request, Text, checked_model
from camel.core.tools import Threads

PERSON = "person"
"""The `model` of a message that a person wrote."""
_PATIENCE = 10
"""Maximum number of times a person is asked for one message, if the answers are empty."""

_THREADS = Threads(1_000)

T = TypeVar("T")


class HandOver(msgspec.Struct, frozen=True):
    """A person's answer that lets the stand-in model speak, in this turn and the next `turns - 1`."""

    turns: int = 1

    def __post_init__(self) -> None:
        at_least(1, turns=self.turns)


Answer = str | HandOver | None
"""A person's text, or `HandOver` to let the model speak, or None to leave and end the conversation."""
Ask = Callable[[Request], Answer | Awaitable[Answer]]


class Person(Model):
    """A person, asked by a function: `RolePlaying(user_model=Person(ask, model=model), model=model, …)`.

    `ask(request)` is async, or a plain function that runs in a thread, so it may block. The last message that the person
    heard is `request.history.entries[-1].content`, the seat is `request.speaker`. An `EOFError` means that the person leaves.
    """

    def __init__(self, ask: Ask, *, model: Model | None = None, verbatim: bool = False) -> None:
        if not callable(ask):
            raise InputError(f"ask must be a function that takes a request, not {shown(ask)}")
        self._ask, self._verbatim = ask, verbatim
        self.stand_in = None if model is None else checked_model(model)
        """The model that replaces the person in a look-ahead, and after a `HandOver`."""
        self._handed: dict[tuple[str, str], int] = {}
        """Remaining turns of the stand-in model, by conversation and seat."""

    async def reply(self, request: Request) -> Reply:
        """Return the person's message, or the model's after a `HandOver`."""
        if request.expects == "task":
            # The person gave the task, so they are not asked to specify it.
            return await self.stand_in.reply(request) if self.stand_in else _said("", 0.0)
        started, seat = time.monotonic(), (request.session, request.speaker)
        if not self._handed.get(seat):
            answer = await self._answer(request)
            if isinstance(answer, str):
                content = answer if self._verbatim else as_move(answer, request.expects)
                if request.watch:
                    request.watch(Text(request.speaker, content))
                return _said(content, time.monotonic() - started)
            self._handed[seat] = answer.turns
        if self.stand_in is None:
            raise InputError("there is no model to hand the turn to: pass one with Person(ask, model=…)")
        reply = await self.stand_in.reply(request)
        # Count the turn afterwards, because the person may have taken the seat back meanwhile.
        self._handed[seat] = max(0, self._handed.get(seat, 0) - 1)
        return reply

    def take_back(self) -> bool:
        """Let the person speak again from the next turn on. Return whether the stand-in model still had turns."""
        left = any(self._handed.values())
        self._handed.clear()
        return left

    async def aclose(self) -> None:
        """Close the stand-in model."""
        if self.stand_in is not None:
            await self.stand_in.aclose()

    async def _answer(self, request: Request) -> str | HandOver:
        for _ in range(_PATIENCE):
            try:
                answer: Any = await called(self._ask, request)
            except EOFError:
                answer = None
            if answer is None:
                raise Left(f"the person in the {request.speaker}'s seat left")
            if isinstance(answer, HandOver):
                return answer
            if not isinstance(answer, str):
                raise InputError(f"ask must return text, HandOver or None, not {shown(answer)}")
            if said := well_formed(answer).strip():
                return said
        raise Left(f"the person in the {request.speaker}'s seat said nothing, {_PATIENCE} times")


REVISIONS = 5
"""Maximum number of revisions of one message that a person in the critic's seat may request."""


class Ruling(NamedTuple):
    """The decision of a person in the critic's seat."""

    choice: int | None
    """The option to send or to revise, counted from 0."""
    feedback: str = ""
    """What to change in the chosen option before it is sent. Empty: send it as it is."""


class PersonJudge:
    """A judge who is a person, asked by an async function. After its `HandOver`, a model judges for some turns."""

    def __init__(self, choose: Callable[[Case], Awaitable[Ruling | HandOver]], model: Model) -> None:
        self._choose, self._model = choose, ModelJudge(model)
        self._handed = 0

    async def judge(self, case: Case) -> Verdict:
        """Let the person decide, or the model if the person has handed over."""
        started = time.monotonic()
        if not self._handed:
            decided = await self._choose(case)
            if isinstance(decided, Ruling):
                seconds = time.monotonic() - started
                return Verdict(decided.choice, feedback=decided.feedback, critic=PERSON, latency=seconds)
            self._handed = decided.turns
        verdict = await self._model.judge(case)
        self._handed = max(0, self._handed - 1)
        return verdict

    def take_back(self) -> bool:
        """Let the person judge again. Return whether the model still had turns."""
        remaining, self._handed = self._handed > 0, 0
        return remaining


def as_move(text: str, expects: Expects | None) -> str:
    """Add the grammar's markers to a person's text, such as `Instruction:`. Text that has markers stays as it is."""
    if expects not in ("instruction", "solution"):
        return text
    said = parse(text)
    if said.instruction is not None or said.solution is not None or said.done:
        return text
    if expects == "solution":
        return f"Solution: {text}" if said.next_request else f"Solution: {text}\nNext request."
    instruction = f"Instruction: {text}"
    # An `Input:` line needs no marker above it.
    return instruction if parse(instruction).input is not None else f"{instruction}\nInput: None"


async def called(function: Callable[..., T | Awaitable[T]], *args: Any) -> T:
    """Call an async function, or a plain one in a thread, so that it may block."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
    ):
        return await cast("Awaitable[T]", function(*args))
    result: Any = await _THREADS.run(partial(copy_context().run, function, *args))
    return await result if inspect.isawaitable(result) else result


def _said(content: str, seconds: float) -> Reply:
    return Reply((Choice(content),), Usage(), PERSON, seconds)
