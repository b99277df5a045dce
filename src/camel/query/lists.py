# ruff: noqa: S608 - SQL is put together from names in this package; values are parameters, always
"""Lists: which rows are on a page, in the order of the runs or of a number, and how many there are.

The one decision to know: only places (shard, row) are looked for here, on the few columns that a query names; whole rows
are read afterwards, and only those of the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.index.facets import FACETS
from camel.query.answers import NotThere
from camel.query.conditions import (
    clause,
    cube_condition,
    element,
    facet_condition,
    from_headers,
    is_hidden,
    unsorted,
)
from camel.query.database import Database, Key, Segment, State, paths, positions
from camel.query.parts import IndexPart
from camel.query.sources import CatalogueRun
from camel.query.where import Place, Query


class CubeQuery(NamedTuple):
    """A question to a cube."""

    path: str
    where: str
    parameters: list[Any]
    left: list[IndexPart]
    """The files that it does not count."""

    def ask(self, shared: Database, columns: str, group: str = "") -> list[tuple[Any, ...]]:
        """The columns of its cells, or sums of them."""
        return shared.ask(
            f"select {columns} from read_parquet(?) where {self.where} {group}", [self.path, *self.parameters]
        )


class Lists:
    """The rows that a reader may see, at one time."""

    def __init__(self, database: Database, state: State, hidden: frozenset[str]) -> None:
        self.database, self.state, self.hidden = database, state, hidden

    def chosen(self, query: Query) -> list[CatalogueRun]:
        """The runs that a query is about."""
        if unknown := set(query.runs) - {source.name for source in self.state.sources}:
            raise NotThere(f"there is no run {shown(min(unknown))}")
        return [one for one in self.state.sources if one.parts and (not query.runs or one.name in query.runs)]

    def segments(self, query: Query) -> list[Segment]:
        """Their files, in portions."""
        chosen = self.chosen(query)
        return [one for one in self.state.segments if one.source in chosen]

    def _gate(self, parts: Iterable[IndexPart]) -> tuple[str, list[Any]]:
        """The condition that keeps restricted rows out; none where the files say that they hold none."""
        hidden = sorted(self.hidden)
        if not any(is_hidden(labels, self.hidden) for part in parts for labels in part.labels):
            return "", []
        return " and ".join("not contains(labels, ?)" for _ in hidden), [element(one) for one in hidden]

    def where(self, query: Query, parts: Iterable[IndexPart]) -> tuple[str, list[Any]]:
        """The conditions of a query on the columns of an index, and their parameters; empty for none."""
        gate, parameters = self._gate(parts)
        conditions = [gate] if gate else []
        for name, values in sorted(query.facets.items()):
            one, given = facet_condition(FACETS[name], values)
            conditions.append(f"({one})")
            parameters += given
        for name, (low, high) in sorted(query.ranges.items()):
            for sign, limit in ((">=", low), ("<=", high)):
                if limit is not None:
                    conditions.append(f"{name} {sign} ?")
                    parameters.append(limit)
        return " and ".join(conditions), parameters

    def count(self, query: Query) -> int:
        """Rows of a query without text."""
        key = ("count", unsorted(query).digest, self.hidden)
        return self.database.remember(
            self.state, key, lambda: sum(self._count_source(one, query) for one in self.chosen(query))
        )

    def _count_source(self, source: CatalogueRun, query: Query) -> int:
        if (counted := from_headers(source.parts, query, self.hidden)) is not None:
            return counted
        total, parts = 0, source.parts
        if (cube := self.cube(source, query, ())) is not None:
            total, parts = cube.ask(self.database, "coalesce(sum(n), 0)")[0][0], cube.left
        if parts:
            where, parameters = self.where(query, parts)
            sql = f"select count(*) from read_parquet(?) {clause('where', where)}"
            total += self.database.ask(sql, [paths(parts), *parameters])[0][0]
        return int(total)

    def cube(self, source: CatalogueRun, query: Query, facets: Iterable[str]) -> CubeQuery | None:
        """The cube that can answer a query, grouped by facets, for the files that it counts."""
        if source.counted is None or query.ranges or query.text.strip():
            return None
        number = source.counted.cubes.best({*query.facets, *facets})
        if number is None:
            return None
        conditions = ["cube = ?"]
        parameters: list[Any] = [number]
        for label in sorted(self.hidden):
            conditions.append("not contains(label, ?)")
            parameters.append(element(label))
        for name, values in sorted(query.facets.items()):
            one, given = cube_condition(name, values)
            conditions.append(f"({one})")
            parameters += given
        left = [part for part in source.parts if part not in source.counted.parts]
        return CubeQuery(str(source.counted.path), " and ".join(conditions), parameters, left)

    def count_segments(self, query: Query) -> list[int]:
        """Rows of each segment, for who goes straight to a row far down."""
        key = ("counts", unsorted(query).digest, self.hidden)
        return self.database.remember(
            self.state, key, lambda: [self._count_segment(one, query) for one in self.segments(query)]
        )

    def _count_segment(self, segment: Segment, query: Query) -> int:
        if (counted := from_headers(segment.parts, query, self.hidden)) is not None:
            return counted
        where, parameters = self.where(query, segment.parts)
        sql = f"select count(*) from read_parquet(?) {clause('where', where)}"
        return self.database.ask(sql, [paths(segment.parts), *parameters])[0][0]

    def in_order(self, query: Query, n: int, limit: int, counts: Sequence[int] | None = None) -> list[Key]:
        """The rows from `n` on, in the order of the runs or against it; `counts` are those of the segments, if known."""
        counts = self.count_segments(query) if counts is None else counts
        segments = self.segments(query)
        total = sum(counts)
        if query.order == "desc":
            first, last = max(0, total - n - limit), total - n
        else:
            first, last = n, min(total, n + limit)
        keys: list[Key] = []
        before = 0
        for segment, count in zip(segments, counts, strict=True):
            low, high = max(first - before, 0), min(last - before, count)
            before += count
            if low < high:
                keys += self._slice(segment, query, low, high)
        return keys[::-1] if query.order == "desc" else keys

    def _slice(self, segment: Segment, query: Query, low: int, high: int) -> list[Key]:
        """The rows from `low` to `high` of those that a segment has of a query."""
        where, parameters = self.where(query, segment.parts)
        if not where:
            return [Key(segment.source, shard, row, None) for shard, row in positions(segment, low, high)]
        # The files are given in order and the database keeps it: it need not sort, and stops when it has enough.
        sql = f"select shard, row from read_parquet(?) where {where} limit ? offset ?"
        found = self.database.ask(sql, [paths(segment.parts), *parameters, high - low, low])
        return [Key(segment.source, shard, row, None) for shard, row in found]

    def at_many(self, query: Query, positions: Sequence[int]) -> list[Key]:
        """The rows at these positions, ascending, of a query in the runs' order."""
        starts = [0, *accumulate(self.count_segments(query))]
        segments = self.segments(query)
        keys: list[Key] = []
        for number, segment in enumerate(segments):
            here = [at - starts[number] for at in positions if starts[number] <= at < starts[number + 1]]
            if not here:
                continue
            where, parameters = self.where(query, segment.parts)
            if not where:
                for at in here:
                    keys += self._slice(segment, query, at, at + 1)
                continue
            sql = (
                f"select shard, row from (select shard, row, row_number() over () - 1 as n from read_parquet(?) "
                f"where {where}) where n in (select unnest(?)) order by n"
            )
            found = self.database.ask(sql, [paths(segment.parts), *parameters, here])
            keys += [Key(segment.source, shard, row, None) for shard, row in found]
        return keys

    def along(self, query: Query, place: Place | None, limit: int, *, back: bool) -> list[Key]:
        """The rows that follow a place in the order of the runs, or are before it; without a place, the first."""
        forward = back == (query.order == "desc")
        segments = self.segments(query)
        names = [source.name for source in self.state.sources]
        if place is not None and place.run not in names:
            raise InputError("this page is of a run that is not here: begin with the first")
        run = names.index(place.run) if place is not None else None
        keys: list[Key] = []
        for segment in segments if forward else reversed(segments):
            its = names.index(segment.source.name)
            if run is not None and its != run and (its > run) != forward:
                continue
            keys += self._along_segment(
                segment, query, place if its == run else None, limit - len(keys), forward
            )
            if len(keys) >= limit:
                break
        return keys[::-1] if back else keys

    def _along_segment(
        self, segment: Segment, query: Query, place: Place | None, limit: int, forward: bool
    ) -> list[Key]:
        where, parameters = self.where(query, segment.parts)
        source, parts = segment
        if not where:
            at = segment.position(place, forward)
            low, high = (at, min(segment.rows, at + limit)) if forward else (max(0, at - limit), at)
            found = list(positions(segment, low, high))
            return [Key(source, *one, None) for one in (found if forward else reversed(found))]
        sign = ">" if forward else "<"
        if place is not None:
            parts = [
                part for part in parts if (part.last >= place.shard if forward else part.first <= place.shard)
            ]
            where += f" and shard {sign}= ? and (shard {sign} ? or row {sign} ?)"
            parameters += [place.shard, place.shard, place.row]
        if not parts:
            return []
        # Forward the files are in order already, and the database keeps it: it stops when it has enough.
        order = "" if forward else "order by shard desc, row desc"
        sql = f"select shard, row from read_parquet(?) where {where} {order} limit ?"
        found = self.database.ask(sql, [paths(parts), *parameters, limit])
        return [Key(source, shard, row, None) for shard, row in found]
