"""What the supervisor makes of the ways in which workers end; the rest is tested on real clusters."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from camel.core.errors import InputError
from camel.engine.cluster_worker import WorkerEnd
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
    monkeypatch.setattr(module, "ray", SimpleNamespace(kill=made.killed.append))
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


def test_a_node_that_cannot_work_does_not_end_what_others_do(module: Any, supervisor: Any):
    blind = WorkerEnd("failed", "this node does not see the folder (on 10.0.0.7)")
    supervisor._running = {"call": worker(module, "good")}
    supervisor._met.add("good")
    for number in range(module.PATIENCE + 1):
        supervisor._handle_end(worker(module, f"blind{number}"), blind, None)
    assert supervisor._error is None
    assert supervisor._halting == ""
    [(_, text, shards)] = supervisor._notices
    assert (text, shards) == (f"worker blind0 cannot start: {blind.why}", [])
    # But one that worked and fails, and one that is alone, do.
    supervisor._running.clear()
    supervisor._handle_end(worker(module, "alone"), blind, None)
    assert isinstance(supervisor._error, module.WorkerFailed)


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
        cluster_resources=lambda: {"CPU": float(there)} if there else {},
        available_resources=lambda: {"CPU": free},
    )
    monkeypatch.setattr(module, "ray", ray)
    now = 1000.0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    live: dict[str, Any] = {}
    looked = SimpleNamespace(committed=[], live=live, silent={})
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
    monkeypatch.setattr(actors, "_node", lambda: "10.0.0.7")
    monkeypatch.setattr("gc.freeze", lambda: None)
    seen: dict[str, str] = {}

    async def factory(worker: str) -> Any:
        seen.update(os.environ, worker=worker)
        raise InputError("no scenario of that name")

    handed = {"OPENAI_API_KEY": "of the driver", "AWS_REGION": "somewhere"}
    with monkeypatch.context() as patch:
        patch.setattr(os, "environ", dict(os.environ))
        left = WorkerActor().run(WorkerOrder("w1", factory), None, handed)
    assert left == WorkerEnd("failed", "no scenario of that name (on 10.0.0.7)")
    assert (seen["OPENAI_API_KEY"], seen["AWS_REGION"]) == ("of the node", "somewhere")
    left = WorkerActor().run(WorkerOrder("w1", factory, "0.0.0"), None, {})
    assert left.how == "failed"
    assert "0.0.0" in left.why


def test_a_failure_that_concerns_the_run_stops_it(module: Any, supervisor: Any):
    supervisor._handle_end(worker(module, "w1"), WorkerEnd("failed", "camel is 1 here and 2 there"), None)
    supervisor._handle_end(worker(module, "w2"), WorkerEnd("failed", "something else"), None)
    assert isinstance(supervisor._error, module.WorkerFailed)
    assert str(supervisor._error) == "camel is 1 here and 2 there"
    assert supervisor._halting == "camel is 1 here and 2 there"
