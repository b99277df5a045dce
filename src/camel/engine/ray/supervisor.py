"""The supervisor on Ray: starts workers, gives them shards, and replaces those that die.

All state is in the run's folder. When the driver dies, its actors end, and the same command resumes the run. The death of
a worker costs only its calls in flight. The one decision to know: one thread handles the whole cluster, so the driver
stays in contact with its workers even if its event loop is busy.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from camel.core.errors import CamelError
from camel.engine.cluster_worker import WorkerEnd
from camel.engine.coordinator import Totals
from camel.engine.fence import Fence
from camel.engine.halt import Halt, Tell, describe_release, ignore_notice
from camel.engine.nodes import NodeFault, NodeHealth
from camel.engine.ray.actors import CoordinatorActor, WorkerActor, WorkerOrder
from camel.engine.site import Divider, Factory, Turn
from camel.engine.stage import ShardTable
from camel.engine.supervisor import StepPass
from camel.runs.bits import BitSet
from camel.runs.run import RunFolder

ray: Any = import_module("ray")  # its types are incomplete
TTL = 10.0
"""Seconds without a heartbeat after which a worker counts as dead."""
LOOK_EVERY = 0.25
SCALE_EVERY = 3.0
PATIENCE = 5
"""Number of workers in a row that may die before their first heartbeat; then the run stops."""
SLOWEST = 5.0
"""Maximum seconds between replacements of workers that die at their start."""
SOON = 15.0
"""Seconds to wait for a worker's first heartbeat. After that, other workers get its part of the items in flight."""
IDLE_NOTICE = 30.0
"""Seconds without any running worker after which a notice is shown with the reason."""
GRACE = 5.0
"""Seconds that workers have to exit."""
NODE_ID = "ray.io/node-id"
"""The label that Ray gives to each node."""


class ClusterLost(CamelError):
    """The driver cannot reach its coordinator."""


class WorkersDie(CamelError):
    """Workers die as soon as they are started."""


class WorkerFailed(CamelError):
    """A worker had an error that affects the whole run."""


class _Worker(NamedTuple):
    name: str
    actor: Any
    since: float


class RaySupervisor:
    """Runs workloads on the connected Ray cluster. Use as a context manager."""

    def __init__(
        self,
        factory: Factory,
        folder: RunFolder,
        *,
        concurrency: int,
        workers: int | None = None,
        ttl: float = TTL,
        share: Divider | None = None,
        environment: dict[str, str] | None = None,
        watch: Callable[[Totals], None] = lambda totals: None,
        tell: Tell = ignore_notice,
    ) -> None:
        """Describe the work; nothing is started yet.

        `workers` is the number of workers: by default one per CPU of the cluster, never more than `concurrency`, the
        number of items in flight over all workers. `environment` is passed to each worker for variables that it does not
        set itself, and is not stored. `watch` gets the overall state and `tell` gets notices of workers that died, both on
        the event loop of the stage.
        """
        self._factory, self._folder, self._share = factory, folder, share or Divider()
        self._concurrency, self._workers, self._ttl = concurrency, workers, ttl
        self._environment, self._watch, self._tell = environment or {}, watch, tell
        self._fence = Fence(folder, ttl)
        self._coordinator: Any = None
        self._running: dict[Any, _Worker] = {}
        """The workers by their long-running calls."""
        self._wanted, self._scaled = 0, 0.0
        self._started = 0
        self._met: set[str] = set()
        """Names of workers that have sent a heartbeat."""
        self._early, self._pause_until = 0, 0.0
        self._health = NodeHealth()
        self._leaving: set[str] = set()
        """Names of workers on retired nodes. They may have calls in flight for a while."""
        self._told_placeless = False
        self._turn, self._seen = 0, 0
        self._totals: Totals | None = None
        self._error: Exception | None = None
        self._patience = GRACE
        self._halting = ""
        self._halted = False
        self._paused = self._told_paused = False
        self._closing = threading.Event()
        self._begin: tuple[Turn, int, BitSet] | None = None
        self._lock = threading.Lock()
        self._news: list[int] = []
        self._notices: list[tuple[str, str, dict[str, Any]]] = []
        """Notices about workers and nodes, as `Tell` takes them."""
        self._thread = threading.Thread(target=self._supervise, name="camel-supervisor", daemon=True)

    def __enter__(self) -> RaySupervisor:
        time.sleep(self._fence.left())
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        coordinator = ray.remote(num_cpus=0, max_restarts=0, enable_task_events=False)(CoordinatorActor)
        self._coordinator = coordinator.options(scheduling_strategy=here, max_concurrency=1000).remote(
            self._concurrency, self._ttl, self._share, self._folder.root.name
        )
        self._make = ray.remote(
            num_cpus=1,
            max_restarts=0,
            max_task_retries=0,
            enable_task_events=False,
            scheduling_strategy="SPREAD",
        )(WorkerActor)
        self._thread.start()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._closing.set()
        self._thread.join()
        end = time.monotonic() + (self._patience if kind is None else 0.0)
        with contextlib.suppress(RayError):
            ray.get(self._coordinator.call.remote("close"), timeout=GRACE)
            while self._running and time.monotonic() < end:
                ended, _ = ray.wait(list(self._running), timeout=LOOK_EVERY)
                for call in ended:
                    del self._running[call]
                ray.get(self._coordinator.call.remote("look", 0, 1), timeout=GRACE)
        for actor in (*(worker.actor for worker in self._running.values()), self._coordinator):
            with contextlib.suppress(Exception):  # the cluster may have stopped
                ray.kill(actor)
        if not self._running:
            self._fence.lift()

    async def run(self, work: StepPass) -> bool:
        """Work on a step until it is finished or halted. Return True if every shard is committed."""
        workloads, folder, halt = work.workloads, work.folder, work.halt
        for one in workloads:
            await asyncio.to_thread(folder.sweep, one.name)
        table = ShardTable(workloads)
        done = await asyncio.to_thread(table.done, folder)
        if len(done) < len(table) and not halt.reason:
            self._turn += 1
            with self._lock:
                self._begin = Turn(self._turn, work.step, work.attempt), len(table), BitSet(done)

            def note(number: int) -> None:
                stage, shard = table[number]
                done.add(number)
                work.committed(stage.name, shard)

            try:
                while not self._step(halt, note):  # noqa: ASYNC110 - the thread waits for Ray
                    await asyncio.sleep(LOOK_EVERY / 2)
            except asyncio.CancelledError:
                self._patience = 0.0  # do not wait for workers if calls in flight are not awaited
                raise
            for one in workloads:
                await asyncio.to_thread(folder.sweep, one.name)
        return len(done) == len(table)

    def _step(self, halt: Halt, committed: Callable[[int], None]) -> bool:
        """Exchange news with the thread that calls the cluster. Return True if the turn is over."""
        with self._lock:
            news, self._news = self._news, []
            notices, self._notices = self._notices, []
            totals, error = self._totals, self._error
        for shard in news:
            committed(shard)
        for event, text, fields in notices:
            self._tell(event, text, **fields)
        if totals is not None:
            self._watch(totals)
            if totals.halt:
                halt.set(totals.halt)
        self._paused = halt.paused
        if halt.reason:
            self._halting = halt.reason
        if error is not None and (not isinstance(error, WorkerFailed) or self._is_over(totals)):
            raise error
        return self._is_over(totals) and not news

    def _is_over(self, totals: Totals | None) -> bool:
        return totals is not None and totals.turn == self._turn and totals.over

    # --- the thread --------------------------------------------------------------------------------------------------

    def _supervise(self) -> None:
        try:
            while not self._closing.is_set():
                self._fence.renew()
                self._pass_on()
                self._scale()
                self._replace()
        except RayError as error:
            self._error = ClusterLost(
                f"lost the connection to the cluster or its coordinator: run the same command again ({_line(error)})"
            )
        except Exception as error:
            self._error = error

    def _pass_on(self) -> None:
        """Forward the event loop's requests to the coordinator, and get the overall state from it."""
        with self._lock:
            begin, self._begin = self._begin, None
        if begin is not None:
            self._seen = 0
            self._call("begin", *begin)
        if self._halting and not self._halted:
            self._halted = True
            self._call("halt", self._halting)
        if self._paused != self._told_paused:
            self._told_paused = self._paused
            self._call("pause", self._told_paused)
        totals: Totals = self._call("look", self._seen, self._expected())
        self._seen += len(totals.committed)
        self._met.update(totals.live)
        if self._met.intersection(worker.name for worker in self._running.values()):
            self._early, self._told_placeless = 0, False
        elif not self._told_placeless:
            self._report_idle()
        with self._lock:
            self._news += totals.committed
            self._totals = totals
            for worker, shards in totals.silent.items():
                text = f"worker {worker} sent no heartbeat for {self._ttl:g} s and lost its lease: {describe_release(shards)}"
                self._notices.append(("worker", text, {"worker": worker, "shards": shards}))
        for fault in totals.faults:
            self._judge(fault)

    def _report_idle(self) -> None:
        """Report why no worker is running, if there has been none for a while."""
        oldest = min((worker.since for worker in self._running.values()), default=math.inf)
        if time.monotonic() - oldest < IDLE_NOTICE:
            return
        self._told_placeless = True
        there = sum(node["Resources"]["CPU"] for node in self._usable().values())
        free = self._free()
        if not there:
            cause = "its nodes have died; start them again"
        elif free < 1:
            cause = "stop other work on the cluster, or add a node"
        else:
            cause = "they are starting"
        text = (
            f"no worker has run for {IDLE_NOTICE:g} s: {len(self._running)} wait for 1 CPU each, and {free:g} of "
            f"the cluster's {there:g} are free: {cause}"
        )
        with self._lock:
            self._notices.append(("worker", text, {"worker": "", "shards": []}))

    def _expected(self) -> int:
        """Return the number of workers that run or will run soon. The others may wait for a CPU for hours."""
        young = time.monotonic() - SOON
        return sum(worker.name in self._met or worker.since > young for worker in self._staying())

    def _staying(self) -> list[_Worker]:
        """Return the workers on nodes that are not retired."""
        return [worker for worker in self._running.values() if worker.name not in self._leaving]

    def _call(self, method: str, *args: Any) -> Any:
        try:
            return ray.get(self._coordinator.call.remote(method, *args), timeout=60)
        except GetTimeoutError:
            raise ClusterLost("the coordinator does not answer: run the same command again") from None

    def _scale(self) -> None:
        """Start workers until the wanted number is running."""
        now = time.monotonic()
        if now - self._scaled > SCALE_EVERY or not self._wanted:
            self._scaled = now
            self._wanted = min(self._concurrency, self._workers or self._room())
        # New nodes are allowed: an autoscaler may add them at any time.
        others = {NODE_ID: f"!in({','.join(self._health.retired)})"} if self._health.retired else None
        while len(self._staying()) < self._wanted and now >= self._pause_until and not self._halted:
            self._started += 1
            name = f"w{self._started}-{secrets.token_hex(3)}"
            actor = self._make.options(label_selector=others).remote()
            # The environment is an argument of a call, not of the actor's creation, which the cluster stores.
            call = actor.run.remote(WorkerOrder(name, self._factory), self._coordinator, self._environment)
            self._running[call] = _Worker(name, actor, now)

    def _room(self) -> int:
        """Return the number of workers for which there are CPUs, including running ones.

        Does not count CPUs in use by others: requesting those would make an autoscaler add nodes without end.
        """
        staying = self._staying()
        if any(worker.name not in self._met for worker in staying):
            return len(staying)  # workers that are starting may not have a CPU yet
        return max(1, len(staying) + int(self._free()))

    def _usable(self) -> dict[str, Any]:
        """Return the nodes with CPUs that are not retired, by id."""
        return {id: node for id, node in _nodes().items() if id not in self._health.retired}

    def _free(self) -> float:
        """Return the number of free CPUs on usable nodes."""
        if not self._health.retired:
            return ray.available_resources().get("CPU", 0.0)
        free: dict[str, dict[str, float]] = ray._private.state.available_resources_per_node()
        return sum(free.get(node, {}).get("CPU", 0.0) for node in self._usable())

    def _replace(self) -> None:
        """Wait a moment for workers to end, and handle those that have ended."""
        if not self._running:
            self._closing.wait(LOOK_EVERY)
            return
        ended, _ = ray.wait(list(self._running), timeout=LOOK_EVERY)
        for call in ended:
            worker = self._running.pop(call)
            self._handle_end(worker, *_how(call))

    def _handle_end(self, worker: _Worker, left: WorkerEnd | None, error: Exception | None) -> None:
        why = left.why if left else _line(error)
        if left is None:
            with contextlib.suppress(Exception):
                ray.kill(worker.actor)
        # If only the loss of its node is known, the worker may be alive, so its lease has to expire first.
        may_live = isinstance(error, RayActorError) and "worker process has died" not in str(error)
        shards: list[int] = self._call("mark_unreachable" if may_live else "lost", worker.name) or []
        if left is None:
            rest = f"its lease expires in at most {self._ttl:g} s" if may_live else describe_release(shards)
            how = "is unreachable" if may_live else "died"
            with self._lock:
                text = f"worker {worker.name} {how} ({why}): {rest}"
                self._notices.append(("worker", text, {"worker": worker.name, "shards": shards}))
        if left is not None and left.fault is not None:
            self._judge(left.fault)
        elif left is not None and left.how == "failed":
            self._fail(why)
        elif isinstance(error, RayTaskError):
            self._fail(why, f"a worker failed with an unexpected error: {why}; see Ray's logs", error)
        elif worker.name not in self._met and left is None:
            self._early += 1
            self._pause_until = time.monotonic() + min(SLOWEST, 0.2 * 2**self._early)
            if self._early >= PATIENCE:
                raise WorkersDie(
                    f"{PATIENCE} workers in a row died at their start, the last one with: {why}. Check that the same "
                    f"environment with camel is on every node"
                )

    def _fail(self, why: str, text: str = "", error: Exception | None = None) -> None:
        """Stop the run because of an error that does not concern only one node."""
        failure = WorkerFailed(text or why)
        failure.__cause__ = error
        self._error = self._error or failure
        self._halting = self._halting or why

    def _judge(self, fault: NodeFault) -> None:
        """Retire a sick node, or stop the run if its nodes are not the reason."""
        nodes = _nodes()
        if fault.node in self._health.retired or fault.node not in nodes:
            return
        if why := self._health.stops_run(fault, nodes):
            self._fail(why)
            return
        self._leaving.update(self._call("retire", fault.node) or ())
        name = nodes[fault.node]["NodeManagerAddress"]
        with self._lock:
            fields = {"node": name, "kind": fault.kind}
            self._notices.append(("node", fault.notice(name), fields))


def _nodes() -> dict[str, Any]:
    """Return the live nodes that have room for a worker, by id."""
    return {
        node["NodeID"]: node
        for node in ray.nodes()
        if node["Alive"] and node["Resources"].get("CPU", 0.0) >= 1
    }


def _how(call: Any) -> tuple[WorkerEnd | None, Exception | None]:
    try:
        return ray.get(call), None
    except (RayError, Exception) as error:
        return None, error


def _line(error: Exception | None) -> str:
    """Shorten an error of Ray to one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line or "died" in line or "dead" in line] or lines
    return (telling[-1] if telling else type(error).__name__)[:300]
