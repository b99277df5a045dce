"""What it costs to make rows for training, compared with reading and writing the same conversations with bare pyarrow.

    python -m benchmarks.rows              # a million conversations, about 11 GB of text; needs 6 GB of disk
    python -m benchmarks.rows --short      # 20,000, for make thorough

Simulated conversations of 20 messages in files of 20,000. Each variant is a process of its own, so that its memory is its own:
`bare` reads every row group of the files and writes it again as Parquet with the same compression; `rows` shapes, splits at 2,048 tokens
and drops exact duplicates; then the same with decontamination against the 164 problems of a file, and with MinHash as well. A share of rows
is planted: duplicates, near duplicates and leaks, and the report must find exactly those. Rates are conversations per second of CPU.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from camel.core.message import Message
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.record.arrow import ROW_GROUP, schema, stream_groups, to_table
from camel.record.parquet import arrow, write_batches
from camel.runs.markers import Marker, new_attempt
from camel.runs.run import open_folder
from camel.runs.settings import Settings

MESSAGES = 20
PER_FILE = 20_000
PLANTED = 5
"""Of each kind in every row group: conversations that were there before, the same with some words changed, and leaks."""
GOAL = 0.3
MEMORY = 2_000.0
VARIANTS = ("bare", "rows", "rows, questions", "rows, questions, near")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--conversations", type=int, default=1_000_000)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        print(json.dumps(measured(args.only, Path(args.folder))))
        return 0
    count = 2 * PER_FILE if args.short else args.conversations
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make(root, count)
        found: dict[str, dict[str, Any]] = {}
        for variant in VARIANTS:
            command = [sys.executable, "-m", "benchmarks.rows", "--only", variant, "--folder", folder]
            out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found[variant] = json.loads(out.splitlines()[-1])
    return report(found, count)


def report(found: dict[str, dict[str, Any]], count: int) -> int:
    bare = found["bare"]["cpu"]
    print(
        f"\n{count:,} conversations of {MESSAGES} messages, {found['bare']['bytes'] / 1e9:.1f} GB of text\n"
    )
    print("| what | CPU, s | µs a conversation | x bare's rate | memory, MB |\n|---|---|---|---|---|")
    for name, one in found.items():
        each = one["cpu"] / count * 1e6
        print(
            f"| {name} | {one['cpu']:,.1f} | {each:,.0f} | {bare / one['cpu']:.2f} | {one['memory']:,.0f} |"
        )
    groups = count // ROW_GROUP
    planted = PLANTED * groups
    removed = found["rows, questions, near"]["removed"]
    print(f"\nplanted in the rows: {planted:,} leaks, {planted:,} conversations twice; removed: {removed}")
    wrong = [name for name, one in found.items() if one["memory"] > MEMORY]
    if bare / found["rows"]["cpu"] < GOAL:
        wrong.append(f"rows below {GOAL} of bare")
    if removed.get("question") != planted:
        wrong.append("leaks")
    if found["rows"]["removed"].get("exact duplicate", 0) != found["rows"]["twice"]:
        wrong.append("exact duplicates")
    print(f"\n{'within all limits' if not wrong else 'WRONG: ' + ', '.join(wrong)}")
    return 1 if wrong else 0


def measured(variant: str, root: Path) -> dict[str, Any]:
    arrow().set_cpu_count(1)
    started = time.process_time()
    extra: dict[str, Any] = {}
    if variant == "bare":
        extra["bytes"] = bare(root)
    else:
        from camel.jobs.runner import Runner
        from camel.training.recipe import Filters, Recipe, Source
        from camel.training.rows import RowsJob, RowsReport

        filters = Filters(
            near=0.8 if "near" in variant else 0.0,
            questions=(str(root / "questions.jsonl"),) if "questions" in variant else (),
        )
        out = str(root / variant.replace(", ", "-"))
        job = RowsJob(Recipe((Source(str(root / "run")),), out, filters=filters))
        made: RowsReport = asyncio.run(Runner(job).run()).result
        extra["removed"] = made.removed_rows
        extra["twice"] = json.loads((root / "planted.json").read_text())["twice"]
    return {
        "cpu": time.process_time() - started,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        **extra,
    }


def bare(root: Path) -> int:
    """Read everything and write it again; returns the bytes of what was said."""
    pc = arrow("pyarrow.compute")
    size = 0
    out = root / "bare"
    out.mkdir()
    for file in sorted((root / "run").rglob("*.parquet")):

        def groups(file: Path = file) -> Any:
            nonlocal size
            for group in stream_groups(file):
                contents = group.column("messages").combine_chunks().values.field("content")
                size += pc.sum(pc.binary_length(contents)).as_py()
                yield from group.to_batches()

        write_batches(out / file.name, groups(), schema())
        (out / file.name).unlink()
    return size


def make(root: Path, count: int) -> None:
    """Write the run, and the questions that are planted in it."""
    np, pa, pc = arrow("numpy"), arrow(), arrow("pyarrow.compute")
    chance = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    words = np.array(["".join(chance.choice(letters, chance.integers(2, 10))) for _ in range(20_000)])
    sentences = pa.array([" ".join(chance.choice(words, 12)).capitalize() + "." for _ in range(200_000)])
    questions = [" ".join(chance.choice(words, 60)) for _ in range(164)]
    lines = [json.dumps({"task_id": f"Q/{n}", "prompt": text}) for n, text in enumerate(questions)]
    (root / "questions.jsonl").write_text("\n".join(lines))
    base = to_table([_talk(number) for number in range(ROW_GROUP)]).combine_chunks()
    lists = base.column("messages").chunk(0)
    fields = [lists.values.field(index) for index in range(lists.values.type.num_fields)]
    names = [field.name for field in lists.values.type]
    folder = open_folder(root / "run")
    twice = 0
    for shard in range(count // PER_FILE):

        def groups(shard: int = shard) -> Any:
            for part in range(PER_FILE // ROW_GROUP):
                sizes = np.tile(np.array([3, 10]), ROW_GROUP * MESSAGES // 2)
                offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
                picked = sentences.take(pa.array(chance.integers(0, len(sentences), offsets[-1])))
                said = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), picked), " ").to_pylist()
                for n in range(PLANTED):
                    at = n * MESSAGES
                    said[at + 1] += " " + questions[int(chance.integers(164))].upper()  # a leak
                    again = (ROW_GROUP // 2 + n) * MESSAGES
                    said[again + MESSAGES : again + 2 * MESSAGES] = said[
                        again : again + MESSAGES
                    ]  # the same twice
                before = pa.array(["Instruction: ", "Solution: "] * (ROW_GROUP * MESSAGES // 2))
                after = pa.array(["\nInput: None", "\nNext request."] * (ROW_GROUP * MESSAGES // 2))
                texts = pc.binary_join_element_wise(before, pa.array(said), after, "")
                fields[names.index("content")] = texts
                elements = pa.StructArray.from_arrays(fields, fields=list(lists.values.type))
                column = pa.ListArray.from_arrays(lists.offsets, elements)
                number = (shard * PER_FILE) + part * ROW_GROUP
                ids = pa.array([f"{n:08}" for n in range(number, number + ROW_GROUP)])
                table = base.set_column(
                    base.schema.get_field_index("messages"), schema().field("messages"), column
                )
                yield from table.set_column(0, schema().field("id"), ids).to_batches()

        path = folder.data_path("conversations", shard, new_attempt(), ".parquet")
        written = write_batches(path, groups(), schema())
        file, size = folder.persist(path)
        folder.commit(Marker("conversations", shard, file, written.rows, written.sha256, "x", {}, size))
    folder.create(Settings("x", {"scenario": "simulated"}, "0"))
    # A conversation that is there twice has all its rows twice; a chain of such neighbors would be counted once more.
    from camel.library.run import Run
    from camel.training.shaping import Shape, shape

    for file in Run(root / "run").files[:1]:
        first = next(iter(stream_groups(file)))
        rows = shape(first, Shape()).rows
        keys = [json.dumps(one) for one in rows.column("messages").to_pylist()]
        twice = len(keys) - len(set(keys))
    (root / "planted.json").write_text(json.dumps({"twice": twice * (count // ROW_GROUP)}))


def _talk(number: int) -> Transcript:
    messages = [
        Message(n, ("user", "assistant")[n % 2], ("Trader", "Programmer")[n % 2], "", "m")
        for n in range(MESSAGES)
    ]
    speakers = [
        Speaker("user", "Trader", "You are a trader. " * 40),
        Speaker("assistant", "Programmer", "You are a programmer. " * 40),
    ]
    return Transcript(
        str(number),
        Task("Trade.", "Trade stocks."),
        speakers,
        messages,
        Stop("max_messages", "", ""),
        "simulated",
    )


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
