"""`--batch`: commands whose models are asked through a batch API. The provider's ledger is the witness."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from camel import Run
from camel.jobs.ledger import MONEY
from camel.runs.run import RunFolder
from tests.support import contests
from tests.support.batch_jobs import quick
from tests.support.batch_server import BatchServer, serve_batches
from tests.support.contests import a_run
from tests.support.in_process import Done, camel

CONFIG = """
scenario = "{scenario}"
lists = "asked"
out = "run"
counts = {{ {counts} }}
[model]
name = "m"
base_url = "{url}"
price = {{ input = 3.0, output = 11.0, cached = 0.7 }}
"""


def answer(prompt: str) -> str:
    """What each kind of prompt asks for."""
    if wanted := re.match(r".*?list (\d+)", prompt, re.IGNORECASE | re.DOTALL):
        return "\n".join(f"{n}. Kind {n} of {abs(hash(prompt)) % 997}" for n in range(1, int(wanted[1]) + 1))
    if "more specific" in prompt:
        return f"Build {abs(hash(prompt)) % 997} sheds."
    if "Translate the message" in prompt:
        message = prompt.partition("Message:\n")[2]
        return re.sub(r"(?<=[a-z ])(plan|boards|build)", "foo", message, flags=re.IGNORECASE) + " und mehr"
    return "Yes." if "yes or no" in prompt.lower() else "<CAMEL_TASK_DONE>"


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with serve_batches(answer) as server:
        yield server


def said(server: BatchServer, folder: Path, *words: str, status: int = 0, **settings: Any) -> Done:
    with quick(**settings):
        done = camel(*words, folder=folder, environment={"OPENAI_BASE_URL": server.url})
    assert done.status == status, done.stdout + done.stderr
    return done


def configured(folder: Path, server: BatchServer, scenario: str, counts: str) -> None:
    (folder / "c.toml").write_text(CONFIG.format(scenario=scenario, counts=counts, url=server.url))


def recorded(place: Path) -> float:
    """Dollars, by the markers of all stages."""
    folder = RunFolder(place)
    return sum(
        marker.totals[MONEY]
        for stage in folder.stages()
        for marker in folder.markers(stage, folder.committed(stage))
    )


def test_a_run_with_its_lists_and_tasks_in_batches(server: BatchServer, tmp_path: Path):
    configured(tmp_path, server, "ai_society", "assistant_role = 2, user_role = 2, task = 2")
    done = said(server, tmp_path, "generate", "c.toml", "--batch")
    assert "without --batch" in done.stdout
    assert "waiting for a batch of 8, 0 done" in done.stdout
    assert {len(one.lines) for one in server.batches} >= {8}
    assert set(server.paid.values()) == {1}
    assert server.direct == 8, "one message in each conversation"
    conversations = list(Run(tmp_path / "run"))
    assert len(conversations) == 8
    assert all(one.task.specified.startswith("Build ") for one in conversations)
    assert all(one.task.usage.calls == 1 for one in conversations)
    assert recorded(tmp_path / "run") == pytest.approx(server.dollars, abs=1e-7)
    said(server, tmp_path, "run", "verify", "run")
    state = json.loads(said(server, tmp_path, "run", "status", "run", "--json").stdout)
    assert {one["name"]: one["committed"] for one in state["stages"]} == {
        "assistant_role": 1,
        "user_role": 1,
        "task": 4,
        "specified": 8,
        "conversations": 8,
    }
    paid = server.dollars
    said(server, tmp_path, "generate", "c.toml")
    assert server.dollars == paid


def test_tasks_that_were_specified_are_not_specified_again_without_batch(server: BatchServer, tmp_path: Path):
    configured(tmp_path, server, "ai_society", "assistant_role = 2, user_role = 2, task = 2")
    server.breaks["POST /chat/completions"] = ["401"] * 100
    said(server, tmp_path, "generate", "c.toml", "--batch", status=3)
    assert RunFolder(tmp_path / "run").committed("specified")
    server.breaks = {}
    batches = len(server.batches)
    said(server, tmp_path, "generate", "c.toml")
    assert server.direct == 8
    assert len(server.batches) == batches
    assert recorded(tmp_path / "run") == pytest.approx(server.dollars, abs=1e-7)


def test_a_task_that_cannot_be_specified_fails_its_conversation_until_it_is_retried(
    server: BatchServer, tmp_path: Path
):
    configured(tmp_path, server, "ai_society", "assistant_role = 2, user_role = 2, task = 2")
    filtered = (400, "the content_filter was triggered")
    server.fails = lambda id, times: (
        filtered if len(server.batches[-1].lines) == 8 and id == list(server.batches[-1].lines)[3] else None
    )
    done = said(server, tmp_path, "generate", "c.toml", "--batch", status=4)
    assert "1 of specified with ContentRejected" in done.stdout
    assert sum(one.failed for one in Run(tmp_path / "run")) == 1
    server.fails = lambda id, times: None
    said(server, tmp_path, "generate", "c.toml", "--batch", "--retry-failed")
    conversations = list(Run(tmp_path / "run"))
    assert not any(one.failed for one in conversations)
    assert all(one.task.specified for one in conversations)
    assert set(server.paid.values()) == {1}


def test_answers_are_asked_in_batches(server: BatchServer, tmp_path: Path):
    configured(tmp_path, server, "math", "topic = 2, subtopic = 2, problem = 2")
    said(server, tmp_path, "generate", "c.toml", "--batch")
    assert not server.direct
    assert set(server.paid.values()) == {1}
    assert len(list(Run(tmp_path / "run"))) == 8
    assert recorded(tmp_path / "run") == pytest.approx(server.dollars, abs=1e-7)


def test_the_plan_shows_the_price_with_and_without(server: BatchServer, tmp_path: Path):
    configured(tmp_path, server, "ai_society", "assistant_role = 50, user_role = 50, task = 10")
    with_, without = (
        json.loads(said(server, tmp_path, "plan", "c.toml", *more, "--json").stdout)
        for more in (["--batch"], [])
    )
    assert without["money"] == without["money_without_batch"]
    for case in ("low", "likely", "high"):
        assert with_["money"][case] < without["money"][case] - 10
        assert with_["money_without_batch"][case] == pytest.approx(without["money"][case], rel=1e-6)
        assert with_["calls"][case] == pytest.approx(without["calls"][case])
    stages = [stage["name"] for stage in with_["stages"]]
    assert stages == ["assistant_role", "user_role", "task", "specified", "conversations"]
    assert re.search(
        r"money .*; \$\S+ without --batch", said(server, tmp_path, "plan", "c.toml", "--batch").stdout
    )
    assert not server.requests


def test_a_plan_of_a_run_that_is_there_counts_the_discount_once(server: BatchServer, tmp_path: Path):
    configured(tmp_path, server, "ai_society", "assistant_role = 2, user_role = 2, task = 2")
    said(server, tmp_path, "generate", "c.toml", "--batch")
    plan = json.loads(said(server, tmp_path, "plan", "c.toml", "--batch", "--json").stdout)
    assert plan["money"]["likely"] == pytest.approx(server.dollars, abs=1e-6)


def test_a_translation(server: BatchServer, tmp_path: Path):
    a_run(tmp_path / "run", numbers=range(8), size=3)
    words = ("translate", "run", "--to", "de", "--model", "gpt-4.1-mini", "--batch")
    # All messages of all conversations are in one batch, although each has several.
    said(server, tmp_path, *words)
    assert len(server.batches) == 1
    assert len(server.paid) == 16
    assert set(server.paid.values()) == {1}
    assert not server.direct
    assert all("und mehr" in one.messages[0].content for one in Run(tmp_path / "run", stage="translated-de"))


def test_a_translation_that_is_continued_in_batches_asks_in_the_same_order(
    server: BatchServer, tmp_path: Path
):
    a_run(tmp_path / "run", numbers=range(8), size=3)
    good, words = server.answer, ("translate", "run", "--to", "de", "--model", "gpt-4.1-mini")

    # Half of the first answers cannot be used, and the endpoint refuses to be asked again.
    def bad(prompt: str) -> str:
        if prompt.startswith("That cannot be used"):
            server.breaks["POST /chat/completions"] = ["401"] * 100
        return "Nein." if "Solution:" in prompt.partition("Message:")[2] else good(prompt)

    server.answer = bad
    said(server, tmp_path, *words, "--concurrency", "1", status=3)
    direct = server.direct
    assert 3 <= direct < 16
    server.answer, server.breaks = good, {}
    said(server, tmp_path, *words, "--batch")
    assert server.direct == direct
    assert set(server.paid.values()) == {1}
    assert len(list(Run(tmp_path / "run", stage="translated-de"))) == 8


def test_a_study(server: BatchServer, tmp_path: Path):
    a_run(tmp_path / "run", numbers=range(8), size=3)
    said(server, tmp_path, "study", "run", "--judge", "m", "--batch", "--processes", "1")
    assert len(server.batches) == 1
    assert len(server.paid) == 8
    assert not server.direct
    assert (tmp_path / "run" / "study" / "kept" / "batches").is_dir()


def test_an_evaluation_of_agents(server: BatchServer, tmp_path: Path):
    server.answer = contests.answer
    a_run(tmp_path / "run", numbers=range(8), size=3)
    words = ("evaluate", "agents", "run", "--judge", "m", "--model", "n", "--sample", "4", "--repeats", "2")
    said(server, tmp_path, *words, "--batch")
    assert set(server.paid.values()) == {1}
    assert not server.direct
    assert len(server.batches) == 3, "summaries, answers of another model, and all verdicts"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("generate", "c.toml", "--local", "--batch"), "--local"),
        (("generate", "c.toml", "--address", "local", "--batch"), "--address"),
        (("study", "run", "--batch"), "--judge"),
        (("translate", "run", "--to", "de", "--local", "--batch"), "--batch"),
        (("evaluate", "agents", "run", "--local", "--batch"), "--batch"),
    ],
)
def test_what_does_not_go_together_is_refused(
    server: BatchServer, tmp_path: Path, words: tuple[str, ...], named: str
):
    configured(tmp_path, server, "ai_society", "assistant_role = 1")
    a_run(tmp_path / "run", numbers=range(2), size=2)
    done = said(server, tmp_path, *words, status=2)
    assert named in done.stderr
    assert not server.requests
