# ruff: noqa: S608 - SQL is put together from names in this package; values are parameters, always
"""Lists in the order of a number: from sorted copies where index files have them, else by narrowing its range."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from camel.core.errors import InputError
from camel.query.conditions import (
    both,
    clause,
    equal,
    sort_column,
    sortable,
    up_to,
)
from camel.query.database import Key, paths
from camel.query.lists import Lists
from camel.query.parts import IndexPart
from camel.query.sorted_path import After, Copy, Order, RowGroups, Way, first, narrowed_by, numbered
from camel.query.sources import CatalogueRun
from camel.query.where import Place, Query
from camel.record.parquet import arrow

_SORTED_AT_ONCE = 100_000
"""Rows up to which going to one far down a sorted list is done by sorting."""
_LEFT = 500_000
"""Rows of index files without a sorted copy up to which those of the others are of use."""
_STEPS = 4_096
"""Into which the range of a number is divided to find a row far down."""


class NumberedLists(Lists):
    """Lists in the order of the runs, and of any number."""

    def order_of(self, query: Query) -> Order | None:
        """The copies in the order that a query is sorted by; None where they do not help."""
        if not narrowed_by(query):
            return None
        copies: list[Copy] = []
        left: list[IndexPart] = []
        for source in self.chosen(query):
            run = self.state.sources.index(source)
            for part in source.parts:
                if (copy := part.ordered(query.sorted_by)) is None:
                    left.append(part)
                else:
                    copies.append(Copy(run, part.path, *copy))
        few = sum(part.rows for part in left) <= _LEFT
        return Order(copies, left) if copies and few else None

    def _read_order(
        self, order: Order, query: Query, low: float, high: float, after: After | None, most: int, way: Way
    ) -> Any:
        """The rows from one value to another, those of index files without a copy too: the first that way, or all."""
        pa = arrow()
        low, high = max(low, -1e300), min(high, 1e300)
        tables = order.read(low, high, query, self.hidden, after, most, way)
        for run, source in enumerate(self.state.sources):
            if parts := [part for part in source.parts if part in order.left]:
                where, given = self.where(query, parts)
                sql = (
                    f"select value::double, shard, row from (select {sort_column(query.sorted_by)} as value, shard, row "
                    f"from read_parquet(?) {clause('where', where)}) where value >= ? and value <= ?"
                )
                rows = self.database.ask(sql, [paths(parts), *given, low, high])
                columns = zip(*rows, strict=True) if rows else ((), (), ())
                types = (pa.float64(), pa.int32(), pa.int32())
                arrays = [pa.array(list(one), kind) for one, kind in zip(columns, types, strict=True)]
                table = pa.table(arrays, ["value", "shard", "row"])
                table = table if after is None else table.filter(after.mask(table, run))
                tables.append(first(numbered(table, run), most, way))
        return first(pa.concat_tables(tables), most, way) if tables else None

    def _keys(self, table: Any) -> list[Key]:
        rows: list[dict[str, Any]] = table.to_pylist() if table is not None else []
        return [Key(self.state.sources[one["run"]], one["shard"], one["row"], one["value"]) for one in rows]

    def _along_order(
        self, order: Order, query: Query, place: Place | None, limit: int, *, back: bool
    ) -> list[Key]:
        """The rows that follow a place in the order of a number, or are before it; without a place, the first."""
        names = [source.name for source in self.state.sources]
        if place is not None and place.run not in names:
            raise InputError("this page is of a run that is not here: begin with the first")
        up = (query.order == "asc") != back
        share = max(1, self.count(query)) / max(
            1, sum(one.rows for s in self.chosen(query) for one in s.parts)
        )
        at = (-math.inf if up else math.inf) if place is None else sortable(place.value)
        whole = place is None
        """Whether all rows with the value that was reached have been taken."""
        keys: list[Key] = []
        wanted = 1.5 * limit / share
        while len(keys) < limit:
            missing = limit - len(keys)
            if not whole and at in order.tied:
                ties = self.along(equal(query, at), place, missing, back=back)
                some = [key._replace(value=at) for key in ties]
                keys, place, whole = (some + keys if back else keys + some), None, True
                continue
            tie = order.tie_after(at, up)
            end = order.likely(wanted, at, up)
            tied = math.isfinite(tie) and (tie <= end if up else tie >= end)
            stop = math.nextafter(tie, -math.inf if up else math.inf) if tied else end
            start = at if not whole else math.nextafter(at, math.inf if up else -math.inf)
            low, high = (start, stop) if up else (stop, start)
            after = None
            if place is not None:
                after = After(Way(up, back), at, names.index(place.run), place.shard, place.row)
            some: list[Key] = []
            if low <= high:
                some = self._keys(self._read_order(order, query, low, high, after, missing, Way(up, back)))
                some = some[::-1] if back else some
            keys = some + keys if back else keys + some
            if len(keys) < limit and math.isinf(stop):
                break
            if len(keys) < limit:
                at, whole, place = (tie, False, None) if tied else (stop, True, None)
                wanted *= 1 if tied else 8
        return keys

    def _nth_in_order(self, order: Order, query: Query, n: int, limit: int) -> list[Key] | None:
        """The rows from `n` on in the order of a number; None where the footers do not tell where they are."""
        groups = order.groups(query, self.hidden)
        if groups is None:
            return None
        down, total = query.order == "desc", self.count(query)

        def up_to(value: float, itself: bool) -> int:
            return groups.up_to(value, itself=itself) + self._left_up_to(order, query, value, itself)

        low, high = groups.around(n, total, down)
        for tie in [value for value in order.tied if low < value <= high]:
            less, most = up_to(tie, False), up_to(tie, True)
            first, last = (total - most, total - less) if down else (less, most)
            if first <= n < last:
                same = equal(query, tie)
                ties = self.in_order(same, n - first, limit, self._ties_of_segments(order, groups, same, tie))
                keys = [key._replace(value=tie) for key in ties]
                return self._filled(query, keys, limit)
            if (n < first) == down:
                low = tie
            else:
                high = math.nextafter(tie, -math.inf)
                break
        before = total - up_to(high, True) if down else up_to(low, True)
        table = self._read_order(
            order, query, math.nextafter(low, math.inf), high, None, n - before + limit, Way(not down)
        )
        return self._filled(query, self._keys(table and table.slice(n - before)), limit)

    def _ties_of_segments(self, order: Order, groups: RowGroups, query: Query, value: float) -> list[int]:
        """How many rows with a value each segment has: from the copies, and of what has none by counting."""
        ties = {copy.original: count for copy, count in zip(order.copies, groups.ties(value), strict=True)}
        counts: list[int] = []
        for segment in self.segments(query):
            left = [part for part in segment.parts if part.path not in ties]
            known = sum(ties.get(part.path, 0) for part in segment.parts)
            counts.append(known + (self._count_segment(segment._replace(parts=left), query) if left else 0))
        return counts

    def _filled(self, query: Query, keys: list[Key], limit: int) -> list[Key]:
        """The same rows and those after them, as many as a page has."""
        if keys and len(keys) < limit:
            place = Place(0, keys[-1].value, *keys[-1].name)
            keys += self.by_number(query, place, limit - len(keys), back=False)
        return keys

    def _left_up_to(self, order: Order, query: Query, value: float, itself: bool) -> int:
        """Rows up to a value in index files that have no copy."""
        if not order.left:
            return 0
        where, given = self.where(query, order.left)
        where = both(where, f"{sort_column(query.sorted_by)} {'<=' if itself else '<'} ?")
        sql = f"select count(*) from read_parquet(?) where {where}"
        return self.database.ask(sql, [paths(order.left), *given, max(-1e300, min(value, 1e300))])[0][0]

    def nth_by_number(self, query: Query, n: int, limit: int) -> list[Key]:
        """The rows from `n` on in the order of a number, without sorting all: first which value the `n`th has."""
        if n and (order := self.order_of(query)) is not None:
            keys = self._nth_in_order(order, query, n, limit)
            if keys is not None:
                return keys
        if n < _SORTED_AT_ONCE:
            return self.by_number(query, None, limit, back=False, skip=n)
        low, high, before = self._narrowed(query, n)
        if low < high:
            keys = self.by_number(query, None, limit, back=False, skip=n - before, between=(low, high))
        else:
            # All of them have one value: they are in the order of the runs.
            ties = self.in_order(equal(query, low), n - before, limit)
            keys = [key._replace(value=low) for key in ties]
        return self._filled(query, keys, limit)

    def _narrowed(self, query: Query, n: int) -> tuple[float, float, int]:
        """A short range of values that the `n`th row is in, and how many rows are before that range."""
        down = query.order == "desc"
        table, parameters = self._values(query)
        # The footers say between which values all rows are; that there are fewer here does no harm.
        bounds = [
            bound
            for source in self.chosen(query)
            for part in source.parts
            for bound in part.extremes(query.sorted_by)
        ]
        low = -1.0 if query.sorted_by == "cost" else float(min((bound[0] for bound in bounds), default=0))
        high = float(max((bound[1] for bound in bounds), default=low))
        before = 0
        while low < high:
            width = max((high - low) / _STEPS, 0.0 if query.sorted_by == "cost" else 1.0)
            if width <= 0 or low + width == low:
                break
            counts = self.database.remember(
                self.state,
                ("steps", query.digest, self.hidden, low, high),
                lambda low=low, high=high, width=width: self.database.ask(
                    f"select least(floor((value - ?) / ?), ?) as step, min(value), max(value), count(*) from ({table}) "
                    "where value >= ? and value <= ? group by step order by step",
                    [low, width, _STEPS, *parameters, low, high],
                ),
            )
            count = 0
            for _, least, most, count in reversed(counts) if down else counts:
                if before + count > n:
                    low, high = float(least), float(most)
                    break
                before += count
            else:
                raise AssertionError("there are fewer rows than were counted")
            if count <= _SORTED_AT_ONCE:
                break
        return low, high, before

    def _values(self, query: Query, likely: float | None = None, up: bool = True) -> tuple[str, list[Any]]:
        """What a query sorts by, with where it stands, as a table and its parameters; up to a value, if one is given."""
        column = sort_column(query.sorted_by)
        selects: list[str] = []
        parameters: list[Any] = []
        for source in self.chosen(query):
            number = self.state.sources.index(source)
            where, given = self.where(query, source.parts)
            if likely is not None:
                where = both(where, up_to(query.sorted_by, up))
                given.append(likely)
            selects.append(
                f"select {number} as run, {column} as value, shard, row from read_parquet(?) {clause('where', where)}"
            )
            parameters += [paths(source.parts), *given]
        return " union all ".join(selects), parameters

    def by_number(
        self,
        query: Query,
        place: Place | None,
        limit: int,
        *,
        back: bool,
        skip: int = 0,
        between: tuple[float, float] | None = None,
    ) -> list[Key]:
        """Rows in the order of a number; equal ones in the order of the runs."""
        sources = self.chosen(query)
        if not sources:
            return []
        if not skip and between is None and (order := self.order_of(query)) is not None:
            return self._along_order(order, query, place, limit, back=back)
        up = (query.order == "asc") != back
        for limits in self._likely(sources, query, place, limit + skip, up) if between is None else [None]:
            keys = self._ask_by_number(query, place, limit, back, up, skip, between, limits)
            if limits is None or len(keys) == limit:
                return keys
        return []

    def _likely(
        self, sources: Sequence[CatalogueRun], query: Query, place: Place | None, count: int, up: bool
    ) -> Iterable[float | None]:
        """Values up to which enough rows are likely to be found, closer ones first, in the end without any.

        A row group has a row with its greatest value. So as many rows as there are groups are at least as great as the
        least of those, and all other groups need not be looked at.
        """
        bounds = [
            bound[0 if up else 1]
            for source in sources
            for part in source.parts
            for bound in part.extremes(query.sorted_by)
        ]
        if place is not None:
            value = sortable(place.value)
            bounds = [bound for bound in bounds if (bound > value if up else bound < value)]
        bounds.sort(reverse=not up)
        for enough in (2 * count, 40 * count):
            if 2 * enough < len(bounds):
                yield bounds[enough]
        yield None

    def _ask_by_number(
        self,
        query: Query,
        place: Place | None,
        limit: int,
        back: bool,
        up: bool,
        skip: int,
        between: tuple[float, float] | None,
        likely: float | None,
    ) -> list[Key]:
        sources = self.state.sources
        table, parameters = self._values(query, likely, up)
        sql = f"select run, value, shard, row from ({table})"
        if between is not None:
            sql += " where value >= ? and value <= ?"
            parameters += between
        if place is not None:
            run = next((n for n, one in enumerate(sources) if one.name == place.run), None)
            if run is None:
                raise InputError("this page is of a run that is not here: begin with the first")
            beyond, after = (">" if up else "<"), ("<" if back else ">")
            sql += (
                f" where value {beyond}= ? and (value {beyond} ? or run {after} ? or (run = ? and "
                f"(shard {after} ? or (shard = ? and row {after} ?))))"
            )
            value = sortable(place.value)
            parameters += [value, value, run, run, place.shard, place.shard, place.row]
        way, ties = ("asc" if up else "desc"), ("desc" if back else "asc")
        sql += f" order by value {way}, run {ties}, shard {ties}, row {ties} limit ? offset ?"
        found = self.database.ask(sql, [*parameters, limit, skip])
        keys = [Key(sources[run], shard, row, value) for run, value, shard, row in found]
        return keys[::-1] if back else keys
