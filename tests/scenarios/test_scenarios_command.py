"""`camel scenarios` as a user sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from camel import InputError
from tests.support import in_process


def camel_scenarios(*args: str) -> tuple[int, str]:
    done = in_process.invoke(["scenarios", *args])
    if isinstance(done.exception, InputError):
        raise done.exception
    return done.exit_code, done.output


def test_list():
    code, output = camel_scenarios()
    assert code == 0
    lines = output.splitlines()
    assert lines[0].split() == ["name", "title", "shape", "labels"]
    rows = [" ".join(line.split()) for line in lines]
    assert "ai_society AI Society 50 × 50 × 10 = 25,000 conversations" in rows
    assert "table1_code Table 1: Code 20 × 5 × 1 = 100 conversations" in rows
    assert any(line.startswith("misalignment") and line.endswith("misalignment") for line in lines)
    assert len(lines) == 16
    assert "\x1b" not in output


def test_show():
    code, output = camel_scenarios("show", "math")
    assert code == 0
    assert "Math: 25 × 25 × 80 = 50,000 problems" in output
    assert "subtopic  25     shipped  topic" in output
    assert "problem   80     625      topic, subtopic" in output
    assert "Problem: [problem]" in output


def test_show_what_is_gated():
    _, output = camel_scenarios("show", "misalignment")
    assert "labels: misalignment" in output
    assert "acknowledgment" in output


def test_new_then_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    code, output = camel_scenarios("new", "kitchen", "--title", "In the Kitchen")
    assert code == 0
    assert "camel scenarios check kitchen" in output
    code, output = camel_scenarios("check", "kitchen")
    assert code == 0
    assert "List 10 experts in different fields" in output
    assert "In the Kitchen: 10 × 5 = 50 conversations" in output
    assert "No errors" in output
    Path("kitchen/tasks.txt").write_text("List tasks of <EXPRT>")
    code, output = camel_scenarios("check", "kitchen")
    assert code == 1
    assert "error: level task: " in output
    assert "did you mean <EXPERT>?" in output
    assert output.endswith("2 errors\n")


def test_what_acts_on_the_terminal_is_made_visible(tmp_path: Path):
    camel_scenarios("new", str(tmp_path / "evil"))
    (tmp_path / "evil" / "tasks.txt").write_text("\x1b]0;owned\x07 <COUNT> [red]<EXPERT>")
    _, output = camel_scenarios("show", str(tmp_path / "evil"))
    assert "\x1b" not in output
    assert "[red]" in output


def test_errors_are_ours():
    with pytest.raises(InputError, match="physics"):
        camel_scenarios("show", "phisics")
