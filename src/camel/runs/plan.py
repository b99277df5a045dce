"""The plan of a run whose items are rows of a table, or that began with a preview.

    plan/<number>.json         one step: its new items by stage, and counts
    plan/<number>.parquet      the rows of its new items: id, hash, and the values that the conversations use
    plan/<number>.inactive     the items of all steps that are inactive since this step

The one decision to know: steps are only added, under the run's lock, so an item keeps its number and its shard. An item
whose row was deleted or changed becomes inactive: it is not worked on, and if its shard is committed, the shard is
rewritten without it (`camel.runs.again`). Readers therefore need not know about plans. The older file stays, so that a
row that returns gets its conversation back without a call.
"""

from __future__ import annotations

import shutil
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from camel.core.transcript import Transcript
from camel.record.arrow import read_shard, stream_shard
from camel.record.parquet import arrow
from camel.runs.bits import BitSet
from camel.runs.layout import Layout, Segment
from camel.runs.reader import RunReader
from camel.runs.run import RunFolder
from camel.storage.files import make_folder, sync
from camel.storage.store import BucketStore

FOLDER = "plan"
VALUE = "value."
"""Prefix of the columns with a row's values."""
_GROUPS = 8
"""Number of row groups of rows in memory."""


class PlanStep(msgspec.Struct, frozen=True):
    """One step of a plan."""

    number: int
    segments: dict[str, Segment]
    """The new items of each stage."""
    counts: dict[str, int] = {}
    """Numbers of rows: new, changed, removed, returned, unchanged, duplicates."""
    source: str = ""
    """What the rows were read from."""
    licenses: list[str] = []
    """The licenses of the tables."""
    scanned: str = ""
    """Fingerprint of the source. If it is unchanged, the rows need not be read again."""
    preview: bool = False
    """Whether the new items are a preview. A later step adds the other items."""
    rows: bool = False
    """Whether the step has rows of a table."""

    @property
    def name(self) -> str:
        """The name of the step's files, without the ending."""
        return f"{FOLDER}/{self.number:06d}"


class PlanRow(NamedTuple):
    """A row of a table that is an item of the run."""

    id: str
    hash: str
    values: dict[str, str]


class RunPlan:
    """All steps of a run's plan, as of one time."""

    def __init__(self, folder: RunFolder, steps: Sequence[PlanStep]) -> None:
        self.folder, self.steps = folder, steps
        self._group = lru_cache(_GROUPS)(self._read_group)
        self._opened = lru_cache(_GROUPS)(self._open)

    @cached_property
    def inactive(self) -> BitSet:
        """The items that are inactive now."""
        return self._inactive[-1]

    @cached_property
    def ever_inactive(self) -> BitSet:
        """The items that are or were inactive."""
        found = BitSet()
        for one in self._inactive:
            found |= one
        return found

    @cached_property
    def _inactive(self) -> list[BitSet]:
        return [BitSet.from_bytes(self.folder.read(f"{one.name}.inactive")) for one in self.steps]

    @property
    def licenses(self) -> list[str]:
        """The licenses of all tables that the rows were read from."""
        return list(dict.fromkeys(license for one in self.steps for license in one.licenses))

    @property
    def count(self) -> int:
        """Number of items, inactive ones included."""
        return sum(self._sizes.values())

    def layout(self, stage: str, last: str) -> Layout:
        """Return the layout of a stage. Only the items of the stage `last`, and those planned like them, can be inactive."""
        found = Layout(one.segments[stage] for one in self.steps if stage in one.segments)
        alike = (
            found.segments
            == Layout(one.segments[last] for one in self.steps if last in one.segments).segments
        )
        return Layout(found.segments, self.inactive) if alike and len(self.inactive) else found

    @property
    def layouts(self) -> dict[str, Layout]:
        """The layouts of all stages, in the order of the first step."""
        names = list(dict.fromkeys(name for one in self.steps for name in one.segments))
        return {name: self.layout(name, names[-1]) for name in names}

    @property
    def items(self) -> Layout:
        """Which items are in which shard, for the run's records and for stages derived from them."""
        return list(self.layouts.values())[-1]

    # --- rows --------------------------------------------------------------------------------------------------------

    def row(self, item: int) -> PlanRow:
        """Return the row of an item."""
        place = bisect_right(self._starts, item) - 1
        number = self._numbers[place]
        group, row = divmod(
            item - self._starts[place], int(self._opened(number).metadata.row_group(0).num_rows)
        )
        return self._group(number, group)[row]

    @cached_property
    def _sizes(self) -> dict[int, int]:
        return {one.number: _items_of(one) for one in self.steps}

    @cached_property
    def _numbers(self) -> list[int]:
        """The steps with new items."""
        return [number for number, items in self._sizes.items() if items]

    @cached_property
    def _starts(self) -> list[int]:
        """The first item of each of these steps."""
        return [0, *accumulate(self._sizes[number] for number in self._numbers)][:-1]

    @cached_property
    def files(self) -> dict[int, Path]:
        """Local paths of the files with rows, by the number of the step."""
        names = {one.number: f"{one.name}.parquet" for one in self.steps if one.rows and _items_of(one)}
        return dict(zip(names, self.folder.local_paths(names.values()), strict=True))

    def _open(self, number: int) -> Any:
        return arrow("pyarrow.parquet").ParquetFile(self.files[number])

    def _read_group(self, number: int, group: int) -> list[PlanRow]:
        table = self._opened(number).read_row_group(group)
        names = [name for name in table.schema.names if name.startswith(VALUE)]
        columns = [table.column(name).to_pylist() for name in names]
        keys = [name.removeprefix(VALUE) for name in names]
        values = zip(*columns, strict=True) if columns else ([()] * table.num_rows)
        ids, hashes = table.column("id").to_pylist(), table.column("hash").to_pylist()
        return [
            PlanRow(id, hash, {key: text for key, text in zip(keys, row, strict=True) if text is not None})
            for id, hash, row in zip(ids, hashes, values, strict=True)
        ]


def _items_of(step: PlanStep) -> int:
    """Return the number of new items of a step's last stage."""
    return list(step.segments.values())[-1].items if step.segments else 0


def read_plan(folder: RunFolder) -> RunPlan | None:
    """Return the plan of a run, or None if it has none."""
    names = sorted(name for name in folder.store.names(FOLDER) if name.endswith(".json"))
    if not names:
        return None
    return RunPlan(
        folder, [msgspec.json.decode(folder.read(f"{FOLDER}/{name}"), type=PlanStep) for name in names]
    )


def add_step(folder: RunFolder, step: PlanStep, rows: Path | None, inactive: BitSet) -> None:
    """Add a step. The caller must have locked the run. The step counts when its JSON file exists, which is created last."""
    folder.store.remove([f"{step.name}.parquet", f"{step.name}.inactive"])  # of a killed process
    if rows is not None and isinstance(folder.store, BucketStore):
        folder.store.upload(rows, f"{step.name}.parquet")
    elif rows is not None:
        place = folder.path(f"{step.name}.parquet")
        make_folder(place.parent)
        shutil.move(rows, place)
        sync(place)
    folder.store.create(f"{step.name}.inactive", inactive.to_bytes())
    if not folder.store.create(f"{step.name}.json", msgspec.json.encode(step)):
        raise AssertionError(f"another process has added step {step.number}")


def layout_of(run: RunReader) -> Layout:
    """Return the layout of a run's records: as planned, or as committed if there is no plan, as for an import."""
    planned = planned_layouts(run.folder, run.settings.planned)
    return planned.get(run.stage) or Layout(Segment(one.rows, max(1, one.rows)) for one in run.markers)


def planned_layouts(folder: RunFolder, planned: Mapping[str, Segment]) -> dict[str, Layout]:
    """Return the layout of each stage: from the run's plan or, if it has none, with all planned items in one segment."""
    plan = read_plan(folder)
    return plan.layouts if plan else {name: Layout([one]) for name, one in planned.items()}


# --- records of items that were inactive -------------------------------------------------------------------------------


def earlier_record(plan: RunPlan, stage: str, item: int) -> Transcript | None:
    """Return the record that an item had before it became inactive, or None if it had none or failed."""
    folder = plan.folder
    shard = plan.items.shard_of(item)
    for marker in folder.versions(stage, shard) if folder.is_committed(stage, shard) else ():
        if folder.store.exists(marker.file):
            with folder.opened([marker.file]) as files:
                path = next(files)
                items: list[int] = read_shard(path, ["item"]).column("item").to_pylist()
                if item in items:
                    place = items.index(item)
                    found = next(stream_shard(path, place, place + 1))
                    return None if found.failed else found
    return None


def outdated_shards(folder: RunFolder, stage: str, plan: RunPlan) -> dict[int, list[int]]:
    """Return the committed shards whose file has other items than planned, each with the items that it lacks."""
    layout, found = plan.items, dict[int, list[int]]()
    touched = {layout.shard_of(item) for item in plan.ever_inactive}
    for marker in folder.markers(stage, sorted(touched & folder.committed(stage))):
        with folder.opened([marker.file]) as files:
            there = set(read_shard(next(files), ["item"]).column("item").to_pylist())
        wanted = layout.items(marker.shard)
        if there != {*wanted}:
            found[marker.shard] = [item for item in wanted if item not in there]
    return found
