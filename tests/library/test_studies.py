"""Runs studied and compared, and rows made from them, by a program."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

import camel
from camel import CamelError, InputError, RolePlaying, Stop, read_config
from camel.evaluation.agents import find_models
from camel.jobs.budget import Budget
from camel.library.studies import read_judges
from camel.models.spec import ModelSpec

pytest.importorskip("pyarrow")
TOPICS = [{"topic": one} for one in ("rain", "money", "bread")]


class Early(msgspec.Struct, frozen=True):
    """Ends a conversation before it is done."""

    name = "early"
    version = 1

    def check(self, messages: list[camel.Message], call: camel.NextCall) -> Stop | None:
        return Stop("early", "after two") if len(messages) >= 2 else None


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same lessons twice: to their ends, and ended early."""
    folder = tmp_path_factory.mktemp("runs")
    lesson = RolePlaying("Explain <topic>", assistant="Teacher", user="Pupil", specify=False)
    with camel.simulated_endpoint(length=5):
        for name, rules in (("whole", None), ("early", [Early()])):
            camel.generate(
                lesson, inputs=TOPICS, model="gpt-4.1-nano", rules=rules, out=folder / name, progress=False
            )
    return folder / "whole", folder / "early"


def test_two_runs_are_compared_conversation_by_conversation(runs: tuple[Path, Path]):
    found = camel.compare(*runs, progress=False)
    assert (found.a, found.b, found.pairs) == ("whole", "early", 3)
    done = next(one for one in found.effects if one.measure == "ended_done")
    assert found.rates["ended_done"].rate == 1
    assert done.rate.rate == 0
    assert done.difference.difference == -1
    assert "Ended as done" in str(found)
    assert "100% →    0%  −100 points" in str(found)


def test_a_judge_says_which_run_solved_the_tasks_better(runs: tuple[Path, Path], tmp_path: Path):
    pytest.importorskip("numpy")
    with camel.simulated_endpoint() as endpoint:
        found = camel.compare(*runs, judge="gpt-4.1", tasks=2, out=tmp_path / "judged", progress=False)
        paid = endpoint.ledger().billed
        again = camel.compare(*runs, judge="gpt-4.1", tasks=2, out=tmp_path / "judged", progress=False)
        assert endpoint.ledger().billed == paid
    assert found.judged is not None
    assert [(row.a, row.b) for row in found.judged.headline] == [("whole", "early")]
    assert "judged: whole better in" in str(found)
    assert again.judged is not None
    assert (tmp_path / "judged" / "evaluation.html").is_file()


def test_what_cannot_be_compared_is_refused(runs: tuple[Path, Path], tmp_path: Path):
    with camel.simulated_endpoint(length=3):
        other = RolePlaying("Explain wind", assistant="Teacher", user="Pupil", specify=False)
        camel.generate(other, model="gpt-4.1-nano", out=tmp_path / "other", progress=False)
        with pytest.raises(InputError, match="share no"):
            camel.compare(runs[0], tmp_path / "other", progress=False)
        with pytest.raises(InputError, match="out='compared'"):
            camel.compare(*runs, judge="gpt-4.1", progress=False)
        with pytest.raises(CamelError, match="resumes"):
            camel.compare(*runs, judge="gpt-4.1", out=tmp_path / "j", progress=False, budget_calls=1)


def test_a_run_is_studied(runs: tuple[Path, Path]):
    pytest.importorskip("numpy")
    assert camel.study(runs[0], progress=False).conversations == 3
    assert (runs[0] / "study" / "study.html").is_file()


def test_rows_are_made_and_opened(runs: tuple[Path, Path], tmp_path: Path):
    rows = camel.make_rows(runs[0], out=tmp_path / "rows", filters={"where": 'stop = "done"'}, progress=False)
    assert len(rows) == len(list(rows)) > 0
    with pytest.raises(InputError, match="stops"):
        camel.make_rows(runs[0], out=tmp_path / "other", filters={"stops": ["done"]}, progress=False)
    assert not len(
        camel.make_rows(runs, out=tmp_path / "none", filters={"where": "stop = 'nothing'"}, progress=False)
    )


def test_a_run_is_exported(runs: tuple[Path, Path], tmp_path: Path):
    run = camel.Run(runs[0])
    assert run.export("messages", tmp_path / "messages.jsonl").conversations == 3
    assert len((tmp_path / "messages.jsonl").read_text().splitlines()) == 3
    with pytest.raises(InputError, match="messages"):
        run.export("massages", tmp_path / "x.jsonl")


def test_the_simulated_endpoint_is_used_only_while_the_block_runs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "mine")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with camel.simulated_endpoint(length=3, latency=0.0) as endpoint:
        assert os.environ["OPENAI_BASE_URL"] == endpoint.base_url
        assert os.environ["OPENAI_API_KEY"] != "mine"
        assert len(RolePlaying("A menu", assistant="Chef", user="Guest", model="any").run().messages) == 3
    assert os.environ["OPENAI_API_KEY"] == "mine"
    assert "OPENAI_BASE_URL" not in os.environ
    with pytest.raises(InputError, match="lenght"), camel.simulated_endpoint(lenght=3):
        pass


def test_the_judge_of_a_configuration(tmp_path: Path):
    text = 'scenario = "ai_society"\n[model]\nname = "small"\n'
    plain, judged = tmp_path / "plain.toml", tmp_path / "judged.toml"
    plain.write_text(text)
    judged.write_text(
        text + '[models.judge]\nmodel = "strong@http://127.0.0.1:9/v1"\nbudget = { calls = 7 }\n'
    )
    (found,), budget = read_judges([str(judged)])
    assert isinstance(found, ModelSpec)
    assert (found.name, found.base_url, budget.calls) == ("strong", "http://127.0.0.1:9/v1", 7)
    (found,), budget = read_judges([str(plain)])
    assert isinstance(found, ModelSpec)
    assert (found.name, budget.calls) == ("small", None)
    assert read_judges(["gpt-4.1"]) == (["gpt-4.1"], Budget())
    # A judge does not change the data, so a run continues with another one.
    configs = [read_config(path) for path in (plain, judged)]
    assert len({msgspec.json.encode(one.decisive(one.loaded_scenario())) for one in configs}) == 1
    (batched,), _ = read_judges([str(judged)], batch=True)
    assert isinstance(batched, ModelSpec)
    assert batched.batch


def test_two_judges_of_one_name_are_two_models():
    here, there = (ModelSpec("judge", base_url=f"http://127.0.0.1:{port}/v1") for port in (1, 2))
    asked = find_models([], [here, there], base="judge", against=["single-shot"])
    assert len(asked.judges) == 2
    assert [asked.models[one.seat] for one in asked.judges] == [here, there]
    assert len({one.name for one in asked.judges}) == 2
