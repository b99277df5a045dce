# ruff: noqa: S608 - SQL is put together from names in this package; values are parameters, always
"""Lists sorted by a number, from the sorted copies of large index files.

The one decision to know: the footers contain the number of rows before each row group. So a page or a row far down is found
by reading about one row group per file, in a run of any size. Rows with a very frequent value (message counts have few
different values) are not sorted: they are read in the order of the run, which is the order of the list.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from camel.index.facets import FACETS
from camel.index.sorted import KEPT, Ordered
from camel.query.conditions import Condition, element, equal, is_hidden, sort_column, sortable, up_to
from camel.query.counting import count_files, count_rows
from camel.query.database import IndexSegment, Key
from camel.query.parts import IndexPart
from camel.query.run_order import RunOrder
from camel.query.scope import ListPath, Scope
from camel.query.where import Place, Query

_SORTED_AT_ONCE = 100_000
"""Maximum number of rows that are simply sorted to find a row far down a list."""
_STEPS = 4_096
"""Number of steps of the histogram that finds a row far down a list."""


class NumberScan(ListPath):
    """Finds rows sorted by a number. Rows with equal numbers are in the order of the runs."""

    def __init__(self, scope: Scope, query: Query) -> None:
        self.scope, self.query = scope, query
        self.sources = scope.chosen(query)
        self.files = [scope.files(source, query) for source in self.sources]
        """The index files whose columns are read, by run."""
        self.number, self.down = query.sorted_by, query.order == "desc"

    def nth(self, n: int, limit: int) -> list[Key]:
        """Return the rows from index `n` on. It first finds the value of row `n`, so that not all rows are sorted."""
        if n < _SORTED_AT_ONCE:
            return self._sorted(None, limit, skip=n)
        low, high, before = self._narrowed(n)
        if low < high:
            between = Condition("value >= ? and value <= ?", [low, high])
            keys = self._ask(between, limit, n - before, not self.down, back=False)
        else:
            keys = self.ties(low, n - before, limit)
        return self.filled(keys, limit)

    def beside(self, place: Place | None, limit: int, *, back: bool) -> list[Key]:
        """Return the rows after a place or, if `back` is true, before it."""
        return self._sorted(place, limit, back=back)

    def ties(self, value: float, n: int, limit: int, counts: list[int] | None = None) -> list[Key]:
        """Return the rows with this value in the order of the runs, from the one with index `n` on."""
        found = RunOrder(self.scope, equal(self.query, value)).nth(n, limit, counts)
        return [key._replace(value=value) for key in found]

    def filled(self, keys: list[Key], limit: int) -> list[Key]:
        """Return the rows of `keys`, followed by the next rows of the list, up to `limit` rows in total."""
        if keys and len(keys) < limit:
            place = Place(0, keys[-1].value, *keys[-1].name)
            keys += self.beside(place, limit - len(keys), back=False)
        return keys

    def _sorted(self, place: Place | None, limit: int, *, back: bool = False, skip: int = 0) -> list[Key]:
        up = self.down == back
        after = Condition() if place is None else self._after(place, up, back)
        for likely in self._likely(place, limit + skip, up) if self.sources else ():
            keys = self._ask(after, limit, skip, up, back=back, likely=likely)
            if likely is None or len(keys) == limit:
                return keys
        return []

    def _after(self, place: Place, up: bool, back: bool) -> Condition:
        """Return the SQL condition that a row comes after a place in this direction."""
        value, run = sortable(place.value), self.scope.number(place.run)
        beyond, after = (">" if up else "<"), ("<" if back else ">")
        sql = (
            f"value {beyond}= ? and (value {beyond} ? or run {after} ? or (run = ? and "
            f"(shard {after} ? or (shard = ? and row {after} ?))))"
        )
        return Condition(sql, [value, value, run, run, place.shard, place.shard, place.row])

    def _ask(
        self, within: Condition, limit: int, skip: int, up: bool, *, back: bool, likely: float | None = None
    ) -> list[Key]:
        """Return the first rows in this direction that satisfy a condition, in the order of the list."""
        table, parameters = self._values(likely, up)
        way, ties = ("asc" if up else "desc"), ("desc" if back else "asc")
        order = f"order by value {way}, run {ties}, shard {ties}, row {ties} limit ? offset ?"
        sql = f"select run, value, shard, row from ({table}) {within.clause} {order}"
        found = self.scope.ask(sql, [*parameters, *within.given, limit, skip])
        keys = [Key(self.scope.state.sources[run], shard, row, value) for run, value, shard, row in found]
        return keys[::-1] if back else keys

    def _values(self, likely: float | None = None, up: bool = True) -> tuple[str, list[Any]]:
        """Return the SQL of a table with the sort key and place of each row, and its parameters. `likely` limits the values."""
        selects: list[str] = []
        parameters: list[Any] = []
        for files in self.files:
            where = self.scope.where(self.query, files)
            table, given = files.table(
                where if likely is None else where.also(up_to(self.number, up), likely)
            )
            columns = f"{self.scope.number(files.source.name)} as run, {sort_column(self.number)} as value"
            selects.append(f"select {columns}, shard, row from {table}")
            parameters += given
        return " union all ".join(selects), parameters

    def _bounds(self) -> list[tuple[Any, Any]]:
        """Return the minimum and maximum of each row group, over all rows and not only those of the query."""
        files = (self.scope.files(source, self.query) for source in self.sources)
        return [bound for one in files for part in one.parts for bound in part.extremes(self.number)]

    def _likely(self, place: Place | None, count: int, up: bool) -> Iterable[float | None]:
        """Yield limits within which enough rows are likely, closer ones first; the last one is None.

        A row group contains a row with its maximum. So at least `k` rows are not below the `k`th largest maximum, and
        groups with a smaller maximum need not be read.
        """
        bounds = [bound[0 if up else 1] for bound in self._bounds()]
        if place is not None:
            value = sortable(place.value)
            bounds = [bound for bound in bounds if (bound > value if up else bound < value)]
        bounds.sort(reverse=not up)
        for enough in (2 * count, 40 * count):
            if 2 * enough < len(bounds):
                yield bounds[enough]
        yield None

    def _narrowed(self, n: int) -> tuple[float, float, int]:
        """Return a short range of values that contains row `n`, and the number of rows before that range."""
        table, parameters = self._values()
        bounds, whole = self._bounds(), self.number != "cost"
        low = float(min((bound[0] for bound in bounds), default=0)) if whole else -1.0
        high = float(max((bound[1] for bound in bounds), default=low))
        before = 0
        while low < high:
            width = max((high - low) / _STEPS, 1.0 if whole else 0.0)
            if width <= 0 or low + width == low:
                break
            counts = self.scope.remember(
                ("steps", self.query.digest, low, high),
                lambda low=low, high=high, width=width: self.scope.ask(
                    f"select least(floor((value - ?) / ?), ?) as step, min(value), max(value), count(*) from ({table}) "
                    "where value >= ? and value <= ? group by step order by step",
                    [low, width, _STEPS, *parameters, low, high],
                ),
            )
            count = 0
            for _, least, most, count in reversed(counts) if self.down else counts:
                if before + count > n:
                    low, high = float(least), float(most)
                    break
                before += count
            else:
                raise AssertionError("there are fewer rows than were counted")
            if count <= _SORTED_AT_ONCE:
                break
        return low, high, before


def between(number: str, low: float, high: float) -> Condition:
    """Return the condition for a range of values. Limits of whole numbers are integers, by which the database skips row
    groups."""
    if number != "cost":
        low, high = math.ceil(max(low, -(2**62))), math.floor(min(high, 2**62))
    return Condition("value >= ? and value <= ?", [low, high])


class Copy(NamedTuple):
    """The sorted copy of one index file, restricted to the rows of a query that a reader may see."""

    query: Query
    hidden: frozenset[str]
    where: Condition
    """The SQL condition for those rows."""
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

    def rows(self, within: Condition) -> tuple[str, list[Any]]:
        """Return the SQL of a table with the query's rows that satisfy a condition, and its parameters."""
        where = self.where.also(within.sql, *within.given) if within.sql else self.where
        return f"read_parquet(?, file_row_number = true) {where.clause}", [str(self.path), *where.given]


def _has(many: bool, value: str, values: Iterable[str]) -> bool:
    return any(element(one) in value if one else not value for one in values) if many else value in values


TIED = 100_000
"""Minimum number of rows with the same value that are read in the order of the run instead of being sorted."""
_LEFT = 500_000
"""Maximum number of rows in index files without a sorted copy. With more rows, the copies are not used."""


class SortedCopies(NumberScan):
    """Finds rows sorted by a number in the sorted copies of index files. The few files without a copy are scanned."""

    def __init__(self, scope: Scope, query: Query, copies: Sequence[Copy], left: Sequence[IndexPart]) -> None:
        super().__init__(scope, query)
        self.copies = copies
        files = [one._replace(parts=[part for part in one.parts if part in left]) for one in self.files]
        self.files = [one for one in files if one.parts]
        """Index files without a copy, by run; they are small."""

    @classmethod
    def of(cls, scope: Scope, query: Query) -> SortedCopies | None:
        """Return the path if the copies have all columns of the query, and few rows have no copy. Otherwise return None."""
        if query.narrowed or not set(query.facets) <= set(KEPT):
            return None
        copies: list[Copy] = []
        left: list[IndexPart] = []
        for source in scope.chosen(query):
            for part in source.parts:
                if (copy := part.ordered(query.sorted_by)) is None:
                    left.append(part)
                else:
                    where = scope.where(query, IndexSegment(source, [part]))
                    number = scope.number(source.name)
                    copies.append(Copy(query, scope.hidden, where, number, part.path, *copy))
        few = sum(part.rows for part in left) <= _LEFT
        return cls(scope, query, copies, left) if copies and few else None

    def nth(self, n: int, limit: int) -> list[Key]:
        """Return the rows from index `n` on."""
        if n == 0:
            return self.beside(None, limit, back=False)
        if (groups := self.groups()) is None:
            return super().nth(n, limit)
        down, total = self.down, count_rows(self.scope, self.query)
        low, high = groups.around(n, total, down)
        for tie in [value for value in self.tied if low < value <= high]:
            less, most = groups.up_to(tie, itself=False), groups.up_to(tie, itself=True)
            first, last = (total - most, total - less) if down else (less, most)
            if first <= n < last:
                keys = self.ties(tie, n - first, limit, self._ties_of_segments(groups, tie))
                return self.filled(keys, limit)
            if (n < first) == down:
                low = tie
            else:
                high = math.nextafter(tie, -math.inf)
                break
        before = total - groups.up_to(high, itself=True) if down else groups.up_to(low, itself=True)
        within = between(self.number, math.nextafter(low, math.inf), high)
        return self.filled(self._ask(within, limit, n - before, not down, back=False), limit)

    def groups(self) -> RowGroups | None:
        """Return the row groups with their numbers of rows of the query. Return None if a footer lacks these counts."""
        counts = [copy.counts() for copy in self.copies]
        known = [one for one in counts if one is not None]
        return RowGroups(self, known) if len(known) == len(counts) else None

    @cached_property
    def tied(self) -> list[float]:
        """The values that at least about `TIED` rows have, sorted."""
        rows: Counter[float] = Counter()
        for copy in self.copies:
            said = copy.said
            for low, high, count in zip(said.low, said.high, said.rows, strict=True):
                if low == high:
                    rows[low] += count
        return sorted(value for value, count in rows.items() if count >= TIED)

    def _tie_after(self, value: float, up: bool) -> float:
        """Return the next value of `tied` in a direction. Return plus or minus infinity if there is none."""
        if up:
            return min((tie for tie in self.tied if tie > value), default=math.inf)
        return max((tie for tie in self.tied if tie < value), default=-math.inf)

    def _reached_after(self, count: float, start: float, up: bool) -> float:
        """Return a value such that about `count` rows are between `start` and it. Return infinity if there are fewer rows."""
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

    def beside(self, place: Place | None, limit: int, *, back: bool) -> list[Key]:
        """Return the rows after a place or, if `back` is true, before it. Without a place, return the first rows."""
        up = self.down == back
        rows = sum(part.rows for source in self.sources for part in source.parts)
        share = max(1, count_rows(self.scope, self.query)) / max(1, rows)
        at = (-math.inf if up else math.inf) if place is None else sortable(place.value)
        whole = place is None
        """Whether all rows with the value `at` have been read."""
        keys: list[Key] = []
        wanted = 1.5 * limit / share
        while len(keys) < limit:
            missing = limit - len(keys)
            if not whole and at in self.tied:
                ties = RunOrder(self.scope, equal(self.query, at)).beside(place, missing, back=back)
                some = [key._replace(value=at) for key in ties]
                keys, place, whole = (some + keys if back else keys + some), None, True
                continue
            tie = self._tie_after(at, up)
            end = self._reached_after(wanted, at, up)
            tied = math.isfinite(tie) and (tie <= end if up else tie >= end)
            stop = math.nextafter(tie, -math.inf if up else math.inf) if tied else end
            start = at if not whole else math.nextafter(at, math.inf if up else -math.inf)
            low, high = (start, stop) if up else (stop, start)
            within = between(self.number, low, high)
            if place is not None:
                after = self._after(place, up, back)
                within = within.also(after.sql, *after.given)
            some = self._ask(within, missing, 0, up, back=back) if low <= high else []
            keys = some + keys if back else keys + some
            if len(keys) < limit:
                if math.isinf(stop):
                    break
                at, whole, place = (tie, False, None) if tied else (stop, True, None)
                wanted *= 1 if tied else 8
        return keys

    def _values(self, likely: float | None = None, up: bool = True) -> tuple[str, list[Any]]:
        rest, parameters = super()._values(likely, up)
        selects = [rest] if rest else []
        within = Condition() if likely is None else Condition(f"value {'<=' if up else '>='} ?", [likely])
        for copy in self.copies:
            table, given = copy.rows(within)
            selects.append(f"select {copy.run} as run, value, shard, row from {table}")
            parameters += given
        return " union all ".join(selects), parameters

    def _ties_of_segments(self, groups: RowGroups, value: float) -> list[int]:
        """Return the number of rows with this value in each segment. Rows without a copy are counted in the index."""
        query = equal(self.query, value)
        ties = {copy.original: count for copy, count in zip(self.copies, groups.ties(value), strict=False)}
        counts: list[int] = []
        for segment in self.scope.segments(query):
            left = [part for part in segment.parts if part.path not in ties]
            known = sum(ties.get(part.path, 0) for part in segment.parts)
            counts.append(known + count_files(self.scope, segment._replace(parts=left), query))
        return counts


class RowGroups:
    """The row groups of the sorted copies, with the number of rows of the query in each."""

    def __init__(self, path: SortedCopies, counts: Sequence[list[int]]) -> None:
        self._path = path
        self._pairs = list(zip(path.copies, counts, strict=True))
        each = [(copy.said, its) for copy, its in self._pairs]
        self._lows = _summed(sorted(one for said, its in each for one in zip(said.low, its, strict=True)))
        self._highs = _summed(sorted(one for said, its in each for one in zip(said.high, its, strict=True)))
        self._left = sum(files.rows for files in path.files)
        """Number of rows in index files without a copy."""

    def up_to(self, value: float, *, itself: bool) -> int:
        """Return the exact number of rows up to a value. If `itself` is true, the value is included."""
        return sum(self._each_up_to(value, itself=itself))

    def ties(self, value: float) -> list[int]:
        """Return, for each copy and then for each run's files without one, the number of rows with this value."""
        with_it, without = self._each_up_to(value, itself=True), self._each_up_to(value, itself=False)
        return [a - b for a, b in zip(with_it, without, strict=True)]

    def _each_up_to(self, value: float, *, itself: bool) -> list[int]:
        path, each = self._path, list[int]()
        selects: list[str] = []
        parameters: list[Any] = []
        value = value if itself else math.nextafter(value, -math.inf)
        for number, (copy, counts) in enumerate(self._pairs):
            low, high = copy.said.low, copy.said.high
            # Groups are sorted: complete ones first, then at most one that is only partly up to the value.
            whole = bisect_right(high, value)
            each.append(sum(counts[:whole]))
            if whole < len(low) and low[whole] <= value:
                within = between(copy.said.number, low[whole], value)
                table, given = copy.rows(within.also("file_row_number >= ?", sum(copy.said.rows[:whole])))
                selects.append(f"select {number}, count(*) from {table}")
                parameters += given
        for files in path.files:
            most = f"{sort_column(path.number)} <= ?"
            table, given = files.table(path.scope.where(path.query, files).also(most, value))
            selects.append(f"select {len(each)}, count(*) from {table}")
            parameters += given
            each.append(0)
        for number, count in path.scope.ask(" union all ".join(selects), parameters) if selects else ():
            each[number] += count
        return each

    def extremes(self, least: float) -> list[tuple[Any, ...]]:
        """Return pairs of values of at least `least`. They include the minimum and maximum of the query's rows in each copy."""
        found: list[tuple[Any, ...]] = []
        for copy, counts in self._pairs:
            said = copy.said
            groups = [n for n, count in enumerate(counts) if count and said.high[n] >= least]
            # The first group may have only smaller values among the query's rows, but not the second one.
            for first, last in ((groups[0], groups[:2][-1]), (groups[-1], groups[-1])) if groups else ():
                table, given = copy.rows(between(said.number, max(least, said.low[first]), said.high[last]))
                found += self._path.scope.ask(f"select min(value), max(value) from {table}", given)
        return [one for one in found if one[0] is not None]

    def around(self, n: int, total: int, down: bool) -> tuple[float, float]:
        """Return two values around row `n`: its own value is greater than the first and at most the second."""
        values = sorted({*self._lows[0], *self._highs[0]})

        def below(value: float) -> bool:
            """Return whether `value` is certainly less than the value of row `n`."""
            most = self._left + self._lows[1][bisect_right(self._lows[0], value)]
            return n < total - most if down else most <= n

        def within(value: float) -> bool:
            """Return whether the value of row `n` is certainly at most this one."""
            least = self._highs[1][bisect_right(self._highs[0], value)]
            return n >= total - least if down else least > n

        low = bisect_left(values, True, key=lambda value: not below(value))
        high = bisect_left(values, True, key=within)
        return values[low - 1] if low else -math.inf, values[high] if high < len(values) else math.inf


def _summed(pairs: Sequence[tuple[float, int]]) -> tuple[list[float], list[int]]:
    """Return the values, and the cumulative number of rows before each of them and at the end."""
    return [value for value, _ in pairs], [0, *accumulate(count for _, count in pairs)]
