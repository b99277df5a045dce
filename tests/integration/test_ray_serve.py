"""deploy/vllm on Ray Serve, with the simulated endpoint in place of vLLM: the same application, started the same way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import cluster
from tests.support.waiting import wait_for

pytest.importorskip("grpc_reflection", reason="pip install 'ray[serve]'")
yaml = pytest.importorskip("yaml")
RECIPE = Path(__file__).parent.parent.parent / "deploy" / "vllm"
CONFIG = """
scenario = "ai_society"
counts = { assistant_role = 4, user_role = 3, task = 1 }
out = "run"
[model]
name = "simulated"
"""


@contextmanager
def served(folder: Path, ray: cluster.RayCluster, port: int) -> Iterator[str]:
    """`serve run` with the recipe, and without its GPUs."""
    shutil.copy(RECIPE / "serve_app.py", folder)
    recipe: dict[str, Any] = yaml.safe_load((RECIPE / "serve.yaml").read_text())
    # Both nodes are this machine, where only one can listen on the port.
    recipe["proxy_location"] = "HeadOnly"
    recipe["http_options"] |= {"host": "127.0.0.1", "port": port}
    (application,) = recipe["applications"]
    settings = {
        "ledger_path": f"{folder}/{{port}}.ledger",
        "words": 20,
        "length": {"kind": "constant", "value": 9},
    }
    settings |= {"latency": {"kind": "constant", "value": 0.2}, "tokens_per_second": 20.0}
    simulator = [sys.executable, "-m", "camel.models.simulator", "--port", "{port}"]
    application["args"] |= {
        "command": [*simulator, "--settings", json.dumps(settings)],
        "health": "/v1/models",
    }
    (deployment,) = application["deployments"]
    deployment["num_replicas"] = 2
    deployment["health_check_period_s"] = 1
    deployment["ray_actor_options"] = {"num_cpus": 1}
    (folder / "serve.yaml").write_text(yaml.safe_dump(recipe))
    command = [str(Path(sys.executable).with_name("serve")), "run", "serve.yaml", "--address", ray.address]
    with (folder / "serve.log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=ray.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    url = f"http://127.0.0.1:{port}/v1"

    def answers() -> bool:
        assert process.poll() is None, (folder / "serve.log").read_text()[-3000:]
        try:
            with urllib.request.urlopen(f"{url}/models", timeout=10) as reply:
                return reply.status == 200
        except OSError:
            return False

    try:
        wait_for(answers, every=0.5)
        wait_for(lambda: len(servers(folder)) == 2, every=0.5)
        yield url
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()


def servers(folder: Path) -> dict[int, int]:
    """The stand-ins for vLLM that run now: port and process."""
    found: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            words = cluster.command_of(int(entry.name)).split()
            if "camel.models.simulator" in words and any(f"{folder}/" in word for word in words):
                found[int(words[words.index("--port") + 1])] = int(entry.name)
    return found


def generate(folder: Path, url: str, out: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "camel", "generate", "config.toml", "--json", "--out", out]
    environment = {**os.environ, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none"}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )


def streamed(url: str) -> list[bytes]:
    """The parts in which a streamed reply arrives."""
    body = {
        "model": "simulated",
        "stream": True,
        "messages": [{"role": "user", "content": "Name ten colors."}],
    }
    request = urllib.request.Request(
        f"{url}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        assert reply.headers["Content-Type"].startswith("text/event-stream")
        return list(iter(lambda: reply.read1(65536), b""))


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    with process:
        output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    return json.loads(output.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_replicas_behind_ray_serve(tmp_path: Path):
    (tmp_path / "config.toml").write_text(CONFIG)
    port = cluster._free_ports(1)[0]  # pyright: ignore[reportPrivateUsage]
    with cluster.start(nodes=1, cpus=2) as ray:
        with served(tmp_path, ray, port) as url:
            parts = streamed(url)
            assert len(parts) > 3, "a streamed reply arrives as it is written"
            assert parts[-1].strip().endswith(b"data: [DONE]")

            first = servers(tmp_path)
            assert finish(generate(tmp_path, url, "calm"))["failed"] == 0
            calm_until = time.time()
            assert servers(tmp_path) == first

            # A server ends during a run: Serve starts another in its place, and no conversation fails.
            run = generate(tmp_path, url, "disturbed")
            journal = tmp_path / "disturbed" / "journal" / "conversations"
            wait_for(lambda: sum(one.stat().st_size for one in journal.glob("*")) > 4_000)
            gone, process = next(iter(first.items()))
            os.kill(process, signal.SIGTERM)
            assert finish(run)["failed"] == 0
            wait_for(lambda: gone not in servers(tmp_path) and len(servers(tmp_path)) == 2, every=0.5)

            # A replica of Serve is killed: its server ends with it, and frees its GPU.
            second = servers(tmp_path)
            for pid in ray.nodes[0].named("ray::ServeReplica:vllm:ModelServer"):
                os.kill(pid, signal.SIGKILL)
            wait_for(lambda: not set(second.values()) & set(servers(tmp_path).values()), every=0.5)
        wait_for(lambda: not servers(tmp_path), every=0.5)

    used: dict[str, set[str]] = {}
    for ledger in tmp_path.glob("*.ledger"):
        for row in map(json.loads, ledger.read_text().splitlines()):
            if row["time"] < calm_until and row["session"]:
                used.setdefault(row["session"], set()).add(ledger.stem)
    assert len(used) >= 12
    assert all(len(replicas) == 1 for replicas in used.values()), "a conversation stays on its replica"
    assert set.union(*used.values()) == set(map(str, first)), "all replicas are used"
