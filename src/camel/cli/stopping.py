"""Stopping a long command: once lets what is in flight end, twice leaves at once, three times ends the process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

from camel.engine.halt import Halt

if TYPE_CHECKING:
    from camel.jobs.failures import FailedItems

HALTED, FAILED_ITEMS, INTERRUPTED = 3, 4, 130
"""Exit codes of a run that was stopped by a limit or a failure, is complete with failed items, was stopped by a person."""
STOPPED = "stopped by you"


def finishing(in_flight: int, seconds: float) -> str:
    """What a stop waits for, in words; `seconds` is the longest that a call may take."""
    from camel.cli.panel import counted, duration

    return (
        f"stopping: finishing {counted(in_flight, 'call')} in flight, {duration(seconds)} at most; Ctrl-C again leaves at "
        "once, and they would be asked, and paid for, again"
    )


def failed_lines(failed: Sequence[FailedItems]) -> list[str]:
    """What to say of the items that failed: a line for each class, with an example."""
    return [
        f"failed  {one.count:,} with {one.name}, for example {one.example}: {one.words}" for one in failed
    ]


def abandoned(calls: int) -> str:
    """What leaving at once costs, in words to put after the reason; nothing where nothing was in flight."""
    from camel.cli.panel import counted

    if not calls:
        return ""
    return f", at once: {counted(calls, 'call')} in flight abandoned, to be asked, and paid for, again"


class Stopping:
    """Hears Ctrl-C and SIGTERM for the task that makes it; `note` tells the person that the calls in flight end first.

    `in_flight` says how many those are.
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
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._stop)

    def _stop(self) -> None:
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
        """Wait for the work in the block; it is left in the middle where a person asked twice.

        Several failures are one, the first: whoever waits for a group gets them all.
        """
        try:
            yield
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        except asyncio.CancelledError:
            self.forgive()

    def forgive(self) -> None:
        """Go on after the cancellation being handled, if a person asked for it; else raise it again."""
        if self.asked < 2:
            raise
        self._task.uncancel()
