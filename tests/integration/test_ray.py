"""Generation on real Ray clusters that are hurt while they work, by the account of the endpoint.

The undisturbed run in one process numbers the calls of each conversation by their bodies; after that the ledger tells of
every call in any run which one it was, and the run's folder which were durable at a moment.
"""

from __future__ import annotations

import contextlib
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
from typing import ClassVar

import msgspec
import pytest

pytest.importorskip("ray")
pytest.importorskip("pyarrow")

ROOT = Path(__file__).parent.parent.parent

from camel.generation.config import GenerateConfig, ModelSection, RunSection  # noqa: E402
from camel.models.simulator import LogNormal, SimulatorSettings, spawn  # noqa: E402
from camel.storage.control import wish  # noqa: E402
from camel.storage.run import open_folder  # noqa: E402
from tests.support import cluster  # noqa: E402
from tests.support.crashes import Crashes, Witness, exported  # noqa: E402

pytestmark = pytest.mark.slow
CANARY = "sk-canary-7f3a9b2c5d1e4f60"
WINDOW = 12


class Scene:
    """An endpoint, the undisturbed run, and runs to compare with it."""

    def __init__(self, root: Path, witness: Witness) -> None:
        self.root, self.witness = root, witness
        self.calm = self.crashes("calm")
        child = self.calm.start()
        assert not child.communicate(timeout=300)[1]
        witness.learn()
        witness.forget()
        self.export = exported(root / "calm")
        self.total = len(witness.calls)

    def crashes(self, name: str) -> Crashes:
        config = GenerateConfig(
            scenario="ai_society",
            model=ModelSection("simulated", base_url=self.witness.endpoint.base_url),
            out=str(self.root / name),
            counts={"assistant_role": 5, "user_role": 4, "task": 9},
            shard_size=6,
            run=RunSection(concurrency=WINDOW),
        )
        return Crashes(config, self.witness, random.Random(0))


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    root = tmp_path_factory.mktemp("scene")
    settings = SimulatorSettings(
        length=LogNormal(median=6, p99=12),
        latency=LogNormal(median=0.04, p99=0.2),
        ledger_path=str(root / "ledger.jsonl"),
    )
    with spawn(settings) as endpoint:
        yield Scene(root, Witness(root / "ledger.jsonl", endpoint))


@pytest.fixture(scope="module")
def nodes() -> Iterator[cluster.RayCluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OPENAI_API_KEY", raising=False)
        with cluster.start(nodes=2) as started:
            yield started


@pytest.fixture(autouse=True)
def _nobody_stays() -> Iterator[None]:
    """Drivers of a test that failed must not talk into the next one's account."""
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
            f'scenario = "ai_society"\nout = "{config.out}"\nshard_size = {config.shard_size}\ncounts = {{ {counts} }}\n'
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
        self.environment = {**environment, "OPENAI_API_KEY": CANARY}
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
        deadline = time.monotonic() + 180
        while self.scene.witness.endpoint.ledger().requests < share * self.scene.total:
            assert self.child.poll() is None, self.child.communicate()[0]
            assert time.monotonic() < deadline, "the run does not get there"
            time.sleep(0.02)

    def strike(self, blow: Callable[[], object]) -> None:
        """Note what is durable, and hurt it."""
        self.durable.append((time.time(), self.crashes._durable()))
        self.deaths += 1
        blow()

    def end(self, status: int = 0, timeout: float = 300) -> str:
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
    assert "complete: 180 conversations" in out
    assert f"resume  camel generate {run.file} --address local --workers 2" in out
    run.check(lost=WINDOW)


@pytest.mark.thorough  # `python -m benchmarks.chaos --short` does it in CI
def test_workers_and_nodes_die_and_nothing_is_lost(scene: Scene, nodes: cluster.RayCluster):
    run = Run(scene, "nodes", nodes.address, nodes.environment)
    run.until(0.15)
    run.strike(nodes.kill_worker)
    run.until(0.4)
    run.strike(lambda: nodes.kill_raylet(0))
    run.until(0.6)
    nodes.start_node(0)
    run.end()
    run.check(lost=2 * WINDOW)


@pytest.mark.thorough  # `python -m benchmarks.chaos --short` does it in CI
def test_a_worker_that_sleeps_longer_than_its_lease_calls_nobody(scene: Scene, nodes: cluster.RayCluster):
    run = Run(scene, "sleeper", nodes.address, nodes.environment)
    run.until(0.2)
    asleep = 0

    def sleep() -> None:
        nonlocal asleep
        asleep = signal_one(nodes.workers(), signal.SIGSTOP)

    run.strike(sleep)
    time.sleep(13)
    run.durable.append((time.time(), run.crashes._durable()))
    with contextlib.suppress(ProcessLookupError):
        os.kill(asleep, signal.SIGCONT)
    run.end()
    run.check(lost=WINDOW)


@pytest.mark.thorough  # `python -m benchmarks.chaos --short` does it in CI
def test_a_dead_driver_is_followed_by_the_same_command(scene: Scene, nodes: cluster.RayCluster):
    run = Run(scene, "driver", nodes.address, nodes.environment)
    run.until(0.3)
    run.strike(run.child.kill)
    run.child.communicate()
    run.start()
    run.until(0.7)
    run.strike(run.child.kill)
    run.child.communicate()
    run.start()
    run.end()
    run.check(lost=2 * WINDOW)


def test_control_c_keeps_what_is_in_flight(scene: Scene, nodes: cluster.RayCluster):
    run = Run(scene, "stopped", nodes.address, nodes.environment)
    run.until(0.4)
    run.strike(lambda: run.child.send_signal(signal.SIGINT))
    out = run.end(status=130)
    assert "stopped by you" in out
    run.start()
    run.end()
    run.check(lost=0)


def test_a_control_file_pauses_and_stops_a_cluster(scene: Scene, nodes: cluster.RayCluster):
    run = Run(scene, "controlled", nodes.address, nodes.environment)
    run.until(0.3)
    wish(open_folder(run.root), "pause")
    time.sleep(4)  # a look of the driver, a heartbeat, and what is in flight
    sent = run.scene.witness.endpoint.ledger().requests
    time.sleep(3)
    assert run.scene.witness.endpoint.ledger().requests == sent
    wish(open_folder(run.root), "go")
    run.until(sent / run.scene.total + 0.1)
    run.strike(lambda: wish(open_folder(run.root), "stop"))
    assert "stopped by camel stop" in run.end(status=130)
    run.start()
    run.end()
    run.check(lost=0)


def test_a_dead_cluster_is_one_line_and_goes_on(scene: Scene, nodes: cluster.RayCluster):
    run = Run(scene, "head", nodes.address, nodes.environment)
    run.until(0.4)
    run.strike(nodes.restart_head)
    # Ray's own library ends a driver whose head is gone, if we have not noticed before.
    run.child.communicate(timeout=300)
    assert run.child.returncode != 0
    run.start()
    run.end()
    run.check(lost=WINDOW)


def test_a_budget_holds_across_workers(scene: Scene, nodes: cluster.RayCluster):
    run = Run(scene, "budget", nodes.address, nodes.environment)
    text = run.file.read_text()
    run.child.kill()
    run.child.communicate()
    scene.witness.new_rows()
    scene.witness.forget()
    run.root = run.root.with_name("budget2")
    run.file.write_text(text.replace('/budget"', '/budget2"') + "[budget]\ncalls = 400\n")
    run.start()
    out = run.end(status=3)
    assert "budget of" in out
    billed = scene.witness.endpoint.ledger().billed
    assert 300 <= billed <= 400
    run.file.write_text(text.replace('/budget"', '/budget2"'))
    run.start()
    run.end()
    run.crashes = scene.crashes("budget2")
    run.check(lost=0)


def test_the_key_is_nowhere(scene: Scene, nodes: cluster.RayCluster):
    """Runs after those that crashed: their workers were handed the key, and their nodes had none of their own."""
    assert scene.witness.endpoint.ledger().requests, "nothing has run"
    needle = CANARY.encode()
    searched = 0
    for root in (nodes.root, scene.root):
        for path in root.rglob("*"):
            with contextlib.suppress(OSError):
                if path.is_file():
                    searched += 1
                    assert needle not in path.read_bytes(), path
    for pid in [pid for node in (*nodes.nodes.values(), nodes.head) if node for pid in node.pids]:
        assert CANARY not in cluster.command_of(pid)
    assert searched > 50


def test_a_cluster_refuses_who_has_no_token(scene: Scene, nodes: cluster.RayCluster):
    environment = {**nodes.environment, "RAY_AUTH_TOKEN": "0" * 64}
    run = Run(scene, "stranger", nodes.address, environment)
    out, _ = run.child.communicate(timeout=300)
    assert run.child.returncode == 2, out
    assert "no Ray cluster at" in out
    assert not run.scene.witness.endpoint.ledger().requests


def test_figures_are_at_the_prometheus_endpoint(scene: Scene, nodes: cluster.RayCluster):
    run = Run(scene, "metrics", nodes.address, nodes.environment)
    run.until(0.2)
    names: set[str] = set()
    deadline = time.monotonic() + 40
    wanted = {
        f"ray_camel_{name}"
        for name in ("calls_total", "in_flight", "shards", "workers", "stop", "prompt_total")
    }
    while not wanted <= names and time.monotonic() < deadline and run.child.poll() is None:
        for port in nodes.metrics_ports():
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"http://{port}/metrics", timeout=20) as reply,
            ):
                names |= set(re.findall(r"^(ray_camel_\w+)", reply.read().decode(), re.MULTILINE))
        time.sleep(0.5)
    run.end()
    assert wanted <= names, sorted(names)
    dashboard = msgspec.json.decode((ROOT / "deploy" / "grafana.json").read_bytes())
    used = set(re.findall(r"ray_camel_\w+", msgspec.json.encode(dashboard).decode()))
    optional = {
        "ray_camel_cached_total",
        "ray_camel_errors_total",
        "ray_camel_retries_total",
        "ray_camel_rate_limited_total",
    }
    assert used - optional <= names, "the dashboard asks for what nobody exports"


def test_ray_job_submit_needs_the_token_and_then_just_works(scene: Scene):
    scene.witness.forget()
    with cluster.start(nodes=1, dashboard=True) as nodes:
        run = Run(scene, "job", "auto", nodes.environment, start=False)
        submit = [str(Path(sys.executable).with_name("ray")), "job", "submit"]
        submit += ["--address", f"http://127.0.0.1:{nodes.dashboard}", "--", *run.command]
        for wrong in ({"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_TOKEN": "0" * 64}):
            refused = subprocess.run(
                submit,
                cwd=ROOT,
                env={**nodes.environment, **wrong},
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert refused.returncode != 0
            assert not scene.witness.endpoint.ledger().requests
        done = subprocess.run(
            submit, cwd=ROOT, env=nodes.environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "complete: 180 conversations" in done.stdout
    run.check(lost=0)
