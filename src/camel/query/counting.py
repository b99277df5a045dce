# ruff: noqa: S608 - SQL is put together from names in this package; values are parameters, always
"""Counting the rows of a query: the count paths, and the choice among them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from camel.index.cube import facet_sql
from camel.index.facets import FACETS
from camel.query.conditions import cube_condition, element, grouped, grouping, is_hidden, unsorted
from camel.query.database import IndexSegment
from camel.query.parts import FILTERS, CountedParts, IndexPart
from camel.query.scope import CountPath, Scope
from camel.query.where import Query


class Footers(CountPath):
    """Counts rows with the footers of index files. Works without a filter, or with one whose values exclude each other."""

    def __init__(self, parts: Sequence[IndexPart], facet: str, counts: Counter[str]) -> None:
        self.parts, self.key, self._counts = parts, (Footers, facet), counts

    @classmethod
    def of(cls, scope: Scope, files: IndexSegment, query: Query, facet: str) -> Footers | None:
        """Return a path that counts all of the files. Return None if the footers lack the counts for this query."""
        if query.text.strip() or query.where or any(part.header.counts is None for part in files.parts):
            return None
        names = [*query.facets, *query.ranges, *([facet] if facet else [])]
        if not names:
            labels = (one for part in files.parts for one in part.labels.items())
            total = sum(number for label, number in labels if not is_hidden(label, scope.hidden))
            return cls(files.parts, facet, Counter({"": total}))
        name = names[0]
        overlap = name in query.facets and FACETS[name].many
        if len(names) > 1 or overlap or (name in query.ranges and name != "messages"):
            return None
        counts = _in_footers(files.parts, name, scope.hidden)
        if counts is None:
            return None
        if name in query.facets:
            counts = Counter({value: counts[value] for value in query.facets[name]})
        elif name in query.ranges:
            low, high = query.ranges[name]
            least, most = -math.inf if low is None else low, math.inf if high is None else high
            counts = Counter({value: n for value, n in counts.items() if least <= int(value) <= most})
        return cls(files.parts, facet, counts)

    def count(self) -> int:
        """Return the number of rows of the query."""
        return self._counts.total()

    def facets(self, names: Sequence[str]) -> Iterable[tuple[str, Counter[str]]]:
        """Return the counts of the facet that this path was made for."""
        return ((name, self._counts) for name in names)


def _in_footers(parts: Sequence[IndexPart], name: str, hidden: frozenset[str]) -> Counter[str] | None:
    """Return the counts of a facet from the footers of the files. Return None if a footer lacks them."""
    total: Counter[str] = Counter()
    for part in parts:
        for labels, by in (part.header.counts or {}).items():
            if name not in by:
                return None
            if not is_hidden(labels, hidden):
                total.update(by[name])
    return total


class Cube(CountPath):
    """Counts from the cubes of a run, which contain precomputed counts of combinations of facets."""

    def __init__(self, scope: Scope, counted: CountedParts, number: int, query: Query) -> None:
        self.parts, self.key = counted.parts, (Cube, number)
        self._ask = scope.ask
        conditions = ["cube = ?"]
        self._given: list[Any] = [str(counted.path), number]
        for label in sorted(scope.hidden):
            conditions.append("not contains(label, ?)")
            self._given.append(element(label))
        for name, values in sorted(query.facets.items()):
            one, given = cube_condition(name, values)
            conditions.append(f"({one})")
            self._given += given
        self._cells = f"read_parquet(?) where {' and '.join(conditions)}"

    @classmethod
    def of(cls, scope: Scope, files: IndexSegment, query: Query, facet: str) -> Cube | None:
        """Return the path if a cube has all facets of the query and counts only files in `files`. Otherwise return None."""
        counted = files.source.counted
        if counted is None or query.narrowed or not counted.parts <= set(files.parts):
            return None
        number = counted.cubes.best({*query.facets, facet} - {""})
        return None if number is None else cls(scope, counted, number, query)

    def count(self) -> int:
        """Return the number of rows of the query."""
        return int(self._ask(f"select coalesce(sum(n), 0) from {self._cells}", self._given)[0][0])

    def facets(self, names: Sequence[str]) -> Iterable[tuple[str, Counter[str]]]:
        """Return the counts by facet, reading the cube once."""
        columns, group = grouping(names)
        return grouped(names, self._ask(f"select {columns}, sum(n) from {self._cells} {group}", self._given))


class Scan(CountPath):
    """Counts rows by reading the columns of the query from the index files."""

    def __init__(self, scope: Scope, files: IndexSegment, query: Query) -> None:
        self.parts, self.key = files.parts, (Scan, *files.parts)
        self._ask, self._table = scope.ask, lambda: scope.table(query, files)

    @classmethod
    def of(cls, scope: Scope, files: IndexSegment, query: Query, facet: str) -> Scan:
        """Return a path that counts all files. It works for any query."""
        return cls(scope, files, query)

    def count(self) -> int:
        """Return the number of rows of the query."""
        table, given = self._table()
        return self._ask(f"select count(*) from {table}", given)[0][0]

    def facets(self, names: Sequence[str]) -> Iterable[tuple[str, Counter[str]]]:
        """Return the counts by facet, reading their columns once."""
        named = ", ".join(f'{facet_sql(FILTERS[name])} as "{name}"' for name in names)
        columns, group = grouping(names)
        table, given = self._table()
        sql = f"select {columns}, count(*) from (select {named} from {table}) {group}"
        return grouped(names, self._ask(sql, given))


COUNT_PATHS: tuple[type[CountPath], ...] = (Footers, Cube, Scan)
"""The count paths, the cheapest first."""


def choose_counts(scope: Scope, files: IndexSegment, query: Query, facet: str = "") -> Iterable[CountPath]:
    """Yield the paths that together count index files of a run. Each takes the files that it can count."""
    for kind in COUNT_PATHS:
        if files.parts and (path := kind.of(scope, files, query, facet)) is not None:
            yield path
            taken = set(path.parts)
            files = files._replace(parts=[part for part in files.parts if part not in taken])


def count_files(scope: Scope, files: IndexSegment, query: Query) -> int:
    """Return the number of rows of a query in some index files of a run."""
    return sum(path.count() for path in choose_counts(scope, files, query))


def count_rows(scope: Scope, query: Query) -> int:
    """Return the number of rows of a query."""
    if query.text.strip():
        return len(scope.found(query).keys)
    return scope.remember(
        ("count", unsorted(query).digest),
        lambda: sum(count_files(scope, scope.files(source, query), query) for source in scope.chosen(query)),
    )


def count_facets(scope: Scope, query: Query, names: Sequence[str]) -> Iterable[tuple[str, Counter[str]]]:
    """Yield counts of facets. A facet can occur several times, and the caller must add up its counts."""
    for source in scope.chosen(query):
        together: dict[Hashable, tuple[CountPath, list[str]]] = {}
        for name in names:
            for path in choose_counts(scope, scope.files(source, query, name), query, name):
                together.setdefault(path.key, (path, []))[1].append(name)
        for path, some in together.values():
            yield from path.facets(some)
