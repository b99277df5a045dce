"""How long a run over a large table takes to begin, and how much memory it needs.

    python -m benchmarks.tables [--short] [--rows N]

Writes a Parquet table, plans a run over it (the first scan), plans it again, and starts it. Each step runs in a process of
its own, so that the memory is that of the step. duckdb reads and copies the same table for comparison. Exits with 1 where a
limit is passed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIMITS = {"plan": 10.0, "first conversation": 10.0, "memory": 500.0, "memory growth": 1.2}
SCENARIO = """
title = "Support"
[role_play]
assistant = "Agent"
user = "<PERSONA>"
task = "Help <NAME> with <ISSUE>"
specify = false
max_messages = 2
"""


def table(folder: Path) -> None:
    rows = int((folder / "rows").read_text())
    write_table(folder, rows)


def write_table(folder: Path, rows: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "support").mkdir()
    (folder / "support" / "scenario.toml").write_text(SCENARIO)
    schema = pa.schema([(name, pa.string()) for name in ("id", "name", "persona", "issue")])
    with pq.ParquetWriter(folder / "rows.parquet", schema, compression="zstd") as writer:
        for start in range(0, rows, 500_000):
            some = range(start, min(rows, start + 500_000))
            columns = [
                [f"customer-{n:09d}" for n in some],
                [f"Person {n}" for n in some],
                [f"a customer of type {n % 997}" for n in some],
                [f"order {n} that has arrived {n % 31} days late" for n in some],
            ]
            writer.write_table(pa.table(columns, schema=schema))


def config_of(folder: Path) -> Any:
    from camel.generation.config import GenerateConfig
    from camel.inputs.settings import Inputs
    from camel.models.spec import ModelSpec

    return GenerateConfig(
        scenario=str(folder / "support"),
        model=ModelSpec("benchmark", base_url="http://127.0.0.1:9/v1"),
        out=str(folder / "run"),
        inputs=Inputs(source=str(folder / "rows.parquet"), id="id"),
    )


def scan(folder: Path) -> None:
    from camel.generation.generate import Generation

    job = Generation(config_of(folder))
    job.prepare(job.open())


def plan(folder: Path) -> None:
    from camel.generation.plan import make_plan

    made = make_plan(config_of(folder))
    assert made.items > 0


def first(folder: Path) -> None:
    """Start the run, and stop at the first call."""
    from camel.core.model import Model, Reply, Request
    from camel.generation.generate import Generation
    from camel.jobs.runner import Runner

    class Called(BaseException):
        pass

    class First(Model):
        name = "benchmark"

        async def reply(self, request: Request) -> Reply:
            raise Called

    with contextlib.suppress(Called, BaseExceptionGroup):
        asyncio.run(Runner(Generation(config_of(folder), First())).run())


def duckdb_count(folder: Path) -> None:
    import duckdb

    duckdb.sql(
        f"select count(*), max(id), max(name), max(persona), max(issue) from '{folder}/rows.parquet'"
    ).fetchall()


def duckdb_copy(folder: Path) -> None:
    import duckdb

    duckdb.sql(
        f"copy (select *, md5(name || persona || issue) as hash from '{folder}/rows.parquet') to '{folder}/copy.parquet' "
        "(format parquet, compression zstd)"
    )
    (folder / "copy.parquet").unlink(missing_ok=True)


STEPS: dict[str, Callable[[Path], None]] = {
    one.__name__: one for one in (table, scan, plan, first, duckdb_count, duckdb_copy)
}


def measure(step: str, folder: Path) -> tuple[float, float]:
    """Run a step in a process of its own. Return its seconds without imports, and its peak memory in MB."""
    command = [sys.executable, "-m", "benchmarks.tables", "--step", step, "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, memory = json.loads(done.stdout.splitlines()[-1])
    return seconds, memory


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="50,000 rows, without limits on time")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--step", choices=STEPS, default=None)
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args()
    if given.step:
        import duckdb  # noqa: F401 - imports do not count
        import pyarrow.parquet  # noqa: F401

        import camel.generation.generate  # noqa: F401

        started = time.perf_counter()
        STEPS[given.step](given.folder)
        took = time.perf_counter() - started
        print(json.dumps([took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
        return 0
    rows = 50_000 if given.short else given.rows
    found: dict[int, dict[str, tuple[float, float]]] = {}
    for size in (rows // 10, rows):
        with tempfile.TemporaryDirectory(prefix="camel-tables-") as folder:
            (Path(folder) / "rows").write_text(str(size))
            found[size] = {step: measure(step, Path(folder)) for step in STEPS}
    print("| rows | step | seconds | rows/s | memory |\n|---:|---|---:|---:|---:|")
    for size, steps in found.items():
        for step, (seconds, memory) in steps.items():
            print(f"| {size:,} | {step} | {seconds:.1f} | {size / seconds:,.0f} | {memory:,.0f} MB |")
    small, large = (found[size] for size in (rows // 10, rows))
    most = max(large[step][1] for step in ("scan", "plan", "first"))
    least = max(small[step][1] for step in ("scan", "plan", "first"))
    figures = {
        "plan": large["plan"][0],
        "first conversation": large["first"][0],
        "memory": most,
        "memory growth": most / least,
    }
    over = [
        name
        for name, figure in figures.items()
        if figure > LIMITS[name] and (not given.short or "memory" in name)
    ]
    print(", ".join(f"{name} {figure:.2f} (limit {LIMITS[name]:g})" for name, figure in figures.items()))
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
