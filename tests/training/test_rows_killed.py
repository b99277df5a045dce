"""Rows whose builder is killed several times have the same bytes as rows made without interruption."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from camel.core.message import Message
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.record.arrow import write_shard
from camel.runs.markers import Marker, new_attempt
from camel.runs.run import open_folder
from camel.runs.settings import Settings
from camel.training.recipe import Filters, Recipe, Source
from camel.training.rows import MIXED, SHAPED, RowsJob
from tests.support.jobs import run as run_job

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.slow
SHARDS, EACH = 8, 30
BUILD = """
import asyncio, os, signal, sys, threading
import msgspec
from camel.jobs.runner import Runner
from camel.training.recipe import Recipe
from camel.training.rows import RowsJob

recipe, commits, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
calls = 0


def die_soon(*committed: object) -> None:
    global calls
    calls += 1
    if calls == commits:
        threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()


runner = Runner(RowsJob(msgspec.json.decode(recipe, type=Recipe)))
runner.committed = die_soon
asyncio.run(runner.run())
"""
"""Makes rows, and kills itself a given time after a given number of commits."""


def conversation(number: int) -> Transcript:
    chance = random.Random(number % 200)  # some conversations are equal
    texts = [" ".join(f"word{chance.randrange(3_000)}" for _ in range(120)) for _ in range(6)]
    messages = [Message(n, ("user", "assistant")[n % 2], "R", text) for n, text in enumerate(texts)]
    speakers = [Speaker("user", "Trader"), Speaker("assistant", "Coder")]
    return Transcript(f"{number:05}", Task("Trade."), speakers, messages)


@pytest.fixture
def run(tmp_path: Path) -> str:
    folder = open_folder(tmp_path / "run")
    for shard in range(SHARDS):
        file = folder.data_path("conversations", shard, new_attempt(), ".parquet")
        written = write_shard(file, [conversation(shard * EACH + n) for n in range(EACH)])
        kept, size = folder.persist(file)
        folder.commit(Marker("conversations", shard, kept, written.rows, written.sha256, "x", {}, size))
    folder.create(Settings("x", {"scenario": "test"}, "0"))
    return str(tmp_path / "run")


def content(recipe: Recipe) -> list[tuple[bytes, dict[str, float]]]:
    folder = open_folder(recipe.out)
    markers = [one for stage in (SHAPED, MIXED) for one in folder.markers(stage, range(SHARDS))]
    return [((folder.root / one.file).read_bytes(), one.totals) for one in markers]


def test_a_killed_builder_resumes_to_the_same_bytes(run: str, tmp_path: Path):
    recipe = Recipe((Source(run),), str(tmp_path / "rows"), filters=Filters(near=0.8))
    chance, folder = random.Random(0), open_folder(recipe.out)
    for commits in (3, 7):
        command = [sys.executable, "-c", BUILD, msgspec.json.encode(recipe).decode()]
        done = subprocess.run([*command, str(commits), str(chance.random() * 0.02)])
        assert done.returncode == -signal.SIGKILL
    resumed = run_job(RowsJob(recipe)).result
    uninterrupted = msgspec.structs.replace(recipe, out=str(tmp_path / "whole"))
    assert resumed == run_job(RowsJob(uninterrupted)).result
    assert content(recipe) == content(uninterrupted)
    assert resumed.removed_rows
    assert not (folder.root / "scratch").exists()
