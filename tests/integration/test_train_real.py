"""Fine-tuning for real: the small model on a CPU, and served afterwards; in `make thorough` also killed in the middle."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from camel import LocalServer, local_model
from camel.core.history import History
from camel.core.message import Message, Sampling
from camel.core.model import Request
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.record.arrow import write_shard
from camel.runs.markers import Marker, new_attempt
from camel.runs.run import open_folder
from camel.runs.settings import Settings
from tests.support.command import camel

pytestmark = [pytest.mark.real_model, pytest.mark.timeout(1800)]
STEPS = 3
FRUITS = ("apples", "pears", "plums", "figs", "limes", "dates", "kiwis", "grapes")


def talk(number: int) -> Transcript:
    fruit = FRUITS[number % len(FRUITS)]
    messages = [
        Message(0, "user", "Grocer", f"Instruction: Name a dish with {fruit}.\nInput: None"),
        Message(1, "assistant", "Cook", f"Solution: A warm pie of {fruit}.\nNext request."),
    ]
    speakers = [Speaker("user", "Grocer"), Speaker("assistant", "Cook")]
    return Transcript(
        f"{number:03}", Task(f"Cook {fruit}."), speakers, messages, Stop("max_messages", "", "")
    )


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("training")
    folder = open_folder(root / "run")
    file = folder.data_path("conversations", 0, new_attempt(), ".parquet")
    written = write_shard(file, [talk(number) for number in range(8)])
    kept, size = folder.persist(file)
    folder.commit(Marker("conversations", 0, kept, written.rows, written.sha256, "x", {}, size))
    folder.create(Settings("x", {"scenario": "test"}, "0"))
    made = camel("rows", "run", "--markers", "--out", "rows", "--length", "200", cwd=root)
    assert made.status == 0, made.stdout + made.stderr
    (root / "train.toml").write_text(
        f'recipe = "cpu"\nrows = ["rows"]\nsteps = {STEPS}\nbatch = 4\nlength = 64\nsave_every = 2\nlearning_rate = 1e-3\n'
    )
    return root


def _camel(*arguments: str, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "camel", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _steps(out: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (out / "progress.jsonl").read_text().splitlines()]


def _trained(root: Path, out: str, *, killed: bool) -> Path:
    (root / f"{out}.toml").write_text((root / "train.toml").read_text() + f'out = "{out}"\n')
    if killed:
        process = _camel("train", f"{out}.toml", folder=root)
        deadline = time.monotonic() + 600
        while not list((root / out / "checkpoints").glob("checkpoint-2/trainer_state.json")):
            assert process.poll() is None, process.communicate()[0].decode()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    process = _camel("train", f"{out}.toml", *(["--no-write-gguf"] if killed else []), folder=root)
    said = process.communicate(timeout=900)[0].decode()
    assert process.returncode == 0, said
    return root / out


@pytest.fixture(scope="module")
def whole(rows: Path) -> Path:
    """A training that nothing disturbed."""
    return _trained(rows, "whole", killed=False)


@pytest.mark.longest
def test_the_small_model_learns_and_can_be_served(whole: Path):
    losses = {int(one["step"]): one["loss"] for one in _steps(whole)}
    assert losses.keys() == set(range(1, STEPS + 1))
    assert losses[STEPS] < 0.8 * losses[1], "it learns"
    card = (whole / "README.md").read_text()
    assert "8 rows" in card
    assert (whole / "loss.svg").read_text().startswith("<svg")
    server = LocalServer(model_path=whole / "model.gguf", alias="trained", context_tokens=512, threads=1)
    with local_model(server, guided=None) as model:
        history = History()
        history.add("user", "Instruction: Name a dish with figs.\nInput: None")
        reply = asyncio.run(model.reply(Request(history, Sampling(temperature=0.0, max_tokens=8), "t", "t")))
    assert reply.content.strip()


@pytest.mark.thorough  # `training/test_launch.py` kills the training of a smaller model in CI
def test_a_training_that_was_killed_ends_where_an_undisturbed_one_does(rows: Path, whole: Path):
    killed = _trained(rows, "broken", killed=True)
    expected = {int(one["step"]): one["loss"] for one in _steps(whole)}
    found = {int(one["step"]): one["loss"] for one in _steps(killed)}
    assert found.keys() == expected.keys() == set(range(1, STEPS + 1))
    assert found[STEPS] == pytest.approx(expected[STEPS], rel=0.02)
