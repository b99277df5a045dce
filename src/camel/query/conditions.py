"""Queries in the words of the database: conditions, columns and groups, and what comes back from them.

The one decision to know: a condition is text with question marks, and a list of what stands for them. Nothing that a
reader wrote is ever part of the text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from camel.index.facets import FACETS, SEPARATOR, UNKNOWN, Facet, bucket_names, elements
from camel.query.annotated import FILTERS
from camel.query.where import Query


class Condition(NamedTuple):
    """A condition, and what stands for its question marks; empty where everything fulfils it."""

    sql: str = ""
    given: Sequence[Any] = ()

    @property
    def clause(self) -> str:
        """With its word, or nothing."""
        return f"where {self.sql}" if self.sql else ""

    def also(self, sql: str, *given: Any) -> Condition:
        """This condition and another."""
        return Condition(f"{self.sql} and {sql}" if self.sql else sql, [*self.given, *given])


def element(value: str) -> str:
    """What of a set is looked for."""
    return f"{SEPARATOR}{value}{SEPARATOR}"


def is_hidden(labels: str, hidden: frozenset[str]) -> bool:
    """Whether a set of labels has one that is hidden."""
    return bool(labels) and not hidden.isdisjoint(elements(labels))


def unsorted(query: Query) -> Query:
    """The same rows in no order."""
    return msgspec.structs.replace(query, sort="", order="asc")


def facet_condition(facet: Facet, values: Sequence[str]) -> tuple[str, list[Any]]:
    """The condition that a row has one of these values."""
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
    """The same on a cube, whose columns have the facets' names and whose buckets are numbers."""
    facet = FACETS[name]
    if not facet.edges:
        return facet_condition(facet._replace(column=name), values)
    known = [UNKNOWN, *bucket_names(facet)]
    numbers = [known.index(value) - 1 for value in values if value in known]
    if not values or not numbers:
        return ("false" if values else "true"), []
    return f"{name} in ({', '.join('?' for _ in numbers)})", numbers


def grouping(names: Sequence[str]) -> tuple[str, str]:
    """The columns and the clause that count each of these columns by itself, in one go."""
    quoted = [f'"{name}"' for name in names]
    every = ", ".join(quoted)
    return (
        f"grouping({every}), {every}",
        f"group by grouping sets ({', '.join(f'({one})' for one in quoted)})",
    )


def grouped(names: Sequence[str], found: Iterable[tuple[Any, ...]]) -> Iterable[tuple[str, Counter[str]]]:
    """What such a question gave, by facet."""
    counted: dict[str, Counter[str]] = {}
    for which, *values, number in found:
        # A bit for each column that is not grouped by, the first the highest.
        place = next(n for n in range(len(names)) if not which >> (len(names) - 1 - n) & 1)
        into = counted.setdefault(names[place], Counter())
        for value in facet_values(FILTERS[names[place]], values[place]):
            into[value] += int(number)
    return counted.items()


def facet_values(facet: Facet, value: Any) -> list[str]:
    """The values of a facet behind what was grouped by."""
    if facet.many:
        return elements(value)
    if facet.edges:
        return [UNKNOWN if value < 0 else bucket_names(facet)[value]]
    return [value]


def ranked(facet: Facet, counts: Counter[str]) -> list[tuple[str, int]]:
    """The most frequent first; buckets in their order."""
    if facet.edges:
        order = [UNKNOWN, *bucket_names(facet)]
        return [(name, counts[name]) for name in order if counts[name]]
    return sorted(
        ((value, number) for value, number in counts.items() if number), key=lambda one: (-one[1], one[0])
    )


def sort_column(name: str) -> str:
    """What is sorted by: a number that is not known comes before all others."""
    return "coalesce(cost, -1)" if name == "cost" else name


def up_to(name: str, up: bool) -> str:
    """The condition that a number is not beyond a value. One that is not known comes before all others."""
    if not up:
        return f"{name} >= ?"
    return "(cost is null or cost <= ?)" if name == "cost" else f"{name} <= ?"


def equal(query: Query, value: float) -> Query:
    """The rows of a query that have one value of what it is sorted by, in the order of the runs."""
    name = query.sorted_by
    if name == "cost" and value < 0:
        if "unknown" not in query.facets.get("cost", (UNKNOWN,)):
            raise AssertionError("a query for known costs has found an unknown one")
        facets = {**query.facets, "cost": (UNKNOWN,)}
        return msgspec.structs.replace(query, facets=facets, sort="order", order="asc")
    ranges = {**query.ranges, name: (value, value)}
    return msgspec.structs.replace(query, ranges=ranges, sort="order", order="asc")


def sortable(value: float | None) -> float:
    """A number as it is sorted by."""
    return -1 if value is None else value
