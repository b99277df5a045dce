"""Bulk work on a Ray cluster: verify, index, compact and export call functions of files there.

The one decision to know: only the place of the calls changes, so the results are those of processes on one machine. The nodes
must reach the run under the same name: on a shared disk, or in an object store.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from concurrent.futures import Executor, Future
from importlib import import_module
from pathlib import Path
from typing import Any

from ray.exceptions import RayError, RayTaskError

from camel.core.errors import CamelError
from camel.runs.run import JOURNALS, journals

ray: Any = import_module("ray")  # its types are incomplete
HANDED_OVER = ("AWS_", "CAMEL_")
"""Prefixes of environment variables that calls get from the driver if their node does not have them."""


class CallLost(CamelError):
    """A call on the cluster could not end."""


class ClusterExecutor(Executor):
    """Submits calls to the connected cluster as tasks, each of which uses a CPU."""

    def __init__(self) -> None:
        self.cpus = max(2, int(ray.cluster_resources().get("CPU", 0)))
        """Number of calls that the cluster makes at a time; at least 2, which is what `workers` calls several processes."""
        environment = {name: value for name, value in os.environ.items() if name.startswith(HANDED_OVER)}
        # It has keys: an argument of a task is not stored, unlike a runtime environment.
        self._given = str(Path.cwd()), environment | {JOURNALS: str(journals().absolute())}
        self._task = ray.remote(num_cpus=1, enable_task_events=False)(_call)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a call. If its node dies, it is made again on another one."""
        future: Future[Any] = Future()

        def end(told: Future[Any]) -> None:
            if not future.set_running_or_notify_cancel():
                return
            error: Any = told.exception()
            cause: Any = getattr(error, "cause", None) if isinstance(error, RayTaskError) else None
            if error is None:
                future.set_result(told.result())
            elif cause is not None:
                future.set_exception(cause)
            elif isinstance(error, RayError):
                text = f"{type(error).__name__}: {error}".strip().splitlines()[0]
                future.set_exception(CallLost(f"the cluster lost a call: {text}; run the command again"))
            else:
                future.set_exception(error)

        self._task.remote(*self._given, fn, args, kwargs).future().add_done_callback(end)
        return future


def _call(cwd: str, environment: dict[str, str], fn: Any, args: Any, kwargs: Any) -> Any:
    """Make a call on a node, in the driver's working directory, because arguments may have relative paths."""
    with contextlib.suppress(OSError):
        os.chdir(cwd)
    for name, value in environment.items():
        os.environ.setdefault(name, value)
    return fn(*args, **kwargs)
