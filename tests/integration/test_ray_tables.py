"""A run over a table on a real Ray cluster: rows are added, changed and removed, and only new and changed ones are paid for."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path

import pytest

from camel.jobs.status import planned_shards
from camel.models.simulator import SimulatorSettings
from camel.runs.reader import RunReader
from camel.runs.run import open_folder
from camel.runs.verify import verify
from tests.support.cluster import RayCluster
from tests.support.endpoints import serve
from tests.support.forks import Program

pytest.importorskip("pyarrow")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.cluster,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra 'cluster'"),
]
SCENARIO = """
title = "Support"
[role_play]
assistant = "Agent"
user = "Customer"
task = "Help <NAME>"
specify = false
max_messages = 2
"""


def test_rows_change_between_two_runs_on_a_cluster(tmp_path: Path, ray_cluster: RayCluster):
    (tmp_path / "support").mkdir()
    (tmp_path / "support" / "scenario.toml").write_text(SCENARIO)
    rows = [(f"r{n}", f"name {n}") for n in range(40)]
    with serve(SimulatorSettings(length=None)) as endpoint:
        (tmp_path / "camel.toml").write_text(
            'scenario = "support"\nout = "run"\n[inputs]\nfrom = "rows.csv"\n[model]\nname = "simulated"\n'
            f'base_url = "{endpoint.base_url}"\n'
        )
        changed = [(id, f"{name}!") if n < 3 else (id, name) for n, (id, name) in enumerate(rows[:-4])]
        for table, paid in ((rows, 40), ([*changed, ("new", "new")], 44)):
            with (tmp_path / "rows.csv").open("w", newline="") as file:
                csv.writer(file).writerows([("id", "name"), *table])
            where = ("--address", ray_cluster.address, "--workers", "2", "--concurrency", "8")
            with Program(
                "generate", "camel.toml", *where, cwd=tmp_path, env=ray_cluster.environment
            ) as process:
                assert process.wait() == 0, process.out + process.err
            assert {one.id: one.task.text for one in RunReader(tmp_path / "run")} == {
                id: f"Help {name}" for id, name in table
            }
            folder = open_folder(tmp_path / "run")
            report = verify(folder, planned_shards(folder))
            assert report.sound, report.problems
            assert report.complete
            assert endpoint.ledger().billed == 2 * paid
            assert endpoint.ledger().billed_repeats == 0
