# ruff: noqa: S608 - SQL is put together from names in this package; values are parameters, always
"""Counts: facets and histograms of the rows of a query."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, cast

from msgspec.structs import replace

from camel.index.cube import facet_sql
from camel.index.facets import FACETS, SEPARATOR, elements
from camel.query.answers import Behaviours, Histogram, Summary
from camel.query.by_number import NumberedLists
from camel.query.conditions import both, clause, facet_values, grouped, grouping, header_facet
from camel.query.database import Key, paths
from camel.query.lists import CubeQuery
from camel.query.parts import IndexPart
from camel.query.sources import CatalogueRun
from camel.query.where import Query

_FINE = 8_192
"""Steps into which the range of a number is divided to tell its quantiles."""


class Counts:
    """Counts over the rows of a query: all of them, or those among which a text was found."""

    def __init__(self, lists: NumberedLists, among: Sequence[Key] | None) -> None:
        self._lists, self._among = lists, among

    def facets(self, query: Query, names: Sequence[str]) -> Iterable[tuple[str, Counter[str]]]:
        """The values of facets and how many rows have each, in portions to be added up."""
        for source in self._lists.chosen(query):
            yield from self._of_source(source, query, names)

    def _of_source(
        self, source: CatalogueRun, query: Query, names: Sequence[str]
    ) -> Iterable[tuple[str, Counter[str]]]:
        """The values of facets among the rows that a run has of a query, in one or several portions."""
        left: list[str] = []
        by_cube: dict[tuple[str, Any], list[str]] = {}
        cubes: dict[tuple[str, Any], CubeQuery] = {}
        plain = not (query.facets or query.ranges or query.text.strip())
        for name in names:
            if plain and (counts := header_facet(source.parts, name, self._lists.hidden)) is not None:
                yield name, counts
            elif (cube := self._lists.cube(source, query, [name])) is not None:
                key = (cube.path, cube.parameters[0])
                cubes[key] = cube
                by_cube.setdefault(key, []).append(name)
            else:
                left.append(name)
        for key, some in by_cube.items():
            cube = cubes[key]
            columns, group = grouping(some)
            yield from grouped(some, cube.ask(self._lists.database, f"{columns}, sum(n)", group))
            yield from self._scan_facets(source, query, some, cube.left)
        yield from self._scan_facets(source, query, left, source.parts)

    def _scan_facets(
        self, source: CatalogueRun, query: Query, names: Sequence[str], parts: Sequence[IndexPart]
    ) -> Iterable[tuple[str, Counter[str]]]:
        """The same, counted from the index."""
        if not names or not parts:
            return
        named = ", ".join(f'{facet_sql(FACETS[name])} as "{name}"' for name in names)
        columns, group = grouping(names)
        table, given = self._table(source, query, parts)
        sql = f"select {columns}, count(*) from (select {named} from {table}) {group}"
        yield from grouped(names, self._lists.database.ask(sql, given))

    def histogram(self, query: Query, number: str, by: str, bins: int) -> Histogram:
        """How a number is distributed, over all rows or by the value of a facet."""
        if not by and (made := self._from_copies(query, number, bins)) is not None:
            return made
        tables = [self._table(source, query, source.parts) for source in self._lists.chosen(query)]
        ask = self._lists.database.ask
        limits = [
            ask(f"select min({number}), max({number}) from {table}", given)[0] for table, given in tables
        ]
        low = min((one[0] for one in limits if one[0] is not None), default=None)
        high = max((one[1] for one in limits if one[1] is not None), default=None)
        edges = _edges(low, high, bins, whole=number != "cost")
        facet = facet_sql(FACETS[by]) if by else "''"
        summary = None if by else self._summary(number, tables, low, high)
        found = self._bars(tables, number, facet, edges)
        return replace(_histogram(number, by, edges, found), summary=summary)

    def _from_copies(self, query: Query, number: str, bins: int) -> Histogram | None:
        """The same from copies in the order of the number, by how many rows are before each edge; None where there are none."""
        lists = self._lists
        ordered = replace(query, sort=cast("Any", number), order="asc")
        order = lists.order_of(ordered) if self._among is None else None
        groups = order.groups(query, lists.hidden) if order else None
        if order is None or groups is None:
            return None
        # Before all others stand those of which the number is not known.
        unknown = groups.up_to(-1, itself=True) if number == "cost" else 0
        limits = groups.extremes(0 if number == "cost" else -math.inf)
        parts = [
            (source, [part for part in source.parts if part in order.left]) for source in lists.chosen(query)
        ]
        left = [self._table(source, query, some) for source, some in parts if some]
        limits += [
            found
            for table, given in left
            if (found := lists.database.ask(f"select min({number}), max({number}) from {table}", given)[0])[0]
            is not None
        ]
        low, high = (
            min((one[0] for one in limits), default=None),
            max((one[1] for one in limits), default=None),
        )
        if low is None or high is None:
            return None
        edges = _edges(low, high, bins, whole=number != "cost")
        before = [unknown, *(groups.up_to(edge, itself=False) for edge in edges[1:-1]), groups.total]
        found = [("", bar, last - first) for bar, (first, last) in enumerate(pairwise(before))]
        found += self._bars(left, number, "''", edges)
        made = _histogram(number, "", edges, found)
        rows = sum(made.series[""])
        skipped = made.unknown + unknown

        def quantile(share: float) -> float:
            keys = lists.nth_by_number(ordered, skipped + math.ceil(share * rows) - 1, 1)
            return cast("float", keys[0].value)

        everything = [self._table(source, query, source.parts) for source in lists.chosen(query)]
        union = " union all ".join(f"select {number} as value from {table}" for table, _ in everything)
        given = [one for _, each in everything for one in each]
        mean = lists.database.ask(f"select avg(value) from ({union})", given)[0][0]
        summary = Summary(mean, quantile(0.05), quantile(0.5), quantile(0.95))
        return replace(made, unknown=skipped, summary=summary)

    def _bars(
        self, tables: Sequence[tuple[str, list[Any]]], number: str, facet: str, edges: list[float]
    ) -> list[tuple[Any, ...]]:
        """How many rows of each value of a facet are in each bar; of those without the number the bar is null."""
        # Not `least` alone: it passes over what is null.
        bar = (
            f"case when {number} is not null then least({len(edges) - 2}, floor(({number} - ?) / ?))::int end"
        )
        return [
            row
            for table, given in tables
            for row in self._lists.database.ask(
                f"select {facet} as f, {bar} as bar, count(*) from {table} group by all",
                [edges[0], edges[1] - edges[0], *given],
            )
        ]

    def _summary(
        self, number: str, tables: Sequence[tuple[str, list[Any]]], low: float | None, high: float | None
    ) -> Summary | None:
        """The mean, and quantiles as exact as a fine histogram: a sketch of them costs ten times as much."""
        if low is None or high is None:
            return None
        whole = number != "cost"
        width = (high - low) / _FINE if not whole else max(1, math.ceil((high - low) / _FINE))
        fine: Counter[int] = Counter()
        total = 0.0
        for table, given in tables:
            sql = (
                f"select floor(({number} - ?) / ?)::int as step, count({number}), coalesce(sum({number}), 0)::double "
                f"from {table} group by all"
            )
            for step, count, added in self._lists.database.ask(sql, [low, width or 1.0, *given]):
                if step is not None:
                    fine[step] += count
                    total += added
        rows = sum(fine.values())

        def quantile(share: float) -> float:
            passed = 0
            for step, count in sorted(fine.items()):
                passed += count
                if passed >= share * rows:
                    return min(high, low + step * width + (0.0 if whole and width == 1 else width / 2))
            return high

        return Summary(total / rows, quantile(0.05), quantile(0.5), quantile(0.95))

    def behaviours(self, query: Query, role: str) -> Behaviours:
        """What was found in rows that were looked through, by message and seat, and by role."""
        lengths: Counter[int] = Counter()
        roles: Counter[str] = Counter()
        by_turn: dict[str, dict[str, dict[int, int]]] = {}
        by_role: dict[str, Counter[str]] = {}
        ask = self._lists.database.ask
        for source in self._lists.chosen(query):
            known = [part for part in source.parts if not part.unknown]
            if not known:
                continue
            table, given = self._table(source, query, known)
            lengths.update(dict(ask(f"select messages, count(*) from {table} group by all", given)))
            each = (
                f"select unnest(string_split(trim(marks, '{SEPARATOR}'), '{SEPARATOR}')) as mark from {table}"
            )
            parts = ", ".join(f"regexp_extract(mark, '^(-?[0-9]+) ([^ ]+) (.*)$', {n})" for n in (1, 2, 3))
            for turn, detector, seat, number in ask(
                f"select {parts}, count(*) from ({each}) where mark <> '' group by all", given
            ):
                counts = by_turn.setdefault(detector, {}).setdefault(seat, {})
                counts[int(turn)] = counts.get(int(turn), 0) + number
            if role:
                column = f'"{FACETS[role].column}"'
                for value, findings, number in ask(
                    f"select {column}, findings, count(*) from {table} group by all", given
                ):
                    roles[value] += number
                    for detector in elements(findings):
                        by_role.setdefault(detector, Counter())[value] += number
        return Behaviours(
            sum(lengths.values()),
            dict(lengths),
            by_turn,
            dict(roles),
            {n: dict(c) for n, c in by_role.items()},
        )

    def _table(self, source: CatalogueRun, query: Query, parts: Sequence[IndexPart]) -> tuple[str, list[Any]]:
        """The rows of a query in files of a run, as the database reads them."""
        where, parameters = self._lists.where(query, parts)
        given: list[Any] = [paths(parts), *parameters]
        if self._among is not None:
            where = both(where, "(shard::bigint << 32 | row) in (select unnest(?))")
            given.append([key.shard << 32 | key.row for key in self._among if key.source is source])
        return f"read_parquet(?) {clause('where', where)}", given


def _edges(low: float | None, high: float | None, bins: int, *, whole: bool) -> list[float]:
    """Where bars begin and end: of whole numbers each as wide as the others."""
    if low is None or high is None:
        return [0.0, 1.0]
    if whole:
        width = max(1, math.ceil((high - low + 1) / bins))
        count = max(1, math.ceil((high - low + 1) / width))
    else:
        width = (high - low) / bins or 1.0
        count = bins if high > low else 1
    return [low + width * n for n in range(count + 1)]


def _histogram(number: str, by: str, edges: list[float], found: Iterable[tuple[Any, ...]]) -> Histogram:
    series: dict[str, list[int]] = {}
    unknown = 0
    for value, bar, count in found:
        if bar is None:
            unknown += count
            continue
        for name in facet_values(FACETS[by], value) if by else [""]:
            series.setdefault(name, [0] * (len(edges) - 1))[bar] += count
    return Histogram(number, edges, dict(sorted(series.items())), unknown)
