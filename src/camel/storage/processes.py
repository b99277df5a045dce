"""Worker processes for CPU-bound work on files, such as one call per shard.

The one decision to know: a call is a pure function whose arguments name the files that it reads and writes. So the results
do not depend on the number of processes, and nothing is lost with a killed process except its call.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Generator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextvars import ContextVar

from camel.core.errors import CamelError

_elsewhere: ContextVar[Executor | None] = ContextVar("elsewhere", default=None)
"""The executor that is used instead of processes of this machine."""


class ProcessKilled(CamelError):
    """A worker process ended before its call returned."""


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def workers(count: int, *, threads: int = 1) -> Generator[Executor]:
    """Yield an executor with `count` processes. If `count` is 1, it has `threads` threads of this process instead.

    Calls that have not begun are cancelled at the end. A killed process raises `ProcessKilled`. Within `working_on`, several
    processes are those of its executor.
    """
    if count > 1 and (other := _elsewhere.get()) is not None:
        yield other
        return
    if count > 1:
        # Not by fork, because Arrow and the event loop have threads.
        pool: Executor = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _begin)
    else:
        pool = ThreadPoolExecutor(threads, "camel-work")
    try:
        with explained():
            yield pool
    finally:
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def working_on(executor: Executor) -> Generator[None]:
    """Make `workers` use this executor instead of processes of this machine."""
    token = _elsewhere.set(executor)
    try:
        yield
    finally:
        _elsewhere.reset(token)


@contextlib.contextmanager
def explained() -> Generator[None]:
    """Raise `ProcessKilled` if a call could not end because a worker process was killed."""
    try:
        yield
    except BrokenProcessPool:
        raise ProcessKilled(
            "a worker process was killed, perhaps because memory ran out: run the command again, with `--processes 1` if "
            "that happens again"
        ) from None


def _begin() -> None:
    # A terminal sends Ctrl-C to all processes, and the main process handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when its parent was killed, because no call can return then."""
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)
