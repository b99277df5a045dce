"""A seat taken by a person: a model whose replies come from a function.

The one decision to know: people say what they mean, and the seat puts it into the grammar. What is said in the user's
seat becomes `Instruction: … Input: …`, in the assistant's `Solution: … Next request.`, unless the markers are there.
The record says `person` where a model's name would be, and no call, so that nothing counts as paid.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Any, TypeVar, cast

import msgspec

from camel.core.checks import shown
from camel.core.errors import InputError, Left
from camel.core.grammar import parse
from camel.core.message import Usage, well_formed
from camel.core.model import Choice, Expects, Model, Reply, Request, Text, checked_model

PERSON = "person"
"""Stands in a message's `model` where a person spoke."""
_PATIENCE = 10
"""How often a person who says nothing is asked."""

T = TypeVar("T")


class HandOver(msgspec.Struct, frozen=True):
    """A person's answer when their stand-in model is to speak for them, in this turn and the next `turns - 1`."""

    turns: int = 1

    def __post_init__(self) -> None:
        turns: Any = self.turns
        if isinstance(turns, bool) or not isinstance(turns, int) or turns < 1:
            raise InputError(f"turns must be a whole number of at least 1, not {shown(turns)}")


Answer = str | HandOver | None
"""What a person says; or that the model speaks; or None to leave, which ends the conversation."""
Ask = Callable[[Request], Answer | Awaitable[Answer]]


class Person(Model):
    """A person who is asked by a function: `RolePlaying(user_model=Person(ask, model=model), model=model, …)`.

    `ask(request)` is async, or plain and then called in a thread, so that it may wait as long as a person takes. What was
    heard last is `request.history.entries[-1].content`, the seat is `request.speaker`. At the end of input (`EOFError`)
    the person leaves.
    """

    def __init__(self, ask: Ask, *, model: Model | None = None, verbatim: bool = False) -> None:
        if not callable(ask):
            raise InputError(f"a person is asked by a function of the request, not {shown(ask)}")
        self._ask, self._verbatim = ask, verbatim
        self.stand_in = None if model is None else checked_model(model)
        """The model that a look-ahead asks, and that speaks when the turn is handed over."""
        self._handed: dict[tuple[str, str], int] = {}
        """Turns that the model still has, by conversation and seat."""

    async def reply(self, request: Request) -> Reply:
        """What the person says, or the model if it was handed the turn."""
        if request.expects == "task":
            # The person gave the task: they are not asked to specify it.
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
            raise InputError("there is no model to hand the turn to: give one with Person(ask, model=…)")
        reply = await self.stand_in.reply(request)
        # Counted when it has spoken, and the person may have taken the seat back meanwhile.
        self._handed[seat] = max(0, self._handed.get(seat, 0) - 1)
        return reply

    def take_back(self) -> bool:
        """Let the person speak again from the next turn on; whether the model had turns left."""
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
                raise InputError(f"a person answers with text, HandOver or None, not {shown(answer)}")
            if said := well_formed(answer).strip():
                return said
        raise Left(f"the person in the {request.speaker}'s seat said nothing, {_PATIENCE} times")


def as_move(text: str, expects: Expects | None) -> str:
    """What a person said, in the grammar of the seat; text with markers stays as it is."""
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
    """Call an async function, or a plain one in a thread: it may wait for a person while others continue."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
    ):
        return await cast("Awaitable[T]", function(*args))
    result = await _in_thread(function, *args)
    return await cast("Awaitable[T]", result) if inspect.isawaitable(result) else result


async def _in_thread(function: Callable[..., T], *args: Any) -> T:
    """In a daemon thread, not in the loop's own: those are joined at the end, and the person may have left."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(outcome: Callable[[Any], None], value: object) -> None:
        if not future.done():
            outcome(value)

    def work() -> None:
        try:
            outcome, value = future.set_result, function(*args)
        except BaseException as error:
            # A future refuses to hold this one.
            value = RuntimeError(str(error)) if isinstance(error, StopIteration) else error
            outcome = future.set_exception
        try:
            loop.call_soon_threadsafe(settle, outcome, value)
        except RuntimeError:  # the loop was closed while the person was thinking
            return

    threading.Thread(target=copy_context().run, args=(work,), name="camel-person", daemon=True).start()
    return await future


def _said(content: str, seconds: float) -> Reply:
    return Reply((Choice(content),), Usage(), PERSON, seconds)
