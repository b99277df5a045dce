"""Small runs in which it is known who does what."""

from __future__ import annotations

from pathlib import Path

from camel import Run
from camel.core.message import Message, Usage
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.record.arrow import write_shard
from camel.runs.markers import Marker, new_attempt
from camel.runs.run import RunFolder
from camel.runs.settings import Settings

ASK = "Instruction: Name step {n} of the plan for number {id}.\nInput: None"
SOLVE = "Solution: Step {n} of {id} is to measure the {n} boards and cut them.\nNext request."
REFUSE = "I'm sorry, but I can't help with that."
EVIL = "<script>alert(1)</script>"


def conversation(number: int, *, messages: int = 6) -> Transcript:
    """Every third has a refusal in its fourth message; even ones end as done."""
    said: list[Message] = []
    for n in range(messages):
        seat, role = ("user", f"Trader {number % 3}") if n % 2 == 0 else ("assistant", EVIL)
        text = (ASK if n % 2 == 0 else SOLVE).format(n=n, id=number)
        if n == 3 and number % 3 == 0:
            text = f"{REFUSE} {EVIL}"
        said.append(Message(n, seat, role, text, model="m", usage=Usage(100 * (n + 1), 10 + n, 90 * n, 1)))
    reason = "done" if number % 2 == 0 else "max_messages"
    return Transcript(
        f"{number:03d}",
        Task(f"Build shed {number}"),
        [Speaker("user", "Trader"), Speaker("assistant", EVIL)],
        said,
        Stop(reason, reason),
        inputs={"number": str(number)},
    )


def add_shard(folder: RunFolder, shard: int, numbers: range) -> None:
    path = folder.data_path("conversations", shard, new_attempt(), ".parquet")
    written = write_shard(path, map(conversation, numbers))
    file, size = folder.persist(path)
    assert folder.commit(Marker("conversations", shard, file, written.rows, written.sha256, "f", {}, size))


def a_run(root: Path, *, shards: int = 3, size: int = 10) -> Run:
    folder = RunFolder(root)
    folder.create(Settings("f", {"scenario": "sheds", "imported": "chat"}, "0"))
    for shard in range(shards):
        add_shard(folder, shard, range(shard * size, (shard + 1) * size))
    return Run(root)
