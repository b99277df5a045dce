"""The failure policy of `camel evaluate agents`, with a real HTTP server that counts its calls."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from camel.models.simulator import SimulatorSettings
from tests.support.contests import a_run
from tests.support.failing import MODERATED, NO_MODEL, NO_TEMPERATURE, REVOKED, out_for, spoil
from tests.support.in_process import Done, camel
from tests.support.moody import Answer, Moody, moody

pytest.importorskip("pyarrow")
TASKS = 10
CALLS = 2 * TASKS + 2 * TASKS + 2 * 2
"""Solutions, verdicts in both orders, and two tasks judged again."""


@pytest.fixture
def endpoint() -> Iterator[Moody]:
    with moody(SimulatorSettings(author="tests.support.contests:author")) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    a_run(tmp_path / "society", numbers=range(40))
    return tmp_path


def evaluate(folder: Path, endpoint: Moody, *options: str, judge: str = "gpt-4") -> Done:
    words = ("evaluate", "agents", "society", "--judge", judge, "--sample", str(TASKS), "--repeats", "2")
    environment = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": endpoint.base_url}
    return camel(*words, *options, folder=folder, environment=environment)


def figures(folder: Path) -> Any:
    return json.loads((folder / "society" / "evaluation" / "evaluation.json").read_text())


def records(folder: Path) -> list[dict[str, Any]]:
    """Return all stored solutions and verdicts."""
    kept = (folder / "society" / "evaluation").rglob("data/*/*.json")
    return [json.loads(path.read_text()) for path in kept]


def asked_once(endpoint: Moody) -> bool:
    asked = Counter(body for body in endpoint.served if "Build shed" in body)
    # Repeated verdicts have the same prompt.
    return max(asked.values()) <= 2 and asked.total() == CALLS


@pytest.mark.parametrize("answer", [NO_MODEL, NO_TEMPERATURE, REVOKED], ids=["model", "parameter", "key"])
def test_all_calls_rejected_from_the_start(endpoint: Moody, folder: Path, answer: Answer):
    endpoint.mood = lambda body, count: answer
    done = evaluate(folder, endpoint)
    assert done.status == 3, done.stdout + done.stderr
    assert answer.body["error"]["message"].split()[0] in done.stdout + done.stderr
    assert not records(folder)
    endpoint.mood = lambda body, count: None
    done = evaluate(folder, endpoint)
    assert done.status == 0, done.stdout + done.stderr
    assert asked_once(endpoint)


def test_a_retired_judge_stops_the_evaluation_and_can_be_replaced(endpoint: Moody, folder: Path):
    """The same command continues when the judge is back. Another judge reuses the solutions."""
    endpoint.mood = lambda body, count: NO_MODEL if body["model"] == "gpt-4" and count > 30 else None
    assert evaluate(folder, endpoint).status == 3
    solutions = [body for body in endpoint.served if "impartial judge" not in body]
    done = evaluate(folder, endpoint, "--summarizer", "gpt-4", judge="successor")
    assert done.status == 0, done.stdout + done.stderr
    assert [body for body in endpoint.served if "impartial judge" not in body] == solutions
    endpoint.mood = lambda body, count: None
    assert evaluate(folder, endpoint).status == 0


def test_moderated_tasks_fail_and_the_others_are_judged(endpoint: Moody, folder: Path):
    refused: set[str] = set()

    def mood(body: dict[str, Any], count: int) -> Answer | None:
        asked = body["messages"][0]["content"]
        if asked.startswith("Solve") and len(refused) < 2:
            refused.add(asked)
        return MODERATED if asked in refused else None

    endpoint.mood = mood
    done = evaluate(folder, endpoint)
    assert done.status == 4, done.stdout + done.stderr
    assert "ContentRejected" in done.stdout
    failed = [one["failed"] for one in records(folder) if one.get("failed")]
    assert len(failed) == 2
    assert all(one.startswith("ContentRejected: ") for one in failed)
    shares = figures(folder)["headline"][0]["shares"]
    assert sum(shares[kind]["count"] for kind in ("wins", "losses", "draws")) == TASKS - 2
    asked = len(endpoint.requests)
    assert evaluate(folder, endpoint).status == 4
    assert len(endpoint.requests) == asked, "a finished evaluation asks nobody"


@pytest.mark.parametrize("kind", ["empty", "cut", "filtered"])
def test_unusable_replies_are_not_solutions(endpoint: Moody, folder: Path, kind: str):
    spoiled: set[str] = set()

    def mood(body: dict[str, Any], count: int) -> Any:
        asked = body["messages"][0]["content"]
        if "impartial judge" in asked or asked in spoiled or count % 5:
            return None
        spoiled.add(asked)
        return spoil(kind)

    endpoint.mood = mood
    done = evaluate(folder, endpoint)
    assert done.status == 0, done.stdout + done.stderr
    assert spoiled
    solutions = [one["text"] for one in records(folder) if "text" in one]
    assert len(solutions) == 2 * TASKS
    assert all(one and "SPOILED" not in one for one in solutions)


def test_a_short_outage_only_delays_the_evaluation(endpoint: Moody, folder: Path):
    endpoint.mood = out_for(3, after=10)
    done = evaluate(folder, endpoint)
    assert done.status == 0, done.stdout + done.stderr
    assert asked_once(endpoint)
