"""What it costs to compare every file of a run with its marker while the run is read and exported.

    python -m benchmarks.integrity              # 4,096 conversations of 40 messages, about 60 MB of Parquet
    python -m benchmarks.integrity --short      # 512

Conversations of random words, which compress worse than real ones, so that the hash has more to do than it has in a run. Seconds are of
CPU, the least of three; the share is of an export in the original's chat format, which includes the hash.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from camel.core.message import Message, Usage
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Transcript
from camel.formats.original import chat
from camel.library.run import Run
from camel.record.arrow import write_shard
from camel.runs.markers import Marker, new_attempt
from camel.runs.run import RunFolder
from camel.runs.settings import Settings

STAGE, SHARD, MESSAGES, WORDS = "conversations", 256, 40, 130
GOAL = 0.1
"""Of an export's CPU at most."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true")
    count = 512 if parser.parse_args().short else 4_096
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        size = make(RunFolder(root / "run"), count)
        run = Run(root / "run")

        def hashing() -> None:
            for path in run.files:
                with path.open("rb") as file:
                    hashlib.file_digest(file, "sha256")

        def reading() -> None:
            for _ in run:  # compared by the time it is measured
                pass

        def exporting() -> None:
            chat(Run(root / "run"), root / "conversations.jsonl")

        reading()
        hashed, read, exported = map(cpu, (hashing, reading, exporting))
    share = hashed / exported
    print(f"{count:,} conversations, {size / 1e6:.1f} MB; seconds of CPU:")
    print(
        f"hashing {hashed:.3f} ({size / hashed / 1e6:,.0f} MB/s), reading {read:.3f}, exporting {exported:.3f}"
    )
    print(f"the hash is {share:.1%} of an export (goal: at most {GOAL:.0%})")
    return 0 if share <= GOAL else 1


def make(folder: RunFolder, count: int, messages: int = MESSAGES, words: int = WORDS) -> int:
    """Write a run; returns its size in bytes."""
    chance, size = random.Random(1), 0
    letters = "abcdefghijklmnop"
    vocabulary = ["".join(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(20_000)]

    def talk(number: int) -> Transcript:
        said = [
            Message(
                n,
                ("user", "assistant")[n % 2],
                "Role",
                " ".join(chance.choices(vocabulary, k=words)),
                "m",
                usage=Usage(3, 2, 1, 1),
            )
            for n in range(messages)
        ]
        return Transcript(f"{number:06d}", Task(f"task {number}"), messages=said, stop=Stop("done", "done"))

    folder.create(Settings("f", {"shard_size": SHARD}, "0"))
    for shard in range(count // SHARD):
        path = folder.data_path(STAGE, shard, new_attempt(), ".parquet")
        written = write_shard(path, map(talk, range(shard * SHARD, (shard + 1) * SHARD)))
        file, length = folder.persist(path)
        folder.commit(Marker(STAGE, shard, file, written.rows, written.sha256, "f", {}, length))
        size += length
    return size


def cpu(work: Callable[[], None]) -> float:
    spent: list[float] = []
    for _ in range(3):
        began = time.process_time()
        work()
        spent.append(time.process_time() - began)
    return min(spent)


if __name__ == "__main__":
    raise SystemExit(main())
