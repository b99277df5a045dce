"""Verify, index, compact and export: the same results with any number of processes, and a gap is filled by the next call."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow.parquet as pq
from msgspec.structs import replace

from camel.core.errors import InputError
from camel.core.message import Usage
from camel.index import merge as merging
from camel.index.files import Readable, valid_merged_files
from camel.index.merge import merge
from camel.index.text import make_text_index, opened
from camel.library.run import Run
from camel.query.columns import narrow
from camel.record.arrow import write_shard
from camel.runs import compact as compacting
from camel.runs import scores
from camel.runs import verify as verifying
from camel.runs.canary import canary_of
from camel.runs.compact import compact, compactions
from camel.runs.markers import Marker, new_attempt
from camel.runs.run import RunFolder
from camel.runs.settings import Settings
from camel.runs.verify import verify
from camel.storage.processes import ProcessKilled
from tests.support.records import STAGE, a_run, transcript

SHARDS = 11


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets small runs use several processes."""
    for module in (verifying, compacting, merging, scores):
        monkeypatch.setattr(module, "FEW", 0)


@pytest.mark.slow
@pytest.mark.usefixtures("many")
def test_a_verification_does_not_depend_on_the_number_of_processes(tmp_path: Path):
    folder = a_run(RunFolder(tmp_path / "run"), SHARDS)
    damaged = folder.path(folder.marker(STAGE, 4).file)
    damaged.write_bytes(damaged.read_bytes()[:-9])
    one, two, three = (verify(folder, processes=count) for count in (1, 2, 3))
    assert one == two == three
    assert len(one.problems) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("many")
def test_indexes_and_compacted_files_do_not_depend_on_the_number_of_processes(tmp_path: Path):
    source = a_run(RunFolder(tmp_path / "source"), SHARDS)
    results: list[object] = []
    for processes in (1, 2):
        folder = RunFolder(tmp_path / str(processes))
        shutil.copytree(source.root, folder.root)
        merged = merge(folder, STAGE, target=12, processes=processes)
        indexes = [
            (header, pq.read_table(folder.path(name)))
            for name, header in valid_merged_files(Readable(folder, tmp_path), STAGE, "f")
        ]
        size = folder.marker(STAGE, 2).size
        made = compact(folder, STAGE, target=5 * size, processes=processes)
        files = [(one.first, one.last, one.sha256) for one in compactions(folder, STAGE)]
        results.append((merged, indexes, made, files))
    assert results[0] == results[1]
    assert merged.made == made.made == 3


def exported(run: RunFolder, path: Path, processes: int, where: str = "", **more: Any) -> bytes:
    narrow(Run(run.root), where).export("messages", path, processes=processes, **more)
    return path.read_bytes()


@pytest.mark.slow
@pytest.mark.usefixtures("many")
def test_an_export_does_not_depend_on_the_number_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(scores, "RANGE", 2)
    run = a_run(RunFolder(tmp_path / "run"), SHARDS)
    compact(run, STAGE, target=5 * run.marker(STAGE, 2).size)
    one, two = (exported(run, tmp_path / f"{count}.jsonl", count) for count in (1, 2))
    assert one == two
    assert one.count(b"\n") > SHARDS
    some = [exported(run, tmp_path / f"some{count}.jsonl", count, "messages >= 3") for count in (1, 2)]
    assert some[0] == some[1]
    assert 0 < len(some[0]) < len(one)


@pytest.mark.slow
@pytest.mark.usefixtures("many")
def test_labeled_conversations_leave_a_process_only_when_acknowledged(tmp_path: Path):
    run = RunFolder(tmp_path / "run")
    run.create(Settings("f", {"scenario": "misalignment"}, "0"))
    for shard in range(2):
        path = run.data_path(STAGE, shard, new_attempt(), ".parquet")
        labeled = [replace(transcript(4 * shard + n), labels=["misalignment"] * (n == 3)) for n in range(4)]
        written = write_shard(path, labeled)
        file, size = run.persist(path)
        assert run.commit(Marker(STAGE, shard, file, written.rows, written.sha256, "f", {}, size))
    out = tmp_path / "out.jsonl"
    with pytest.raises(InputError, match="misalignment"):
        exported(run, out, 2)
    assert not out.exists()
    assert exported(run, out, 2, acknowledge=True).count(canary_of(run).encode()) == 2


def kill(name: str, usage: Usage) -> float:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0.0


@pytest.mark.slow
@pytest.mark.usefixtures("many")
def test_after_a_killed_process_the_next_call_makes_what_is_missing(tmp_path: Path):
    folder = a_run(RunFolder(tmp_path / "run"), SHARDS)
    with pytest.raises(ProcessKilled):
        merge(folder, STAGE, cost=kill, processes=2)
    merged = merge(folder, STAGE, target=12)
    assert merged.built == SHARDS
    assert merged.rows == 3 * SHARDS


@pytest.mark.slow
def test_a_text_index_does_not_depend_on_the_number_of_processes(tmp_path: Path):
    pytest.importorskip("tantivy")
    folder = a_run(RunFolder(tmp_path / "run"), SHARDS)
    results: list[tuple[object, list[int]]] = []
    for processes in (1, 2):
        made = make_text_index(folder, STAGE, target=12, processes=processes)
        found = [one.search([["said", "13"]], {}, frozenset(), 10)[1] for one in opened(folder, STAGE)]
        results.append((made, found))
        shutil.rmtree(folder.path("text"))
    assert results[0] == results[1]
    made, found = results[0]
    assert made == (4, 4, 3 * SHARDS)
    assert sum(found) == 1
