"""A Ray cluster of several nodes on this machine, for tests and benchmarks: started, hurt and stopped by name.

    with cluster.start(nodes=2) as ray:
        subprocess.run(["camel", "generate", "config.toml", "--address", ray.address], env=ray.environment)
        ray.kill_worker()       # SIGKILL to one worker process
        ray.kill_raylet(0)      # SIGKILL to a node's raylet, and with it all that is on the node
        ray.start_node(0)
        ray.restart_head()      # the head dies with all its state; nodes are restarted

Each node is a `ray start --block` in a session of its own, with an address of its own in 127/8. Nothing is ever stopped by
name: other clusters on the machine are left alone.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

WORKER = "ray::WorkerActor"
"""What Ray calls our worker processes in the list of processes."""
OBJECT_STORE = 80 * 2**20


def _free_ports(count: int) -> list[int]:
    """Ports that are free now, all of them different: one asked for after the other may be the same."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(server.getsockname()[1]) for server in servers]


def children(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for one in found:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for task in Path(f"/proc/{one}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def command_of(pid: int) -> str:
    """The command line of a process; empty when it is gone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


class Node:
    """One `ray start --block`."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self.known: set[int] = {self.process.pid}

    @property
    def pids(self) -> list[int]:
        """Its processes, and those that lost their parents, as long as they live."""
        for pid in list(self.known):
            self.known.update(children(pid))
        self.known = {pid for pid in self.known if command_of(pid)}
        return sorted(self.known)

    def named(self, part: str) -> list[int]:
        """Its processes whose command holds `part`."""
        return [pid for pid in self.pids if part in command_of(pid)]

    def kill(self) -> None:
        """End all of it at once."""
        for _ in range(3):  # some may start others meanwhile
            for pid in self.pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.2)
        self.process.wait()


class RayCluster:
    """A head without CPUs, on which drivers live, and nodes with workers."""

    def __init__(
        self, root: Path, nodes: int, cpus: int, dashboard: bool, own: Mapping[int, Mapping[str, str]]
    ) -> None:
        self.root, self.cpus, self._own = root, cpus, own
        self.port, port = _free_ports(2)
        self.dashboard = port if dashboard else 0
        """The port of the dashboard on 127.0.0.1, for `ray job submit`; 0: there is none."""
        # 127.x.y.*, so that clusters on one machine do not meet.
        self._net = f"127.{random.randint(1, 254)}.{random.randint(1, 254)}"
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
            # A node whose raylet was killed is noticed within seconds, as is a head that is gone: a process that is asked there
            # refuses at once. One that only stands still, as this machine sometimes does, has half a minute.
            "RAY_health_check_initial_delay_ms": "1000",
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_timeout_ms": "10000",
            "RAY_health_check_failure_threshold": "3",
            "RAY_gcs_rpc_server_reconnect_timeout_s": "5",
            # It comes with Ray Serve, which most clusters do not have, and would replace the loops that tests look into.
            "RAY_USE_UVLOOP": "0",
            # 30 s otherwise, which is not enough for `ray start` on a busy machine.
            "RAY_raylet_start_wait_time_s": "100",
            # Every 10 s otherwise, which is longer than most runs of a test.
            "RAY_metrics_report_interval_ms": "1000",
        }
        self.nodes: dict[int, Node] = {}
        self._metrics: dict[int, int] = {}
        self.wanted = nodes
        self.head: Node | None = None

    @property
    def address(self) -> str:
        """For `--address`."""
        return f"{self._net}.1:{self.port}"

    def address_of(self, number: int) -> str:
        """The address of a node."""
        return f"{self._net}.{number + 2}"

    @property
    def session(self) -> Path:
        """Where Ray keeps its files."""
        return self.root / "r"

    def start(self) -> None:
        """Start the head, then the nodes. A driver waits for them if they are not registered yet."""
        self.start_head()
        for number in range(self.wanted):
            self.start_node(number)

    def start_head(self) -> None:
        self.head = self._node(
            0,
            "--head",
            f"--port={self.port}",
            "--num-cpus=0",
            f"--include-dashboard={'true' if self.dashboard else 'false'}",
            *((f"--dashboard-port={self.dashboard}",) if self.dashboard else ()),
            f"--temp-dir={self.session}",
        )

    def start_node(self, number: int) -> None:
        """Start node `number`, or start it again."""
        if number in self.nodes:
            self.nodes[number].kill()
        options = (f"--address={self.address}", f"--num-cpus={self.cpus}")
        self.nodes[number] = self._node(number + 1, *options)

    def kill_raylet(self, number: int) -> None:
        """SIGKILL a node's raylet; its workers see that it is gone."""
        for pid in self.nodes[number].named("raylet/raylet"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def restart_head(self, nodes: int | None = None) -> None:
        """Kill the head with all its state, and restart the cluster at the same address."""
        assert self.head is not None
        self.head.kill()
        for node in self.nodes.values():
            node.kill()
        self.nodes.clear()
        self.wanted = self.wanted if nodes is None else nodes
        self.start()

    def workers(self, number: int | None = None) -> list[int]:
        """Our worker processes, on one node or all."""
        nodes = self.nodes.values() if number is None else [self.nodes[number]]
        return [pid for node in nodes for pid in node.named(WORKER)]

    def kill_worker(self, chance: random.Random | None = None) -> int | None:
        """SIGKILL one worker process; returns its pid, or None when there is none."""
        if not (pids := self.workers()):
            return None
        pid = (chance or random.Random()).choice(pids)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return pid

    def metrics_ports(self) -> list[str]:
        """Where each node exports its metrics, as host:port."""
        return [f"{self._net}.{last + 1}:{port}" for last, port in self._metrics.items()]

    def stop(self) -> None:
        for node in (*self.nodes.values(), *([self.head] if self.head else [])):
            node.kill()

    def _node(self, last: int, *options: str) -> Node:
        log = self.root / f"node{last}.log"
        for left in (2, 1, 0):
            # Ports that nodes on one machine would fight over. Another process may take one before the node does.
            agent, metrics, environments = _free_ports(3)
            self._metrics[last] = metrics
            command = [
                str(Path(sys.executable).with_name("ray")),
                "start",
                "--block",
                "--disable-usage-stats",
            ]
            command += [
                f"--node-ip-address={self._net}.{last + 1}",
                f"--object-store-memory={OBJECT_STORE}",
                f"--dashboard-agent-listen-port={agent}",
                f"--metrics-export-port={metrics}",
                f"--runtime-env-agent-port={environments}",
                *options,
            ]
            log.write_text("")
            node = Node(command, {**self.environment, **self._own.get(last - 1, {})}, log)

            def settled(node: Node = node) -> bool:
                return "runtime started" in log.read_text() or node.process.poll() is not None

            # One after the other: two that start at once have been seen to wait for each other's ports.
            with contextlib.suppress(RuntimeError):
                self._until(settled, f"node {last} does not come up")
            if "runtime started" in log.read_text() or not left:
                break
            node.kill()
        if "runtime started" not in log.read_text():
            node.kill()
            raise RuntimeError(f"node {last} does not come up\n{log.read_text()[-2000:]}")
        return node

    def _until(self, holds: object, otherwise: str, seconds: float = 120.0) -> None:
        assert callable(holds)
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                logs = "\n".join(path.read_text()[-2000:] for path in sorted(self.root.glob("node*.log")))
                raise RuntimeError(f"{otherwise}\n{logs}")
            time.sleep(0.3)


@contextmanager
def start(
    nodes: int = 2,
    cpus: int = 1,
    *,
    dashboard: bool = False,
    own: Mapping[int, Mapping[str, str]] | None = None,
) -> Generator[RayCluster]:
    """A cluster for the length of a `with` block. `own` has environment variables of single nodes, by number."""
    # A short path: Unix sockets below it have at most 107 characters.
    root = Path(tempfile.mkdtemp(prefix="ray-"))
    cluster = RayCluster(root, nodes, cpus, dashboard, own or {})
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(root, ignore_errors=True)
