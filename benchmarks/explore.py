"""How quickly the explorer answers over a hundred million conversations, and over a million with a text index.

    python -m benchmarks.explore [--short] [--rows 100000000] [--folder DIR]

The index is written directly, in the layout that `camel index` leaves behind, with one real shard of conversations for the
opening of one. What is timed is what a reader waits for: `Catalogue` from Python, the first time each question is asked.
Exits with 1 where a limit is passed (the limits are for the full sizes; --short has the same ones).
"""

from __future__ import annotations

import argparse
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from camel.core.message import Message, Usage
from camel.core.stopping import Stop
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.explorer.catalogue import Catalogue
from camel.explorer.query import Query
from camel.storage.cube import digest_of, write_cubes
from camel.storage.index import FOLDER, Header, Indexed, Writer, count, joined, merge_counts, schema
from camel.storage.run import Marker, Settings, new_attempt, open_folder
from camel.storage.table import write_shard

STAGE = "conversations"
SHARD = 4_096
PER_FILE = 1_024
"""Shards of a merged file."""
ROLES = 1_000
STOPS = ["done", "max_messages", "user_no_instruction", "assistant_instructs", "token_limit", "error"]
FINDINGS = [joined(some) for some in ((), ("role flipping",), ("repeated instruction",), ("flake reply",))]
LIMITS = {"first page": 0.5, "next page": 0.5, "deep jump": 0.5, "facets": 0.2, "opening": 0.3, "search": 0.3}


def role(kind: str, number: int) -> str:
    return f"{kind} of trade {number:04d}"


def block(start: int, rows: int, total: int, seed: int) -> pa.Table:
    """Rows of the index, in the order in which a campaign of roles x roles x tasks makes them."""
    chance = np.random.default_rng(seed)
    index = np.arange(start, start + rows)
    tasks = max(1, total // ROLES**2)
    a, u, t = index // (ROLES * tasks) % ROLES, index // tasks % ROLES, index % tasks
    names = [
        f"{x + 1:04d}_{y + 1:04d}_{z + 1:03d}"
        for x, y, z in zip(a.tolist(), u.tolist(), t.tolist(), strict=True)
    ]
    messages = np.minimum(40, 2 * chance.geometric(0.09, rows)).astype(np.int32)
    stop = np.where(messages >= 40, 1, chance.choice([0, 0, 0, 0, 2, 3, 4, 5], rows))
    tokens = (messages.astype(np.int64) ** 2 * 110 * chance.uniform(0.7, 1.3, rows)).astype(np.int64)
    model = chance.integers(0, 2, rows)
    label = (chance.random(rows) < 0.001).astype(np.int32)

    def coded(codes: Any, values: list[str]) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(values)).cast(pa.string())

    columns = {
        "id": pa.array(names),
        "scenario": coded(np.zeros(rows, np.int32), ["ai_society"]),
        "assistant": coded(a, [role("Assistant", n) for n in range(ROLES)]),
        "user": coded(u, [role("User", n) for n in range(ROLES)]),
        "others": coded(np.zeros(rows, np.int32), [""]),
        "task": pa.array(
            [f"Task {n}: plan the caravan of {i}" for n, i in zip(t.tolist(), index.tolist(), strict=True)]
        ),
        "stop": coded(stop, STOPS),
        "model": coded(model, ["gpt-4.1-mini", "llama-3.1-8b"]),
        "labels": coded(label, ["", joined(["misalignment"])]),
        "findings": coded(np.where(chance.random(rows) < 0.8, 0, chance.integers(0, 4, rows)), FINDINGS),
        "messages": pa.array(messages),
        "tokens": pa.array(tokens),
        "completion": pa.array(tokens // 20),
        "calls": pa.array(messages),
        "cost": pa.array(np.where(model == 0, tokens * 4e-7, np.nan), from_pandas=True),
        "shard": pa.array((index // SHARD).astype(np.int32)),
        "row": pa.array((index % SHARD).astype(np.int32)),
    }
    return pa.table([columns[name] for name in schema().names], schema=schema())


def transcript(index: int, id: str) -> Transcript:
    """A conversation of the paper's length."""
    chance = random.Random(index)
    words = [f"word{n}" for n in range(2_000)]
    said = [
        Message(
            n,
            ("user", "assistant")[n % 2],
            "Role",
            " ".join(chance.choices(words, k=120)),
            usage=Usage(900, 150, 0, 1),
        )
        for n in range(40)
    ]
    seats = [Speaker("user", "User", "a prompt " * 200), Speaker("assistant", "Assistant", "a prompt " * 200)]
    return Transcript(id, Task("plan the caravan"), seats, said, Stop("max_messages", "40"), "ai_society")


def write_index(where: Path, rows: int) -> str:
    """A run with an index of `rows` conversations; returns the id of one that can be opened."""
    folder = open_folder(where)
    folder.create(Settings("f", {}, "0"))
    shards = -(-rows // SHARD)
    made: list[Path] = []
    for first in range(0, shards, PER_FILE):
        last = min(first + PER_FILE, shards) - 1
        listed = [Indexed(n, f"{n:06d}-a", min(SHARD, rows - n * SHARD)) for n in range(first, last + 1)]
        start = first * SHARD
        size = sum(one.rows for one in listed)
        pieces = [
            block(start + at, min(65_536, size - at), rows, start + at) for at in range(0, size, 65_536)
        ]
        counted = merge_counts(Header(STAGE, "f", [], count(piece)) for piece in pieces)
        path = where / FOLDER / STAGE / f"m{first:06d}-{last:06d}-{new_attempt()}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        with Writer(path, Header(STAGE, "f", listed, counted)) as writer:
            for piece in pieces:
                writer.add(piece)
        made.append(path)
    digest = digest_of([f"{FOLDER}/{STAGE}/{path.name}" for path in made])
    write_cubes(made[0].with_name(f"cube-{digest}.parquet"), made, digest)
    committed = where / "committed" / STAGE
    committed.mkdir(parents=True)
    middle = shards // 2
    names = block(middle * SHARD, SHARD, rows, middle * SHARD // 65_536 * 65_536).column("id").to_pylist()
    path = folder.data_path(STAGE, middle, "a", ".parquet")
    written = write_shard(path, (transcript(n, names[n]) for n in range(SHARD)))
    file, size = folder.keep(path)
    folder.commit(Marker(STAGE, middle, file, written.rows, written.sha256, "f", {}, size))
    for shard in range(shards):  # the others are never opened: their names are all that is asked for
        (committed / f"{shard:06d}.json").touch()
    return names[SHARD // 3]


class Table:
    """Figures, and whether they are within their limits."""

    def __init__(self) -> None:
        self.failed = False

    def time(self, what: str, limit: float, ask: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        answer = ask()
        took = time.perf_counter() - started
        over = took > limit
        self.failed |= over
        print(
            f"| {what} | {1000 * took:,.0f} ms | {1000 * limit:,.0f} ms | {'OVER' if over else 'ok'} |",
            flush=True,
        )
        return answer


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    rows = given.rows or (1_000_000 if given.short else 100_000_000)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="camel-bench-explore-"))
    try:
        if not (folder / "id").exists():
            # In a process of its own, so that the memory that is shown is that of the reader.
            subprocess.run(
                [
                    sys.executable,
                    "-c",
                    f"from benchmarks.explore import *; p=Path({str(folder)!r}); (p/'id').write_text(write_index(p/'run',{rows}))",
                ],
                check=True,
            )
        return questions(folder, (folder / "id").read_text(), rows)
    finally:
        if not given.keep:
            shutil.rmtree(folder, ignore_errors=True)


def questions(folder: Path, id: str, rows: int) -> int:
    size = sum(path.stat().st_size for path in (folder / "run" / FOLDER).rglob("*") if path.is_file())
    print(
        f"\n{rows:,} conversations, index of {size / 1e9:.2f} GB\n\n| question | time | limit | |\n|---|---:|---:|---|"
    )
    table = Table()
    catalogue = table.time("opening the catalogue", 10.0, lambda: Catalogue([folder / "run"]))
    everything, some = Query(), Query(facets={"stop": ("error",)})
    both = Query(facets={"stop": ("error",), "user": (role("User", 17),)})
    long = Query(sort="tokens", order="desc")
    for name, query in (
        ("all", everything),
        ("stop=error", some),
        ("stop=error, one user role", both),
        ("by tokens", long),
        ("stop=error, by tokens", Query(facets={"stop": ("error",)}, sort="tokens", order="desc")),
        ("messages 10..12", Query(ranges={"messages": (10, 12)})),
    ):
        page = table.time(
            f"first page, {name}", LIMITS["first page"], lambda query=query: catalogue.page(query)
        )
        after = table.time(
            f"next page, {name}",
            LIMITS["next page"],
            lambda query=query, page=page: catalogue.page(query, after=page.next),
        )
        table.time(
            f"page before, {name}",
            LIMITS["next page"],
            lambda query=query, page=after: catalogue.page(query, before=page.previous),
        )
        table.time(
            f"deep jump, {name}",
            LIMITS["deep jump"],
            lambda query=query, n=page.total * 2 // 3: catalogue.jump(query, n),
        )
        if name not in ("by tokens", "messages 10..12", "stop=error, by tokens"):
            table.time(f"facets, {name}", LIMITS["facets"], lambda query=query: catalogue.facets(query))
    table.time(
        "facets, with consent", LIMITS["facets"], lambda: catalogue.allowing("misalignment").facets(some)
    )
    table.time("sample of 20, stop=error", 1.0, lambda: catalogue.sample(some))
    table.time("histogram of tokens by stop", 5.0, lambda: catalogue.histogram(everything, "tokens", "stop"))
    table.time("opening a conversation", LIMITS["opening"], lambda: catalogue.conversation("run", id))
    table.time("its neighbours", 0.5, lambda: catalogue.neighbours("run", id))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    table.failed |= memory > 1
    print(f"| memory | {memory:.2f} GB | 1 GB | {'OVER' if memory > 1 else 'ok'} |")
    catalogue.close()
    return int(table.failed)


if __name__ == "__main__":
    sys.exit(main())
