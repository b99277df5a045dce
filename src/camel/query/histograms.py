# ruff: noqa: S608 - SQL is put together from names in this package; values are parameters, always
"""Distributions of numbers and findings over the rows of a query."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, cast

from msgspec.structs import replace

from camel.index.cube import facet_sql
from camel.index.facets import FACETS, SEPARATOR, elements
from camel.query.answers import Behaviors, Histogram, Summary
from camel.query.conditions import facet_values
from camel.query.counting import count_rows
from camel.query.database import IndexSegment
from camel.query.scope import Scope
from camel.query.sorted_copies import SortedCopies
from camel.query.where import Query

_FINE = 8_192
"""Number of steps of the fine histogram from which quantiles are computed."""
Table = tuple[str, list[Any]]
"""SQL of a table, and its parameters."""


def histogram(
    scope: Scope, query: Query, number: str, by: str, bins: int, edges: list[float] | None = None
) -> Histogram:
    """Return the distribution of a number, over all rows or by the values of a facet. If edges are given, it has no summary."""
    ordered = replace(query, sort=cast("Any", number), order="asc")
    copies = None if by else SortedCopies.of(scope, ordered)
    if copies is not None and (made := _from_copies(copies, bins, edges)) is not None:
        return made
    tables = _tables(scope, query)
    facet = facet_sql(FACETS[by]) if by else "''"
    summary, extremes = None, _extremes(scope, number, tables) if edges is None else []
    if extremes:
        low, high = _limits(extremes)
        edges = _edges(low, high, bins, whole=number != "cost")
        summary = None if by else _summary(scope, number, tables, low, high)
    edges = edges or [0.0, 1.0]
    return replace(_histogram(number, by, edges, _bars(scope, tables, number, facet, edges)), summary=summary)


def _from_copies(copies: SortedCopies, bins: int, given: list[float] | None) -> Histogram | None:
    """Return the histogram from sorted copies, which is faster. Return None if their footers lack the counts."""
    scope, query, number = copies.scope, copies.query, copies.number
    if (groups := copies.groups()) is None:
        return None
    # Rows with an unknown number come first.
    unknown = groups.up_to(-1, itself=True) if number == "cost" else 0
    left = [scope.table(query, files) for files in copies.files]
    least = 0 if number == "cost" else -math.inf
    limits = [*groups.extremes(least), *_extremes(scope, number, left)]
    if not limits:
        return None
    low, high = _limits(limits)
    edges = given or _edges(low, high, bins, whole=number != "cost")
    total = count_rows(scope, query)
    before = [unknown, *(groups.up_to(edge, itself=False) for edge in edges[1:-1]), total]
    made = Histogram(number, edges, {"": [last - first for first, last in pairwise(before)]}, unknown)
    if given:
        return made

    def quantile(share: float) -> float:
        row = copies.nth(unknown + math.ceil(share * (total - unknown)) - 1, 1)[0]
        return float(cast("float", row.value))

    everything = _tables(scope, query)
    union = " union all ".join(f"select {number} as value from {table}" for table, _ in everything)
    parameters = [one for _, each in everything for one in each]
    mean = scope.ask(f"select avg(value) from ({union})", parameters)[0][0]
    summary = Summary(mean, quantile(0.05), quantile(0.5), quantile(0.95))
    return replace(made, summary=summary)


def _tables(scope: Scope, query: Query) -> list[Table]:
    return [scope.table(query, scope.files(source, query)) for source in scope.chosen(query)]


def _extremes(scope: Scope, number: str, tables: Sequence[Table]) -> list[tuple[Any, ...]]:
    """Return the minimum and maximum of each table. Tables without values are skipped."""
    sql = f"select min({number}), max({number}) from"
    found = [scope.ask(f"{sql} {table}", given)[0] for table, given in tables]
    return [one for one in found if one[0] is not None]


def _limits(extremes: Sequence[tuple[Any, ...]]) -> tuple[float, float]:
    return min(one[0] for one in extremes), max(one[1] for one in extremes)


def _bars(
    scope: Scope, tables: Sequence[Table], number: str, facet: str, edges: list[float]
) -> list[tuple[Any, ...]]:
    """Return the number of rows for each value of a facet and each bar. The bar is null if the number is unknown."""
    # Not `least` alone, because it ignores null.
    bar = f"case when {number} is not null then least({len(edges) - 2}, floor(({number} - ?) / ?))::int end"
    sql = f"select {facet} as f, {bar} as bar, count(*) from"
    steps = [edges[0], edges[1] - edges[0]]
    return [
        row for table, given in tables for row in scope.ask(f"{sql} {table} group by all", [*steps, *given])
    ]


def _summary(scope: Scope, number: str, tables: Sequence[Table], low: float, high: float) -> Summary:
    """Return the mean and the quantiles. A fine histogram gives the quantiles ten times as fast as a quantile sketch."""
    whole = number != "cost"
    width = (high - low) / _FINE if not whole else max(1, math.ceil((high - low) / _FINE))
    fine: Counter[int] = Counter()
    total = 0.0
    step = f"floor(({number} - ?) / ?)::int as step"
    sql = f"select {step}, count({number}), coalesce(sum({number}), 0)::double from"
    for table, given in tables:
        for step, count, added in scope.ask(f"{sql} {table} group by all", [low, width or 1.0, *given]):
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


def behaviors(scope: Scope, query: Query, role: str) -> Behaviors:
    """Return the findings of detectors in the scanned rows, by message and seat, and by role."""
    lengths: Counter[int] = Counter()
    roles: Counter[str] = Counter()
    by_turn: dict[str, dict[str, dict[int, int]]] = {}
    by_role: dict[str, Counter[str]] = {}
    parts = ", ".join(f"regexp_extract(mark, '^(-?[0-9]+) ([^ ]+) (.*)$', {n})" for n in (1, 2, 3))
    each = f"unnest(string_split(trim(marks, '{SEPARATOR}'), '{SEPARATOR}')) as mark"
    for source in scope.chosen(query):
        files = scope.files(source, query)
        known = [part for part in files.parts if query.annotated or not part.unknown]
        if not known:
            continue
        table, given = scope.table(query, IndexSegment(source, known))
        table = f"(select * from {table}) where looked" if query.annotated else table
        lengths.update(dict(scope.ask(f"select messages, count(*) from {table} group by all", given)))
        sql = f"select {parts}, count(*) from (select {each} from {table}) where mark <> '' group by all"
        for turn, detector, seat, number in scope.ask(sql, given):
            counts = by_turn.setdefault(detector, {}).setdefault(seat, {})
            counts[int(turn)] = counts.get(int(turn), 0) + number
        if role:
            sql = f'select "{FACETS[role].column}", findings, count(*) from {table} group by all'
            for value, findings, number in scope.ask(sql, given):
                roles[value] += number
                for detector in elements(findings):
                    by_role.setdefault(detector, Counter())[value] += number
    found = {name: dict(counts) for name, counts in by_role.items()}
    return Behaviors(sum(lengths.values()), dict(lengths), by_turn, dict(roles), found)


def _edges(low: float, high: float, bins: int, *, whole: bool) -> list[float]:
    """Return the edges of the bars. For whole numbers, each bar spans the same number of integers."""
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
