# ruff: noqa: S608 - SQL is put together from names in this package; values are parameters, always
"""Lists sorted by a number, from its column. Footers and a histogram narrow the range of values that must be sorted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from camel.query.conditions import Condition, equal, sort_column, sortable, up_to
from camel.query.database import Key
from camel.query.paths import ListPath
from camel.query.run_order import RunOrder
from camel.query.scope import Scope
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
