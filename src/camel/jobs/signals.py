"""Stopping a job: once lets what is in flight end, twice leaves at once, three times ends the process."""

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
"""Reasons to halt that a person has given."""
INTERRUPTED = 130


class Stopping:
    """Hears Ctrl-C and SIGTERM for the task that makes it; `note` tells the person that the calls in flight end first.

    `in_flight` says how many those are. Only the main thread of a process can hear them.
    """

    def __init__(
        self, halt: Halt, note: Callable[[], None], in_flight: Callable[[], int] = lambda: 0
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._halt, self._note, self._task, self._in_flight = halt, note, task, in_flight
        self.asked = 0
        """How often."""
        self.abandoned = 0
        """Calls that were left in flight."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, self.stop)

    def stop(self) -> None:
        """Stop, as a person does who presses Ctrl-C once more."""
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
        """Wait for the work in the block; it is left in the middle where a person asked twice."""
        try:
            yield
        except asyncio.CancelledError:
            if self.asked < 2:
                raise
            self._task.uncancel()
