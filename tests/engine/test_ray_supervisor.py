"""What the supervisor makes of the ways in which workers end; the rest is tested on real clusters."""

from __future__ import annotations

import errno
import importlib.util
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from camel.core.errors import InputError
from camel.engine.cluster_worker import WorkerEnd
from camel.engine.nodes import NodeFault
from camel.runs.run import RunFolder

pytestmark = [
    pytest.mark.slow,  # importing ray alone takes seconds
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra 'cluster'"),
]

PROCESS = "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR"
NODE = "The actor died because its node has died. Node Id: 1"


@pytest.fixture(scope="module")
def module() -> Any:
    """The module under test, imported by the first test: other tests are collected without ray."""
    from camel.engine.ray import supervisor

    return supervisor


def death(text: str) -> Exception:
    from ray.exceptions import ActorDiedError, ActorUnavailableError

    if text not in (PROCESS, NODE):
        return ActorUnavailableError(text, b"\0" * 16)
    died = type("Died", (ActorDiedError,), {"__str__": lambda self: text})
    return died()


def no_driver() -> None:
    import ray

    assert not ray.is_initialized(), "a test of the supervisor alone started a cluster"


@pytest.fixture
def supervisor(module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A supervisor without a cluster. Calls to the coordinator are in `calls`, killed actors in `killed`."""
    made = module.RaySupervisor(lambda: None, RunFolder(tmp_path), concurrency=4)
    made.calls, made.killed = [], []
    monkeypatch.setattr(made, "_call", lambda *args: made.calls.append(args))
    # The real functions would start a cluster of their own.
    monkeypatch.setattr(module, "ray", SimpleNamespace(kill=made.killed.append, nodes=list))
    yield made
    no_driver()


def worker(module: Any, name: str, since: float = 0.0) -> Any:
    return module._Worker(name, f"actor of {name}", since)


@pytest.mark.parametrize(
    ("error", "left", "told"),
    [
        (PROCESS, None, "lost"),
        (NODE, None, "mark_unreachable"),
        ("a short cut", None, "mark_unreachable"),
        ("", WorkerEnd("out", "the lease of this worker has run out"), "lost"),
    ],
)
def test_who_may_be_alive_keeps_its_shards_until_its_lease_is_over(
    module: Any, supervisor: Any, error: str, left: WorkerEnd | None, told: str
):
    supervisor._met.add("w1")
    supervisor._handle_end(worker(module, "w1"), left, death(error) if error else None)
    assert supervisor.calls == [(told, "w1")]
    assert supervisor.killed == ([] if left else ["actor of w1"])
    assert supervisor._error is None
    # A worker that left by itself was reported when its lease ran out.
    assert [text.split(" (")[0] for _, text, _ in supervisor._notices] == (
        [] if left else ["worker w1 died" if told == "lost" else "worker w1 is unreachable"]
    )


def test_workers_that_die_at_their_start_are_given_up_with_the_cause(module: Any, supervisor: Any):
    for number in range(module.PATIENCE - 1):
        supervisor._handle_end(worker(module, f"w{number}"), None, death(PROCESS))
    with pytest.raises(module.WorkersDie, match="SYSTEM_ERROR") as raised:
        supervisor._handle_end(worker(module, "last"), None, death(PROCESS))
    assert len(supervisor.calls) == module.PATIENCE
    assert "\n" not in str(raised.value)


def node(number: int, cpus: float = 1.0, *, alive: bool = True) -> dict[str, Any]:
    """A node as Ray lists it."""
    address = f"10.0.0.{number}"
    return {
        "NodeID": f"n{number}",
        "NodeManagerAddress": address,
        "Alive": alive,
        "Resources": {"CPU": cpus} if cpus else {},
    }


def unfit(number: int, kind: Any = "start") -> WorkerEnd:
    why = f"'/runs/a' is not the folder that the driver uses (on 10.0.0.{number})"
    return WorkerEnd("failed", why, NodeFault(f"n{number}", kind, why))


def test_a_sick_node_is_retired_and_a_majority_stops_the_run(module: Any, supervisor: Any):
    """Even if it answers first. Neither the head without CPUs nor a dead node counts."""
    nodes = [node(0, 0), node(1), node(2), node(3), node(4, alive=False)]
    module.ray.nodes = lambda: nodes
    for number in range(module.PATIENCE + 1):
        supervisor._handle_end(worker(module, f"unfit{number}"), unfit(1), None)
    assert (supervisor._error, supervisor._halting) == (None, "")
    [(event, text, fields)] = supervisor._notices
    assert (event, fields) == ("node", {"node": "10.0.0.1", "kind": "start"})
    assert text == unfit(1).fault.notice("10.0.0.1")
    assert [call for call in supervisor.calls if call[0] == "retire"] == [("retire", "n1")]
    supervisor._handle_end(worker(module, "full"), unfit(2, "disk"), None)
    assert supervisor._error is None, "it is sick in another way"
    supervisor._handle_end(worker(module, "last"), unfit(3), None)
    assert isinstance(supervisor._error, module.WorkerFailed)
    assert supervisor._halting == str(supervisor._error)
    assert unfit(3).why in supervisor._halting


def test_the_only_node_stops_the_run_with_its_reason(module: Any, supervisor: Any):
    module.ray.nodes = lambda: [node(0, 0), node(1)]
    supervisor._handle_end(worker(module, "alone"), unfit(1), None)
    assert str(supervisor._error) == unfit(1).why


def test_an_error_of_the_run_ends_it_at_the_first_worker(module: Any, supervisor: Any):
    """Also before its first heartbeat, while other workers run on other nodes."""
    from ray.exceptions import RayTaskError

    module.ray.nodes = lambda: [node(1), node(2), node(3)]
    supervisor._running = {"call": worker(module, "good")}
    supervisor._met.add("good")
    missing = RayTaskError("run", "FileNotFoundError: roles.txt", FileNotFoundError(2, "roles.txt"))
    supervisor._handle_end(worker(module, "w1"), None, missing)
    assert isinstance(supervisor._error, module.WorkerFailed)
    assert "FileNotFoundError" in str(supervisor._error)


def test_workers_are_started_on_other_nodes(module: Any, supervisor: Any):
    module.ray.nodes = lambda: [node(1, 4), node(2, 4)]
    module.ray.available_resources = lambda: {"CPU": 5.0}
    module.ray._private = SimpleNamespace(
        state=SimpleNamespace(available_resources_per_node=lambda: {"n1": {"CPU": 2.0}, "n2": {"CPU": 3.0}})
    )
    asked: list[Any] = []

    class Make:
        def options(self, **options: Any) -> Make:
            asked.append(options["label_selector"])
            return self

        def remote(self) -> Any:
            return SimpleNamespace(run=SimpleNamespace(remote=lambda *_: f"call {len(asked)}"))

    supervisor._make = Make()
    supervisor._running = {"a": worker(module, "sick"), "b": worker(module, "good")}
    supervisor._met |= {"sick", "good"}
    assert supervisor._room() == 2 + 5
    supervisor._call = lambda *args: ["sick"] if args[0] == "retire" else None
    supervisor._judge(NodeFault("n1", "route", "no route"))
    assert supervisor._room() == 1 + 3, "neither its workers nor its CPUs count"
    assert supervisor._expected() == 1
    supervisor._scale()
    assert asked == [{module.NODE_ID: "!in(n1)"}] * 3


@pytest.mark.parametrize(("there", "free"), [(4, 0.5), (4, 3.0), (0, 0.0)])
def test_why_no_worker_runs_is_reported_once(
    module: Any,
    supervisor: Any,
    monkeypatch: pytest.MonkeyPatch,
    snapshot: Callable[..., None],
    there: int,
    free: float,
):
    ray = SimpleNamespace(
        nodes=lambda: [node(1, there)],
        available_resources=lambda: {"CPU": free},
    )
    monkeypatch.setattr(module, "ray", ray)
    now = 1000.0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    live: dict[str, Any] = {}
    looked = SimpleNamespace(committed=[], live=live, silent={}, faults=())
    monkeypatch.setattr(supervisor, "_call", lambda *args: looked)
    supervisor._running = {"a": worker(module, "w1", now), "b": worker(module, "w2", now)}
    now += module.IDLE_NOTICE - 1
    supervisor._pass_on()
    assert not supervisor._notices, "it has only begun"
    now += 1
    for _ in range(3):
        supervisor._pass_on()
    [(_, text, _)] = supervisor._notices
    snapshot("status", text)
    live["w1"] = None
    supervisor._pass_on()
    assert not supervisor._told_placeless, "if all of them stop, it is reported again"


def test_a_worker_takes_what_it_has_not_itself_and_refuses_another_version(monkeypatch: pytest.MonkeyPatch):
    from camel.engine.ray import actors
    from camel.engine.ray.actors import WorkerActor, WorkerOrder

    monkeypatch.setenv("OPENAI_API_KEY", "of the node")
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.setattr(actors, "_node", lambda: "n7")
    monkeypatch.setattr(actors, "_address", lambda: "10.0.0.7")
    monkeypatch.setattr("gc.freeze", lambda: None)
    seen: dict[str, str] = {}
    problem: Exception = InputError("no scenario of that name")

    async def factory(worker: str) -> Any:
        seen.update(os.environ, worker=worker)
        raise problem

    handed = {"OPENAI_API_KEY": "of the driver", "AWS_REGION": "somewhere"}
    with monkeypatch.context() as patch:
        patch.setattr(os, "environ", dict(os.environ))
        left = WorkerActor().run(WorkerOrder("w1", factory), None, handed)
    why = "no scenario of that name (on 10.0.0.7)"
    assert left == WorkerEnd("failed", why, NodeFault("n7", "start", why))
    assert (seen["OPENAI_API_KEY"], seen["AWS_REGION"]) == ("of the node", "somewhere")
    left = WorkerActor().run(WorkerOrder("w1", factory, "0.0.0"), None, {})
    assert left.fault == NodeFault("n7", "code", left.why)
    assert "0.0.0" in left.why
    problem = OSError(errno.ENOSPC, "No space left on device", f"{tempfile.gettempdir()}/a")
    left = WorkerActor().run(WorkerOrder("w1", factory), None, {})
    assert left.fault == NodeFault("n7", "disk", left.why)
    problem = FileNotFoundError(errno.ENOENT, "No such file or directory", "roles.txt")
    with pytest.raises(FileNotFoundError):
        WorkerActor().run(WorkerOrder("w1", factory), None, {})


def test_a_failure_that_concerns_the_run_stops_it(module: Any, supervisor: Any):
    supervisor._handle_end(worker(module, "w1"), WorkerEnd("failed", "camel is 1 here and 2 there"), None)
    supervisor._handle_end(worker(module, "w2"), WorkerEnd("failed", "something else"), None)
    assert isinstance(supervisor._error, module.WorkerFailed)
    assert str(supervisor._error) == "camel is 1 here and 2 there"
    assert supervisor._halting == "camel is 1 here and 2 there"
