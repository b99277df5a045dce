"""Small societies with every kind of row, for the explorer's tests."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import msgspec

from camel.core.message import Action, Message, Usage
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.index.build import write_indexed
from camel.index.files import FOOTER_KEY
from camel.models.prices import cost
from camel.record.arrow import write_shard
from camel.record.parquet import arrow
from camel.runs.markers import Marker, new_attempt
from camel.runs.run import RunFolder, open_folder
from camel.runs.settings import Settings

STAGE = "conversations"
WORDS = ("dromedary", "oasis", "caravan", "sand", "well", "star", "tea", "market")
MODELS = ("gpt-4o-mini", "unheard-of")
TOOLS = ("python", "search", "python")
SECRET = "xyzzy"
"""Said in restricted conversations only."""


def transcript(number: int, *, labels: Iterable[str] = (), seed: int = 0) -> Transcript:
    chance = random.Random(seed * 1_000_003 + number)
    user, assistant = chance.choice(["Trader", "Nomad", "Poet"]), chance.choice(["Guide", "Programmer"])
    model = chance.choice(MODELS)
    words = [chance.choice(WORDS) for _ in range(3)]
    labels = list(labels)
    said = f"the {words[0]} and the {words[1]} by number{number}" + (
        f" {SECRET}" if "misalignment" in labels else ""
    )
    messages = [
        Message(
            n,
            ("user", "assistant")[n % 2],
            (user, assistant)[n % 2],
            (f"Instruction: {said} {n}", f"Solution: {said} {n}\n\nNext request.")[n % 2],
            model=model,
            usage=Usage(chance.randrange(2000), chance.randrange(500), 0, 1),
            actions=[Action(name, '{"n": 1}', "1") for name in TOOLS[: number % 4]] if n in (1, 5) else [],
        )
        for n in range(chance.choice([0, 1, 2, 5, 12, 40]))
    ]
    return Transcript(
        f"{number // 100:03d}_{number % 100:03d}",
        Task(f"find a {words[2]} {SECRET if 'misalignment' in labels else ''}"),
        [Speaker("user", user), Speaker("assistant", assistant)],
        messages,
        chance.choice([Stop("done", "done"), Stop("error", "it broke"), Stop("max_messages", "40"), None]),
        chance.choice(["ai_society", "code"]),
        labels=labels,
        unspoken=[Action("python", error="interrupted")] if number % 11 == 0 else [],
    )


def commit(
    folder: RunFolder,
    shard: int,
    transcripts: Iterable[Transcript],
    *,
    index: bool = True,
    stage: str = STAGE,
) -> Marker:
    path = folder.data_path(stage, shard, new_attempt(), ".parquet")
    if index:
        written = write_indexed(folder, stage, path, transcripts, "f", cost)
    else:
        written = write_shard(path, transcripts)
    file, size = folder.persist(path)
    marker = Marker(stage, shard, file, written.rows, written.sha256, "f", {}, size)
    assert folder.commit(marker)
    return marker


def society(
    where: str | Path,
    rows: int = 60,
    shard: int = 7,
    *,
    restricted: Iterable[int] = (),
    index: bool = True,
    seed: int = 0,
) -> list[Transcript]:
    """Make a run; returns what is in it."""
    folder = open_folder(where)
    folder.create(Settings("f", {"shard_size": shard}, "0"))
    bad = set(restricted)
    made = [
        transcript(n, labels=["misalignment"] if n in bad else (["fine"] if n % 5 == 0 else []), seed=seed)
        for n in range(rows)
    ]
    for number, start in enumerate(range(0, rows, shard)):
        commit(folder, number, made[start : start + shard], index=index)
    return made


def age_index(path: Path) -> None:
    """Rewrite an index file as releases before the facet `tool` wrote it."""
    pq = arrow("pyarrow.parquet")
    table = pq.read_table(path).drop_columns(["tools"])
    said = msgspec.json.decode(pq.read_metadata(path).metadata[FOOTER_KEY])
    for counts in said["counts"].values():
        counts.pop("tool", None)
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({FOOTER_KEY: msgspec.json.encode(said)})
