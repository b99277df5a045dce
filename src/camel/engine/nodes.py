"""Sick nodes: what is wrong with them, and whether the run continues without them.

The one decision to know: a node is judged by comparison. A node has no route to an endpoint only if another node is served
by it meanwhile, so an outage of the endpoint is never blamed on a node. If more than half of the nodes are sick in the same
way, or no other node remains, the reason is not the node, and the run stops.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from camel._version import __version__
from camel.engine.site import ModelReport
from camel.runs.run import RunFolder

RECENT = 15.0
"""Seconds for which a successful call shows that a node reaches the endpoint."""
HOLD = 60.0
"""Seconds for which a node that has passed its shards on gets no others, unless another node is served earlier."""
PASSED_ON = 2
"""Number of nodes that may pass their shards on because nothing shows whether the endpoint works. Then it is an outage."""
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
_ROOM = 64 << 20
"""Free bytes below which a disk is the cause of an error that names no file."""
_ADVICE = {
    "route": "check its proxy settings, firewall and DNS",
    "disk": "free space on its local disk, or replace the disk",
    "code": "install the same camel on it",
    "start": "fix this on the node",
}


class NodeFault(msgspec.Struct, frozen=True):
    """Why a node cannot work for the run."""

    node: str
    """Ray's id of the node. A node that was restarted has a new one."""
    kind: Literal["route", "disk", "code", "start"]
    why: str

    def notice(self, name: str) -> str:
        """Return the text for the user. `name` is the node's address."""
        advice = f"{_ADVICE[self.kind]}, then restart Ray on it to use it again"
        return f"node {name} gets no more work in this run: {self.why}. To repair the node: {advice}"


class NodeHealth:
    """The nodes that get no more work in a run."""

    def __init__(self) -> None:
        self.retired: dict[str, NodeFault] = {}
        """By id."""

    def stops_run(self, fault: NodeFault, nodes: Collection[str]) -> str:
        """Retire a node and return an empty string, or return why the run must stop. `nodes` has the ids of all nodes."""
        sick = {node: one for node, one in self.retired.items() if node in nodes} | {fault.node: fault}
        same = [one for one in sick.values() if one.kind == fault.kind]
        if 2 * len(same) <= len(nodes) and not sick.keys() >= set(nodes):
            self.retired[fault.node] = fault
            return ""
        return (
            fault.why if len(sick) == 1 else f"{fault.why} ({len(sick)} of {len(nodes)} nodes are unusable)"
        )


class Routes:
    """Finds nodes without a route to an endpoint, from the reports of all workers. Runs in the coordinator."""

    def __init__(self) -> None:
        self.faults: dict[str, NodeFault] = {}
        """What was found, by node."""
        self._nodes: dict[str, str] = {}
        """The node of each worker."""
        self._counts: dict[tuple[str, str], int] = {}
        """Number of successful calls, by model and worker."""
        self._served: dict[str, dict[str, float]] = {}
        """Time of the last successful call, by model and node."""
        self._failing: dict[str, dict[str, int]] = {}
        """Number of calls in a row without a connection, by model and worker."""
        self._compared: dict[tuple[str, str], int] = {}
        """That number when the comparison with another node began, by model and worker."""
        self._passed_on: dict[str, int] = {}
        """Number of nodes that have passed their shards on since the last successful call, by model."""
        self._held: dict[str, tuple[str, float]] = {}
        """The model because of which a node gets no shards, and until when."""

    def note(self, worker: str, node: str, models: Mapping[str, ModelReport], now: float) -> None:
        """Process the report of a worker."""
        self._nodes[worker] = node
        for model, report in models.items():
            failing = self._failing.setdefault(model, {})
            if report.served > self._counts.get((model, worker), 0):
                self._counts[model, worker] = report.served
                self._served.setdefault(model, {})[node] = now
                self._passed_on.pop(model, None)
                self._held = {held: one for held, one in self._held.items() if one[0] != model}
            if report.unreached:
                failing[worker] = report.unreached
                self._compare(model, worker, report, now)
            else:
                failing.pop(worker, None)
                self._compared.pop((model, worker), None)

    def _compare(self, model: str, worker: str, report: ModelReport, now: float) -> None:
        """Decide whether the node of a failing worker has no route. It needs a call that failed while others were served."""
        node = self._nodes[worker]
        if not self._reached(model, now) or self._is_served(model, node, now):
            self._compared.pop((model, worker), None)
        elif report.unreached > self._compared.setdefault((model, worker), max(1, report.unreached)):
            why = f"no route to the endpoint of '{model}', which other nodes reach ({report.words[:300]})"
            self.faults.setdefault(node, NodeFault(node, "route", why))

    def _reached(self, model: str, now: float) -> set[str]:
        """Return the nodes that reach the endpoint: served recently, and no worker on them fails."""
        failing = {self._nodes[worker] for worker in self._failing.get(model, {})}
        return {node for node in self._served.get(model, {}) if self._is_served(model, node, now)} - failing

    def _is_served(self, model: str, node: str, now: float) -> bool:
        return now - self._served.get(model, {}).get(node, -math.inf) <= RECENT

    def passes_on(self, worker: str, now: float, idle: Callable[[], Collection[str]]) -> bool:
        """Return whether a failing worker must pass its shards on, because only another node can show what is wrong.

        `idle` returns the workers without a shard.
        """
        node = self._nodes[worker]
        for model, failing in self._failing.items():
            if worker not in failing or self._reached(model, now) or self._is_served(model, node, now):
                continue
            if self.is_held(worker, now):
                return True
            # If workers on two nodes fail, the node is not the reason.
            if {self._nodes[one] for one in failing} != {node} or self._passed_on.get(model, 0) >= PASSED_ON:
                continue
            if any(self._nodes.get(one, node) != node and not self.is_held(one, now) for one in idle()):
                self._passed_on[model] = self._passed_on.get(model, 0) + 1
                self._held[node] = model, now + HOLD
                return True
        return False

    def is_held(self, worker: str, now: float) -> bool:
        """Return whether the worker's node gets no shards for now."""
        return self._held.get(self._nodes.get(worker, ""), ("", now))[1] > now

    def forget(self, worker: str) -> None:
        """Forget what a worker that has ended reported."""
        for model, failing in self._failing.items():
            failing.pop(worker, None)
            self._compared.pop((model, worker), None)


def disk_fault(error: BaseException, folder: RunFolder | None = None) -> str:
    """Return what is wrong with a local disk if that is the cause of an error in a worker, otherwise an empty string.

    Local are temporary files, and the journals of a run in an object store. A run's folder on a disk is shared.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__ or cause.__context__
    if cause is None or cause.errno not in _DISK:
        return ""
    local = [Path(tempfile.gettempdir())]
    if folder is not None and not folder.on_disk:
        local.append(folder.root.absolute())
    named = cause.filename
    if not isinstance(named, str | bytes):
        return str(error) if any(map(_is_sick, local)) else ""
    path = Path(os.fsdecode(named)).absolute()
    shared = folder is not None and folder.on_disk and path.is_relative_to(folder.root.absolute())
    return str(error) if not shared and any(map(path.is_relative_to, local)) else ""


def _is_sick(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(1 << 16))
            file.flush()
            os.fsync(file.fileno())
        return shutil.disk_usage(folder).free < _ROOM
    except OSError as error:
        return error.errno in _DISK


@functools.cache
def release() -> str:
    """Return the version of this package with a hash of its source, which differs if any module, prompt or setting does."""
    root, digest = Path(__file__).parent.parent, hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.suffix in (".py", ".toml", ".txt"):
            digest.update(f"{path.relative_to(root).as_posix()}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return f"{__version__} (source {digest.hexdigest()[:12]})"
