"""Base classes of declared conversations and of conversations in progress, with two speakers or many.

A play builds agents and passes them to the one conversation loop. It can be used message by message, as a whole, or
from code that is not async.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar, runtime_checkable

from camel.core.conversation import Conversation
from camel.core.errors import ModelError
from camel.core.message import Message
from camel.core.model import Model
from camel.core.stops import Stop, StopReason, StopRule
from camel.core.tools import Workplace
from camel.core.transcript import Transcript

T = TypeVar("T")


@runtime_checkable
class Declaration(Protocol):
    """A declared conversation. It can be played any number of times; `<placeholders>` are filled from rows of values."""

    @property
    @abstractmethod
    def title(self) -> str:
        """A short title of the conversation."""

    @property
    @abstractmethod
    def placeholders(self) -> frozenset[str]:
        """The names of the declaration's placeholders, in lower case."""

    @abstractmethod
    def fill(self, row: Mapping[str, Any]) -> Declaration:
        """Return a copy with its placeholders filled from `row`. Other names in the row are ignored."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return what identifies the declaration: everything except the model and the rows."""

    @abstractmethod
    def with_rules(self, rules: Sequence[StopRule]) -> Declaration:
        """Return a copy with other stop rules. The limits on messages and tokens always apply."""

    @abstractmethod
    def own_model(self) -> Model:
        """Return the declared model, or the one that the environment names."""

    @abstractmethod
    def play(
        self,
        model: Model | Mapping[str, Model],
        *,
        id: str = "",
        seed: int | None = None,
        workplace: Workplace | None = None,
    ) -> Play:
        """Return one conversation, ready to start. `model` is one model, or models by seat with `""` for the others.
        `workplace` is what the tools of the conversation share. Default: a new one without a journal."""


class Play(ABC):
    """A conversation: not yet prepared, in progress, or ended."""

    transcript: Transcript
    _conversation: Conversation | None = None

    async def prepare(self) -> Conversation:
        """Run the preparation if it has not run yet, and return the conversation, ready to start."""
        if self._conversation is None:
            self._conversation = await self._open()
        return self._conversation

    @abstractmethod
    async def _open(self) -> Conversation:
        """Run the preparation and return the conversation."""

    @abstractmethod
    def asked(self) -> Iterable[Model | None]:
        """Return every model that may be called; None for a seat without one."""

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Prepare, then yield messages; a second iteration continues where the first one stopped."""
        async for message in await self.prepare():
            yield message

    async def finish(self) -> Transcript:
        """Run the conversation to its end and return the transcript."""
        async for _ in await self.prepare():
            pass
        return self.transcript

    @contextmanager
    def _record_failure(self, speaker: str) -> Generator[None]:
        """Record a call of the preparation that fails as the reason why the conversation ended."""
        try:
            yield
        except ModelError as error:
            self.transcript.stop = Stop.failed(error, speaker)
            raise

    def end(self, detail: str, reason: StopReason = "stopped") -> None:
        """End the conversation from outside, unless it has ended. The transcript keeps its messages."""
        if self.transcript.stop is None:
            self.transcript.stop = Stop(reason, detail)

    def _repr_html_(self) -> str:
        """Show the messages so far in a notebook."""
        return self.transcript._repr_html_()  # pyright: ignore[reportPrivateUsage] - the notebook's name for it

    def run(self) -> Transcript:
        """Run the conversation to its end from code that is not async; also works inside a notebook."""
        return run_now(self._finish_and_close())

    async def _finish_and_close(self) -> Transcript:
        try:
            return await self.finish()
        finally:
            # The event loop ends with this call, so connections opened on it must end too.
            for model in {id(model): model for model in self.asked() if model is not None}.values():
                await model.aclose()


def run_now(work: Coroutine[Any, Any, T], interrupted: Callable[[], None] | None = None) -> T:
    """Run a coroutine to its end, also inside a notebook. In a notebook, the first Ctrl-C calls `interrupted`, if given, and
    keeps waiting."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    # A loop is running already (a notebook): use one of our own on another thread.
    begun: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = []

    async def noted() -> T:
        begun.append((asyncio.get_running_loop(), asyncio.current_task()))
        return await work

    with ThreadPoolExecutor(1, "camel-run") as thread:
        outcome = thread.submit(asyncio.run, noted())
        try:
            try:
                wait([outcome])
            except KeyboardInterrupt:
                if interrupted is None:
                    raise
                interrupted()
                wait([outcome])
        except BaseException:  # Ctrl-C: without this the thread would continue, and so would the cost
            for loop, task in begun:
                if task is not None and not loop.is_closed():
                    loop.call_soon_threadsafe(task.cancel)
            raise
    return outcome.result()
