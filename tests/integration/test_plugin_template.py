"""The template of a plug-in, built and installed into a fresh virtualenv, then used from the command line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_template_works_once_it_is_installed(tmp_path: Path):
    template = tmp_path / "plugin"
    shutil.copytree(ROOT / "examples/plugin", template, ignore=shutil.ignore_patterns("__pycache__"))
    venv = tmp_path / "venv"
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "PYTHON"))
    }

    def run(*command: object, cwd: Path = tmp_path) -> str:
        words = [str(word) for word in command]
        done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(sys.executable, "-m", "venv", "--without-pip", venv)
    python = venv / "bin/python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    # What CAMEL needs comes from this environment: only the plug-in is installed.
    (site / "camel.pth").write_text(f"{ROOT / 'src'}\n{sysconfig.get_path('purelib')}\n")
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "install"]
    run(*pip, "--quiet", "--no-deps", "--no-build-isolation", "--no-index", template)
    camel = [python, "-m", "camel"]

    assert "Interviews" in run(*camel, "scenarios")
    assert "Glacier Guide" not in run(*camel, "scenarios", "check", "interviews")  # sampled with the first
    config = tmp_path / "interviews.toml"
    config.write_text(
        'scenario = "interviews"\nout = "runs/interviews"\n[counts]\nexpert = 1\n[model]\nname = "parrot:Polly"\n'
        'price = { input = 0, output = 0 }\n[critic]\nuse = "shortest"\noptions = { proposals = 2 }\n'
    )
    assert "complete: 2 conversations" in run(*camel, "generate", config)
    assert "2 conversations as" in run(*camel, "export", "runs/interviews", "questions", "questions.jsonl")
    assert "Say Polly once more" in (tmp_path / "questions.jsonl").read_text()
    run(*camel, "study", "runs/interviews", "--out", "study")
    assert "shouting" in (tmp_path / "study/study.json").read_text()
    run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=template)
