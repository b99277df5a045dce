"""Sorted copies of large index files: each has the rows of one index file, sorted by a numeric column."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from camel.index.facets import FACETS
from camel.index.sorted import Ordered
from camel.query.conditions import element, is_hidden
from camel.query.where import Query
from camel.record.parquet import arrow


class Way(NamedTuple):
    """The order in which rows of a list are read."""

    up: bool
    """Whether values are read from small to large."""
    back: bool = False
    """Whether rows with equal values are read in the reverse order of the runs."""

    def first(self, table: Any, count: int) -> Any:
        """Return the first `count` rows of a table in this order."""
        pc = arrow("pyarrow.compute")
        ties = "descending" if self.back else "ascending"
        values = "ascending" if self.up else "descending"
        keys = [("value", values), ("run", ties), ("shard", ties), ("row", ties)]
        if table.num_rows <= count:
            return table.sort_by(keys)
        return table.take(pc.select_k_unstable(table, k=count, sort_keys=keys))


class After(NamedTuple):
    """A position in a sorted list, and the order in which the rows after it are read."""

    way: Way
    value: float
    run: int
    shard: int
    row: int

    def mask(self, table: Any, run: int) -> Any:
        """Return a mask of the rows after this position, for a table with rows of one run."""
        pc = arrow("pyarrow.compute")
        beyond = pc.greater if self.way.up else pc.less
        later = pc.less if self.way.back else pc.greater
        value = table.column("value")
        ties = pc.equal(value, self.value)
        if run == self.run:
            shard, row = table.column("shard"), table.column("row")
            same = pc.and_(pc.equal(shard, self.shard), later(row, self.row))
            ties = pc.and_(ties, pc.or_(later(shard, self.shard), same))
        elif (run < self.run) != self.way.back:
            return beyond(value, self.value)
        return pc.or_(beyond(value, self.value), ties)


def numbered(table: Any, run: int) -> Any:
    """Return the sort keys and positions of a table's rows, with a column for the index of the run in the catalogue."""
    pa = arrow()
    value = table.column("value").cast(pa.float64())
    runs = pa.repeat(pa.scalar(run, pa.int32()), table.num_rows)
    return pa.table(
        [value, runs, table.column("shard"), table.column("row")], ["value", "run", "shard", "row"]
    )


@lru_cache(maxsize=64)
def _footer(path: Path) -> Any:
    return arrow("pyarrow.parquet").read_metadata(path)


class Copy(NamedTuple):
    """The sorted copy of one index file, restricted to the rows of a query that a reader may see."""

    query: Query
    hidden: frozenset[str]
    run: int
    """Index of the copy's run in the catalogue."""
    original: Path
    """The original index file."""
    path: Path
    said: Ordered

    def counts(self) -> list[int] | None:
        """Return the number of rows of the query in each row group. Return None if the footer lacks these counts."""
        facets = self.query.facets
        fit = [one for one in self.said.counts if set(facets) <= set(one.facets)]
        if not fit:
            return None
        counted = min(fit, key=lambda one: len(one.cells))
        asked = [
            (1 + place, FACETS[name].many, facets[name])
            for place, name in enumerate(counted.facets)
            if facets.get(name)
        ]
        total = [0] * len(self.said.rows)
        for values, counts in counted.cells:
            if not is_hidden(values[0], self.hidden) and all(
                _has(many, values[n], wanted) for n, many, wanted in asked
            ):
                total = [a + b for a, b in zip(total, counts, strict=True)]
        return total

    def between(self, low: float, high: float) -> range:
        """Return the indices of the row groups that may contain values from `low` to `high`."""
        return range(bisect_left(self.said.high, low), bisect_right(self.said.low, high))

    def read(self, groups: Sequence[int], chosen: Callable[[Any], Any]) -> Any:
        """Read the query's rows in some row groups. `chosen` returns a mask that further limits the rows of a table."""
        pc, pq = arrow("pyarrow.compute"), arrow("pyarrow.parquet")
        facets = {FACETS[name]: values for name, values in self.query.facets.items()}
        columns = ["value", "shard", "row", "labels", *(facet.column for facet in facets)]
        with pq.ParquetFile(self.path, metadata=_footer(self.path)) as file:
            table = file.read_row_groups(
                list(groups), columns=list(dict.fromkeys(columns)), use_threads=False
            )
        mask = chosen(table)
        for label in self.hidden:
            mask = pc.and_(mask, pc.invert(pc.match_substring(table.column("labels"), element(label))))
        for facet, values in facets.items():
            column = table.column(facet.column)
            if facet.many:
                fits = [
                    pc.match_substring(column, element(one)) if one else pc.equal(column, "")
                    for one in values
                ]
                for one in fits[1:]:
                    fits[0] = pc.or_(fits[0], one)
                mask = pc.and_(mask, fits[0]) if fits else mask
            else:
                mask = pc.and_(mask, pc.is_in(column, arrow().array(list(values), arrow().string())))
        return table.select(["value", "shard", "row"]).filter(mask)


def _has(many: bool, value: str, values: Iterable[str]) -> bool:
    return any(element(one) in value if one else not value for one in values) if many else value in values
