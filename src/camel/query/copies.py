"""Sorted copies of large index files: each has the rows of one index file, sorted by a numeric column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from camel.index.facets import FACETS
from camel.index.sorted import Ordered
from camel.query.conditions import Condition, element, is_hidden
from camel.query.where import Query
from camel.record.parquet import arrow


@lru_cache(maxsize=64)
def _footer(path: Path) -> Any:
    return arrow("pyarrow.parquet").read_metadata(path)


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

    def read(self, groups: Sequence[int], chosen: Callable[[Any], Any]) -> Any:
        """Read the query's rows in some row groups. `chosen` returns a mask that further limits the rows of a table."""
        pc, pq = arrow("pyarrow.compute"), arrow("pyarrow.parquet")
        facets = {FACETS[name]: values for name, values in self.query.facets.items()}
        columns = ["value", "shard", "row", "labels", *(facet.column for facet in facets)]
        with pq.ParquetFile(self.path, metadata=_footer(self.path)) as file:
            table = file.read_row_groups(
                list(groups), columns=list(dict.fromkeys(columns)), use_threads=False
            )
        mask = chosen(table)
        for label in self.hidden:
            mask = pc.and_(mask, pc.invert(pc.match_substring(table.column("labels"), element(label))))
        for facet, values in facets.items():
            column = table.column(facet.column)
            if facet.many:
                fits = [
                    pc.match_substring(column, element(one)) if one else pc.equal(column, "")
                    for one in values
                ]
                for one in fits[1:]:
                    fits[0] = pc.or_(fits[0], one)
                mask = pc.and_(mask, fits[0]) if fits else mask
            else:
                mask = pc.and_(mask, pc.is_in(column, arrow().array(list(values), arrow().string())))
        return table.select(["value", "shard", "row"]).filter(mask)


def _has(many: bool, value: str, values: Iterable[str]) -> bool:
    return any(element(one) in value if one else not value for one in values) if many else value in values
