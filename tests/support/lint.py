"""Finds tests that cannot fail: no assertion, an assertion about constants or about a thing itself, any exception accepted."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_ANYTHING = ("pytest.raises(Exception)", "pytest.raises(BaseException)")


class Problem(NamedTuple):
    """A test that cannot fail, and why."""

    place: str
    why: str


def _called(node: ast.AST) -> set[str]:
    """The names of all functions that are called in a piece of code."""
    names: set[str] = set()
    for call in ast.walk(node):
        if isinstance(call, ast.Call):
            target = call.func
            names.add(target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", ""))
    return names


def _asserts(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Assert) for part in ast.walk(node)) or bool(
        _called(node) & {"raises", "warns", "fail", "snapshot", "deprecated_call"}
    )


def asserting_helpers(trees: list[ast.Module]) -> set[str]:
    """Names of functions that assert, directly or through another one."""
    functions = [
        node
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("test")
    ]
    found = {node.name for node in functions if _asserts(node)}
    while more := {node.name for node in functions if node.name not in found and _called(node) & found}:
        found |= more
    return found


def problems_in(path: Path, tree: ast.Module, helpers: set[str]) -> Iterator[Problem]:
    """What cannot fail in one file."""
    for test in ast.walk(tree):
        if not isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) or not test.name.startswith("test"):
            continue
        place = f"{path}:{test.lineno} {test.name}"
        fixtures = {argument.arg for argument in test.args.args}
        if not _asserts(test) and not _called(test) & helpers and not fixtures & helpers:
            yield Problem(place, "asserts nothing")
        for node in ast.walk(test):
            if isinstance(node, ast.Assert):
                yield from _about_constants(place, node)
            elif isinstance(node, ast.Call) and ast.unparse(node) in _ANYTHING:
                yield Problem(place, f"accepts any exception (line {node.lineno})")


def _about_constants(place: str, node: ast.Assert) -> Iterator[Problem]:
    test = node.test
    if isinstance(test, ast.Constant) or (isinstance(test, ast.Tuple) and test.elts):
        yield Problem(place, f"asserts a constant (line {node.lineno})")
    elif isinstance(test, ast.BoolOp) and any(isinstance(one, ast.Constant) for one in test.values):
        yield Problem(place, f"asserts `or` a constant (line {node.lineno})")
    elif isinstance(test, ast.Compare) and len(test.comparators) == 1:
        left, right = ast.unparse(test.left), ast.unparse(test.comparators[0])
        calls = any(isinstance(part, ast.Call | ast.Await) for part in ast.walk(test.left))
        if left == right and not calls:
            yield Problem(place, f"compares a thing with itself (line {node.lineno})")


def problems(folder: Path) -> list[Problem]:
    """What cannot fail in a folder of tests."""
    trees = {path: ast.parse(path.read_text("utf-8")) for path in sorted(folder.rglob("*.py"))}
    helpers = asserting_helpers(list(trees.values()))
    return [
        problem
        for path, tree in trees.items()
        if path.name.startswith("test_")
        for problem in problems_in(path.relative_to(folder), tree, helpers)
    ]
