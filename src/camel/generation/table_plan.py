# ruff: noqa: S608 - SQL is put together from names in this module; values are parameters, always
"""Plans the items of a run: the rows of a table, or the first items of a scenario as a preview.

The one decision to know: a row is identified by its id and a hash of the columns that are used. A row with a known id and
hash keeps its item, wherever it is in the table. Any other row becomes a new item at the end, and the item that had its id
becomes inactive.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from camel.core.errors import InputError
from camel.generation.config import LISTS_PER_SHARD, GenerateConfig, shard_size_for
from camel.inputs.scan import TableScan, fingerprint_of, scan
from camel.inputs.settings import Inputs
from camel.jobs.retry import open_retry
from camel.record.parquet import arrow
from camel.runs.again import add_retry
from camel.runs.bits import BitSet
from camel.runs.layout import Segment
from camel.runs.plan import PlanStep, RunPlan, add_step, outdated_shards, read_plan
from camel.runs.reader import need_module
from camel.runs.run import RunFolder, open_folder
from camel.scenarios import Scenario
from camel.scenarios.checking import columns_of

MEMORY = "300MB"
"""Memory of the database that compares a table with the plan. It uses files for more."""


def plan_rows(
    folder: RunFolder,
    inputs: Inputs | Any,
    used: Collection[str],
    stages: Sequence[str],
    *,
    shard_size: int | None = None,
    preview: int = 0,
) -> None:
    """Compare a table with the run's plan, and add a step if the table has changed. If `preview` is set, only the first rows
    are planned. `inputs` are settings, or rows in memory; `stages` are the names of the stages with one item per row."""
    with folder.locked():
        plan = read_plan(folder)
        scanned = fingerprint_of(inputs)
        last = plan.steps[-1] if plan else None
        # A preview of a planned run only shows it.
        is_current = last and not last.preview and (preview or (scanned and last.scanned == scanned))
        if not is_current:
            with tempfile.TemporaryDirectory(prefix="camel-plan-") as scratch:
                found = _scan(inputs, used, Path(scratch) / "scanned.parquet")
                rows, counts, inactive = _compare(plan, Path(scratch), preview)
                new = counts["new"] + counts["changed"]
                segment = Segment(new, shard_size or shard_size_for(new))
                step = PlanStep(
                    last.number + 1 if last else 1,
                    dict.fromkeys(stages, segment) if new else {},
                    {**counts, "duplicates": found.duplicates},
                    found.source,
                    inputs.licenses if isinstance(inputs, Inputs) else [],
                    "" if preview else scanned,
                    bool(preview),
                    True,
                )
                changed = new or counts["removed"] or counts["returned"]
                if last is None or changed or scanned or last.preview != step.preview:
                    add_step(folder, step, rows if new else None, inactive)
        if (plan := read_plan(folder)) is not None:
            rewrite_shards(folder, plan, stages[-1])


def _scan(inputs: Any, used: Collection[str], out: Path) -> TableScan:
    """Read the table. Without one there is one conversation."""
    if inputs is not None:
        return scan(inputs, used, out)
    row = arrow().table({"id": ["1"], "hash": [""], "line": [1]})
    arrow("pyarrow.parquet").write_table(row, out)
    return TableScan(1, 1, 0, 0, (), "", "")


def _compare(plan: RunPlan | None, scratch: Path, preview: int) -> tuple[Path, dict[str, int], BitSet]:
    """Compare the scanned rows with a plan. Return the file of new rows, the counts, and the items that are now inactive."""
    config = {"memory_limit": MEMORY, "temp_directory": str(scratch / "database")}
    with contextlib.closing(need_module("duckdb").connect(config=config)) as database:
        limit = f"limit {preview:d}" if preview else ""
        file = f"read_parquet('{scratch}/scanned.parquet', file_row_number = true)"
        database.execute(f"create view scanned as select * from {file} {limit}")
        if plan is not None:
            return _compare_with(database, plan, scratch)
        count = _count(database, "select count(*) from scanned")
        if not preview:
            return scratch / "scanned.parquet", _counts(new=count), BitSet()
        _copy(database, "select * exclude (file_row_number) from scanned order by file_row_number", scratch)
        return scratch / "new.parquet", _counts(new=count), BitSet()


def _compare_with(database: Any, plan: RunPlan, scratch: Path) -> tuple[Path, dict[str, int], BitSet]:
    numpy = need_module("numpy")
    database.execute("create table known (number bigint, id varchar, hash varchar)")
    start = 0
    for path in plan.files.values():
        rows = "select file_row_number + ?, id, hash from read_parquet(?, file_row_number = true)"
        database.execute(f"insert into known {rows}", [start, str(path)])
        start = _count(database, "select count(*) from known")
    before = arrow().table({"number": arrow().array(list(plan.inactive), arrow().int64())})
    database.register("inactive", before)
    # Of several items with the same id and hash, the active one counts.
    database.execute(
        "create table best as select id, hash, max_by(number, (active, number)) as number, max(active) as active from "
        "(select *, (number not in (select number from inactive))::int as active from known) group by id, hash",
    )
    database.execute("create view current as select id, number from best where active = 1")
    unknown = "scanned anti join best using (id, hash)"
    _copy(
        database,
        f"select s.* exclude (file_row_number), current.number as supersedes from ({unknown}) s "
        "left join current using (id) order by s.file_row_number",
        scratch,
    )
    new = _count(database, f"select count(*) from {unknown}")
    changed = _count(database, f"select count(*) from ({unknown}) semi join current using (id)")
    kept = "select best.number, best.active from scanned join best using (id, hash)"
    numbers = database.cursor().execute(f"select number from ({kept})").fetchnumpy()["number"]
    returned = _count(database, f"select count(*) from ({kept}) where active = 0")
    were_active = start - len(plan.inactive)
    gone = numpy.ones(start, bool)
    gone[numbers.astype(numpy.int64)] = False
    inactive = BitSet.of_bits(numpy.packbits(gone, bitorder="little").tobytes())
    kept_active = len(numbers) - returned
    counts = _counts(
        new=new - changed,
        changed=changed,
        removed=were_active - kept_active - changed,
        returned=returned,
        unchanged=kept_active,
    )
    return scratch / "new.parquet", counts, inactive


def _counts(**counts: int) -> dict[str, int]:
    return {name: counts.get(name, 0) for name in ("new", "changed", "removed", "returned", "unchanged")}


def _count(database: Any, sql: str) -> int:
    return int(database.execute(sql).fetchall()[0][0])


def _copy(database: Any, sql: str, scratch: Path) -> None:
    options = "format parquet, compression zstd, row_group_size 4096"
    database.execute(f"copy ({sql}) to '{scratch}/new.parquet' ({options})")


def rewrite_shards(folder: RunFolder, plan: RunPlan, stage: str) -> None:
    """Begin to rewrite the committed shards that have other records than planned, as a retry of the items that they lack. The
    run must be locked."""
    outdated = outdated_shards(folder, stage, plan) if len(plan.ever_inactive) else {}
    if not outdated:
        return
    retry = open_retry(folder)
    if retry is not None:
        if outdated.keys() <= retry.stages.get(stage, {}).keys():
            return  # already begun
        if any(items for shards in retry.stages.values() for items in shards.values()):
            raise InputError(
                f"the table has changed while a retry of '{folder.address}' is unfinished: undo the change, run the same "
                "command to finish the retry, and change the table again"
            )
    add_retry(folder.store, {stage: outdated})


def count_rows(config: GenerateConfig) -> int:
    """Return the number of rows of a configuration's table: those that its run has planned, otherwise by reading it."""
    assert config.inputs is not None
    folder = open_folder(config.where)
    plan = read_plan(folder) if folder.exists else None
    if plan is not None and not plan.steps[-1].preview:
        return plan.count - len(plan.inactive)
    with tempfile.TemporaryDirectory(prefix="camel-plan-") as scratch:
        return scan(
            config.inputs, columns_of(config.loaded_scenario()), Path(scratch) / "scanned.parquet"
        ).rows


def first_segments(scenario: Scenario, stages: Sequence[str], preview: int) -> dict[str, Segment]:
    """Return the items that the first conversations of a scenario with levels need, by stage."""
    count = min(preview, scenario.count)
    needed = {
        level.name: max(
            (scenario.list_index(level.name, scenario.path(item)) + 1 for item in range(count)), default=0
        )
        for level in scenario.asked
    }
    lists = {name: Segment(lists, LISTS_PER_SHARD) for name, lists in needed.items()}
    return lists | {name: Segment(count, shard_size_for(count)) for name in stages}


def plan_preview(
    folder: RunFolder, first: Mapping[str, Segment], planned: Mapping[str, Segment], preview: int
) -> None:
    """Plan the first items of a scenario with levels as a preview or, if `preview` is 0, the items after a preview. `first`
    and `planned` have the stages of the preview and of the whole run."""
    with folder.locked():
        plan = read_plan(folder)
        if plan is None and preview:
            add_step(folder, PlanStep(1, dict(first), preview=True), None, BitSet())
        elif plan is not None and plan.steps[-1].preview and not preview:
            done = {name: sum(one.segments[name].items for one in plan.steps) for name in planned}
            rest = {
                name: Segment(one.items - done[name], one.shard_size)
                for name, one in planned.items()
                if one.items > done[name]
            }
            add_step(folder, PlanStep(plan.steps[-1].number + 1, rest), None, BitSet())
