"""Keeps the structure honest: layers, start-up time, size of the install, what is tracked, what is public."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))

HEAVY = ["aiohttp", "typer", "rich", "xllamacpp", "ray", "opentelemetry", "prompt_toolkit"]
MAX_DISTRIBUTIONS = 25


def run(code: str, *args: str) -> str:
    command = [sys.executable, "-c", code, *args]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def cpu_seconds(*codes: str, runs: int = 4) -> list[float]:
    """The least user and system time of several runs of each, in turn, which is what a busy machine distorts least."""
    for code in codes:
        run(code)  # writes the bytecode, and shows what went wrong if something does
    seconds: list[list[float]] = [[] for _ in codes]
    for _ in range(runs):
        for code, its in zip(codes, seconds, strict=True):
            child = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            its.append(usage.ru_utime + usage.ru_stime)
    return [min(its) for its in seconds]


def test_imports_point_downward():
    run(
        "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_logo=True, no_cache=True))"
    )


def test_core_is_pure():
    """The standard library, msgspec and core itself; import-linter can only forbid by name."""
    allowed = {*sys.stdlib_module_names, "msgspec"}
    for path in sorted((ROOT / "src/camel/core").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                assert name.split(".")[0] in allowed or name.startswith("camel.core"), (
                    f"{path.name} imports {name}"
                )


def test_import_is_fast():
    ours, bare = cpu_seconds("import camel", "pass")
    assert ours <= max(0.15, 7 * bare), "the second is for a machine that is slow just now"


def test_help_is_fast():
    ours, bare = cpu_seconds(
        "import sys; sys.argv.append('--help'); from camel.cli import main; main()",
        "import typer, rich.table",
    )
    assert ours <= max(0.4, 3 * bare), "the second is for a machine that is slow just now"


def test_import_leaves_heavy_modules_alone():
    loaded = run("import camel, sys; print(*sys.modules)").split()
    assert set(HEAVY).isdisjoint(loaded)


def test_core_install_is_small():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    closure = {canonicalize_name(project["name"])}
    todo = [Requirement(line) for line in project["dependencies"]]
    seen: set[tuple[str, str]] = set()
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        closure.add(name)
        for extra in {"", *requirement.extras}:
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            for line in importlib.metadata.requires(name) or []:
                needed = Requirement(line)
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    todo.append(needed)
    assert len(closure) <= MAX_DISTRIBUTIONS, sorted(closure)


# The bracketed letters keep this file from matching itself.
MACHINE_PATH = re.compile(r"(?<![\w.}~-])/(?:[w]ork|[r]oot|[o]pt)/|/[t]mp/dev\b")
REGISTRY = re.compile(r"https?://[^\s\"'<>)]*(?:/[s]imple\b|\b[p]ythonhosted\.|\b[r]egistry\.)")
PIN_OPTION = re.compile(r"://|--(?:extra-)?index-url|--find-links|--trusted-host| @ ")


def repository_files() -> list[Path]:
    """What is tracked, and what would be by `git add .`."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_file_names_a_machine_or_a_registry():
    found: list[str] = []
    for path in repository_files():
        pins = path.suffix == ".txt" and path.parent.name == ".ci"
        patterns = [MACHINE_PATH, REGISTRY, *([PIN_OPTION] if pins else [])]
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if any(pattern.search(line) for pattern in patterns):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}")
    assert not found, "\n".join(found)


def test_the_source_stays_within_its_limits():
    limits = tomllib.loads((ROOT / "tests" / "limits.toml").read_text())
    lengths = {path: len(path.read_text().splitlines()) for path in SOURCES}
    classes = Counter(
        node.name
        for path in SOURCES
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    )
    assert sum(lengths.values()) <= limits["lines"]
    largest = max(SOURCES, key=lengths.__getitem__)
    assert lengths[largest] <= limits["module_lines"], largest
    shared = [name for name, count in classes.items() if count > 1]
    assert len(shared) <= limits["shared_class_names"], shared


def test_every_module_says_what_it_is():
    bare = [
        str(path.relative_to(ROOT)) for path in SOURCES if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not bare


def test_the_citation_is_of_this_version():
    import camel

    assert f"\nversion: {camel.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_public_names():
    """Each is listed once, for programs and for type checkers alike, and the reference of the library has it."""
    import camel

    tree = ast.parse((ROOT / "src/camel/__init__.pyi").read_text())
    checked = {
        alias.asname: node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name == alias.asname
    }
    names = [name for name in camel.__all__ if name != "__version__"]
    assert sorted(names) == sorted(vars(camel)["_MODULE_OF"])
    assert {name: checked.get(name) for name in names} == vars(camel)["_MODULE_OF"]
    reference = run(
        "import sys; sys.path.insert(0, 'tools/site'); import api_reference; print(*api_reference.pages().values())"
    )
    for name in names:
        assert getattr(camel, name) is not None
        assert f"`from camel import {name}`" in reference, (
            f"no page of tools/site/api_reference.py has {name}"
        )


def test_tests_cannot_leave_the_machine():
    for host in ("192.0.2.1", "example.com"):
        with pytest.raises(RuntimeError, match=host):
            socket.create_connection((host, 9), timeout=0.1)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        pass
