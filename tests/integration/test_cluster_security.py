"""A key in the environment of a cluster that crashes in every way, with every log as loud as it goes: it is nowhere.

And a client without the token gets nothing from any port. One wreck on a cluster of its own, examined from all sides.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import ipaddress
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

pytest.importorskip("pyarrow")

ROOT = Path(__file__).parent.parent.parent

from camel.generation.config import GenerateConfig, RunSection  # noqa: E402
from camel.models.simulator import LogNormal, SimulatorSettings, spawn  # noqa: E402
from camel.runs.control import wish  # noqa: E402
from camel.runs.run import open_folder  # noqa: E402
from tests.integration.conftest import SECRET_OF_THE_NODES  # noqa: E402
from tests.support import cluster  # noqa: E402
from tests.support.crashes import (  # noqa: E402
    as_toml,
    config_of,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.cluster,
    # Found and not imported: ray takes seconds, and only child processes use it.
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("ray", "grpc"))), reason="needs the extra 'cluster'"
    ),
]
CANARIES = {
    "OPENAI_API_KEY": "sk-canary-5d41402abc4b2a76b9719d911017c592",
    "AWS_SECRET_ACCESS_KEY": "canary/7d793037a0760186574b0282f2f435e7",
}
"""Of the driver. The nodes have no key of their own, and a secret of their own."""
CONVERSATIONS = 36
METHODS = (
    "NodeInfoGcsService/GetAllNodeInfo",
    "NodeManagerService/GetNodeStats",
    "ObjectManagerService/Pull",
    "CoreWorkerService/PushTask",
    "ReporterService/GetTraceback",
    "RayletDriver/Init",
)
"""One method of each of the services that a part of Ray may have."""


class Port(NamedTuple):
    """A port on which a process of the cluster listens, and what it says to who has no token."""

    command: str
    address: str
    number: int
    says: str


class Wreck:
    """What is left when everything has happened."""

    def __init__(self, root: Path, nodes: cluster.RayCluster) -> None:
        self.root, self.nodes = root, nodes
        self.said: dict[str, str] = {}
        self.ports: list[Port] = []
        self.commands: set[str] = set()
        self.environment = {**nodes.environment, **CANARIES}

    def start(self, name: str, url: str) -> subprocess.Popen[str]:
        config = config_of(self.root / name, url, CONVERSATIONS)
        config = msgspec.structs.replace(config, run=RunSection(concurrency=8))
        file = self.root / f"{name}.toml"
        file.write_text(as_toml(config))
        self.scenario: GenerateConfig = config
        command = [sys.executable, "-m", "camel", "generate", str(file), "--address", self.nodes.address]
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def end(self, name: str, child: subprocess.Popen[str], status: int) -> None:
        out, _ = child.communicate(timeout=300)
        self.said[name] = self.said.get(name, "") + out
        assert child.returncode == status, out

    def pids(self) -> list[int]:
        return [pid for node in (*self.nodes.nodes.values(), self.nodes.head) if node for pid in node.pids]


@pytest.fixture(scope="module")
def wreck(tmp_path_factory: pytest.TempPathFactory, loud_cluster: cluster.RayCluster) -> Wreck:
    wreck = Wreck(tmp_path_factory.mktemp("wreck"), loud_cluster)
    latency = LogNormal(median=0.1, p99=0.5)
    with spawn(SimulatorSettings(length=LogNormal(median=6, p99=12), latency=latency)) as endpoint:
        _killed(wreck, endpoint.base_url, endpoint.ledger)
        _raising(wreck, endpoint.base_url)
    with _echo() as url:
        wreck.end("echo", wreck.start("echo", url), 3)
    return wreck


def _killed(wreck: Wreck, url: str, ledger: Callable[[], Any]) -> None:
    """A run whose workers die of everything that one can die of, to its end."""
    child = wreck.start("killed", url)
    _until(lambda: ledger().requests > 20, child)
    folder = open_folder(wreck.root / "killed")
    wish(folder, "pause")  # so that its workers are there as long as this takes
    for pid in wreck.pids():
        wreck.commands.add(cluster.command_of(pid))
        wreck.ports += [_knocked(pid, *where) for where in _listening(pid)]
    wish(folder, "go")
    for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT):
        _until(lambda: bool(wreck.nodes.workers()), child)
        with contextlib.suppress(ProcessLookupError):
            os.kill(wreck.nodes.workers()[0], number)
        before = ledger().requests
        _until(lambda before=before: ledger().requests > before + 20, child)
    wreck.end("killed", child, 0)


def _raising(wreck: Wreck, url: str) -> None:
    """Kill a run and rename the files of its lists: when it resumes, its workers raise an unexpected error."""
    child = wreck.start("raising", url)
    folder = wreck.root / "raising"
    _until(lambda: (folder / "journal" / "conversations").exists(), child)
    child.kill()
    wreck.said["raising"] = child.communicate()[0]
    for path in list((folder / "data").rglob("*.txt")):
        path.rename(path.with_name(f"{path.name[:6]}-{'0' * 12}.txt"))
    child = wreck.start("raising", url)
    out, _ = child.communicate(timeout=300)
    wreck.said["raising"] += out
    assert child.returncode not in (0, None), out
    assert "FileNotFoundError" in out, out


@contextlib.contextmanager
def _echo(*, asked: bool = True) -> Iterator[str]:
    """An endpoint that refuses, and says with which key it was asked; `asked` is whether it must have been."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            said = self.headers.get("Authorization", "")
            body = msgspec.json.encode({"error": {"message": f"Incorrect API key provided: {said}"}})
            self.send_response(401, f"Unauthorized {said}")
            self.send_header("X-Key", said)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            keys.append(self.headers.get("Authorization", ""))

    keys: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    if asked:
        assert any(CANARIES["OPENAI_API_KEY"] in key for key in keys), "the workers had no key to lose"
    else:
        assert not keys


def _until(holds: Callable[[], bool], child: subprocess.Popen[str], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert child.poll() is None, child.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _listening(pid: int) -> list[tuple[str, int]]:
    """Where a process listens, by the kernel's account."""
    inodes: set[str] = set()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                inodes.add(str(link.readlink()).removeprefix("socket:[").removesuffix("]"))
    found: list[tuple[str, int]] = []
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                raw, _, port = fields[1].partition(":")
                words = [bytes.fromhex(raw[at : at + 8])[::-1] for at in range(0, len(raw), 8)]
                found.append((socket.inet_ntop(family, b"".join(words)), int(port, 16)))
    return found


def _knocked(pid: int, address: str, port: int) -> Port:
    """Ask without a token, in both languages that Ray speaks."""
    import grpc

    where = ipaddress.ip_address(address)
    where = getattr(where, "ipv4_mapped", None) or where
    host = "127.0.0.1" if where.is_unspecified else str(where)
    says: set[str] = set()
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        for method in METHODS:
            call = channel.unary_unary(
                f"/ray.rpc.{method}", request_serializer=bytes, response_deserializer=bytes
            )
            try:
                call(b"", timeout=60)
                says.add("open")
            except grpc.RpcError as error:
                says.add(error.code().name)
    if says == {"UNAVAILABLE"}:
        status, body = _get(f"http://{host}:{port}/api/jobs/")
        says = {"figures" if status == 200 and body.startswith(b"# HELP") else str(status)}
    said = ", ".join(sorted(says - {"UNIMPLEMENTED"}))
    return Port(cluster.command_of(pid), str(where), port, said)


def _get(url: str, token: str = "", data: bytes | None = None) -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    headers |= {"Content-Type": "application/json"} if data else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=60) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError as error:
        return 0, str(error).encode()


def test_no_key_is_anywhere(wreck: Wreck):
    secrets = [*CANARIES.values(), SECRET_OF_THE_NODES]
    forms = [form for secret in secrets for form in (secret.encode(), base64.b64encode(secret.encode())[:-4])]
    searched: dict[str, int] = {}
    for root in (wreck.nodes.root, wreck.root):
        for path in root.rglob("*"):
            if path.is_file() and not path.is_symlink():
                data = path.read_bytes()
                searched[path.name] = len(data)
                assert not [form for form in forms if form in data], path
    for text in (*wreck.said.values(), *wreck.commands):
        assert not [secret for secret in secrets if secret in text], text[-2000:]
    assert sum(searched.values()) > 2**20, "the logs are not as loud as they should be"
    assert any("raylet" in name for name in searched)
    assert any(name.startswith("gcs_server") for name in searched)
    workers = [path.read_text(errors="replace") for path in wreck.nodes.root.rglob("worker-*.err")]
    assert any("DEBUG:asyncio:" in text for text in workers), "no debug log of a worker"
    assert any("Segmentation fault" in text or "SIGSEGV" in text for text in workers), "no report of a crash"


def test_the_key_is_shown_as_such_where_an_endpoint_repeats_it(wreck: Wreck):
    assert "Bearer [key]" in wreck.said["echo"]
    assert "Bearer [key]" in (wreck.root / "echo" / "log.jsonl").read_text()


def test_every_port_asks_for_the_token(wreck: Wreck):
    asked = {"UNAUTHENTICATED", "401"}
    open_ports = [port for port in wreck.ports if port.says not in asked]
    for part in ("gcs_server", "raylet/raylet", "dashboard.py", "DashboardAgent", "WorkerActor"):
        assert any(part in port.command for port in wreck.ports), part
    # Ray's Prometheus endpoints ask nobody for anything, and say nothing but figures.
    assert {port.says for port in open_ports} <= {"figures"}, open_ports
    known = ("ray::DashboardAgent", "ray/dashboard/dashboard.py", "ray/autoscaler/_private/monitor.py")
    strangers = [port for port in open_ports if not any(name in port.command for name in known)]
    assert not strangers


def test_figures_hold_no_key(wreck: Wreck):
    for where in wreck.nodes.metrics_ports():
        status, body = _get(f"http://{where}/metrics")
        assert status == 200
        assert b"canary" not in body


def test_jobs_of_strangers_are_refused(wreck: Wreck):
    url = f"http://127.0.0.1:{wreck.nodes.dashboard}/api/jobs/"
    job = msgspec.json.encode({"entrypoint": f"touch {wreck.root}/owned"})
    assert _get(url, data=job)[0] == 401
    assert _get(url, "0" * 64, job)[0] == 403
    assert _get(url, wreck.nodes.environment["RAY_AUTH_TOKEN"])[0] == 200
    submit = [str(Path(sys.executable).with_name("ray")), "job", "submit", "--address"]
    submit += [url.removesuffix("/api/jobs/"), "--", "touch", f"{wreck.root}/owned"]
    code = f"import ray; ray.init(address={wreck.nodes.address!r}); open({str(wreck.root / 'owned')!r}, 'w')"
    without = {**wreck.nodes.environment, "RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": ""}
    # `ray job submit` with a wrong token is the request above that was refused.
    wreck.environment = {**wreck.nodes.environment, "RAY_AUTH_TOKEN": "0" * 64}
    with _echo(asked=False) as endpoint:
        stranger = wreck.start("stranger", endpoint)
        # All at the same time: each of them waits before it gives up.
        others = [
            subprocess.Popen(
                command, env=without, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            for command in (submit, [sys.executable, "-c", code])
        ]
        wreck.end("stranger", stranger, 2)
        for child in others:
            out, _ = child.communicate(timeout=300)
            assert child.returncode, out
    assert wreck.nodes.address in wreck.said["stranger"]
    assert not (wreck.root / "owned").exists()
