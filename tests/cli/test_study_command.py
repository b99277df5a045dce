"""`camel study` and `camel ablate` as a user sees them, with the endpoint's ledger as the witness of what was asked."""

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
"""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[SimulatorProcess]:
    with serve(SimulatorSettings(length=Constant(5), words=30)) as process:
        yield process


def camel(*args: str, cwd: Path, **environment: str) -> Done:
    return command.camel(*args, cwd=cwd, **{"OPENAI_API_KEY": "none", **environment})


@pytest.fixture(scope="module")
def folder(endpoint: SimulatorProcess, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("studied")
    (made / "config.toml").write_text(CONFIG.format(url=endpoint.base_url))
    done = camel("generate", "config.toml", cwd=made)
    assert done.status == 0, done.stderr
    return made


@pytest.mark.slow
def test_a_run_is_studied_where_it_lies(folder: Path, snapshot: Callable[..., None]):
    done = camel("study", "run", cwd=folder)
    assert done.status == 0, done.stderr
    assert "resume  camel study run\n" in done.stdout
    shown = done.stdout[done.stdout.index("12 conversations") :]
    assert "done 100% (76 to 100%)" in shown
    snapshot("screen", shown)
    study = folder / "run/study"
    figures = json.loads((study / "study.json").read_text())
    assert figures["conversations"] == 12
    assert (study / "study.html").read_text().startswith("<!doctype html>")
    drawn = {path.name for path in (study / "plots").iterdir()}
    assert {"length.png", "length.svg", "tokens.svg"} <= drawn
    end = json.loads(camel("study", "run", "--json", cwd=folder).stdout.splitlines()[-1])
    assert (end["event"], end["status"]) == ("end", "complete")
    assert end["result"] == figures
    # The run itself is as it was.
    assert camel("run", "verify", "run", cwd=folder).status == 0
    assert "complete" in camel("run", "status", "run", cwd=folder).stdout


@pytest.mark.slow
def test_the_judge_is_asked_only_when_told_and_once(folder: Path, endpoint: SimulatorProcess):
    asked = endpoint.ledger().served
    url = {"OPENAI_BASE_URL": endpoint.base_url}
    assert camel("study", "run", cwd=folder, **url).status == 0
    assert endpoint.ledger().served == asked
    stopped = camel(
        "study", "run", "--judge", "simulated", "--sample", "5", "--budget-calls", "4", cwd=folder, **url
    )
    assert stopped.status == 3
    assert "budget of 4 calls" in stopped.stdout
    assert "5 calls of simulated" in stopped.stdout
    assert endpoint.ledger().served == asked + 4
    done = camel("study", "run", "--judge", "simulated", "--sample", "5", cwd=folder, **url)
    assert done.status == 0, done.stderr
    # The simulated endpoint answers each question with yes or no at once.
    assert "of 5 judged" in done.stdout
    page = (folder / "run/study/study.html").read_text()
    assert "It found the task done in" in page
    assert endpoint.ledger().served == asked + 5
    assert camel("study", "run", "--judge", "simulated", "--sample", "5", cwd=folder, **url).status == 0
    assert endpoint.ledger().served == asked + 5


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["study", "nothing"], "nothing"),
        (["study", "run", "--judge", "a", "--judge", "b"], "--judge"),
        (["study", "run", "--judge", "a", "--sample", "5001"], "5001"),
        (["ablate", "run", "--sentence", "user-99"], "--list"),
    ],
)
def test_mistakes_are_one_line(folder: Path, args: list[str], says: str, snapshot: Callable[..., None]):
    done = camel(*args, cwd=folder)
    assert done.status == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    snapshot("errors", done.stderr)


def test_sentences_are_listed_and_planned_without_a_call(folder: Path, endpoint: SimulatorProcess):
    asked = endpoint.ledger().requests
    listed = camel("ablate", "run", "--list", cwd=folder).stdout
    assert "user-02  Never flip roles!" in listed
    assert "<TASK>" in listed
    plan = camel("ablate", "run", "--dry-run", cwd=folder).stdout
    assert "432 branches" in plan
    assert "2.16k calls" in plan  # each conversation has five messages
    assert endpoint.ledger().requests == asked


@pytest.mark.slow
def test_an_ablation_says_what_a_sentence_does(folder: Path, endpoint: SimulatorProcess):
    words = (
        "ablate",
        "run",
        "--out",
        "ablation",
        "--sentence",
        "user-01",
        "--sentence",
        "assistant-03",
        "--seed",
        "1",
    )
    command = (*words, "--model", "simulated", "--base-url", endpoint.base_url)
    done = camel(*command, cwd=folder)
    assert done.status == 0, done.stdout + done.stderr
    before, said, found = done.stdout.partition(" comparisons, corrected together")
    assert said
    assert "0% → 100%" in found
    assert "assistant-03  without “Never instruct me!” of assistant" in found
    assert "user-01" not in found
    for name in (
        "branches.json",
        "branches.html",
        "plots/effects.svg",
        "plots/effects.png",
        "plots/effects.csv",
    ):
        assert (folder / "ablation" / name).stat().st_size > 300
    asked = endpoint.ledger().requests
    assert camel(*command, cwd=folder).stdout.endswith(f"{before.split()[-1]}{said}{found}")
    assert endpoint.ledger().requests == asked


@pytest.mark.slow
def test_labeled_conversations_are_studied_only_when_acknowledged(endpoint: SimulatorProcess, tmp_path: Path):
    text = CONFIG.format(url=endpoint.base_url).replace("ai_society", "misalignment")
    (tmp_path / "config.toml").write_text('acknowledge = ["misalignment"]\n' + text)
    assert camel("generate", "config.toml", cwd=tmp_path).status == 0
    asked = endpoint.ledger().requests
    url = {"OPENAI_BASE_URL": endpoint.base_url}
    for args in ((), ("--judge", "simulated"), ("--out", "elsewhere"), ("--json",)):
        refused = camel("study", "run", *args, cwd=tmp_path, **url)
        assert refused.status == 2
        assert "--acknowledge misalignment" in refused.stderr
        assert not refused.stdout
    assert not (tmp_path / "run/study").exists()
    assert not (tmp_path / "elsewhere").exists()
    assert endpoint.ledger().requests == asked, "no labeled text was sent to a judge"
    done = camel("study", "run", "--acknowledge", "misalignment", cwd=tmp_path)
    assert done.status == 0, done.stderr
    figures = json.loads((tmp_path / "run/study/study.json").read_text())
    assert figures["labels"] == ["misalignment"]
    assert figures["canary"]
    assert figures["canary"] in (tmp_path / "run/study/study.html").read_text()
