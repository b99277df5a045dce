"""Generation on real Ray clusters that are hurt while they work, by the account of the endpoint.

The undisturbed run in one process numbers the calls of each conversation by their bodies; after that the ledger tells of
every call in any run which one it was, and the run's folder which were durable at a moment.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

pytest.importorskip("pyarrow")

ROOT = Path(__file__).parent.parent.parent

from camel.generation.config import GenerateConfig, RunSection  # noqa: E402
from camel.models.simulator import Constant, LogNormal, SimulatorSettings, spawn  # noqa: E402
from camel.models.spec import ModelSpec  # noqa: E402
from camel.runs.control import wish  # noqa: E402
from camel.runs.run import open_folder  # noqa: E402
from tests.support import cluster  # noqa: E402
from tests.support.crashes import Crashes, Witness, exported  # noqa: E402

# Found and not imported: importing ray takes seconds, and only child processes use it.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.cluster,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra 'cluster'"),
]
KEY = "sk-canary-7f3a9b2c5d1e4f60"
COUNTS = {"assistant_role": 4, "user_role": 4, "task": 6}
CONVERSATIONS, SHARD, WINDOW = 96, 4, 12
PATIENCE = 300.0
"""Seconds for anything that must happen."""


class Scene:
    """An endpoint, the undisturbed run, and runs to compare with it."""

    def __init__(self, root: Path, witness: Witness) -> None:
        self.root, self.witness = root, witness
        self.calm = self.crashes("calm")
        self.calm.run_undisturbed()
        witness.learn()
        witness.forget()
        self.export = exported(root / "calm")
        self.total = len(witness.calls)

    def crashes(self, name: str) -> Crashes:
        config = GenerateConfig(
            scenario="ai_society",
            model=ModelSpec("simulated", base_url=self.witness.endpoint.base_url),
            out=str(self.root / name),
            counts=COUNTS,
            lists="asked",
            shard_size=SHARD,
            run=RunSection(concurrency=WINDOW),
        )
        return Crashes(config, self.witness, random.Random(0))


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    root = tmp_path_factory.mktemp("scene")
    settings = SimulatorSettings(
        length=LogNormal(median=6, p99=12),
        latency=LogNormal(median=0.1, p99=0.5),
        ledger_path=str(root / "ledger.jsonl"),
    )
    with spawn(settings) as endpoint:
        yield Scene(root, Witness(root / "ledger.jsonl", endpoint))


@pytest.fixture(autouse=True)
def _nobody_stays() -> Iterator[None]:
    """Kill the drivers that a failed test left, so that their calls are not counted in the next test."""
    yield
    left = [child for child in Run.started if child.poll() is None]
    Run.started.clear()
    for child in left:
        child.kill()
        child.communicate()
    if left:
        time.sleep(15)  # until their workers' leases have run out


class Run:
    """A run by the command, and what befalls it."""

    started: ClassVar[list[subprocess.Popen[str]]] = []

    def __init__(
        self,
        scene: Scene,
        name: str,
        address: str,
        environment: dict[str, str],
        *options: str,
        start: bool = True,
    ) -> None:
        self.scene, self.crashes = scene, scene.crashes(name)
        self.root = Path(self.crashes.config.out)
        config = self.crashes.config
        self.file = scene.root / f"{name}.toml"
        counts = ", ".join(f"{key} = {value}" for key, value in config.counts.items())
        self.file.write_text(
            f'scenario = "ai_society"\nout = "{config.out}"\nlists = "asked"\nshard_size = {config.shard_size}\ncounts = {{ {counts} }}\n'
            f'[model]\nname = "simulated"\nbase_url = "{config.model.base_url}"\n[run]\nconcurrency = {WINDOW}\n'
        )
        self.command = [
            sys.executable,
            "-m",
            "camel",
            "generate",
            str(self.file),
            "--address",
            address,
            *options,
        ]
        self.environment = {**environment, "OPENAI_API_KEY": KEY}
        self.child: subprocess.Popen[str]
        self.durable: list[tuple[float, set[tuple[str, int]]]] = []
        self.deaths = 0
        scene.witness.forget()
        if start:
            self.start()

    def start(self) -> subprocess.Popen[str]:
        self.child = subprocess.Popen(
            self.command,
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.started.append(self.child)
        return self.child

    def until(self, share: float) -> None:
        """Wait until that share of the calls was sent."""
        self.wait(lambda: self.scene.witness.endpoint.ledger().requests >= share * self.scene.total)

    def wait(self, holds: Callable[[], bool]) -> None:
        """Wait until `holds` while the driver lives."""
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert self.child.poll() is None, self.child.communicate()[0]
            assert time.monotonic() < deadline, "the run does not get there"
            time.sleep(0.02)

    def quiet(self) -> int:
        """Wait until nothing is in flight; returns how many calls were sent."""
        ledger = self.scene.witness.endpoint.ledger
        self.wait(lambda: ledger().in_flight == 0)
        return ledger().requests

    def events(self, name: str) -> list[dict[str, Any]]:
        """What the run's log says about something."""
        found: list[dict[str, Any]] = []
        with contextlib.suppress(FileNotFoundError):
            for line in (self.root / "log.jsonl").read_bytes().splitlines():
                with contextlib.suppress(msgspec.DecodeError):  # the last one may be half written
                    found.append(msgspec.json.decode(line))
        return [event for event in found if event.get("event") == name]

    def strike(self, blow: Callable[[], object]) -> None:
        """Note what is durable, and hurt it."""
        self.durable.append((time.time(), self.crashes._durable()))
        self.deaths += 1
        blow()

    def end(self, status: int = 0, timeout: float = PATIENCE) -> str:
        out, _ = self.child.communicate(timeout=timeout)
        assert self.child.returncode == status, out
        assert "Traceback" not in out
        return out

    def check(self, *, lost: int) -> None:
        """Hold the run against the undisturbed one; `lost` is how many calls may have been in flight at the blows."""
        rows = self.scene.witness.new_rows()
        calls = [(row.time, self.scene.witness.calls[row.hash]) for row in rows]
        sent = Counter(call for _, call in calls)
        assert set(sent) == set(self.scene.witness.calls.values()), "a call is missing"
        repeats = sent.total() - len(sent)
        assert repeats <= lost, f"{repeats} calls were repeated"
        for then, durable in self.durable:
            again = [call for when, call in calls if when > then + 0.05 and call in durable]
            assert not again, "a durable call was sent again"
        export = exported(self.root)
        assert export.ids == self.scene.export.ids
        assert export.sha256 == self.scene.export.sha256
        # A sleeper that wakes up may still note what it had in flight: in the journal of a shard that is done.
        left = [path for path in (self.root / "journal").rglob("*") if path.is_file()]
        done = {path.stem for path in (self.root / "committed").rglob("*.json")}
        assert all(path.name.partition("-")[0] in done for path in left), left


def signal_one(pids: list[int], number: int) -> int:
    assert pids, "no worker to be found"
    os.kill(pids[0], number)
    return pids[0]


def workers_below(pid: int) -> list[int]:
    return [one for one in cluster.children(pid) if cluster.WORKER in cluster.command_of(one)]


def listening(pids: list[int]) -> list[str]:
    """The addresses on which processes listen."""
    sockets = set[str]()
    for pid in pids:
        with contextlib.suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    sockets.add(str(link.readlink()))
    found: list[str] = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                found.append(fields[1].partition(":")[0])
    return found


def test_a_local_cluster_on_loopback_survives_a_worker(scene: Scene):
    run = Run(scene, "local", "local", dict(os.environ), "--workers", "2")
    run.until(0.3)
    loopback = {"0100007F", "0000000000000000FFFF00000100007F"}
    assert set(listening(cluster.children(run.child.pid))) <= loopback, "a port is open to the network"
    run.strike(lambda: signal_one(workers_below(run.child.pid), signal.SIGKILL))
    out = run.end()
    assert f"complete: {CONVERSATIONS} conversations" in out
    assert f"camel generate {run.file} --address local --workers 2" in out
    run.check(lost=WINDOW)


def test_workers_a_node_drivers_and_the_head_die_and_nothing_is_lost(scene: Scene):
    """One run through every death. `benchmarks.chaos` meets each of them many times."""
    with cluster.start(nodes=2, cpus=2) as nodes:
        run = Run(scene, "dying", nodes.address, nodes.environment, "--workers", "2", start=False)
        text, budget = run.file.read_text(), scene.total // 4
        run.file.write_text(text + f"[budget]\ncalls = {budget}\n")
        run.start()
        run.until(0.1)
        run.strike(nodes.kill_worker)
        run.end(status=3)
        billed = scene.witness.endpoint.ledger().billed
        assert 0.97 * budget <= billed <= budget, "what a dead worker has not spent goes to the other"
        run.file.write_text(text)
        run.start()
        run.until(0.3)
        run.strike(lambda: nodes.kill_raylet(0))
        run.until(0.4)
        run.strike(run.child.kill)
        run.child.communicate()
        run.start()
        run.until(0.55)
        run.strike(lambda: nodes.restart_head(nodes=1))
        # Ray's own library ends a driver whose head is gone, if it has not noticed before.
        run.child.communicate(timeout=PATIENCE)
        assert run.child.returncode != 0
        run.start()
        run.until(0.7)
        sleeper(run, nodes)
        run.end()
        run.check(lost=5 * WINDOW)


def sleeper(run: Run, nodes: cluster.RayCluster) -> None:
    """Stop a worker until its lease has run out and others have its shards, then let it continue."""
    known = len(silences(run))
    asleep = 0

    def sleep() -> None:
        nonlocal asleep
        asleep = signal_one(nodes.workers(), signal.SIGSTOP)

    run.strike(sleep)
    run.wait(lambda: len(silences(run)) > known)
    run.durable.append((time.time(), run.crashes._durable()))
    with contextlib.suppress(ProcessLookupError):
        os.kill(asleep, signal.SIGCONT)


def silences(run: Run) -> list[dict[str, Any]]:
    return [event for event in run.events("worker") if "no heartbeat" in str(event)]


@pytest.fixture(scope="module")
def mortal() -> Iterator[cluster.RayCluster]:
    with cluster.start(nodes=2) as started:
        yield started


@pytest.mark.thorough  # the run through every death has it in CI
def test_workers_and_nodes_die_and_nothing_is_lost(scene: Scene, mortal: cluster.RayCluster):
    run = Run(scene, "nodes", mortal.address, mortal.environment)
    run.until(0.15)
    run.strike(mortal.kill_worker)
    run.until(0.4)
    run.strike(lambda: mortal.kill_raylet(0))
    run.until(0.6)
    mortal.start_node(0)
    run.end()
    run.check(lost=2 * WINDOW)


@pytest.mark.thorough  # the run through every death has it in CI
def test_a_worker_that_sleeps_longer_than_its_lease_calls_nobody(scene: Scene, mortal: cluster.RayCluster):
    run = Run(scene, "sleeper", mortal.address, mortal.environment)
    run.until(0.2)
    sleeper(run, mortal)
    run.end()
    run.check(lost=WINDOW)


@pytest.mark.thorough  # the run through every death has it in CI
def test_a_dead_driver_is_followed_by_the_same_command(scene: Scene, mortal: cluster.RayCluster):
    run = Run(scene, "driver", mortal.address, mortal.environment)
    for share in (0.3, 0.7):
        run.until(share)
        run.strike(run.child.kill)
        run.child.communicate()
        run.start()
    run.end()
    run.check(lost=2 * WINDOW)


@pytest.mark.thorough  # the run through every death has it in CI
def test_a_dead_head_costs_what_was_in_flight(scene: Scene, mortal: cluster.RayCluster):
    run = Run(scene, "head", mortal.address, mortal.environment)
    run.until(0.4)
    run.strike(mortal.restart_head)
    run.child.communicate(timeout=PATIENCE)
    assert run.child.returncode != 0
    run.start()
    run.end()
    run.check(lost=WINDOW)


def test_a_run_stopped_in_every_way_repeats_no_call(scene: Scene, ray_cluster: cluster.RayCluster):
    """A budget, `camel run pause`, `camel run stop` and Ctrl-C, each followed by the same command."""
    run = Run(scene, "stopped", ray_cluster.address, ray_cluster.environment, start=False)
    ledger, budget = scene.witness.endpoint.ledger, scene.total // 3
    text = run.file.read_text()
    run.file.write_text(text + f"[budget]\ncalls = {budget}\n")
    run.start()
    out = run.end(status=3)
    assert f"{budget} calls" in out
    assert 0.97 * budget <= ledger().billed <= budget, "workers together keep to the budget, and use it"

    run.file.write_text(text)
    run.start()
    run.until(0.36)
    wish(open_folder(run.root), "pause")
    # The driver has to see it and its workers to hear of it; until then they begin calls.
    before, sent = -1, run.quiet()
    while before != sent:
        time.sleep(3)
        before, sent = sent, run.quiet()
    assert sent < scene.total, "the run was over before it could pause"
    exported_figures(run, ray_cluster)
    assert ledger().requests == sent
    wish(open_folder(run.root), "go")
    run.until(sent / scene.total + 0.03)
    run.strike(lambda: wish(open_folder(run.root), "stop"))
    assert "camel run stop" in run.end(status=130)

    run.start()
    run.until(ledger().requests / scene.total + 0.03)
    run.strike(lambda: run.child.send_signal(signal.SIGINT))
    run.end(status=130)
    run.start()
    run.end()
    run.check(lost=0)


def exported_figures(run: Run, nodes: cluster.RayCluster) -> None:
    """Wait for the run's figures at Ray's Prometheus endpoints."""
    names: set[str] = set()
    wanted = {
        f"ray_camel_{name}"
        for name in ("calls_total", "in_flight", "shards", "workers", "stop", "prompt_total")
    }
    dashboard = msgspec.json.decode((ROOT / "deploy" / "grafana.json").read_bytes())
    used = set(re.findall(r"ray_camel_\w+", msgspec.json.encode(dashboard).decode()))
    optional = {
        "ray_camel_cached_total",
        "ray_camel_errors_total",
        "ray_camel_retries_total",
        "ray_camel_rate_limited_total",
    }
    wanted |= used - optional
    deadline = time.monotonic() + 120
    while not wanted <= names:
        assert run.child.poll() is None, run.child.communicate()[0]
        assert time.monotonic() < deadline, f"not exported: {sorted(wanted - names)}"
        for port in nodes.metrics_ports():
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"http://{port}/metrics", timeout=60) as reply,
            ):
                names |= set(re.findall(r"^(ray_camel_\w+)", reply.read().decode(), re.MULTILINE))
        time.sleep(0.2)


def test_a_run_sent_by_ray_job_submit_completes(scene: Scene, ray_cluster: cluster.RayCluster):
    run = Run(scene, "job", "auto", ray_cluster.environment, start=False)
    submit = [str(Path(sys.executable).with_name("ray")), "job", "submit"]
    submit += ["--address", f"http://127.0.0.1:{ray_cluster.dashboard}", "--", *run.command]
    done = subprocess.run(
        submit, cwd=ROOT, env=ray_cluster.environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"complete: {CONVERSATIONS} conversations" in done.stdout
    run.check(lost=0)


@pytest.mark.thorough  # the run through every death has a small one in CI
def test_four_dead_workers_leave_at_most_one_percent_of_a_budget(
    tmp_path: Path, ray_cluster: cluster.RayCluster
):
    budget = 10_000
    with spawn(SimulatorSettings(length=Constant(41), words=20, latency=LogNormal(0.03, 0.2))) as endpoint:
        file = tmp_path / "config.toml"
        file.write_text(
            f'scenario = "ai_society"\nout = "{tmp_path / "run"}"\nshard_size = 4\n'
            "counts = { assistant_role = 6, user_role = 6, task = 8 }\n"
            f'[model]\nname = "simulated"\nbase_url = "{endpoint.base_url}"\n[run]\nconcurrency = 24\n'
            f"[budget]\ncalls = {budget}\n"
        )
        child = subprocess.Popen(
            [sys.executable, "-m", "camel", "generate", str(file), "--address", ray_cluster.address],
            cwd=ROOT,
            env=ray_cluster.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        Run.started.append(child)
        for death in range(1, 5):
            deadline = time.monotonic() + PATIENCE
            while endpoint.ledger().requests < death * budget // 5 or ray_cluster.kill_worker() is None:
                assert child.poll() is None, child.communicate()[0]
                assert time.monotonic() < deadline, "the run does not get there"
                time.sleep(0.02)
        out, _ = child.communicate(timeout=PATIENCE)
        billed = endpoint.ledger().billed
    assert child.returncode == 3, out
    assert f"{budget:,} calls" in out
    assert 0.99 * budget <= billed <= budget
