"""What every play has in common, be it of two or of a thousand: it is prepared, walked through, and ended.

A play sets the table and hands agents to the one conversation loop; this file only lets people sit down to it in the
way that suits them: message by message, at once, or from code that is not async.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from camel.core.conversation import Conversation
from camel.core.message import Message
from camel.core.model import Model
from camel.core.stops import Stop, StopReason, StopRule
from camel.core.transcript import Transcript

T = TypeVar("T")


class Declaration(ABC):
    """A conversation as it is declared. It can be used again and again; `<placeholders>` in it are filled from rows of values."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What it is about, in a few words."""

    @property
    @abstractmethod
    def placeholders(self) -> frozenset[str]:
        """The names of its placeholders, in small letters."""

    @abstractmethod
    def fill(self, row: Mapping[str, Any]) -> Declaration:
        """The same with its placeholders filled; names of the row that it does not have are ignored."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Stands for all that decides what is said, besides the model and the rows."""

    @abstractmethod
    def with_rules(self, rules: Sequence[StopRule]) -> Declaration:
        """The same with these rules instead of its own; the limits of messages and tokens always remain."""

    @abstractmethod
    def own_model(self) -> Model:
        """The model that it names, or the one that the environment names."""

    @abstractmethod
    def play(self, model: Model, *, id: str = "", seed: int | None = None) -> Play:
        """One conversation, ready to begin."""


class Play(ABC):
    """A conversation that has still to be set up, or is going on, or has ended."""

    transcript: Transcript

    @abstractmethod
    async def prepare(self) -> Conversation:
        """Do what comes before the talk if that has not been done yet, and return the conversation, ready to begin."""

    @abstractmethod
    def asked(self) -> Iterable[Model | None]:
        """Every model that may be asked; None for one that is not there."""

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Prepare, then talk; iterating again goes on where the last iteration left off."""
        async for message in await self.prepare():
            yield message

    async def finish(self) -> Transcript:
        """Talk to the end and return the transcript."""
        async for _ in await self.prepare():
            pass
        return self.transcript

    def end(self, detail: str, reason: StopReason = "stopped") -> None:
        """End it from outside, unless it has ended; what was said stays in the transcript."""
        if self.transcript.stop is None:
            self.transcript.stop = Stop(reason, detail)

    def _repr_html_(self) -> str:
        """How a notebook shows it: what was said so far."""
        return self.transcript._repr_html_()  # pyright: ignore[reportPrivateUsage] - the notebook's name for it

    def run(self) -> Transcript:
        """Talk to the end from code that is not async; also works inside a notebook."""
        return run_now(self._finish_and_close())

    async def _finish_and_close(self) -> Transcript:
        try:
            return await self.finish()
        finally:
            # The event loop ends with this call, so connections opened on it must end too.
            for model in {id(model): model for model in self.asked() if model is not None}.values():
                await model.aclose()


def run_now(work: Coroutine[Any, Any, T], interrupted: Callable[[], None] | None = None) -> T:
    """Run a coroutine to its end, also inside a notebook. There, the first Ctrl-C calls `interrupted` and waits on, if given."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    # A loop is running already (a notebook): use one of our own on another thread.
    outcome: list[T] = []
    failure: list[BaseException] = []
    begun: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = []

    async def noted() -> T:
        begun.append((asyncio.get_running_loop(), asyncio.current_task()))
        return await work

    def target() -> None:
        try:
            outcome.append(asyncio.run(noted()))
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=target, name="camel-run")
    thread.start()
    try:
        try:
            thread.join()
        except KeyboardInterrupt:
            if interrupted is None:
                raise
            interrupted()
            thread.join()
    except BaseException:  # Ctrl-C: without this the thread would continue to talk, and to pay
        for loop, task in begun:
            if task is not None and not loop.is_closed():
                loop.call_soon_threadsafe(task.cancel)
        thread.join()
        raise
    if failure:
        raise failure[0]
    return outcome[0]
