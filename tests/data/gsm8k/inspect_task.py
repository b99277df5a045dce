"""GSM8K as a task of inspect-ai, over the problems next to this file."""

from pathlib import Path
from typing import Any

from inspect_ai import Task, task
from inspect_ai.dataset import Sample, json_dataset
from inspect_ai.scorer import match
from inspect_ai.solver import generate

PROBLEMS = Path(__file__).with_name("problems.jsonl")


def to_sample(row: dict[str, Any]) -> Sample:
    return Sample(input=row["question"], target=row["answer"].split("#### ")[-1].replace(",", ""))


@task
def gsm8k() -> Task:
    return Task(
        dataset=json_dataset(str(PROBLEMS), to_sample), solver=[generate()], scorer=match(numeric=True)
    )
