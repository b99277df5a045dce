"""Runs whose conversations are known, to make training rows from."""

from __future__ import annotations

import random
from pathlib import Path

from camel.core.message import Message
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.record.arrow import write_shard
from camel.runs.markers import Marker, new_attempt
from camel.runs.run import open_folder
from camel.runs.settings import Settings

WORDS = [f"word{number}" for number in range(3_000)]


def conversation(
    number: int, *, stop: str = "done", labels: tuple[str, ...] = (), said: str = ""
) -> Transcript:
    chance = random.Random(number)
    texts = [" ".join(chance.choices(WORDS, k=60)) for _ in range(4)]
    messages = [
        Message(0, "user", "Trader", f"Instruction: {texts[0]}\nInput: None"),
        Message(1, "assistant", "Coder", f"Solution: {said or texts[1]}\nNext request."),
        Message(2, "user", "Trader", f"Instruction: {texts[2]}\nInput: None"),
        Message(3, "assistant", "Coder", f"Solution: {texts[3]}\nNext request."),
    ]
    speakers = [Speaker("user", "Trader"), Speaker("assistant", "Coder")]
    return Transcript(
        f"{number:05}", Task("Trade."), speakers, messages, Stop(stop, "", "user"), labels=list(labels)
    )


def make_run(path: Path, conversations: list[Transcript], per_shard: int = 10) -> str:
    folder = open_folder(path)
    for shard, first in enumerate(range(0, len(conversations), per_shard)):
        file = folder.data_path("conversations", shard, new_attempt(), ".parquet")
        written = write_shard(file, conversations[first : first + per_shard])
        kept, size = folder.persist(file)
        folder.commit(Marker("conversations", shard, kept, written.rows, written.sha256, "x", {}, size))
    folder.create(Settings("x", {"scenario": "test"}, "0"))
    return str(path)
