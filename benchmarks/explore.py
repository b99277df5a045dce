"""How quickly the explorer answers over a hundred million conversations, and over a million with a text index.

    python -m benchmarks.explore [--short] [--part list|text] [--folder DIR]

The index is written directly, in the layout that `camel run index` leaves behind, with one real shard of conversations for the
opening of one. What is timed is what a reader waits for: `Catalogue` from Python, the first time each question is asked.
Exits with 1 where a limit is passed; with --short the limits are wider and the sizes small.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from camel.core.message import Message, Usage
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.index.build import Writer, count, merge_counts, write_indexed
from camel.index.cube import digest_of, write_cubes
from camel.index.facets import FOLDER, NUMBERS, joined
from camel.index.files import Header, Indexed, schema
from camel.index.merge import merge
from camel.index.sorted import ordered_name, write_copy
from camel.index.text import make_text_index
from camel.query.catalogue import Catalogue
from camel.query.where import Query
from camel.record.arrow import write_shard
from camel.runs.markers import Marker, new_attempt
from camel.runs.run import open_folder
from camel.runs.settings import Settings

STAGE = "conversations"
SHARD = 4_096
PER_FILE = 1_024
"""Shards of a merged file."""
ROLES = 1_000
PIECE = 524_288
"""Rows made at a time."""
STOPS = ["done", "max_messages", "user_no_instruction", "assistant_instructs", "token_limit", "error"]
FINDINGS = [joined(some) for some in ((), ("role flipping",), ("repeated instruction",), ("flake reply",))]
LIMITS = {"first page": 0.5, "next page": 0.5, "deep jump": 0.5, "facets": 0.2, "opening": 0.3, "search": 0.3}


SLACK = float(os.environ.get("CAMEL_BENCH_SLACK", "1"))
"""With --short the limits are four times as wide: it looks for what is broken, on a machine that may be busy."""


def role(kind: str, number: int) -> str:
    return f"{kind} of trade {number:04d}"


def block(start: int, rows: int, total: int, seed: int) -> pa.Table:
    """Rows of the index, in the order in which a campaign of roles x roles x tasks makes them."""
    chance = np.random.default_rng(seed)
    index = np.arange(start, start + rows)
    tasks = max(1, total // ROLES**2)
    a, u, t = index // (ROLES * tasks) % ROLES, index // tasks % ROLES, index % tasks
    messages = np.minimum(40, 2 * chance.geometric(0.09, rows)).astype(np.int32)
    stop = np.where(messages >= 40, 1, chance.choice([0, 0, 0, 0, 2, 3, 4, 5], rows))
    tokens = (messages.astype(np.int64) ** 2 * 110 * chance.uniform(0.7, 1.3, rows)).astype(np.int64)
    model = chance.integers(0, 2, rows)
    label = (chance.random(rows) < 0.001).astype(np.int32)

    def coded(codes: Any, values: list[str]) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(values)).cast(pa.string())

    def numbered(codes: Any, digits: int, most: int) -> pa.Array:
        return coded(codes, [f"{n + 1:0{digits}d}" for n in range(most)])

    names = pc.binary_join_element_wise(
        numbered(a, 4, ROLES), numbered(u, 4, ROLES), numbered(t, 3, tasks), "_"
    )
    plans = pc.binary_join_element_wise("plan the caravan", pa.array(index).cast(pa.string()), " ")
    columns = {
        "id": names,
        "scenario": coded(np.zeros(rows, np.int32), ["ai_society"]),
        "assistant": coded(a, [role("Assistant", n) for n in range(ROLES)]),
        "user": coded(u, [role("User", n) for n in range(ROLES)]),
        "others": coded(np.zeros(rows, np.int32), [""]),
        "task": plans,
        "stop": coded(stop, STOPS),
        "model": coded(model, ["gpt-4.1-mini", "llama-3.1-8b"]),
        "labels": coded(label, ["", joined(["misalignment"])]),
        "findings": coded(np.where(chance.random(rows) < 0.8, 0, chance.integers(0, 4, rows)), FINDINGS),
        "marks": coded(np.zeros(rows, np.int32), [""]),
        "tools": coded(np.zeros(rows, np.int32), [""]),
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
            " ".join(chance.choices(words, k=85)),
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
        pieces = [block(start + at, min(PIECE, size - at), rows, start + at) for at in range(0, size, PIECE)]
        counted = merge_counts(Header(STAGE, "f", [], count(piece)) for piece in pieces)
        path = where / FOLDER / STAGE / f"m{first:06d}-{last:06d}-{new_attempt()}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        with Writer(path, Header(STAGE, "f", listed, counted)) as writer:
            for piece in pieces:
                writer.add(piece)
        made.append(path)
    for path in made:
        for number in NUMBERS:
            write_copy(path.with_name(Path(ordered_name(path.name, number)).name), path, number)
    digest = digest_of([f"{FOLDER}/{STAGE}/{path.name}" for path in made])
    write_cubes(made[0].with_name(f"cube-{digest}.parquet"), made, digest)
    committed = where / "committed" / STAGE
    committed.mkdir(parents=True)
    middle = shards // 2
    names = block(middle * SHARD, SHARD, rows, middle * SHARD // PIECE * PIECE).column("id").to_pylist()
    path = folder.data_path(STAGE, middle, "a", ".parquet")
    written = write_shard(path, (transcript(n, names[n]) for n in range(SHARD)))
    file, size = folder.persist(path)
    folder.commit(Marker(STAGE, middle, file, written.rows, written.sha256, "f", {}, size))
    for shard in range(shards):  # the others are never opened: their names are all that is asked for
        (committed / f"{shard:06d}.json").touch()
    return names[SHARD // 3]


class Table:
    """Figures, and whether they are within their limits."""

    def __init__(self) -> None:
        self.failed = False

    def time(self, what: str, limit: float | None, ask: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        answer = ask()
        took = time.perf_counter() - started
        if limit is None:
            print(f"| {what} | {1000 * took:,.0f} ms | | |", flush=True)
            return answer
        limit *= SLACK
        over = took > limit
        self.failed |= over
        print(
            f"| {what} | {1000 * took:,.0f} ms | {1000 * limit:,.0f} ms | {'OVER' if over else 'ok'} |",
            flush=True,
        )
        return answer

    def end(self, catalogue: Catalogue) -> int:
        """The memory of this process at its highest, and what to exit with."""
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        self.failed |= memory > 1
        print(f"| memory | {memory:.2f} GB | 1 GB | {'OVER' if memory > 1 else 'ok'} |", flush=True)
        catalogue.close()
        return int(self.failed)


def write_texts(where: Path, rows: int) -> None:
    """A run of short conversations, indexed, with its text."""
    folder = open_folder(where)
    folder.create(Settings("f", {}, "0"))
    # Words as frequent as those of a language: the hundredth is said a hundredth as often as the first.
    words = [f"word{n}" for n in range(20_000)]
    weights = list(accumulate(1 / (n + 1) for n in range(len(words))))
    chance = random.Random(7)
    for shard in range(-(-rows // SHARD)):
        some = [
            Transcript(
                f"{n:09d}",
                Task(" ".join(chance.choices(words, cum_weights=weights, k=6))),
                [Speaker("user", "User"), Speaker("assistant", "Assistant")],
                [
                    Message(
                        m,
                        ("user", "assistant")[m % 2],
                        "Role",
                        " ".join(chance.choices(words, cum_weights=weights, k=30)),
                    )
                    for m in range(2)
                ],
                Stop("done", "done"),
                labels=["misalignment"] if n % 1000 == 0 else [],
            )
            for n in range(shard * SHARD, min(rows, (shard + 1) * SHARD))
        ]
        path = folder.data_path(STAGE, shard, new_attempt(), ".parquet")
        written = write_indexed(folder, STAGE, path, some, "f")
        file, size = folder.persist(path)
        folder.commit(Marker(STAGE, shard, file, written.rows, written.sha256, "f", {}, size))
    merge(folder, STAGE)
    make_text_index(folder, STAGE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a million rows, 20,000 texts")
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--texts", type=int, default=0)
    parser.add_argument("--part", choices=("list", "text", "both"), default="both")
    parser.add_argument("--folder", type=Path, default=None, help="where to write; removed afterwards")
    given = parser.parse_args()
    rows = given.rows or (1_000_000 if given.short else 100_000_000)
    texts = given.texts or (20_000 if given.short else 1_000_000)
    folder = Path(tempfile.mkdtemp(prefix="camel-bench-explore-", dir=given.folder))
    failed = 0
    if given.short:
        os.environ["CAMEL_BENCH_SLACK"] = "4"
    try:
        if given.part != "text":
            _apart(f"(p / 'id').write_text(write_index(p / 'run', {rows}))", folder)
            failed |= _apart(f"sys.exit(questions(p, {rows}))", folder)
        if given.part != "list":
            _apart(f"write_texts(p / 'texts', {texts})", folder)
            failed |= _apart(f"sys.exit(searches(p, {texts}))", folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return failed


def _apart(code: str, folder: Path) -> int:
    """Run in a process of its own, so that the memory that is shown is that of the reader."""
    code = f"from benchmarks.explore import *\np = Path({str(folder)!r})\n{code}"
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code]).returncode
    if done and "exit" not in code:
        raise SystemExit(done)
    print(f"({time.perf_counter() - started:.0f} s)", flush=True)
    return done


def searches(folder: Path, rows: int) -> int:
    print(f"\n{rows:,} conversations with a text index\n\n| question | time | limit | |\n|---|---:|---:|---|")
    table = Table()
    catalogue = table.time("opening the catalogue", 10.0, lambda: Catalogue([folder / "texts"]))
    for what, text in (
        ("a rare word, the first search", "word19000"),
        ("a rare word", "word18000"),
        ("a common word", "word3"),
        ("two words", "word40 word700"),
        ("two common words", "word1 word2"),
        ("a phrase", '"word2 word5"'),
        ("nothing", "nowhere"),
    ):
        limit = LIMITS["search"]
        page = table.time(f"search, {what}", limit, lambda text=text: catalogue.search(Query(text=text)))
        if page.next:
            table.time(
                f"next page, {what}",
                limit,
                lambda text=text, page=page: catalogue.page(Query(text=text), after=page.next),
            )
    table.time("facets of a search", LIMITS["search"], lambda: catalogue.facets(Query(text="word3")))
    return table.end(catalogue)


def questions(folder: Path, rows: int) -> int:
    id = (folder / "id").read_text()
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
        ("by messages", Query(sort="messages")),
        ("stop=error, by cost", Query(facets={"stop": ("error",)}, sort="cost", order="desc")),
        (
            "stop=error and one model, by tokens",
            Query(facets={"stop": ("error",), "model": ("llama-3.1-8b",)}, sort="tokens"),
        ),
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
        if not query.ranges and not query.sort:
            table.time(f"facets, {name}", LIMITS["facets"], lambda query=query: catalogue.facets(query))
    table.time(
        "facets, with consent", LIMITS["facets"], lambda: catalogue.allowing("misalignment").facets(some)
    )
    table.time("sample of 20, stop=error", None, lambda: catalogue.sample(some))
    table.time("histogram of tokens by stop", None, lambda: catalogue.histogram(everything, "tokens", "stop"))
    for row in catalogue.sample(everything, 100):
        catalogue.annotate("run", row.id, star=True)
    table.time("facets, the first time after 100 stars", None, lambda: catalogue.facets(everything))
    starred = Query(facets={"starred": ("yes",), "stop": ("done",)}, sort="tokens", order="desc")
    table.time("first page, starred, done, by tokens", LIMITS["first page"], lambda: catalogue.page(starred))
    table.time("facets, starred", LIMITS["facets"], lambda: catalogue.facets(starred))
    table.time("opening a conversation", LIMITS["opening"], lambda: catalogue.conversation("run", id))
    table.time("its neighbors", 0.5, lambda: catalogue.neighbors("run", id))
    return table.end(catalogue)


if __name__ == "__main__":
    sys.exit(main())
