"""Which nodes are retired, and what stops the run. Time is passed in, so nothing waits."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import camel
from camel.core.errors import InputError
from camel.engine import nodes as module
from camel.engine.nodes import HOLD, RECENT, NodeFault, NodeHealth, Routes, disk_fault, release
from camel.engine.site import ModelReport
from camel.engine.worker import CommitFailed
from camel.runs.run import RunFolder
from camel.storage.journal import Journal, JournalBroken
from camel.storage.store import BucketStore
from tests.support.virtual_time import virtual_time

KINDS: Sequence[Any] = get_args(NodeFault.__annotations__["kind"]) or ("route", "disk", "code", "start")


@given(
    count=st.integers(1, 9),
    faults=st.lists(st.tuples(st.integers(0, 8), st.sampled_from(KINDS)), max_size=30),
)
def test_the_last_node_is_never_retired_and_a_majority_stops_the_run(
    count: int, faults: list[tuple[int, Any]]
):
    health, nodes = NodeHealth(), {f"n{number}" for number in range(count)}
    for number, kind in faults:
        if (node := f"n{number}") not in nodes or node in health.retired:
            continue
        why = health.stops_run(NodeFault(node, kind, "why"), nodes)
        same = [one for one in health.retired.values() if one.kind == kind]
        if why:
            assert node not in health.retired
            others = nodes - health.retired.keys() - {node}
            assert 2 * (len(same) + 1) > count or not others
            assert count == 1 or health.retired, "a single sick node never stops the run"
            assert "why" in why
            return
        assert nodes - health.retired.keys()
        assert 2 * len(same) <= count


def test_nodes_that_have_died_do_not_count():
    health = NodeHealth()
    assert not health.stops_run(NodeFault("a", "disk", "full"), ["a", "b", "c"])
    assert not health.stops_run(NodeFault("b", "disk", "full"), ["b", "c", "d"]), "`a` was restarted as `d`"
    assert health.stops_run(NodeFault("c", "disk", "full"), ["b", "c", "d"])


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("route", "no route to the endpoint of 'm', which other nodes reach (Unreachable: refused)"),
        ("disk", "[Errno 28] No space left on device: '/tmp/a'"),
        ("code", "the driver has camel 1 (source a), and 10.0.0.7 has camel 1 (source b)"),
        ("start", "'/runs/a' on this node is not the folder that the driver uses (on 10.0.0.7)"),
    ],
    ids=["route", "disk", "code", "start"],
)
def test_a_notice_names_the_node_and_what_to_do(kind: Any, why: str, snapshot: Callable[..., None]):
    snapshot("status", NodeFault("n7", kind, why).notice("10.0.0.7"))


class Fleet:
    """Workers, one per node, that report each second."""

    def __init__(self, *names: str) -> None:
        self.routes, self.now = Routes(), 1000.0
        self.served = dict.fromkeys(names, 0)
        self.failed = dict.fromkeys(names, 0)
        self.busy: set[str] = set(names)
        """The workers with shards."""
        self.passed_on: list[str] = []

    def second(self, *, served: str = "", failed: str = "") -> None:
        """A second passes: each letter is a worker that was served, or that failed once more."""
        self.now += 1
        for name in served:
            self.served[name] += 1
            self.failed[name] = 0
        for name in failed:
            self.failed[name] += 1
        for name in self.served:
            report = ModelReport(
                served=self.served[name], unreached=self.failed[name], words="Unreachable: refused"
            )
            self.routes.note(name, f"node {name}", {"m": report}, self.now)
        for name in self.served:
            if self.routes.passes_on(name, self.now, lambda: self.served.keys() - self.busy):
                self.passed_on.append(name)
                self.routes.forget(name)
                self.busy.discard(name)
                self.failed[name] = 0

    @property
    def found(self) -> list[str]:
        return [fault.node.removeprefix("node ") for fault in self.routes.faults.values()]


def test_a_node_without_a_route_is_found_by_comparison():
    fleet = Fleet(*"ab")
    for _ in range(20):
        fleet.second(served="b")
    fleet.second(served="b", failed="a")
    assert not fleet.found, "one call may have begun before the others were served"
    for _ in range(20):
        fleet.second(served="b")
    fleet.second(served="b", failed="a")
    assert fleet.found == ["a"]
    fault = fleet.routes.faults["node a"]
    assert (fault.kind, "refused" in fault.why) == ("route", True)


def test_an_outage_and_its_end_blame_no_node():
    """Workers notice the end one after the other, long after the endpoint works again."""
    fleet = Fleet(*"abc")
    fleet.second(served="abc")
    for _ in range(20):
        fleet.second()
    for _ in range(8):
        fleet.second(failed="abc")
    for _ in range(30):
        fleet.second(served="b")
    assert not fleet.found, "the others have not tried again"
    fleet.second(served="a")
    fleet.second(served="b", failed="c")
    assert fleet.found == ["c"]


def test_an_idle_worker_is_no_witness():
    fleet = Fleet(*"ab")
    fleet.second(served="b")
    fleet.busy = {"a"}
    for _ in range(int(RECENT) + 1):
        fleet.second()
    for _ in range(9):
        fleet.second(failed="a")
    assert not fleet.found


def test_a_lone_caller_passes_its_shards_on_to_an_idle_node():
    """So that the other node shows what is wrong; the first is compared when it works again."""
    fleet = Fleet(*"ab")
    fleet.busy = {"a"}
    fleet.second(failed="a")
    assert fleet.passed_on == ["a"]
    assert fleet.routes.is_held("a", fleet.now)
    fleet.busy = {"b"}
    fleet.second(failed="b")
    fleet.second(failed="b")
    assert fleet.passed_on == ["a"], "both fail, so it is an outage"
    assert not fleet.found
    fleet.now += HOLD
    assert not fleet.routes.is_held("a", fleet.now)


def test_a_node_that_passed_its_shards_on_is_compared_as_soon_as_another_is_served():
    fleet = Fleet(*"ab")
    fleet.busy = {"a"}
    fleet.second(failed="a")
    fleet.busy = {"b"}
    fleet.second()
    assert fleet.routes.is_held("a", fleet.now)
    fleet.second(served="b")
    assert not fleet.routes.is_held("a", fleet.now)
    assert not fleet.found, "the endpoint may have been down until then"
    fleet.busy = {"a", "b"}
    fleet.second(served="b", failed="a")
    fleet.second(served="b", failed="a")
    assert fleet.found == ["a"]


def test_shards_are_passed_on_by_a_few_nodes_only():
    fleet = Fleet(*"abcdef")
    for name in "abcdef":
        fleet.busy = {name}
        fleet.second(failed=name)
        fleet.failed[name] = 0
    assert fleet.passed_on == ["a", "b"]
    fleet.second(served="f")
    fleet.now += RECENT + 1
    fleet.busy = {"c"}
    fleet.second(failed="c")
    assert fleet.passed_on == ["a", "b", "c"], "the outage is over"


def test_a_node_with_another_worker_that_is_served_has_a_route():
    fleet = Fleet(*"abc")
    for _ in range(9):
        fleet.now += 1
        for name, node, report in (
            ("a", "n1", ModelReport(unreached=int(fleet.now))),
            ("b", "n1", ModelReport(served=int(fleet.now))),
            ("c", "n2", ModelReport(served=int(fleet.now))),
        ):
            fleet.routes.note(name, node, {"m": report}, fleet.now)
    assert not fleet.found


def test_models_are_compared_separately():
    routes = Routes()
    for second in range(1, 9):
        routes.note("a", "n1", {"x": ModelReport(unreached=second)}, second)
        routes.note("b", "n2", {"y": ModelReport(served=second)}, second)
    assert not routes.faults


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["served", "failed", "quiet"])), max_size=60)
)
def test_only_a_node_that_fails_while_another_is_served_is_blamed(moves: list[tuple[str, str]]):
    fleet = Fleet(*"abc")
    failed: dict[str, list[float]] = {}
    served: dict[str, float] = {}
    for name, move in moves:
        fleet.second(served=name * (move == "served"), failed=name * (move == "failed"))
        if move == "served":
            served[name] = fleet.now
            failed.pop(name, None)
        if move == "failed":
            failed.setdefault(name, []).append(fleet.now)
        for one in fleet.found:
            [*_, last] = failed[one]
            assert len(failed[one]) > 1
            assert any(last - RECENT <= when for other, when in served.items() if other != one)
        if fleet.found:
            return


def bucket_run(root: Path) -> RunFolder:
    return RunFolder(root, BucketStore("s3://bucket/run"))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
def test_a_local_disk_that_fails_is_a_fault_of_the_node(tmp_path: Path, number: int):
    error = OSError(number, os.strerror(number), f"{tempfile.gettempdir()}/elsewhere/a")
    assert os.strerror(number) in disk_fault(error, RunFolder(tmp_path / "run"))
    local = OSError(number, os.strerror(number), str(tmp_path / "journals/a"))
    failed = CommitFailed("shard 3 cannot be written")
    failed.__cause__ = local
    assert disk_fault(failed, bucket_run(tmp_path / "journals")) == str(failed)


def test_errors_of_the_run_are_no_fault_of_a_node(tmp_path: Path):
    folder = RunFolder(tmp_path / "run")
    missing = FileNotFoundError(
        errno.ENOENT, "No such file or directory", f"{tempfile.gettempdir()}/roles.txt"
    )
    shared = OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "run/journal/a"))
    denied = PermissionError(errno.EACCES, "Permission denied", f"{tempfile.gettempdir()}/a")
    elsewhere = OSError(errno.EROFS, "Read-only file system", "/nowhere/a")
    nameless = OSError(errno.ENOSPC, "No space left on device")
    for error in (missing, shared, denied, elsewhere, nameless, InputError("no scenario"), RuntimeError()):
        assert not disk_fault(error, folder), error


def test_an_error_without_a_file_is_explained_by_the_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    nameless, folder = OSError(errno.ENOSPC, "No space left on device"), bucket_run(tmp_path)
    free = module._ROOM
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    assert not disk_fault(nameless, folder)
    free -= 1
    assert disk_fault(nameless, folder)


@virtual_time
async def test_a_journal_names_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = bucket_run(tmp_path)
    journal = Journal(tmp_path / "journal/lines/000000-a")

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(JournalBroken) as first:
            await journal.append(b"a")
    with pytest.raises(JournalBroken) as later:
        await journal.append(b"b")
    await journal.close()
    for raised in (first, later):
        assert disk_fault(raised.value, folder)
        assert not disk_fault(raised.value, RunFolder(tmp_path)), "shared by all nodes"


def test_the_release_depends_on_every_source_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert camel.__version__ in release()
    package = tmp_path / "camel"
    (package / "engine").mkdir(parents=True)
    (package / "engine/nodes.py").write_text("")
    monkeypatch.setattr(module, "__file__", str(package / "engine/nodes.py"))
    found: list[str] = []
    for name, text in (("a.py", "1"), ("a.py", "2"), ("b.toml", ""), ("engine/c.txt", ""), ("d.pyc", "")):
        (package / name).write_text(text)
        found.append(release.__wrapped__())
    assert len(set(found)) == 4
    assert found[-1] == found[-2], "compiled files do not count"
