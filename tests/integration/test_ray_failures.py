"""The failure policy on a real Ray cluster, against real HTTP servers, by the servers' account."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from camel.library.run import Run
from camel.models.simulator import Constant, SimulatorSettings, spawn
from tests.support import cluster
from tests.support.cluster import RayCluster
from tests.support.failing import (
    NO_MODEL,
    REVOKED,
    exported,
    failures,
    is_agent,
    out_for,
    refusing_conversations,
    spoil,
    written,
)
from tests.support.moody import Answer, Mood, Moody, moody
from tests.support.sick_nodes import CALLS, IN_FLIGHT, ITEMS, small_disk, with_other_code, without_route

pytest.importorskip("pyarrow")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.cluster,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra 'cluster'"),
]
SIZES = {"assistant_role": 5, "user_role": 4, "task": 2}
CONVERSATIONS = 40
BAD: dict[str, Any] = {
    "garbage": Answer(200, "<html>hello</html>"),
    "404": NO_MODEL,
    "401": REVOKED,
    "refused": "hang up",
    "500": Answer(500, "oops"),
}


@pytest.fixture
def endpoints() -> Iterator[list[Moody]]:
    settings = SimulatorSettings(length=Constant(5), words=12)
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(moody(settings)) for _ in range(3)]


def generate(nodes: RayCluster, folder: Path, *options: str) -> tuple[int, str]:
    command = ("-m", "camel", "generate", "config.toml", "--address", nodes.address, "--workers", "2")
    done = subprocess.run(
        [sys.executable, *command, *options],
        cwd=folder,
        env={**nodes.environment, "OPENAI_API_KEY": "sk-x"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
    return done.returncode, done.stdout + done.stderr


def served(endpoints: list[Moody]) -> Counter[str]:
    """The calls of conversations that were answered with a reply."""
    return Counter(body for one in endpoints for body in one.served if is_agent(json.loads(body)))


def all_of(*moods: Mood) -> Mood:
    return lambda body, count: next((said for mood in moods if (said := mood(body, count)) is not None), None)


def spoiling(kind: str) -> Mood:
    return lambda body, count: spoil(kind) if is_agent(body) and count % 20 == 0 else None


def no_spoiled(folder: Path) -> bool:
    texts = [message["content"] for row in exported(folder) for message in row["messages"]]
    return all(text and "SPOILED" not in text for text in texts)


def test_every_failure_on_a_cluster(ray_cluster: RayCluster, endpoints: list[Moody], tmp_path: Path):
    """Rejected, then with all other failures at once, then the failed items again."""
    written(tmp_path, [one.base_url for one in endpoints], sizes=SIZES)
    for one in endpoints:
        one.mood = lambda body, count: REVOKED
    status, said = generate(ray_cluster, tmp_path)
    assert status == 3, said
    assert "Incorrect API key" in said
    assert not list((tmp_path / "run" / "committed").rglob("*.json"))
    good, also, bad = endpoints
    for one in (good, also):
        one.mood = all_of(out_for(4, after=40), refusing_conversations(2), spoiling("cut"))
    bad.mood = lambda body, count: NO_MODEL
    status, said = generate(ray_cluster, tmp_path)
    assert status == 4, said
    assert set(failures(tmp_path)) == {"ContentRejected"}
    assert len(exported(tmp_path)) == CONVERSATIONS - failures(tmp_path).total()
    assert no_spoiled(tmp_path)
    assert len(bad.requests) < (len(good.requests) + len(also.requests)) / 4, "it is left alone"
    for one in endpoints:
        one.mood = lambda body, count: None
    status, said = generate(ray_cluster, tmp_path, "--retry-failed")
    assert status == 0, said
    assert len(exported(tmp_path)) == len(Run(tmp_path / "run")) == CONVERSATIONS


def test_each_sick_node_is_retired_and_the_others_finish(tmp_path: Path):
    """One of four nodes is well. The others have other code, a full disk, or no route to the endpoint."""
    settings = SimulatorSettings(words=5, latency=Constant(0.4))
    with spawn(settings) as endpoint, small_disk(tmp_path / "disk") as disk:
        port = urlsplit(endpoint.base_url).port
        assert port
        own = {1: with_other_code(tmp_path / "code"), 2: without_route(tmp_path / "wall", port)}
        own |= {3: {"TMPDIR": str(disk)}} if disk else {}
        with cluster.start(nodes=1 + len(own), own=own) as ray:
            done = subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "tests.support.sick_nodes",
                    ray.address,
                    tmp_path / "job",
                    endpoint.base_url,
                ],
                cwd=tmp_path,
                env={**ray.environment, "OPENAI_API_KEY": "sk-x"},
                capture_output=True,
                text=True,
                timeout=600,
            )
            addresses = [ray.address_of(number) for number in range(1 + len(own))]
        assert done.returncode == 0, done.stdout + done.stderr
        ledger = endpoint.ledger()
    assert (ledger.billed - ledger.billed_repeats) == ITEMS * CALLS
    assert ledger.billed_repeats <= IN_FLIGHT, "only what was in flight on the node with the full disk"
    events = [json.loads(line) for line in (tmp_path / "job" / "log.jsonl").read_text().splitlines()]
    retired = {event["node"]: event["kind"] for event in events if event["event"] == "node"}
    kinds = {1: "code", 2: "route", 3: "disk"}
    assert retired == {addresses[number]: kinds[number] for number in own}


@pytest.mark.thorough
@pytest.mark.parametrize("bad", list(BAD))
def test_one_of_three_replicas_is_bad(
    ray_cluster: RayCluster, endpoints: list[Moody], tmp_path: Path, bad: str
):
    written(tmp_path, [one.base_url for one in endpoints], sizes=SIZES)
    endpoints[1].mood = lambda body, count: BAD[bad]
    status, said = generate(ray_cluster, tmp_path)
    assert status == 0, said
    assert len(exported(tmp_path)) == CONVERSATIONS
    assert set(served(endpoints).values()) == {1}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["empty", "cut", "filtered"])
def test_replies_that_cannot_be_used(
    ray_cluster: RayCluster, endpoints: list[Moody], tmp_path: Path, kind: str
):
    written(tmp_path, endpoints[0].base_url, sizes=SIZES)
    endpoints[0].mood = spoiling(kind)
    status, said = generate(ray_cluster, tmp_path)
    assert status == 0, said
    assert len(exported(tmp_path)) == CONVERSATIONS
    assert no_spoiled(tmp_path)


@pytest.mark.thorough
def test_a_model_that_is_retired(ray_cluster: RayCluster, endpoints: list[Moody], tmp_path: Path):
    one = endpoints[0]
    written(tmp_path, one.base_url, sizes=SIZES)
    one.mood = lambda body, count: NO_MODEL if body["model"] == "simulated" and count > 150 else None
    status, said = generate(ray_cluster, tmp_path)
    assert status == 3, said
    written(tmp_path, one.base_url, model="successor", sizes=SIZES)
    assert generate(ray_cluster, tmp_path)[0] == 2
    status, said = generate(ray_cluster, tmp_path, "--accept-change", "model.name")
    assert status == 0, said
    asked = Counter(json.dumps(json.loads(body)["messages"]) for body in one.served)
    assert set(asked.values()) == {1}
    models = {message.model for talk in Run(tmp_path / "run") for message in talk.messages}
    assert models == {"simulated", "successor"}


@pytest.mark.thorough
def test_an_outage_of_twenty_seconds(ray_cluster: RayCluster, endpoints: list[Moody], tmp_path: Path):
    one = endpoints[0]
    written(tmp_path, one.base_url, sizes=SIZES)
    one.mood = out_for(20, after=60)
    status, said = generate(ray_cluster, tmp_path)
    assert status == 0, said
    assert len(exported(tmp_path)) == CONVERSATIONS
    assert set(served([one]).values()) == {1}
