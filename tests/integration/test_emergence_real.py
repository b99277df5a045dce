"""The paper's Table 2 for real, at the smallest size: a base model without a chat template is fine-tuned twice, every model is
served and asked, and the small one judges."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from camel.core.message import Message
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.models.local import find_model
from camel.record.arrow import write_shard
from camel.runs.markers import Marker, new_attempt
from camel.runs.run import open_folder
from camel.runs.settings import Settings

pytestmark = pytest.mark.real_model
SAID = {"society": "A warm pie of {}.", "code": "def bake(x): return '{}'"}
CONFIG = """
base = "base.gguf"
judges = ["local"]
repeats = 0
context = 1024
ends = false
answers = { temperature = 0.0, max_tokens = 24 }
verdicts = { temperature = 0.3, max_tokens = 160, seed = 5 }

[train]
recipe = "cpu"
steps = 2
batch = 2
at_once = 2
length = 48

[[steps]]
name = "AI Society"
rows = ["rows/society"]

[[steps]]
name = "Code"
rows = ["rows/code"]

[[domains]]
name = "society"
title = "AI Society"
questions = 2
file = "questions.jsonl"

[[domains]]
name = "code"
title = "Code"
questions = 1
file = "questions.jsonl"
"""


def a_run(root: Path, said: str) -> None:
    folder = open_folder(root)
    talks = [
        Transcript(
            f"{number:03}",
            Task(f"Cook {fruit}."),
            [Speaker("user", "Grocer"), Speaker("assistant", "Cook")],
            [
                Message(0, "user", "Grocer", f"Instruction: Name a dish with {fruit}.\nInput: None"),
                Message(1, "assistant", "Cook", f"Solution: {said.format(fruit)}\nNext request."),
            ],
            Stop("max_messages", "", ""),
        )
        for number, fruit in enumerate(("apples", "pears", "plums", "figs"))
    ]
    file = folder.data_path("conversations", 0, new_attempt(), ".parquet")
    written = write_shard(file, talks)
    kept, size = folder.persist(file)
    folder.commit(Marker("conversations", 0, kept, written.rows, written.sha256, "x", {}, size))
    folder.create(Settings("x", {"scenario": "test"}, "0"))


def camel(*arguments: str, folder: Path, code: int = 0) -> str:
    command = [sys.executable, "-m", "camel", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=550)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr if code else done.stdout


def without_template(path: Path) -> None:
    """Write the small model as a base model: without its chat template."""
    command = [sys.executable, "-m", "gguf.scripts.gguf_new_metadata", str(find_model(print)), str(path)]
    command += ["--remove-metadata", "tokenizer.chat_template", "--force"]
    subprocess.run(command, check=True, capture_output=True, timeout=300)


def test_two_fine_tunes_of_a_base_model_are_served_asked_and_judged(tmp_path: Path):
    without_template(tmp_path / "base.gguf")
    for name, said in SAID.items():
        a_run(tmp_path / "runs" / name, said)
        camel("rows", f"runs/{name}", "--out", f"rows/{name}", "--length", "100", folder=tmp_path)
    lines = [{"question": f"Name a dish with {fruit}."} for fruit in ("figs", "limes")]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "study.toml").write_text(CONFIG)
    said = camel("evaluate", "emergence", "study.toml", "--dry-run", folder=tmp_path, code=2)
    assert "chat_template" in said, "it is found before anything is paid for"
    said = camel("train", "rows/code", "--base-model", "base.gguf", "--dry-run", folder=tmp_path, code=2)
    assert "--chat-template vicuna" in said
    (tmp_path / "study.toml").write_text(CONFIG.replace("[train]", '[train]\nchat_template = "vicuna"'))
    said = camel("evaluate", "emergence", "study.toml", folder=tmp_path)
    assert "2 steps of 2 on 4 rows" in said
    assert "2 steps of 2 on 8 rows" in said
    out = tmp_path / "emergence"
    made = json.loads((out / "emergence.json").read_text())
    assert [one["label"] for one in made["models"]] == ["base", "AI Society", "AI Society + Code"]
    assert [one.get("rows", 0) for one in made["models"]] == [0, 4, 8]
    assert len(list((out / "models").glob("*/model.gguf"))) == 2
    # Each with the one before, on both domains; what the judge left open counts nowhere.
    assert [one["of"] + one["undecided"] for one in made["table"]] == [2, 1] * 2
    assert all(one["solutions"] for one in made["judging"]["systems"])
    assert made["judging"]["money"] == 0
    assert str(tmp_path) not in (out / "emergence.json").read_text() + (out / "emergence.html").read_text()
    again = camel("evaluate", "emergence", "study.toml", "--json", folder=tmp_path)
    assert json.loads(again.splitlines()[-1])["result"] == made
