"""What the supervisor makes of the ways in which workers end; the rest is tested on real clusters."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray")

from ray.exceptions import ActorDiedError, ActorUnavailableError

from camel.core.errors import InputError
from camel.engine.member import Left
from camel.engine.ray import actors
from camel.engine.ray.actors import Job, WorkerActor
from camel.engine.ray.supervisor import PATIENCE, PLACELESS, RaySupervisor, WorkerFailed, WorkersDie, _Worker
from camel.storage.run import RunFolder

pytestmark = pytest.mark.slow  # importing ray alone takes seconds


class Died(ActorDiedError):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.error_msg = text

    def __str__(self) -> str:
        return self.error_msg


PROCESS = Died("The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR")
NODE = Died("The actor died because its node has died. Node Id: 1")


@pytest.fixture
def supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = RaySupervisor(lambda: None, RunFolder(tmp_path), concurrency=4)  # type: ignore[arg-type]
    made.calls = []  # type: ignore[attr-defined]
    monkeypatch.setattr(made, "_call", lambda *args: made.calls.append(args))  # type: ignore[attr-defined]
    return made


@pytest.mark.parametrize(
    ("error", "left", "told"),
    [
        (PROCESS, None, "lost"),
        (NODE, None, "shun"),
        (ActorUnavailableError("a short cut", b"\0" * 16), None, "shun"),
        (None, Left("out", "the lease of this worker has run out"), "lost"),
    ],
)
def test_who_may_be_alive_keeps_its_shards_until_its_lease_is_over(
    supervisor: Any, error: Exception | None, left: Left | None, told: str
):
    supervisor._met.add("w1")
    supervisor._bury(_Worker("w1", None, 0.0), left, error)
    assert supervisor.calls == [(told, "w1")]
    assert supervisor._error is None
    # Who says goodbye was told of when its lease ran out.
    assert [text.split(" (")[0] for _, text, _ in supervisor._notices] == (
        [] if left else ["worker w1 died" if told == "lost" else "worker w1 is out of reach"]
    )


def test_workers_that_die_at_their_start_are_given_up_with_the_cause(supervisor: Any):
    for number in range(PATIENCE - 1):
        supervisor._bury(_Worker(f"w{number}", None, 0.0), None, PROCESS)
    with pytest.raises(WorkersDie, match="SYSTEM_ERROR") as raised:
        supervisor._bury(_Worker("last", None, 0.0), None, PROCESS)
    assert len(supervisor.calls) == PATIENCE
    assert "\n" not in str(raised.value)


def test_a_node_that_cannot_work_does_not_end_what_others_do(supervisor: Any):
    blind = Left("failed", "this node does not see the folder (on 10.0.0.7)")
    supervisor._running = {"call": _Worker("good", None, 0.0)}
    supervisor._met.add("good")
    for number in range(PATIENCE + 1):
        supervisor._bury(_Worker(f"blind{number}", None, 0.0), blind, None)
    assert supervisor._error is None
    assert supervisor._halting == ""
    [(_, text, shards)] = supervisor._notices
    assert (text, shards) == (f"worker blind0 cannot start: {blind.why}", [])
    # But one that worked and fails, and one that is alone, do.
    supervisor._running.clear()
    supervisor._bury(_Worker("alone", None, 0.0), blind, None)
    assert isinstance(supervisor._error, WorkerFailed)


@pytest.mark.parametrize(
    ("there", "free", "cause"),
    [(4, 0.5, "stop what else runs there"), (4, 3.0, "they are starting"), (0, 0.0, "its nodes have died")],
)
def test_why_nobody_works_is_told_once(
    supervisor: Any, monkeypatch: pytest.MonkeyPatch, there: int, free: float, cause: str
):
    ray = SimpleNamespace(
        cluster_resources=lambda: {"CPU": float(there)} if there else {},
        available_resources=lambda: {"CPU": free},
    )
    monkeypatch.setattr(f"{RaySupervisor.__module__}.ray", ray)
    now = time.monotonic()
    live: dict[str, Any] = {}
    looked = SimpleNamespace(committed=[], live=live, silent={})
    monkeypatch.setattr(supervisor, "_call", lambda *args: looked)
    supervisor._running = {"a": _Worker("w1", None, now), "b": _Worker("w2", None, now)}
    supervisor._pass_on()
    assert not supervisor._notices, "it has only begun"
    supervisor._running["a"] = _Worker("w1", None, now - PLACELESS)
    for _ in range(3):
        supervisor._pass_on()
    [(_, text, _)] = supervisor._notices
    assert f"2 wait for 1 CPU each, {free:g} of the cluster's {there} are free: {cause}" in text
    live["w1"] = None
    supervisor._pass_on()
    assert not supervisor._told_placeless, "should they all go, it is told again"


def test_a_worker_takes_what_it_has_not_itself_and_refuses_another_version(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "of the node")
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.setattr(actors, "_node", lambda: "10.0.0.7")
    monkeypatch.setattr("gc.freeze", lambda: None)
    seen: dict[str, str] = {}

    async def factory() -> Any:
        seen.update(os.environ)
        raise InputError("no scenario of that name")

    handed = {"OPENAI_API_KEY": "of the driver", "AWS_REGION": "somewhere"}
    with monkeypatch.context() as patch:
        patch.setattr(os, "environ", dict(os.environ))
        left = WorkerActor().run(Job("w1", factory), None, handed)
    assert left == Left("failed", "no scenario of that name (on 10.0.0.7)")
    assert (seen["OPENAI_API_KEY"], seen["AWS_REGION"]) == ("of the node", "somewhere")
    left = WorkerActor().run(Job("w1", factory, "0.0.0"), None, {})
    assert left.how == "failed"
    assert "install the same version on every node" in left.why


def test_a_failure_that_concerns_the_run_stops_it(supervisor: Any):
    supervisor._bury(_Worker("w1", None, 0.0), Left("failed", "camel is 1 here and 2 there"), None)
    supervisor._bury(_Worker("w2", None, 0.0), Left("failed", "something else"), None)
    assert isinstance(supervisor._error, WorkerFailed)
    assert str(supervisor._error) == "camel is 1 here and 2 there"
    assert supervisor._halting == "camel is 1 here and 2 there"
