# ruff: noqa: S608 - SQL is put together from names in this package; values are parameters, always
"""Lists in the order of the runs, or in reverse order.

The one decision to know: queries here return only places (shard, row) and read only the columns of their conditions. The
complete rows of a page are read afterwards. Without a condition, a place is computed from its position.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from camel.query.conditions import Condition, unsorted
from camel.query.counting import count_files
from camel.query.database import IndexSegment, Key, positions
from camel.query.scope import AMONG, ListPath, Scope
from camel.query.where import Place, Query


class RunOrder(ListPath):
    """Finds the rows of a query in the order of the runs."""

    def __init__(self, scope: Scope, query: Query) -> None:
        self.scope, self.query = scope, query
        self.down = query.order == "desc"

    def nth(self, n: int, limit: int, counts: Sequence[int] | None = None) -> list[Key]:
        """Return the rows from index `n` on. `counts` is the number of rows of each segment, if the caller knows it."""
        if n == 0 and counts is None:
            return self.beside(None, limit, back=False)
        counts = self._count_segments() if counts is None else counts
        total = sum(counts)
        first, last = (max(0, total - n - limit), total - n) if self.down else (n, min(total, n + limit))
        keys: list[Key] = []
        before = 0
        for segment, count in zip(self.scope.segments(self.query), counts, strict=True):
            low, high = max(first - before, 0), min(last - before, count)
            before += count
            if low < high:
                keys += self._slice(segment, low, high)
        return keys[::-1] if self.down else keys

    def at(self, wanted: Sequence[int]) -> list[Key]:
        """Return the rows at these positions, which must be ascending."""
        starts = [0, *accumulate(self._count_segments())]
        keys: list[Key] = []
        for number, segment in enumerate(self.scope.segments(self.query)):
            here = [at - starts[number] for at in wanted if starts[number] <= at < starts[number + 1]]
            if not here:
                continue
            where = self.scope.where(self.query, segment)
            if not where.sql:
                keys += segment.keys(place for at in here for place in positions(segment, at, at + 1))
                continue
            table, given = segment.table(where)
            sql = (
                f"select shard, row from (select shard, row, row_number() over ({_order(where)}) - 1 as n from {table}) "
                "where n in (select unnest(?)) order by n"
            )
            keys += segment.keys(self.scope.ask(sql, [*given, here]))
        return keys

    def beside(self, place: Place | None, limit: int, *, back: bool) -> list[Key]:
        """Return the rows after a place or, if `back` is true, before it. Without a place, return the first or last rows."""
        forward = back == self.down
        segments = self.scope.segments(self.query)
        run = None if place is None else self.scope.number(place.run)
        keys: list[Key] = []
        for segment in segments if forward else reversed(segments):
            its = self.scope.number(segment.source.name)
            if run is not None and its != run and (its > run) != forward:
                continue
            keys += self._along_segment(segment, place if its == run else None, limit - len(keys), forward)
            if len(keys) >= limit:
                break
        return keys[::-1] if back else keys

    def _count_segments(self) -> list[int]:
        """Return the number of rows of each segment, to find a row far down the list."""
        return self.scope.remember(
            ("counts", unsorted(self.query).digest),
            lambda: [count_files(self.scope, one, self.query) for one in self.scope.segments(self.query)],
        )

    def _slice(self, segment: IndexSegment, low: int, high: int) -> list[Key]:
        """Return the rows of a segment from position `low` to `high`."""
        where = self.scope.where(self.query, segment)
        if not where.sql:
            return segment.keys(positions(segment, low, high))
        table, given = segment.table(where)
        sql = f"select shard, row from {table} {_order(where)} limit ? offset ?"
        return segment.keys(self.scope.ask(sql, [*given, high - low, low]))

    def _along_segment(
        self, segment: IndexSegment, place: Place | None, limit: int, forward: bool
    ) -> list[Key]:
        where = self.scope.where(self.query, segment)
        if not where.sql:
            at = segment.position(place, forward)
            low, high = (at, min(segment.rows, at + limit)) if forward else (max(0, at - limit), at)
            found = segment.keys(positions(segment, low, high))
            return found if forward else found[::-1]
        if place is not None:
            sign, shard = (">" if forward else "<"), place.shard
            parts = [
                part for part in segment.parts if (part.last >= shard if forward else part.first <= shard)
            ]
            segment = segment._replace(parts=parts)
            beyond = f"shard {sign}= ? and (shard {sign} ? or row {sign} ?)"
            where = where.also(beyond, shard, shard, place.row)
        if not segment.parts:
            return []
        table, given = segment.table(where)
        order = _order(where) if forward else "order by shard desc, row desc"
        return segment.keys(
            self.scope.ask(f"select shard, row from {table} {order} limit ?", [*given, limit])
        )


def _order(where: Condition) -> str:
    """Return the clause that sorts rows in the order of the run. It is empty if the database keeps the order of the files.

    Then it need not sort, and stops when it has enough rows. A list of places (`AMONG`) loses the order.
    """
    return "order by shard, row" if AMONG in where.sql else ""
