"""The garbage collector during bulk work.

A call in flight is some hundred objects that live briefly and hold no cycles, so that with hundreds of them open the
collector is set off all the time and finds nothing: measured, a fifth of a call's CPU. While workers run it looks less
often; afterwards it does as before.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Generator

YOUNG = 50_000
"""New objects from which the collector looks; 700 is Python's own."""

_lock = threading.Lock()
_users: list[tuple[int, int, int]] = []
"""The thresholds as each of those who want it calm found them; the first of them has the ones to return to."""


@contextlib.contextmanager
def seldom_collected() -> Generator[None]:
    """Let the collector look seldom; several may ask for it at once, in any order."""
    with _lock:
        found = gc.get_threshold()
        _users.append(_users[0] if _users else found)
        if 0 < found[0] < YOUNG:
            gc.set_threshold(YOUNG, *found[1:])
    try:
        yield
    finally:
        with _lock:
            first = _users.pop()
            if not _users:
                gc.set_threshold(*first)
