"""Forks, credit and cooperation with the small real model: each study runs to its report. Never what the model says."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import msgspec
import pytest

import camel
from camel.core.society import Ending
from camel.core.stops import MaxMessages
from camel.evaluation.cooperation.exercises import Exercise
from camel.models.local import LOCAL_SAMPLING

pytestmark = [
    pytest.mark.real_model,
    pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="needs the extra 'local'"),
]
SHORT = msgspec.structs.replace(LOCAL_SAMPLING, max_tokens=4)
RULES = [MaxMessages(2)]


def record(model: camel.ChatModel) -> camel.Transcript:
    """A conversation with prompts of few tokens, because each costs up to 50 ms."""
    society = camel.Society(
        "Bake bread.", members=(camel.Member("Ada"), camel.Member("Ben")), prompt="You are <NAME>. <TASK>", opening="Begin.",
        turns=camel.Addressed(), stop=Ending(max_messages=2), sampling=SHORT,
    )  # fmt: skip
    return society.play(model, id="one").run()


def says_what_a_small_model_shows(folder: Path, name: str) -> bool:
    return all("135 million" in (folder / f"{name}.{kind}").read_text("utf-8") for kind in ("html", "md"))


def test_a_fork_and_a_credit_study(small_model: camel.ChatModel, tmp_path: Path):
    one = record(small_model)
    forked = camel.fork(
        [one], 2, n=1, temperature=1.0, using=small_model, rules=RULES, out=tmp_path / "fork", concurrency=2, progress=False
    )  # fmt: skip
    assert sorted(kind for _, kind, _ in forked) == ["changed", "unchanged"]
    assert all(branch.usage.calls == 1 for _, _, branch in forked)
    assert says_what_a_small_model_shows(tmp_path / "fork", "branches")
    last = one.messages[-1].content
    made = camel.credit(
        [one], lambda made: made.messages[-1].content == last, samples=8, using=small_model, rules=RULES,
        out=tmp_path / "credit", concurrency=4, progress=False,
    )  # fmt: skip
    assert made.usage.calls == 8 * 2
    assert says_what_a_small_model_shows(tmp_path / "credit", "credit")


def test_a_comparison_of_methods(small_model: camel.ChatModel, tmp_path: Path):
    made = camel.compare_methods(
        ["self_consistency"], [Exercise("one", "What is 1 + 1?", "2", "number")], tokens=100, model=small_model, sampling=SHORT, out=tmp_path, concurrency=2, progress=False
    )  # fmt: skip
    assert made.failed == 0
    assert made["single"].usage.calls == 1
    assert says_what_a_small_model_shows(tmp_path, "cooperation")
