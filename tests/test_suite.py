"""The tests themselves: each can fail, pins no sentence, stands alone, and lives where its package does."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.support import lint, snapshots

TESTS = Path(__file__).parent
FILES = sorted(TESTS.rglob("test_*.py"))


def test_every_test_can_fail():
    assert lint.problems(TESTS) == []


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("def test_a():\n    run()", "asserts nothing"),
        ("def test_a():\n    assert True", "asserts a constant"),
        ("def test_a():\n    assert broken() or True", "asserts `or` a constant"),
        ("def test_a():\n    assert ready == ready", "compares a thing with itself"),
        ("def test_a():\n    with pytest.raises(Exception):\n        run()", "accepts any exception"),
    ],
)
def test_a_test_that_cannot_fail_is_found(tmp_path: Path, source: str, why: str):
    (tmp_path / "test_it.py").write_text(source)
    (problem,) = lint.problems(tmp_path)
    assert problem.why.startswith(why)


def test_no_error_is_matched_by_a_sentence():
    """A test of an error names its type and the value that the user needs; the text is in tests/snapshots."""
    pinned = [
        f"{path.relative_to(TESTS)}:{node.value.lineno}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.keyword) and node.arg == "match" and isinstance(node.value, ast.Constant)
        if any(len(piece.split()) >= 4 for piece in str(node.value.value).split(".*"))
    ]
    assert pinned == []


def test_no_test_module_imports_another_one():
    found = [
        f"{path.relative_to(TESTS)} imports {name}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
        if name.startswith("test_")
    ]
    assert found == []


def test_folders_mirror_the_package():
    packages = {path.parent.name for path in (TESTS.parent / "src" / "camel").glob("*/__init__.py")}
    folders = {path.relative_to(TESTS).parts[0] for path in FILES if path.parent != TESTS}
    assert folders - packages == {"integration"}


def test_the_readme_names_tests_that_exist():
    readme = (TESTS / "README.md").read_text("utf-8")
    named = re.findall(r"`([\w/]+\.py)(?:::(test_\w+))?`", readme.split("## What must never break")[1])
    assert len(named) > 20
    for file, function in named:
        assert f"def {function}" in (TESTS / file).read_text("utf-8"), f"{file}::{function}"


def test_every_stored_text_has_its_test():
    for path in snapshots.FOLDER.glob("*.txt"):
        gone = [key for key in snapshots.read(path.stem) if not snapshots.exists(key)]
        assert gone == [], f"run `make snapshots`: {path.name} has texts of tests that no longer exist"
