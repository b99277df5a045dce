"""Rows while whoever makes them is killed, again and again: the same bytes as undisturbed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from camel.core.message import Message
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.storage.run import Marker, RunFolder, Settings, new_attempt, open_folder
from camel.storage.table import write_shard
from camel.training.recipe import Filters, Recipe, Source
from camel.training.rows import MIXED, SHAPED, RowBuilder

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.slow
SHARDS, EACH = 12, 30
BUILD = "import asyncio, sys, msgspec\nfrom camel.training.recipe import Recipe\nfrom camel.training.rows import RowBuilder\nasyncio.run(RowBuilder(msgspec.json.decode(sys.argv[1], type=Recipe)).build())"


def talk(number: int) -> Transcript:
    chance = random.Random(number % 250)  # some are there twice
    said = [" ".join(f"word{chance.randrange(3_000)}" for _ in range(120)) for _ in range(6)]
    messages = [Message(n, ("user", "assistant")[n % 2], "R", text) for n, text in enumerate(said)]
    speakers = [Speaker("user", "Trader"), Speaker("assistant", "Coder")]
    return Transcript(f"{number:05}", Task("Trade."), speakers, messages)


@pytest.fixture
def run(tmp_path: Path) -> str:
    folder = open_folder(tmp_path / "run")
    for shard in range(SHARDS):
        file = folder.data_path("conversations", shard, new_attempt(), ".parquet")
        written = write_shard(file, [talk(shard * EACH + n) for n in range(EACH)])
        kept, size = folder.keep(file)
        folder.commit(Marker("conversations", shard, kept, written.rows, written.sha256, "x", {}, size))
    folder.create(Settings("x", {"scenario": "test"}, "0"))
    return str(tmp_path / "run")


def committed(folder: RunFolder) -> int:
    return sum(len(folder.committed(stage)) for stage in (SHAPED, MIXED))


def content(recipe: Recipe) -> list[tuple[bytes, dict[str, float]]]:
    folder = open_folder(recipe.out)
    markers = [one for stage in (SHAPED, MIXED) for one in folder.markers(stage, range(SHARDS))]
    return [((folder.root / one.file).read_bytes(), one.totals) for one in markers]


def test_whoever_is_killed_makes_the_same_bytes(run: str, tmp_path: Path):
    recipe = Recipe((Source(run),), str(tmp_path / "rows"), filters=Filters(near=0.8))
    chance, kills, folder = random.Random(0), 0, open_folder(recipe.out)
    while committed(folder) < 2 * SHARDS:
        assert kills < 40
        process = subprocess.Popen([sys.executable, "-c", BUILD, msgspec.json.encode(recipe).decode()])
        wanted = committed(folder) + chance.randint(3, 8)
        while process.poll() is None and committed(folder) < wanted:
            time.sleep(0.001)
        time.sleep(chance.random() * 0.02)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills >= 3
    undisturbed = msgspec.structs.replace(recipe, out=str(tmp_path / "whole"))
    asyncio.run(RowBuilder(undisturbed).build())
    assert content(recipe) == content(undisturbed)
    assert RowBuilder(recipe).report() == RowBuilder(undisturbed).report()
    assert RowBuilder(recipe).report().removed_rows
    assert not (folder.root / "scratch").exists()
