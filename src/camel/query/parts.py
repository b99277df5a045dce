"""Access to one index file of a catalogue, and small index files with only the annotated conversations.

The one decision to know: queries about annotations use such a file instead of the index. Its size depends on the number of
annotations, so these queries are fast in a run of any size.
"""

from __future__ import annotations

import contextlib
import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from camel.core.errors import CamelError
from camel.detectors.marks import looked_by
from camel.index.build import complete
from camel.index.cube import Cubes
from camel.index.facets import FACETS, Facet, joined
from camel.index.files import Header, Indexed, schema
from camel.index.sorted import Ordered, read_ordered
from camel.record.parquet import arrow
from camel.runs.annotations import Annotation
from camel.runs.markers import new_attempt

YES = "yes"
ANNOTATED = {"starred": Facet("starred"), "noted": Facet("noted"), "tag": Facet("tags", many=True)}
"""Facets that filter by annotations. `starred` and `noted` have the value `yes` or are empty."""
FILTERS = {**FACETS, **ANNOTATED}
_FEW_VALUES = ["scenario", "assistant", "user", "others", "stop", "model", "labels", "findings"]
_SHOWN = ["id", "task", "messages", "tokens", "completion", "calls", "cost", "shard", "row", *_FEW_VALUES]
"""Columns of a row that a list shows."""


class IndexPart:
    """An index file, which covers one or more shards."""

    def __init__(
        self,
        path: Path,
        header: Header,
        metadata: Any = None,
        copy: Callable[[str], Path | None] | None = None,
    ) -> None:
        self.path, self.header = path, header
        self._copy = copy
        """Returns the path of the copy of this file that is sorted by a number, or None. None if no copy is used."""
        self._ordered: dict[str, tuple[Path, Ordered] | None] = {}
        if metadata is not None:
            self._metadata = metadata
        self.first, self.last = header.shards[0].shard, header.shards[-1].shard
        self._shards = [one.shard for one in header.shards]
        self._starts = [0, *accumulate(one.rows for one in header.shards)]
        self.rows = self._starts[-1]
        self.damage, self.tried = "", -math.inf
        """The error of the last failed scan of its conversations, and the time of that failure."""
        self._extremes: dict[str, list[tuple[Any, Any]]] = {}
        self._with: dict[str, list[Any]] = {}
        self.places: dict[tuple[int, int], int] = {}
        """Positions of rows by shard and row. Only set for a file that contains just some rows of its shards."""

    @property
    def sound(self) -> bool:
        """Whether the whole file is readable."""
        try:
            with arrow("pyarrow.parquet").ParquetFile(self.path) as file:
                return sum(batch.num_rows for batch in file.iter_batches()) == self.rows
        except (OSError, arrow().ArrowException):
            return False

    @cached_property
    def labels(self) -> Counter[str]:
        """Number of rows by set of labels."""
        counts = self.header.counts
        if counts is None:
            column = arrow("pyarrow.parquet").read_table(self.path, columns=["labels"]).column("labels")
            return Counter(column.to_pylist())
        return Counter({labels: sum(by["stop"].values()) for labels, by in counts.items()})

    @cached_property
    def unknown(self) -> int:
        """Number of rows that the current detectors have not scanned."""
        return sum(one.rows for one in self.header.shards if one.looked != looked_by())

    @cached_property
    def has_tools(self) -> bool:
        """Whether the file has the names of called tools. Those of earlier releases do not."""
        counts = next(iter((self.header.counts or {}).values()), dict[str, Any]())
        return "tool" in counts or "tools" in self._metadata.schema.names

    def position(self, shard: int, row: int) -> int:
        """Return the position of a row in the file."""
        if self.places:
            return self.places[shard, row]
        at = bisect_right(self._shards, shard) - 1
        return self._starts[at] + row

    def before(self, shard: int, row: int) -> int:
        """Return how many rows of this file come before a position. The position need not be in this file."""
        at = bisect_right(self._shards, shard) - 1
        if at < 0 or self._shards[at] != shard:
            return self._starts[at + 1]
        return min(self._starts[at] + row, self._starts[at + 1])

    def place(self, position: int) -> tuple[int, int]:
        """Return the shard and row at a position."""
        at = bisect_right(self._starts, position) - 1
        return self._shards[at], position - self._starts[at]

    @cached_property
    def _metadata(self) -> Any:
        return arrow("pyarrow.parquet").read_metadata(self.path)

    @cached_property
    def _groups(self) -> list[int]:
        """Start of each row group, and end of the last one."""
        return group_starts(self._metadata)

    def rows_with(self, ids: Iterable[str]) -> list[Any]:
        """Return the rows with these ids as tables. They are cached, because each new annotation asks for all of them again."""
        wanted = sorted(ids)
        pa, pc, pq = arrow(), arrow("pyarrow.compute"), arrow("pyarrow.parquet")
        new = [id for id in wanted if id not in self._with]
        self._with.update((id, []) for id in new)
        with pq.ParquetFile(self.path, metadata=self._metadata) as file:
            for group, (low, high) in enumerate(self.extremes("id")):
                some = new[bisect_left(new, low) : bisect_right(new, high)]
                if some:
                    there = pc.is_in(file.read_row_group(group, columns=["id"]).column("id"), pa.array(some))
                    if pc.any(there).as_py():
                        table = file.read_row_group(group).filter(there)
                        for at, id in enumerate(table.column("id").to_pylist()):
                            self._with[id].append(table.slice(at, 1))
        return [table for id in wanted for table in self._with[id]]

    def extremes(self, name: str) -> list[tuple[Any, Any]]:
        """Return the minimum and maximum of a column for each row group with values, from the footer."""
        if name not in self._extremes:
            column = schema().get_field_index(name)
            groups = range(self._metadata.num_row_groups)
            known = (self._metadata.row_group(n).column(column).statistics for n in groups)
            self._extremes[name] = [
                (one.min, one.max) for one in known if one is not None and one.has_min_max
            ]
        return self._extremes[name]

    def ordered(self, number: str) -> tuple[Path, Ordered] | None:
        """Return the copy of this file that is sorted by a number, with its header. Return None if there is no valid copy."""
        if number not in self._ordered:
            self._ordered[number] = None
            with contextlib.suppress(CamelError, OSError):
                if self._copy and (path := self._copy(number)) is not None:
                    said = read_ordered(path)
                    if said.number == number and sum(said.rows) == self.rows:
                        self._ordered[number] = path, said
        return self._ordered[number]

    def forget_copies(self) -> None:
        """Stop using the sorted copies of this file, because one is missing or unreadable."""
        self._copy = None
        self._ordered.clear()

    def rows_at(self, positions: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Return rows by position, reading only the row groups that contain them."""
        pq = arrow("pyarrow.parquet")
        with pq.ParquetFile(self.path, metadata=self._metadata, read_dictionary=_FEW_VALUES) as file:
            return read_rows(file, self._groups, positions, _SHOWN)


def group_starts(metadata: Any) -> list[int]:
    """Return the start of each row group of a file, and the end of the last one."""
    return [0, *accumulate(metadata.row_group(n).num_rows for n in range(metadata.num_row_groups))]


def read_rows(
    file: Any, starts: Sequence[int], positions: Iterable[int], columns: Sequence[str]
) -> dict[int, dict[str, Any]]:
    """Return rows of a Parquet file by position, reading only the row groups that contain them."""
    wanted: dict[int, list[int]] = {}
    for position in sorted(set(positions)):
        wanted.setdefault(bisect_right(starts, position) - 1, []).append(position)
    found: dict[int, dict[str, Any]] = {}
    for group, some in wanted.items():
        table = file.read_row_group(group, columns=list(columns), use_threads=False)
        found.update(zip(some, table.take([at - starts[group] for at in some]).to_pylist(), strict=True))
    return found


class CountedParts(NamedTuple):
    """A file of cubes, and the index files whose rows it counts."""

    path: Path
    cubes: Cubes
    parts: frozenset[IndexPart]


def annotated_part(
    parts: Sequence[IndexPart], annotations: Mapping[str, Annotation], scratch: Path
) -> IndexPart | None:
    """Write an index file of the annotated rows, if any. Its column `looked` is true where detectors have scanned the row."""
    pa, pq = arrow(), arrow("pyarrow.parquet")
    tables = [
        complete(table).append_column("looked", pa.array([not part.unknown]))
        for part in parts
        for table in part.rows_with(annotations)
    ]
    if not tables:
        return None
    table = pa.concat_tables(tables).sort_by([("shard", "ascending"), ("row", "ascending")])
    rows: Counter[int] = Counter(table.column("shard").to_pylist())
    said = [annotations[id] for id in table.column("id").to_pylist()]
    columns = {
        "starred": [YES if one.star else "" for one in said],
        "noted": [YES if one.note else "" for one in said],
        "tags": [joined(one.tags) for one in said],
    }
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values, pa.string()))
    path = scratch / f"annotated-{new_attempt()}.parquet"
    scratch.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    made = IndexPart(path, Header("", "", [Indexed(shard, "", rows[shard]) for shard in sorted(rows)], None))
    places = zip(table.column("shard").to_pylist(), table.column("row").to_pylist(), strict=True)
    made.places = {place: position for position, place in enumerate(places)}
    return made
