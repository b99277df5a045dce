"""Ctrl-C, SIGTERM and a closed terminal end the conversation, not the process: what was said is written first."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

_WORDS = {
    signal.SIGINT: "you stopped it",
    signal.SIGTERM: "it was told to end (SIGTERM)",
}
if hasattr(signal, "SIGHUP"):
    _WORDS[signal.SIGHUP] = "the terminal was closed (SIGHUP)"


class Leaving:
    """Hears the signals while its block runs: the first cancels the task in `task`, those after it interrupt at once.

    `spare` may answer a Ctrl-C in another way; it returns whether it did.
    """

    def __init__(self, spare: Callable[[], bool]) -> None:
        self._spare = spare
        self._before: dict[signal.Signals, Any] = {}
        self.task: asyncio.Task[Any] | None = None
        self._answering = False
        """Whether a signal waits for the event loop."""
        self.heard: signal.Signals | None = None
        """The signal that ended it."""

    def __enter__(self) -> Leaving:
        self._before = {number: signal.signal(number, self._hear) for number in _WORDS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def deafen(self) -> None:
        """Hear no more: what is left to do is short and must be done."""
        for number in _WORDS:
            signal.signal(number, signal.SIG_IGN)

    @property
    def words(self) -> str:
        """Why it ended."""
        return _WORDS[self.heard or signal.SIGINT]

    @property
    def code(self) -> int:
        """What the process exits with, as shells count."""
        return 128 + (self.heard or signal.SIGINT)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        first, ended = self.heard is None, self.task is not None and self.task.done()
        if first and not ended and self.task is not None and not self._answering:
            self._answering = True
            # Not here: the signal may interrupt a write to the terminal, and the answer writes to it as well.
            self.task.get_loop().call_soon_threadsafe(self._answer, signal.Signals(number))
            return
        self.heard = self.heard or signal.Signals(number)
        if first and ended:
            return  # what is left is short, and writes what was said
        raise KeyboardInterrupt

    def _answer(self, number: signal.Signals) -> None:
        self._answering = False
        if number == signal.SIGINT and self._spare():
            return
        self.heard = number
        if self.task is not None:
            self.task.cancel()
