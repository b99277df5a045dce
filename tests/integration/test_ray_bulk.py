"""Verify, index, compact and export on a real Ray cluster: the results are those of one process, on a disk and in a store."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from camel.runs.run import RunFolder
from tests.support.cluster import RayCluster
from tests.support.records import a_run

pytest.importorskip("pyarrow")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.cluster,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra 'cluster'"),
]
DRIVER = """
import contextlib, json, os, sys
from pathlib import Path

import camel
from camel.core.errors import CamelError
from camel.index import merge as merging
from camel.index.files import Readable, valid_merged_files
from camel.index.text import make_text_index
from camel.library.run import Run
from camel.runs import compact as compacting, scores, verify as verifying
from camel.runs.compact import compact, compactions
from camel.runs.run import open_folder
from camel.runs.verify import verify

for module in (merging, compacting, scores, verifying):
    module.FEW = 0
scores.RANGE = 2
run, out, address = sys.argv[1:]
with camel.on_cluster(address) if address else contextlib.nullcontext(1) as processes:
    folder, stage = open_folder(run), "conversations"
    files = verify(folder, processes=processes).files
    merged = merging.merge(folder, stage, target=12, processes=processes)
    names = valid_merged_files(Readable(folder, Path(out + "-scratch")), stage, "f")
    size = folder.marker(stage, 2).size
    made = compact(folder, stage, target=5 * size, processes=processes)
    text = make_text_index(folder, stage, target=12, processes=processes if folder.on_disk else 1)
    Run(run).export("messages", out, processes=processes)
    print(json.dumps([
        files, merged, [header.rows for _, header in names], made,
        [one.sha256 for one in compactions(folder, stage)], text, Path(out).read_text(),
    ]))
    folder.store.remove([compactions(folder, stage)[0].file])
    print(json.dumps([problem.what for problem in verify(folder, processes=processes).problems]))
"""


def drive(run: object, out: Path, address: str, environment: dict[str, str]) -> list[Any]:
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(run), str(out), address],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        cwd=out.parent,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("place", [pytest.param("disk", marks=pytest.mark.thorough), "s3"], indirect=True)
def test_bulk_work_on_a_cluster_gives_the_same_results(
    tmp_path: Path, place: Callable[[str], RunFolder], ray_cluster: RayCluster
):
    found = [
        drive(
            a_run(place(f"{name}/run"), 11).address,
            tmp_path / f"{name}.jsonl",
            address,
            ray_cluster.environment,
        )
        for name, address in (("here", ""), ("there", ray_cluster.address))
    ]
    assert found[0] == found[1]
    (files, *_, rows), problems = found[0]
    assert files >= 11
    assert rows.count("\n") > 11
    assert len(problems) == 1
