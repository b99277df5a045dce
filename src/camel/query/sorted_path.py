"""Lists in the order of a number, from the copies that large index files have in that order.

The one decision to know: how many rows come before a value is known from the footers, but for one row group of each file,
which is read. So a page and a row far down are found by reading about one row group of each file, whatever the size of the
run. Values that very many rows have (of messages there are few different numbers) are not sorted at all: those rows are
read in the order of the run, in which they are to be shown.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from camel.index.facets import FACETS
from camel.index.sorted import KEPT, Ordered
from camel.query.conditions import element, is_hidden
from camel.query.parts import IndexPart
from camel.query.where import Query
from camel.record.parquet import arrow

TIED = 100_000
"""Rows of one value from which they are read in the order of the run instead of sorted."""


def narrowed_by(query: Query) -> bool:
    """Whether the copies have all columns that a query is narrowed by."""
    return set(query.facets) <= set(KEPT) and not query.ranges and not query.text.strip()


class Way(NamedTuple):
    """Which way a list is gone along."""

    up: bool
    """From small values to large ones."""
    back: bool = False
    """Equal ones against the order of the runs."""

    @property
    def keys(self) -> list[tuple[str, str]]:
        """What rows are sorted by."""
        ties = "descending" if self.back else "ascending"
        values = "ascending" if self.up else "descending"
        return [("value", values), ("run", ties), ("shard", ties), ("row", ties)]


class After(NamedTuple):
    """A place after which rows are looked for."""

    way: Way
    value: float
    run: int
    shard: int
    row: int

    def mask(self, table: Any, run: int) -> Any:
        """Which rows of a table, all of one run, are after it."""
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
    """Rows with the number of their run."""
    pa = arrow()
    value = table.column("value").cast(pa.float64())
    runs = pa.repeat(pa.scalar(run, pa.int32()), table.num_rows)
    return pa.table(
        [value, runs, table.column("shard"), table.column("row")], ["value", "run", "shard", "row"]
    )


def first(table: Any, count: int, way: Way) -> Any:
    """The first rows of a table that way, in order."""
    pc = arrow("pyarrow.compute")
    if table.num_rows <= count:
        return table.sort_by(way.keys)
    return table.take(pc.select_k_unstable(table, k=count, sort_keys=way.keys))


@lru_cache(maxsize=64)
def _footer(path: Path) -> Any:
    return arrow("pyarrow.parquet").read_metadata(path)


class Copy(NamedTuple):
    """The copy of one index file."""

    run: int
    """The number of its run in the catalogue."""
    original: Path
    """The index file that it is a copy of."""
    path: Path
    said: Ordered

    def counts(self, query: Query, hidden: frozenset[str]) -> list[int] | None:
        """How many rows of a query each row group has; None where the footer does not tell."""
        fit = [one for one in self.said.counts if set(query.facets) <= set(one.facets)]
        if not fit:
            return None
        counted = min(fit, key=lambda one: len(one.cells))
        asked = [
            (1 + place, FACETS[name].many, query.facets[name])
            for place, name in enumerate(counted.facets)
            if query.facets.get(name)
        ]
        total = [0] * len(self.said.rows)
        for values, counts in counted.cells:
            if not is_hidden(values[0], hidden) and all(
                _has(many, values[n], wanted) for n, many, wanted in asked
            ):
                total = [a + b for a, b in zip(total, counts, strict=True)]
        return total

    def between(self, low: float, high: float) -> range:
        """The row groups that have rows from one value to another."""
        return range(bisect_left(self.said.high, low), bisect_right(self.said.low, high))

    def read(
        self, groups: Sequence[int], query: Query, hidden: frozenset[str], chosen: Callable[[Any], Any]
    ) -> Any:
        """The rows of some row groups that fit a query, may be seen, and are chosen by their columns."""
        pc, pq = arrow("pyarrow.compute"), arrow("pyarrow.parquet")
        columns = ["value", "shard", "row", "labels", *(FACETS[name].column for name in query.facets)]
        with pq.ParquetFile(self.path, metadata=_footer(self.path)) as file:
            table = file.read_row_groups(
                list(groups), columns=list(dict.fromkeys(columns)), use_threads=False
            )
        mask = chosen(table)
        for label in hidden:
            mask = pc.and_(mask, pc.invert(pc.match_substring(table.column("labels"), element(label))))
        for name, values in query.facets.items():
            column = table.column(FACETS[name].column)
            if FACETS[name].many:
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


class Order:
    """The copies of some runs in the order of one number."""

    def __init__(self, copies: Sequence[Copy], left: Sequence[IndexPart]) -> None:
        self.copies = copies
        self.left = left
        """Index files that have none: small ones."""

    @cached_property
    def tied(self) -> list[float]:
        """Values that very many rows have."""
        rows: Counter[float] = Counter()
        for copy in self.copies:
            said = copy.said
            for low, high, count in zip(said.low, said.high, said.rows, strict=True):
                if low == high:
                    rows[low] += count
        return sorted(value for value, count in rows.items() if count >= TIED)

    def tie_after(self, value: float, up: bool) -> float:
        """The next such value, or none in that direction: infinity."""
        if up:
            at = bisect_right(self.tied, value)
            return self.tied[at] if at < len(self.tied) else math.inf
        at = bisect_left(self.tied, value)
        return self.tied[at - 1] if at else -math.inf

    def likely(self, count: float, start: float, up: bool) -> float:
        """A value up to which, from another one on, there are about so many rows; infinity where there are not."""
        ends = [
            (high if up else low, rows)
            for copy in self.copies
            for low, high, rows in zip(copy.said.low, copy.said.high, copy.said.rows, strict=True)
            if (low > start if up else high < start)
        ]
        ends.sort(reverse=not up)
        for end, rows in ends:
            count -= rows
            if count <= 0:
                return end
        return math.inf if up else -math.inf

    def read(
        self,
        low: float,
        high: float,
        query: Query,
        hidden: frozenset[str],
        after: After | None,
        most: int,
        way: Way,
    ) -> list[Any]:
        """The rows from one value to another, a table for each copy; of each at most so many, the first that way."""
        pc = arrow("pyarrow.compute")
        tables: list[Any] = []
        for copy in self.copies:
            if groups := copy.between(low, high):

                def chosen(table: Any, run: int = copy.run) -> Any:
                    value = table.column("value")
                    mask = pc.and_(pc.greater_equal(value, low), pc.less_equal(value, high))
                    return mask if after is None else pc.and_(mask, after.mask(table, run))

                tables.append(numbered(copy.read(groups, query, hidden, chosen), copy.run))
                tables[-1] = first(tables[-1], most, way)
        return tables

    def groups(self, query: Query, hidden: frozenset[str]) -> RowGroups | None:
        """The row groups with how many rows of a query each has; None where the footers do not tell."""
        counts = [copy.counts(query, hidden) for copy in self.copies]
        known = [one for one in counts if one is not None]
        return RowGroups(self, query, hidden, known) if len(known) == len(counts) else None


class RowGroups:
    """The row groups of copies, with how many rows of a query each has."""

    def __init__(
        self, order: Order, query: Query, hidden: frozenset[str], counts: Sequence[list[int]]
    ) -> None:
        self._order, self._query, self._hidden, self._counts = order, query, hidden, counts
        pairs = [(copy.said, its) for copy, its in zip(order.copies, counts, strict=True)]
        self._lows = _summed(sorted(one for said, its in pairs for one in zip(said.low, its, strict=True)))
        self._highs = _summed(sorted(one for said, its in pairs for one in zip(said.high, its, strict=True)))
        self._left = sum(part.rows for part in order.left)

    def up_to(self, value: float, *, itself: bool) -> int:
        """Exactly how many rows of the copies are up to a value, with those that have it or without."""
        return sum(self._each_up_to(value, itself=itself))

    def ties(self, value: float) -> list[int]:
        """How many rows of each copy have a value."""
        with_it, without = self._each_up_to(value, itself=True), self._each_up_to(value, itself=False)
        return [a - b for a, b in zip(with_it, without, strict=True)]

    def _each_up_to(self, value: float, *, itself: bool) -> list[int]:
        pc = arrow("pyarrow.compute")
        sign = pc.less_equal if itself else pc.less
        each: list[int] = []
        for copy, counts in zip(self._order.copies, self._counts, strict=True):
            low, high = copy.said.low, copy.said.high
            # Groups are in order: whole ones first, then at most one that is cut, then none.
            whole = bisect_right(high, value) if itself else bisect_left(high, value)
            found = sum(counts[:whole])
            if whole < len(low) and (low[whole] <= value if itself else low[whole] < value):
                table = copy.read(
                    [whole], self._query, self._hidden, lambda table: sign(table.column("value"), value)
                )
                found += table.num_rows
            each.append(found)
        return each

    @property
    def total(self) -> int:
        """All rows."""
        return self._lows[1][-1]

    def extremes(self, least: float) -> list[tuple[float, float]]:
        """The least and the greatest value, from a value on, of the rows that each copy has of the query."""
        pc = arrow("pyarrow.compute")
        found: list[tuple[float, float]] = []

        def chosen(table: Any) -> Any:
            return pc.greater_equal(table.column("value"), least)

        for copy, counts in zip(self._order.copies, self._counts, strict=True):
            groups = [n for n, count in enumerate(counts) if count and copy.said.high[n] >= least]
            for way in (groups, groups[::-1]):
                for group in way:
                    table = copy.read([group], self._query, self._hidden, chosen)
                    if table.num_rows:
                        limits = pc.min_max(table.column("value")).as_py()
                        found.append((limits["min"], limits["max"]))
                        break
        return found

    def around(self, n: int, total: int, down: bool) -> tuple[float, float]:
        """Values between which row `n` is: greater than the first, at most the second."""
        values = sorted({*self._lows[0], *self._highs[0]})

        def below(value: float) -> bool:
            """Whether the row is surely greater."""
            most = self._left + self._lows[1][bisect_right(self._lows[0], value)]
            return n < total - most if down else most <= n

        def within(value: float) -> bool:
            """Whether it is surely not greater."""
            least = self._highs[1][bisect_right(self._highs[0], value)]
            return n >= total - least if down else least > n

        low = bisect_left(values, True, key=lambda value: not below(value))
        high = bisect_left(values, True, key=within)
        return values[low - 1] if low else -math.inf, values[high] if high < len(values) else math.inf


def _has(many: bool, value: str, values: Iterable[str]) -> bool:
    return any(element(one) in value if one else not value for one in values) if many else value in values


def _summed(pairs: Sequence[tuple[float, int]]) -> tuple[list[float], list[int]]:
    """Values, and how many rows all before each of them have."""
    sums = [0]
    for _, count in pairs:
        sums.append(sums[-1] + count)
    return [value for value, _ in pairs], sums
