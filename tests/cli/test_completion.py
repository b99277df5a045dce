"""What the shell is offered, through the completion that typer installs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from camel.cli import options
from tests.support.command import camel


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for run in ("runs/tallies", "runs/tales", "elsewhere/deep/run"):
        (tmp_path / run).mkdir(parents=True)
        (tmp_path / run / "run.json").touch()
    (tmp_path / "runs/.journals").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shell(*words: str, cwd: Path, **environment: str) -> str:
    done = camel(*words, cwd=cwd, **environment)
    assert done.status == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("", ["elsewhere/", "runs/", "runs/tales", "runs/tallies"]),
        ("runs/ta", ["runs/tales", "runs/tallies"]),
        ("elsewhere/", ["elsewhere/deep/"]),
        ("elsewhere/deep/", ["elsewhere/deep/run"]),
        ("s3://bucket/", []),
        ("nowhere/", []),
        ("\0/", []),
    ],
)
def test_runs(folder: Path, typed: str, offered: list[str]):
    assert options.complete_runs(typed) == offered


def test_names():
    assert options.complete_scenarios("ma") == ["math"]
    assert "gpt-4.1-mini" in options.complete_models("gpt-4.1")
    assert {"chat", "site"} <= set(options.complete_formats(""))


def test_the_shell_is_answered(folder: Path):
    offered = shell(
        cwd=folder, _CAMEL_COMPLETE="complete_bash", COMP_WORDS="camel run status runs/tal", COMP_CWORD="3"
    )
    assert offered.split() == ["runs/tales", "runs/tallies"]


def test_completion_can_be_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # The shell is looked for among the processes above this one.
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))
    shell("--install-completion", "bash", cwd=tmp_path, HOME=str(tmp_path))
    (script,) = (tmp_path / ".bash_completions").iterdir()
    assert "_CAMEL_COMPLETE" in script.read_text()
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True)
    assert done.returncode == 0
