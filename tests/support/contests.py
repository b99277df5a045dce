"""Runs and an endpoint in which it is known who is to win: the judge answers as it was planted, by the number of the task."""

from __future__ import annotations

import json
import re
from pathlib import Path

from camel import Run
from camel.core.message import Message, Usage
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.models.simulator import Facts
from camel.record.arrow import write_shard
from camel.runs.markers import Marker, new_attempt
from camel.runs.run import RunFolder
from camel.runs.settings import Settings

PLANTED = {
    # Of a hundred: agents, single shot, equal, always the first answer, always the second.
    "ai_society": (60, 20, 5, 12, 3),
    "code": (76, 24, 0, 0, 0),
}
KINDS = ("agents", "single", "equal", "first", "second")
EVIL = "</div><script>alert(1)</script>"


def kind_of(scenario: str, number: int) -> str:
    """What is planted for a task."""
    place = number % 100
    for kind, count in zip(KINDS, PLANTED[scenario], strict=True):
        if place < count:
            return kind
        place -= count
    raise AssertionError


def conversation(scenario: str, number: int) -> Transcript:
    said = [
        Message(
            0, "user", "Trader", f"Instruction: Plan shed {number}.\nInput: None", usage=Usage(9, 9, 0, 1)
        ),
        Message(
            1,
            "assistant",
            EVIL,
            f"Solution: Boards for {number}. {EVIL}\nNext request.",
            usage=Usage(9, 9, 0, 1),
        ),
        Message(2, "user", "Trader", "<CAMEL_TASK_DONE>", usage=Usage(9, 9, 0, 1)),
    ]
    return Transcript(
        f"{number:03d}",
        Task(f"Build shed {number} of {scenario}", f"Build shed {number} of {scenario} with a roof {EVIL}"),
        [Speaker("user", "Trader"), Speaker("assistant", EVIL)],
        said,
        Stop("done", "done"),
        scenario,
        labels=["misalignment"] if number >= 900 else [],
    )


def a_run(root: Path, scenario: str = "ai_society", numbers: range = range(100), size: int = 30) -> Run:
    folder = RunFolder(root)
    folder.create(Settings("f", {"scenario": scenario, "imported": "chat", "model.name": "base"}, "0"))
    for shard, start in enumerate(range(0, len(numbers), size)):
        path = folder.data_path("conversations", shard, new_attempt(), ".parquet")
        written = write_shard(path, [conversation(scenario, n) for n in numbers[start : start + size]])
        file, length = folder.persist(path)
        assert folder.commit(
            Marker("conversations", shard, file, written.rows, written.sha256, "f", {}, length)
        )
    return Run(root)


_TASK = re.compile(r"Build shed (\d+) of (\w+)")


def answer(asked: str) -> str:
    """What the endpoint says."""
    found = _TASK.search(asked)
    if found is None:
        return "OK."  # to the failure policy, which asks whether any call is served
    number, scenario = int(found[1]), found[2]
    if asked.startswith("Two agents"):
        return f"The agents' plan for {number}: {'cut the boards. ' * (5 + number % 7)}{EVIL}"
    if asked.startswith("Solve"):
        return f"The single plan for {number}: {'just nail it. ' * (3 + number % 11)}"
    assert asked.startswith("You are an impartial judge")
    agents_first = asked.index("> The agents' plan") < asked.index("> The single plan")
    kind = kind_of(scenario, number)
    better = {
        "agents": 1 if agents_first else 2,
        "single": 2 if agents_first else 1,
        "equal": 0,
        "first": 1,
        "second": 2,
    }[kind]
    scores = [[6, 6], [8, 5], [5, 8]][better]
    return json.dumps({"reason": f"It is {kind}. {EVIL}", "scores": scores, "better": better})


def author(facts: Facts) -> str:
    """The same as an author of the simulated endpoint."""
    return answer(facts.messages[0].text)


def contrary(facts: Facts) -> str:
    """A judge that finds the opposite in every fifth task."""
    asked = facts.messages[0].text
    said = answer(asked)
    found = _TASK.search(asked)
    if asked.startswith("You are") and found and int(found[1]) % 5 == 0:
        verdict = json.loads(said)
        verdict["better"] = {0: 0, 1: 2, 2: 1}[verdict["better"]]
        verdict["scores"].reverse()
        return json.dumps(verdict)
    return said
