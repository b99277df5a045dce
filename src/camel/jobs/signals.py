"""Stops a job on Ctrl-C: once waits for calls in flight, twice stops at once, three times ends the process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Generator

from camel.engine.controlled import STOPPED as STOPPED_ELSEWHERE
from camel.engine.halt import Halt

STOPPED = "stopped by you"
BY_A_PERSON = (STOPPED, STOPPED_ELSEWHERE)
"""Reasons to halt that come from a user."""
INTERRUPTED = 130


class Stopping:
    """Handles Ctrl-C and SIGTERM for the task that creates it. `note` tells the user that calls in flight end first.
    `in_flight` returns the number of these calls. Works only in the main thread of a process."""

    def __init__(
        self, halt: Halt, note: Callable[[], None], in_flight: Callable[[], int] = lambda: 0
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._halt, self._note, self._task, self._in_flight = halt, note, task, in_flight
        self.asked = 0
        """Number of signals received."""
        self.abandoned = 0
        """Number of calls that were abandoned in flight."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, self.stop)

    def stop(self) -> None:
        """Stop, like another Ctrl-C."""
        self.asked += 1
        if self.asked == 1:
            self._halt.set(STOPPED)
            self._note()
        elif self.asked == 2:
            self.abandoned = self._in_flight()
            self._task.cancel()
        else:
            os._exit(INTERRUPTED)

    @contextlib.contextmanager
    def heard(self) -> Generator[None]:
        """Run the block; a second signal interrupts it."""
        try:
            yield
        except asyncio.CancelledError:
            if self.asked < 2:
                raise
            self._task.uncancel()
