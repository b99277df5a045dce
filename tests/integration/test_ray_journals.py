"""Two Ray nodes that share no disk, and an object store: a node is lost with its folder, and the run finishes.

The account is the endpoint's ledger: what was paid for again is at most what the lost node had in flight, and what the
nodes had been answered within the bound.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from camel.models.simulator import Constant, LogNormal, SimulatorSettings, spawn
from camel.models.simulator.ledger import read_rows
from camel.runs.run import JOURNALS, RunFolder
from camel.runs.settings import Holder
from camel.runs.verify import verify
from camel.storage.store import BucketStore
from tests.support import cluster
from tests.support.forks import wait_until
from tests.support.s3_faults import Server

pytest.importorskip("pyarrow")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.cluster,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra 'cluster'"),
]
ROOT = Path(__file__).parents[2]
CONVERSATIONS, MESSAGES, WINDOW, BOUND = 48, 12, 8, 2.0


def test_a_node_that_is_lost_with_its_disk_costs_no_more_than_the_bound(tmp_path: Path, s3: Server):
    rows = tmp_path / "rows.jsonl"
    settings = SimulatorSettings(
        length=Constant(MESSAGES), latency=LogNormal(0.1, 0.3), ledger_path=str(rows)
    )
    place = s3.address(f"ray-journals-{tmp_path.name}/run")
    with cluster.start(nodes=0, cpus=1) as ray, spawn(settings) as endpoint:
        for number in range(2):
            ray.environment[JOURNALS] = str(tmp_path / f"node{number}")
            ray.start_node(number)
        file = tmp_path / "config.toml"
        file.write_text(
            f'scenario = "ai_society"\nout = "{place}"\nshard_size = 4\n'
            f"counts = {{ assistant_role = 4, user_role = 4, task = {CONVERSATIONS // 16} }}\n"
            f'[model]\nname = "simulated"\nbase_url = "{endpoint.base_url}"\n[run]\nconcurrency = {WINDOW}\ncopy_every = {BOUND}\n'
        )
        command = [sys.executable, "-m", "camel", "generate", str(file), "--address", ray.address]
        child = subprocess.Popen(
            [*command, "--workers", "2"],
            cwd=ROOT,
            env={
                **ray.environment,
                **s3.environment,
                "OPENAI_API_KEY": "none",
                JOURNALS: str(tmp_path / "driver"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:

            def reached(calls: int) -> bool:
                assert child.poll() is None, child.communicate()[0]
                return endpoint.ledger().requests >= calls

            wait_until(lambda: reached(CONVERSATIONS * MESSAGES // 3), "a third of the calls", 300)
            lost = Path(tmp_path / "node0")
            wait_until(lambda: reached(0) and any(lost.rglob("journal/*/*-*")), "work on the node", 300)
            then = time.time()
            ray.nodes[0].kill()
            shutil.rmtree(lost)
            out, _ = child.communicate(timeout=600)
        finally:
            child.kill()
        assert child.returncode == 0, out
        endpoint.flush()
        ledger = endpoint.ledger()
        recent = sum(then - BOUND - 0.5 <= row.time <= then + 0.5 for row in read_rows(rows) if row.billed)
        assert ledger.billed_repeats <= WINDOW + recent
        print(f"paid again: {ledger.billed_repeats}; within the bound: {recent}")
    store = BucketStore(place)
    holder = msgspec.json.decode(store.get("holders/conversations.json"), type=Holder)
    assert holder.copied
    assert list(store.entries("copies/conversations")) == []
    report = verify(RunFolder(tmp_path / "reader", store))
    assert report.sound
    assert f"complete: {CONVERSATIONS} conversations" in out
