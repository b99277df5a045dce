"""Sorted copies of large index files: each has the rows of one index file, sorted by a numeric column."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from camel.index.facets import FACETS
from camel.index.sorted import Ordered
from camel.query.conditions import Condition, element, is_hidden
from camel.query.where import Query


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
