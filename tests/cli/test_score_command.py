"""`camel score` as a user sees it, with the endpoint's ledger as the witness of what was asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from camel.models.simulator import Constant, SimulatorProcess, SimulatorSettings
from tests.support import command
from tests.support.endpoints import serve
from tests.support.in_process import Done

CONFIG = """
scenario = "ai_society"
out = "run"
[counts]
assistant_role = 2
user_role = 2
task = 3
[model]
name = "simulated"
base_url = "{url}"
[validate]
where = "messages >= 3"
attempts = 2
"""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[SimulatorProcess]:
    with serve(SimulatorSettings(length=Constant(5), words=30)) as process:
        yield process


def camel(*args: str, cwd: Path, **environment: str) -> Done:
    return command.camel(*args, cwd=cwd, **{"OPENAI_API_KEY": "none", **environment})


@pytest.fixture(scope="module")
def folder(endpoint: SimulatorProcess, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("scored")
    (made / "config.toml").write_text(CONFIG.format(url=endpoint.base_url))
    done = camel("generate", "config.toml", cwd=made)
    assert done.status == 0, done.stderr
    (made / "my_rules.py").write_text("def long(transcript):\n    return len(transcript.messages) > 3\n")
    (made / "rubric.txt").write_text("Is the advice correct?")
    return made


def test_scores_of_every_kind(folder: Path, endpoint: SimulatorProcess, snapshot: Callable[..., None]):
    before = endpoint.ledger().requests
    given = ["--judge", "m", "--base-url", endpoint.base_url, "--rubric", "rubric.txt", "--name", "helpful"]
    done = camel("score", "run", *given, "--languages", "--duplicates", cwd=folder)
    assert done.status == 0, done.stderr
    assert "score.near_duplicate" in done.stdout
    assert "12 calls of m" in done.stdout
    assert endpoint.ledger().requests - before == 12
    done = camel("score", "run", *given, "--function", "my_rules:long", "--json", cwd=folder)
    assert done.status == 2, "--name is for one column"
    done = camel(
        "score", "run", "--function", "my_rules:long", "--questions", "table2_math", "--json", cwd=folder
    )
    figures = json.loads(done.stdout.splitlines()[-1])["result"]
    assert {one["name"]: one["mean"] for one in figures} == {"long": 1.0, "overlap": 0.0}
    done = camel("score", "run", "--detectors", cwd=folder)
    assert done.status == 0, done.stderr
    snapshot("screen", done.stdout[done.stdout.index("column") :])
    assert endpoint.ledger().requests - before == 12
    status = json.loads(camel("run", "status", "run", "--json", cwd=folder).stdout)
    assert status["state"] == "complete"


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ([], "nothing to score"),
        (["--judge", "m"], "--rubric"),
        (["--rubric", "x"], "--judge"),
        (["--judge", "a", "--judge", "b", "--rubric", "x"], "one --judge"),
        (["--judge", "m", "--rubric", "x", "--rating-scale", "good"], "1-5"),
        (["--languages", "--name", "x"], "--name"),
        (["--function", "nothing"], "module:name"),
        (["--questions", "nothing.jsonl"], "nothing.jsonl"),
    ],
)
def test_mistakes_are_reported_before_anything_is_asked(folder: Path, options: list[str], hint: str):
    done = camel("score", "run", *options, cwd=folder)
    assert done.status == 2
    assert hint in done.stderr
