"""`camel translate` and `camel evaluate agents` on a real Ray cluster: over budget, paused, killed and continued.

A gate at the endpoint holds the calls at each blow, so that all earlier replies are journaled by then and at most the
held calls may be sent again. The endpoint's ledger and a run in one process are what a job is compared with.
"""

from __future__ import annotations

import importlib.util
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from camel.models.simulator import Constant, SimulatorSettings
from camel.models.simulator.ledger import read_rows
from tests.support.cluster import RayCluster
from tests.support.command import camel
from tests.support.contests import a_run
from tests.support.forks import Program, wait_until
from tests.support.gates import GatedEndpoint, serve_gated

pytest.importorskip("pyarrow")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.cluster,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra 'cluster'"),
]
IN_FLIGHT = 4
"""Calls of the two workers together."""


class Command(NamedTuple):
    """A long command, and what it leaves."""

    words: tuple[str, ...]
    author: str
    place: str
    """What `camel run pause` is given."""
    result: str
    """The file in which its result is compared."""
    then: tuple[str, ...] = ()
    """The command that writes this file, if it is another one."""


COMMANDS = {
    "translate": Command(
        ("translate", "run", "--to", "de", "--model", "gpt-4"),
        "society",
        "run",
        "german.jsonl",
        ("export", "run", "chat", "german.jsonl", "--language", "de"),
    ),
    "agents": Command(
        (
            "evaluate",
            "agents",
            "run",
            "--judge",
            "gpt-4",
            "--model",
            "gpt-3",
            "--sample",
            "6",
            "--repeats",
            "0",
        ),
        "tests.support.contests:author",
        "run/evaluation",
        "run/evaluation/evaluation.json",
    ),
}


class Job:
    """One command in a folder of its own, with an endpoint of its own."""

    def __init__(
        self, folder: Path, name: str, nodes: RayCluster, endpoint: GatedEndpoint, rows: Path
    ) -> None:
        self.folder, self.command, self.nodes, self.gate, self.rows = (
            folder,
            COMMANDS[name],
            nodes,
            endpoint,
            rows,
        )
        self.environment = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": endpoint.base_url}
        self.undisturbed = folder / "undisturbed"
        for one in (self.undisturbed, folder):
            one.mkdir(exist_ok=True)
            a_run(one / "run", numbers=range(10), size=1)
        self.do(self.undisturbed, *self.command.words)
        self.wanted, self.calls = self.result(self.undisturbed), self.sent()
        assert endpoint.ledger().billed == len(self.calls)
        endpoint.reset()

    def do(self, folder: Path, *words: str) -> None:
        done = camel(*words, cwd=folder, **self.environment)
        assert done.status == 0, done.stdout + done.stderr

    def start(self, *more: str) -> Program:
        """Start it on the cluster."""
        where = ("--address", self.nodes.address, "--workers", "2", "--concurrency", str(IN_FLIGHT))
        return Program(
            *self.command.words,
            *where,
            *more,
            cwd=self.folder,
            env={**self.nodes.environment, **self.environment},
        )

    def hold(self, process: Program, more: int) -> None:
        """Wait until all calls in flight are held at the gate, after so many that were answered."""
        self.gate.hold_after(more)

        def held() -> bool:
            assert process.poll() is None, process.out + process.err
            return self.gate.ledger().in_flight == IN_FLIGHT

        wait_until(held, "all calls at the gate")

    def result(self, folder: Path) -> bytes:
        if self.command.then:
            self.do(folder, *self.command.then)
        return (folder / self.command.result).read_bytes()

    def sent(self) -> set[str]:
        """The calls that were paid for, by what was asked."""
        self.gate.flush()
        return {row.hash for row in read_rows(self.rows) if row.billed}

    # What befalls it, in this order.

    def spend_a_budget_with_a_worker_killed(self) -> None:
        budget = len(self.calls) // 2
        with self.start("--budget-calls", str(budget)) as process:
            self.hold(process, 2)
            self.nodes.kill_worker()
            self.gate.release()
            assert process.wait() == 3, process.out + process.err
            assert f"{budget} calls" in process.out
        ledger = self.gate.ledger()
        assert ledger.billed == budget, "what a dead worker has not spent goes to the other"
        assert ledger.billed_repeats <= IN_FLIGHT, (
            "only calls in flight; all of them if the other had not begun"
        )

    def pause_and_kill_the_driver(self) -> None:
        before = self.gate.ledger()
        self.do(self.folder, "run", "pause", self.command.place)
        with self.start() as process:
            wait_until(lambda: "paused" in process.out, "a word about the pause")
            wait_until(lambda: len(self.nodes.workers()) == 2, "its workers")
            assert self.gate.ledger().requests == before.requests
            self.do(self.folder, "run", "resume", self.command.place)
            self.hold(process, 3)
            process.kill()
            process.wait()
        wait_until(lambda: not self.nodes.workers(), "the end of its workers")
        self.gate.release()

    def stop(self, *, by_command: bool) -> None:
        with self.start() as process:
            self.hold(process, 1)
            if by_command:
                self.do(self.folder, "run", "stop", self.command.place)
            else:
                process.send_signal(signal.SIGINT)
            # Workers that have not heard of it yet get no further than the next calls.
            while process.poll() is None:
                time.sleep(1.5)
                self.gate.answer_held()
            assert process.wait() == 130, process.out + process.err
        self.gate.release()

    def finish(self, *, lost: int) -> None:
        """Run it to its end; `lost` is how many calls may have been sent again."""
        with self.start() as process:
            assert process.wait() == 0, process.out + process.err
        assert self.sent() == self.calls
        assert self.gate.ledger().billed_repeats <= lost
        assert self.result(self.folder) == self.wanted


@pytest.fixture
def jobs(tmp_path: Path, ray_cluster: RayCluster) -> Iterator[list[Job]]:
    with ExitStack() as stack:
        made: list[Job] = []
        for name, command in COMMANDS.items():
            rows = tmp_path / f"{name}.jsonl"
            settings = SimulatorSettings(length=Constant(5), author=command.author, ledger_path=str(rows))
            folder = tmp_path / name
            folder.mkdir()
            made.append(Job(folder, name, ray_cluster, stack.enter_context(serve_gated(settings)), rows))
        yield made


def test_killed_paused_and_over_budget(jobs: list[Job]):
    """Each in turn, so that one waits for the leases of its dead workers while the other is hurt."""
    for job in jobs:
        job.spend_a_budget_with_a_worker_killed()
    for job in jobs:
        job.pause_and_kill_the_driver()
    for job in jobs:
        job.finish(lost=2 * IN_FLIGHT)


@pytest.mark.thorough  # `generate` is stopped on a cluster in CI
def test_stopped_by_command_and_by_ctrl_c(jobs: list[Job]):
    for job, by_command in zip(jobs, (True, False), strict=True):
        job.stop(by_command=by_command)
        job.finish(lost=0)
