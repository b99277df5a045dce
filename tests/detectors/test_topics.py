"""Questions of the assistant, deviation from the task, and long tasks: conversations of writers who had the definitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.detectors import Example, Said
from camel.core.task import Task
from camel.core.transcript import Transcript
from camel.detectors import detect
from camel.detectors.finding import WHOLE

WRITTEN = Path(__file__).parent.parent / "data" / "topic_traces.jsonl"


def conversations() -> list[dict[str, Any]]:
    return [json.loads(line) for line in WRITTEN.read_text().splitlines()]


def transcript(row: dict[str, Any]) -> Transcript:
    said = [Said(one["speaker"], one["content"]) for one in row["messages"]]
    return Example(
        row["id"], "", "written", "tune", row["task"], said, {}, assistant=row["assistant"], user=row["user"]
    ).transcript()


@pytest.mark.parametrize(
    ("half", "name", "precision", "recall"),
    [
        (0, "assistant_question", 0.95, 0.9),
        (1, "assistant_question", 0.9, 0.75),
        (0, "topic_deviation", 0.95, 0.85),
        (1, "topic_deviation", 0.9, 0.9),
    ],
)
def test_the_detectors_are_right_about_the_conversations(
    half: int, name: str, precision: float, recall: float
):
    """The rules were developed on the first half; docs/detectors.md has the figures."""
    right = found = labeled = 0
    for row in conversations()[half::2]:
        hits, labels = {one.index for one in detect(transcript(row), [name])}, {*row["labels"].get(name, ())}
        right, found, labeled = right + len(hits & labels), found + len(hits), labeled + len(labels)
    assert labeled >= 20
    assert right / found >= precision
    assert right / labeled >= recall


@pytest.mark.parametrize(("words", "limit", "found"), [(50, 50, 0), (51, 50, 1), (400, 0, 0)])
def test_a_specified_task_with_too_many_words(words: int, limit: int, found: int):
    task = Task("Write a game.", " ".join(["word"] * words), word_limit=limit)
    findings = detect(Transcript("x", task, []), ["long_task"])
    assert [one.index for one in findings] == [WHOLE] * found
