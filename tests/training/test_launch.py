"""A training in several processes, on this machine or on a Ray cluster, has the same losses as one in a single process.

The trainings are real. Their model is so small that most of the time is spent on starting processes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel.core.errors import InputError
from camel.core.message import Message
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.record.arrow import write_shard
from camel.runs.markers import Marker, new_attempt
from camel.runs.run import open_folder
from camel.runs.settings import Settings
from camel.training.config import TrainConfig, made_config
from camel.training.launch import command
from camel.training.stored_rows import Rows
from camel.training.train import spreading, train
from camel.training.weights import content_of
from tests.support import in_process
from tests.support.tiny_model import make_model

pytest.importorskip("pyarrow")
IN_ONE_PROCESS = pytest.mark.xdist_group("training")
"""For tests that share the fixture `scene`, which trains a model."""
STEPS = 4


@given(st.integers(1, 16), st.integers(1, 16), st.integers(1, 8))
def test_devices_process_exactly_one_batch_per_step(devices: int, part: int, at_once: int):
    config = TrainConfig(("rows",), "m", batch=devices * part, devices=devices, at_once=at_once)
    assert config.each * config.rounds * devices == config.batch
    assert config.each <= at_once


def test_invalid_device_settings_are_rejected_before_anything_starts(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(InputError, match="multiple of 3"):
        TrainConfig(("rows",), "m", batch=4, devices=3)
    config = TrainConfig(("rows",), "m", batch=4, devices=2, spread="weights")
    with pytest.raises(InputError, match="copies"):
        spreading(config, gpu=False)
    assert spreading(config, gpu=True)["fsdp"]
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(InputError, match="camel train"):
        train(config)
    assert command(config)[-5:-1] == ["--nproc-per-node", "2", "--module", "camel.training.launch"]


def test_a_training_uses_rows_or_preferences_and_not_both():
    assert made_config("dpo", {"preferences": ["run"], "model": "m"}).rows == ()
    for wrong in ({"preferences": ["run"], "rows": ["rows"]}, {}, {"preferences": ["run"], "beta": 0.0}):
        with pytest.raises(InputError):
            made_config("dpo", {"model": "m", **wrong})


def test_a_folder_is_identified_by_its_content(tmp_path: Path):
    for name in ("one", "two"):
        (tmp_path / name / "merged").mkdir(parents=True)
        (tmp_path / name / "merged" / "config.json").write_text("{}")
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    assert content_of(one) == content_of(two) != ""
    (tmp_path / "two" / "merged" / "model.safetensors").write_bytes(b"other")
    assert content_of(one) != content_of(two)
    assert content_of("owner/a-name-on-the-hub") == content_of("local") == ""


# ---------------------------------------------------------------- real trainings


def conversation(number: int) -> Transcript:
    texts = [
        f"Instruction: Name dish {number}.\nInput: None",
        f"Solution: A pie of {number * 7} figs.\nNext request.",
    ]
    messages = [Message(n, ("user", "assistant")[n], "R", text) for n, text in enumerate(texts)]
    return Transcript(
        f"{number:03}", Task("Cook."), [Speaker("user", "A"), Speaker("assistant", "B")], messages
    )


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, rows, and a training of one process on them."""
    root = tmp_path_factory.mktemp("launch")
    folder = open_folder(root / "run")
    file = folder.data_path("conversations", 0, new_attempt(), ".parquet")
    written = write_shard(file, [conversation(number) for number in range(16)])
    kept, size = folder.persist(file)
    folder.commit(Marker("conversations", 0, kept, written.rows, written.sha256, "x", {}, size))
    folder.create(Settings("x", {"scenario": "test"}, "0"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        make_model(root / "base")
    camel(root, "rows", "run", "--markers", "--out", "rows")
    trained(root, "one", devices=1)
    return root


ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def start(root: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "camel", *arguments],
        cwd=root,
        env={**os.environ, **ENVIRONMENT},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def camel(root: Path, *arguments: str) -> str:
    done = in_process.camel(*arguments, folder=root, environment=ENVIRONMENT)
    assert done.status == 0, done.stdout + done.stderr
    return done.stdout


def camel_alone(root: Path, *arguments: str) -> str:
    """Run a command in its own process, which starts Ray."""
    process = start(root, *arguments)
    output = process.communicate(timeout=600)[0].decode()
    assert process.returncode == 0, output
    return output


def settings(root: Path, out: str, devices: int, rows: str = "rows") -> str:
    (root / f"{out}.toml").write_text(
        f'model = "base"\nrows = ["{rows}"]\nsteps = {STEPS}\nbatch = 4\nat_once = 2\nlength = 64\nlearning_rate = 1e-2\n'
        f'save_every = 2\nprecision = "fp32"\nout = "{out}"\ndevices = {devices}\n[adapter]\nrank = 4\n'
    )
    return f"{out}.toml"


def trained(root: Path, out: str, *more: str, devices: int = 2, rows: str = "rows") -> str:
    how = camel_alone if "--address" in more else camel
    return how(root, "train", settings(root, out, devices, rows), "--no-write-gguf", *more)


def losses(out: Path) -> dict[int, float]:
    lines: list[dict[str, Any]] = [
        json.loads(line) for line in (out / "progress.jsonl").read_text().splitlines()
    ]
    return {one["step"]: one["loss"] for one in lines}


def descendants(pid: int) -> list[int]:
    found = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return found + [more for one in found for more in descendants(one)]


KILLED = (
    "import os, signal, sys; from pathlib import Path; from camel.training.config import read_config; "
    "from camel.training.train import train; "
    "train(read_config(Path(sys.argv[1])), gguf=False, "
    "notice=lambda step: os.kill(os.getpid(), signal.SIGKILL) if step.step == 3 else None)"
)
"""A training that kills itself between its first and its second checkpoint."""


@pytest.mark.slow
@IN_ONE_PROCESS
def test_a_killed_training_resumes_with_the_same_losses(scene: Path):
    file = settings(scene, "killed", devices=1)
    died = subprocess.run([sys.executable, "-c", KILLED, file], cwd=scene, env={**os.environ, **ENVIRONMENT})
    assert died.returncode == -signal.SIGKILL
    assert [path.name for path in (scene / "killed/checkpoints").glob("checkpoint-*")] == ["checkpoint-2"]
    trained(scene, "killed", devices=1)
    assert losses(scene / "killed") == pytest.approx(losses(scene / "one"), rel=1e-4)
    steps = [json.loads(line)["step"] for line in (scene / "killed/progress.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3, 3, 4], "it resumes from its checkpoint"


@pytest.mark.thorough  # CI kills a training in one process
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")
def test_two_processes_end_with_their_killed_parent_and_resume_with_the_same_losses(scene: Path):
    process = start(scene, "train", settings(scene, "two", 2), "--no-write-gguf")
    deadline = time.monotonic() + 300
    while not (scene / "two/checkpoints/checkpoint-2/trainer_state.json").is_file():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    below = descendants(process.pid)
    assert len(below) >= 3, "torchrun and two processes"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    while any(
        Path(f"/proc/{one}/cmdline").exists() and Path(f"/proc/{one}/cmdline").read_bytes() for one in below
    ):
        assert time.monotonic() < deadline, "the processes did not end with their parent"
        time.sleep(0.05)
    assert "serve it" not in trained(scene, "two")
    assert losses(scene / "two") == pytest.approx(losses(scene / "one"), rel=1e-4)
    assert (scene / "two/merged/model.safetensors").is_file()


@pytest.mark.thorough
@pytest.mark.cluster
def test_two_workers_of_a_ray_cluster_have_the_same_losses(scene: Path):
    pytest.importorskip("ray")
    trained(scene, "ray", "--address", "local")
    assert losses(scene / "ray") == pytest.approx(losses(scene / "one"), rel=1e-4)
    assert (scene / "ray/result.json").is_file()


@pytest.mark.slow
@IN_ONE_PROCESS
def test_rows_in_an_object_store_give_the_same_training_as_rows_on_a_disk(
    scene: Path, bucket: Callable[[str], str]
):
    camel(scene, "rows", "run", "--markers", "--out", bucket("rows"))
    trained(scene, "remote", rows=bucket("rows"))
    assert losses(scene / "remote") == pytest.approx(losses(scene / "one"), rel=1e-4)
    # Copies are named by content, so a resumed training downloads nothing twice.
    [copy] = (scene / "remote/rows").iterdir()
    before = copy.stat().st_mtime_ns
    [again] = Rows(bucket("rows")).local(scene / "remote/rows")
    assert (again, again.stat().st_mtime_ns) == (copy, before)


@pytest.mark.slow
@IN_ONE_PROCESS
def test_a_model_is_trained_on_a_critics_preferences(scene: Path):
    with (scene / "pairs.jsonl").open("w") as file:
        for number in range(12):
            pair = {
                "chosen": f"Solution: Apple {number}.\nNext request.",
                "rejected": f"I do not know {number}.",
            }
            answers = {name: [{"role": "assistant", "content": text}] for name, text in pair.items()}
            asked = [{"role": "user", "content": f"Instruction: Name fruit {number}.\nInput: None"}]
            file.write(json.dumps({"prompt": asked, **answers}) + "\n")
    (scene / "liked.toml").write_text(
        'recipe = "dpo"\nmodel = "base"\npreferences = ["pairs.jsonl"]\nout = "liked"\nbatch = 4\nlength = 64\nsteps = 6\n'
        "learning_rate = 1e-2\n"
    )
    camel(scene, "train", "liked.toml", "--no-write-gguf")
    found = losses(scene / "liked")
    assert found[1] == pytest.approx(0.6931, abs=1e-3), "without a preference at first"
    assert found[6] < 0.6
    assert "dpo" in (scene / "liked/README.md").read_text()
