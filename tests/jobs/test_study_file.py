"""The file `study.toml` next to a study's report is enough to repeat the study, and contains no secret."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import camel
from camel.core.toml import to_toml
from camel.models.simulator import Constant, SimulatorSettings
from tests.support.command import camel as command
from tests.support.endpoints import serve

SECRET = "sk-secret-0123456789"


def study_of(folder: Path) -> dict[str, Any]:
    text = (folder / "study.toml").read_text()
    assert SECRET not in text
    return tomllib.loads(text)


@pytest.mark.slow
def test_a_fork_is_repeated_from_its_study_file(tmp_path: Path):
    with serve(SimulatorSettings(length=Constant(2), words=10)) as endpoint:
        play = camel.RolePlaying(
            "Help <name>", assistant="Agent", user="Customer", specify=False, max_messages=2
        )
        camel.generate(
            play,
            inputs=[{"name": "Ada"}],
            out=tmp_path / "run",
            model=f"gpt-4.1@{endpoint.base_url}",
            progress=False,
        )
        words = (
            "fork",
            "run",
            "--without",
            "Never flip roles!",
            "-n",
            "2",
            "--seed",
            "7",
            "--max-messages",
            "2",
        )
        environment = {"OPENAI_API_KEY": SECRET, "OPENAI_BASE_URL": endpoint.base_url}
        done = command(*words, "--out", "made", cwd=tmp_path, **environment)
        assert done.status == 0, done.stderr
        study = study_of(tmp_path / "made")
        figures = (tmp_path / "made/branches.json").read_bytes()
        again = [word.replace("made", "again") for word in shlex.split(study["command"])[1:]]
        assert command(*again, cwd=tmp_path, **environment).status == 0
        assert (tmp_path / "again/branches.json").read_bytes() == figures
    assert study["camel"] == camel.__version__
    assert study["models"] == {"model": "gpt-4.1"}
    asked = study["settings"]
    assert (asked["at"], asked["seed"], asked["branches"]) == (1, 7, 4)
    assert asked["changes"]["changed"]["without"] == "Never flip roles!"


def test_a_study_from_python_has_its_settings(tmp_path: Path):
    play = camel.RolePlaying("Help <name>", assistant="A", user="B", specify=False, max_messages=2)
    camel.generate(
        play,
        inputs=[{"name": "Ada"}],
        model=camel.ScriptedModel(lambda request: "Hi"),
        out=tmp_path / "run",
        progress=False,
    )
    camel.study(tmp_path / "run", where='stop = "max_messages"', progress=False)
    study = study_of(tmp_path / "run/study")
    assert study["job"] == "study"
    assert study["settings"]["where"] == 'stop = "max_messages"'
    assert study["settings"]["run"] == str(tmp_path / "run")


@settings(max_examples=30)
@given(st.recursive(
    st.text(st.characters(exclude_categories=["Cs"])) | st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.floats(allow_nan=False, allow_infinity=False),
    lambda one: st.lists(one) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), one),
    max_leaves=5,
))  # fmt: skip
def test_what_is_written_as_toml_is_read_back(value: Any):
    assert tomllib.loads(f"value = {to_toml(value)}")["value"] == value
