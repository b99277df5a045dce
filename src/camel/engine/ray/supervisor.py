"""The supervisor on Ray: places workers, leases them shards, replaces those that die, and holds no truth.

Everything that matters is in the run's folder. The driver's death ends its actors, and running the command again goes
on; a worker's death costs what it had in flight. The one decision to know: all that is done about the cluster is done by
one thread, so that the driver is heard of by its workers whatever its event loop is busy with.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from camel.core.errors import CamelError
from camel.engine.cluster_worker import WorkerEnd
from camel.engine.coordinator import Totals
from camel.engine.fence import Fence
from camel.engine.halt import Halt
from camel.engine.notices import Tell, shards_again, unheard
from camel.engine.ray.actors import CoordinatorActor, WorkerActor, WorkerOrder
from camel.engine.site import Divide, Factory, Turn, no_limits
from camel.engine.stage import ShardTable, Workload
from camel.engine.supervisor import all_committed
from camel.runs.run import RunFolder

ray: Any = import_module("ray")  # whose types say little that holds
TTL = 10.0
"""Seconds of silence after which a worker is taken for dead."""
LOOK_EVERY = 0.25
SCALE_EVERY = 3.0
PATIENCE = 5
"""Workers that may die one after the other without a single heartbeat before it is given up."""
AFTER_REFUSAL = 15.0
"""Seconds until another worker is tried after one could not start; the next may be put on the same node."""
SLOWEST = 5.0
"""Seconds at most between the replacement of one worker that died at its start and the next."""
SOON = 15.0
"""Seconds that a worker is given to show up before its part of the window goes to the others."""
PLACELESS = 30.0
"""Seconds without a single worker at work after which it is told what they wait for."""
GRACE = 5.0
"""Seconds that workers have to leave when they are sent home."""


class ClusterLost(CamelError):
    """The driver cannot reach its own coordinator any more."""


class WorkersDie(CamelError):
    """Workers die as soon as they are started."""


class WorkerFailed(CamelError):
    """A worker met an error that concerns the whole run."""


class _Worker(NamedTuple):
    name: str
    actor: Any
    since: float


class RaySupervisor:
    """Has workloads worked on by the Ray cluster that this process is connected to. Use as a context manager."""

    def __init__(
        self,
        factory: Factory,
        folder: RunFolder,
        *,
        concurrency: int,
        workers: int | None = None,
        cpus: float = 1.0,
        ttl: float = TTL,
        share: Divide = no_limits,
        environment: dict[str, str] | None = None,
        watch: Callable[[Totals], None] = lambda totals: None,
        tell: Tell = unheard,
    ) -> None:
        """Describe the work; nothing is started yet.

        `workers` is how many to have, by default one for each CPU of the cluster, but never more than `concurrency`,
        which is what all of them together may have in flight. `environment` is handed to each worker where it has no
        value of its own, and kept nowhere. `watch` is told how everything stands, and `tell` of workers that died, on the
        event loop of the stage.
        """
        self._factory, self._folder, self._share = factory, folder, share
        self._concurrency, self._workers, self._cpus, self._ttl = concurrency, workers, cpus, ttl
        self._environment, self._watch, self._tell = environment or {}, watch, tell
        self._fence = Fence(folder, ttl)
        self._coordinator: Any = None
        self._running: dict[Any, _Worker] = {}
        """The workers by the calls that last as long as they live."""
        self._wanted, self._scaled = 0, 0.0
        self._started = 0
        self._met: set[str] = set()
        """Workers that were heard of."""
        self._early, self._pause_until = 0, 0.0
        self._refused: set[str] = set()
        """Why workers could not start while others worked; each is told once."""
        self._told_placeless = False
        self._turn, self._seen = 0, 0
        self._totals: Totals | None = None
        self._error: Exception | None = None
        self._patience = GRACE
        self._halting = ""
        self._halted = False
        self._paused = self._told_paused = False
        self._closing = threading.Event()
        self._begin: tuple[Turn, int, list[int]] | None = None
        self._lock = threading.Lock()
        self._news: list[int] = []
        self._notices: list[tuple[str, str, list[int]]] = []
        """What became of workers, to be told: a worker, a line, its shards."""
        self._thread = threading.Thread(target=self._supervise, name="camel-supervisor", daemon=True)

    def __enter__(self) -> RaySupervisor:
        time.sleep(self._fence.left())
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        coordinator = ray.remote(num_cpus=0, max_restarts=0, enable_task_events=False)(CoordinatorActor)
        self._coordinator = coordinator.options(scheduling_strategy=here, max_concurrency=1000).remote(
            self._concurrency, self._ttl, self._share, self._folder.root.name
        )
        self._make = ray.remote(
            num_cpus=self._cpus,
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
            ray.get(self._coordinator.close.remote(), timeout=GRACE)
            while self._running and time.monotonic() < end:
                ended, _ = ray.wait(list(self._running), timeout=LOOK_EVERY)
                for call in ended:
                    del self._running[call]
                ray.get(self._coordinator.look.remote(0, 1), timeout=GRACE)
        for actor in (*(worker.actor for worker in self._running.values()), self._coordinator):
            with contextlib.suppress(Exception):  # a cluster that is gone has nothing to kill
                ray.kill(actor)
        if not self._running:
            self._fence.lift()

    async def run(
        self,
        workloads: Sequence[Workload],
        folder: RunFolder,
        *,
        concurrency: int,
        halt: Halt,
        committed: Callable[[str, int], None] = lambda stage, shard: None,
        step: tuple[int, ...] = (),
        attempt: int = 0,
    ) -> bool:
        """Finish a step, or as much of it as can be done before `halt`; True when every shard is committed."""
        for one in workloads:
            await asyncio.to_thread(folder.sweep, one.name)
        table = ShardTable(workloads)
        done = await asyncio.to_thread(table.done, folder)
        if len(done) < len(table) and not halt.reason:
            self._turn += 1
            with self._lock:
                self._begin = Turn(self._turn, step, attempt), len(table), done

            def note(number: int) -> None:
                stage, shard = table[number]
                committed(stage.name, shard)

            try:
                while not self._step(halt, note):  # noqa: ASYNC110 - it is Ray that is waited for, on a thread
                    await asyncio.sleep(LOOK_EVERY / 2)
            except asyncio.CancelledError:
                self._patience = (
                    0.0  # who does not wait for calls in flight does not wait for workers to say goodbye
                )
                raise
            for one in workloads:
                await asyncio.to_thread(folder.sweep, one.name)
        return all_committed(workloads, folder)

    def _step(self, halt: Halt, committed: Callable[[int], None]) -> bool:
        """Pass on what is new in both directions; True when the turn is over."""
        with self._lock:
            news, self._news = self._news, []
            notices, self._notices = self._notices, []
            totals, error = self._totals, self._error
        for shard in news:
            committed(shard)
        for worker, text, shards in notices:
            self._tell("worker", text, worker=worker, shards=shards)
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
                f"the cluster, or its coordinator, is gone: run the same command again ({_line(error)})"
            )
        except Exception as error:
            self._error = error

    def _pass_on(self) -> None:
        """Tell the coordinator what the event loop wants, and hear how everything stands."""
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
            self._tell_placeless()
        with self._lock:
            self._news += totals.committed
            self._totals = totals
            for worker, shards in totals.silent.items():
                text = f"worker {worker} was silent for {self._ttl:g} s and is out: {shards_again(shards)}"
                self._notices.append((worker, text, shards))

    def _tell_placeless(self) -> None:
        """Say why nobody works, if nobody has for a while."""
        oldest = min((worker.since for worker in self._running.values()), default=math.inf)
        if time.monotonic() - oldest < PLACELESS:
            return
        self._told_placeless = True
        there, free = (
            found.get("CPU", 0.0) for found in (ray.cluster_resources(), ray.available_resources())
        )
        if not there:
            cause = "its nodes have died; start them again"
        elif free < self._cpus:
            cause = "stop what else runs there, or add a node"
        else:
            cause = "they are starting"
        text = (
            f"no worker is at work for {PLACELESS:g} s: {len(self._running)} wait for {self._cpus:g} CPU each, {free:g} of "
            f"the cluster's {there:g} are free: {cause}"
        )
        with self._lock:
            self._notices.append(("", text, []))

    def _expected(self) -> int:
        """Workers that are there or can be expected in a moment; others may wait for a place for hours."""
        young = time.monotonic() - SOON
        return sum(worker.name in self._met or worker.since > young for worker in self._running.values())

    def _call(self, method: str, *args: Any) -> Any:
        try:
            return ray.get(getattr(self._coordinator, method).remote(*args), timeout=60)
        except GetTimeoutError:
            raise ClusterLost("the coordinator does not answer: run the same command again") from None

    def _scale(self) -> None:
        """Have as many workers as wanted."""
        now = time.monotonic()
        if now - self._scaled > SCALE_EVERY or not self._wanted:
            self._scaled = now
            self._wanted = min(self._concurrency, self._workers or self._room())
        while len(self._running) < self._wanted and now >= self._pause_until and not self._halted:
            self._started += 1
            name = f"w{self._started}-{secrets.token_hex(3)}"
            actor = self._make.remote()
            # The environment is an argument of a call, and not of the actor's creation: the cluster keeps those.
            call = actor.run.remote(WorkerOrder(name, self._factory), self._coordinator, self._environment)
            self._running[call] = _Worker(name, actor, now)

    def _room(self) -> int:
        """Workers for which there are CPUs, the present ones included.

        What others use is left to them: asking for it as well would have an autoscaler add nodes without end.
        """
        placed = [worker for worker in self._running.values() if worker.name in self._met]
        if len(placed) < len(self._running):
            return len(
                self._running
            )  # of those that are on their way it is not known whether they have a place
        free = ray.available_resources().get("CPU", 0.0)
        return max(1, len(placed) + int(free / max(self._cpus, 0.01)))

    def _replace(self) -> None:
        """Wait a moment for workers to end, and see to those that did."""
        if not self._running:
            self._closing.wait(LOOK_EVERY)
            return
        ended, _ = ray.wait(list(self._running), timeout=LOOK_EVERY)
        for call in ended:
            worker = self._running.pop(call)
            self._bury(worker, *_how(call))

    def _bury(self, worker: _Worker, left: WorkerEnd | None, error: Exception | None) -> None:
        why = left.why if left else _line(error)
        if left is None:
            with contextlib.suppress(Exception):
                ray.kill(worker.actor)
        # A worker on a node that is out of reach may be alive: its lease has to run out first.
        may_live = _may_live(error)
        shards: list[int] = self._call("shun" if may_live else "lost", worker.name) or []
        if left is None:
            rest = f"its lease runs out in {self._ttl:g} s at most" if may_live else shards_again(shards)
            how = "is out of reach" if may_live else "died"
            with self._lock:
                self._notices.append((worker.name, f"worker {worker.name} {how} ({why}): {rest}", shards))
        failed = (left is not None and left.how == "failed") or isinstance(error, RayTaskError)
        # A node that cannot work, by its mounts or its version, does not end what others are doing well.
        others_work = any(one.name in self._met for one in self._running.values())
        if failed and worker.name not in self._met and others_work:
            self._pause_until = time.monotonic() + AFTER_REFUSAL
            if why not in self._refused:
                self._refused.add(why)
                with self._lock:
                    self._notices.append((worker.name, f"worker {worker.name} cannot start: {why}", []))
        elif failed:
            failure = WorkerFailed(why if left else f"a worker met a bug: {why}; see the logs of Ray")
            failure.__cause__ = error
            self._error = self._error or failure
            self._halting = self._halting or why
        elif worker.name not in self._met:
            self._early += 1
            self._pause_until = time.monotonic() + min(SLOWEST, 0.2 * 2**self._early)
            if self._early >= PATIENCE:
                raise WorkersDie(
                    f"{PATIENCE} workers died one after the other at their start; is the same environment, with camel, on "
                    f"every node? The last: {why}"
                )


def _how(call: Any) -> tuple[WorkerEnd | None, Exception | None]:
    try:
        return ray.get(call), None
    except (RayError, Exception) as error:
        return None, error


def _may_live(error: Exception | None) -> bool:
    """Whether a worker that the cluster has given up may still be running: when all that is known is that its node went."""
    return isinstance(error, RayActorError) and "worker process has died" not in str(error)


def _line(error: Exception | None) -> str:
    """An error of Ray's, which likes to say a lot, in a line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line or "died" in line or "dead" in line] or lines
    return (telling[-1] if telling else type(error).__name__)[:300]
