"""Ctrl-C, SIGTERM and a closed terminal end the conversation first, so that its transcript is saved before the process exits."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

_REASONS = {
    signal.SIGINT: "you stopped it",
    signal.SIGTERM: "the process was terminated (SIGTERM)",
    signal.SIGHUP: "the terminal was closed (SIGHUP)",
}


class SignalHandler:
    """Handles signals while its `with` block runs. The first signal cancels `task`, the next one interrupts at once.
    `intercept` may handle Ctrl-C in another way; it returns whether it did."""

    def __init__(self, intercept: Callable[[], bool]) -> None:
        self._intercept = intercept
        self._before: dict[signal.Signals, Any] = {}
        self.task: asyncio.Task[Any] | None = None
        self._pending = False
        """Whether a signal has arrived that the event loop has not handled yet."""
        self.received: signal.Signals | None = None
        """The signal that ended the conversation."""

    def __enter__(self) -> SignalHandler:
        self._before = {number: signal.signal(number, self._receive) for number in _REASONS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def ignore(self) -> None:
        """Ignore further signals: the remaining work is short and must finish."""
        for number in _REASONS:
            signal.signal(number, signal.SIG_IGN)

    @property
    def reason(self) -> str:
        """Why the conversation ended."""
        return _REASONS[self.received or signal.SIGINT]

    @property
    def exit_status(self) -> int:
        """The exit status of the process, following the convention of shells."""
        return 128 + (self.received or signal.SIGINT)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        first, ended = self.received is None, self.task is not None and self.task.done()
        if first and not ended and self.task is not None and not self._pending:
            self._pending = True
            # Not here: the signal may interrupt a write to the terminal, and handling it writes to the terminal too.
            self.task.get_loop().call_soon_threadsafe(self._handle, signal.Signals(number))
            return
        self.received = self.received or signal.Signals(number)
        if first and ended:
            return  # the remaining work is short and saves the transcript
        raise KeyboardInterrupt

    def _handle(self, number: signal.Signals) -> None:
        self._pending = False
        if number == signal.SIGINT and self._intercept():
            return
        self.received = number
        if self.task is not None:
            self.task.cancel()
