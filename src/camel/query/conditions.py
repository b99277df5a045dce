"""Translation of queries to SQL (conditions, columns, groups), and of its results back to facets.

The one decision to know: a condition is SQL with question marks and a list of parameters. The SQL never contains text
from a reader.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from camel.index.facets import FACETS, SEPARATOR, UNKNOWN, Facet, bucket_names, elements
from camel.query.parts import FILTERS
from camel.query.where import Query


class Condition(NamedTuple):
    """An SQL condition with its parameters. It is empty if every row satisfies it."""

    sql: str = ""
    given: Sequence[Any] = ()

    @property
    def clause(self) -> str:
        """The condition as a `where` clause, or empty."""
        return f"where {self.sql}" if self.sql else ""

    def also(self, sql: str, *given: Any) -> Condition:
        """Return the conjunction of this condition and another."""
        return Condition(f"{self.sql} and {sql}" if self.sql else sql, [*self.given, *given])


def element(value: str) -> str:
    """Return an element of a set as the index stores it, with separators."""
    return f"{SEPARATOR}{value}{SEPARATOR}"


def is_hidden(labels: str, hidden: frozenset[str]) -> bool:
    """Return whether a set of labels contains a hidden one."""
    return bool(labels) and not hidden.isdisjoint(elements(labels))


def unsorted(query: Query) -> Query:
    """Return the query without its order."""
    return msgspec.structs.replace(query, sort="", order="asc")


def facet_condition(facet: Facet, values: Sequence[str]) -> tuple[str, list[Any]]:
    """Return the SQL condition that a row has one of these values, and its parameters."""
    if not values:
        return "true", []
    column = f'"{facet.column}"'
    if facet.many:
        one = [f"{column} = ?" if value == "" else f"contains({column}, ?)" for value in values]
        return " or ".join(one), [element(value) if value else "" for value in values]
    if not facet.edges:
        return f"{column} in ({', '.join('?' for _ in values)})", list(values)
    names = bucket_names(facet)
    conditions: list[str] = []
    parameters: list[Any] = []
    for value in values:
        if value == UNKNOWN:
            conditions.append(f"{facet.column} is null")
        elif value in names:
            at = names.index(value)
            conditions.append(
                f"({facet.column} >= ?" + (f" and {facet.column} < ?)" if at + 1 < len(names) else ")")
            )
            parameters += facet.edges[at : at + 2]
    return (" or ".join(conditions), parameters) if conditions else ("false", [])


def cube_condition(name: str, values: Sequence[str]) -> tuple[str, list[Any]]:
    """Do the same as `facet_condition` for a cube, a table of counts whose columns have the facets' names and contain bucket numbers."""
    facet = FACETS[name]
    if not facet.edges:
        return facet_condition(facet._replace(column=name), values)
    known = [UNKNOWN, *bucket_names(facet)]
    numbers = [known.index(value) - 1 for value in values if value in known]
    if not values or not numbers:
        return ("false" if values else "true"), []
    return f"{name} in ({', '.join('?' for _ in numbers)})", numbers


def grouping(names: Sequence[str]) -> tuple[str, str]:
    """Return the columns and the `group by` clause that count by each of these columns separately, in one SQL query."""
    quoted = [f'"{name}"' for name in names]
    every = ", ".join(quoted)
    return (
        f"grouping({every}), {every}",
        f"group by grouping sets ({', '.join(f'({one})' for one in quoted)})",
    )


def grouped(names: Sequence[str], found: Iterable[tuple[Any, ...]]) -> Iterable[tuple[str, Counter[str]]]:
    """Return the counts of each facet from the result rows of a `grouping` query."""
    counted: dict[str, Counter[str]] = {}
    for which, *values, number in found:
        # `which` has a bit for each column; it is 0 for the column that is grouped by. The first column has the highest bit.
        place = next(n for n in range(len(names)) if not which >> (len(names) - 1 - n) & 1)
        into = counted.setdefault(names[place], Counter())
        for value in facet_values(FILTERS[names[place]], values[place]):
            into[value] += int(number)
    return counted.items()


def facet_values(facet: Facet, value: Any) -> list[str]:
    """Return the values of a facet for a grouped value."""
    if facet.many:
        return elements(value)
    if facet.edges:
        return [UNKNOWN if value < 0 else bucket_names(facet)[value]]
    return [value]


def ranked(facet: Facet, counts: Counter[str]) -> list[tuple[str, int]]:
    """Return values with their counts, most frequent first. Buckets of numbers stay in their order."""
    if facet.edges:
        order = [UNKNOWN, *bucket_names(facet)]
        return [(name, counts[name]) for name in order if counts[name]]
    return sorted(
        ((value, number) for value, number in counts.items() if number), key=lambda one: (-one[1], one[0])
    )


def sort_column(name: str) -> str:
    """Return the SQL expression of a sort key. Unknown numbers sort first."""
    return "coalesce(cost, -1)" if name == "cost" else name


def up_to(name: str, up: bool) -> str:
    """Return the SQL condition that a number is at most a value or, if `up` is false, at least. Unknown numbers sort first."""
    if not up:
        return f"{name} >= ?"
    return "(cost is null or cost <= ?)" if name == "cost" else f"{name} <= ?"


def equal(query: Query, value: float) -> Query:
    """Return the query for the rows with one value of the sort key, in the order of the runs."""
    name = query.sorted_by
    if name == "cost" and value < 0:
        if "unknown" not in query.facets.get("cost", (UNKNOWN,)):
            raise AssertionError("a query for known costs has found an unknown one")
        facets = {**query.facets, "cost": (UNKNOWN,)}
        return msgspec.structs.replace(query, facets=facets, sort="order", order="asc")
    ranges = {**query.ranges, name: (value, value)}
    return msgspec.structs.replace(query, ranges=ranges, sort="order", order="asc")


def sortable(value: float | None) -> float:
    """Return the sort key of a number. It is -1 if the number is unknown."""
    return -1 if value is None else value
