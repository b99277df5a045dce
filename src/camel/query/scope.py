# ruff: noqa: S608 - SQL is put together from names in this package; values are parameters, always
"""The rows that one reader may see at one time, and the results of text searches in them.

The one decision to know: `where` excludes restricted rows, and every query to an index file uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.core.expressions import ColumnKind, Expression, parse_expression
from camel.index.facets import NUMBERS
from camel.index.text import TextIndex, opened
from camel.query.annotated import ANNOTATED, FILTERS
from camel.query.answers import NotThere
from camel.query.columns import INDEXED, known_columns, select_by_shard
from camel.query.conditions import Condition, element, facet_condition, is_hidden, sort_column
from camel.query.database import Database, IndexSegment, Key, State
from camel.query.paths import ListPath
from camel.query.sources import CatalogueRun
from camel.query.text import TextFound, TextHit, search
from camel.query.where import Place, Query
from camel.runs.reader import RunReader

T = TypeVar("T")
AMONG = "(shard::bigint << 32 | row) in (select unnest(?))"


class Scope:
    """The rows that one reader may see, as of one state of the runs."""

    def __init__(self, database: Database, state: State, hidden: frozenset[str]) -> None:
        self.database, self.state, self.hidden = database, state, hidden
        self.ask = database.ask

    def remember(self, key: Hashable, make: Callable[[], T], *, large: bool = False) -> T:
        """Return an answer for this reader from the cache, or make and cache it."""
        return self.database.remember(self.state, (key, self.hidden), make, large=large)

    def source(self, run: str) -> CatalogueRun:
        """Return a run by its name."""
        for one in self.state.sources:
            if one.name == run:
                return one
        raise NotThere(f"there is no run {shown(run)} in this catalogue")

    def number(self, run: str) -> int:
        """Return the index of a run in the catalogue."""
        for number, one in enumerate(self.state.sources):
            if one.name == run:
                return number
        raise InputError(f"this page is in the run {shown(run)}, which is gone: start at the first page")

    def chosen(self, query: Query) -> list[CatalogueRun]:
        """Return the runs that a query reads: those it names, or all, without runs that have no index files."""
        for run in sorted(query.runs):
            self.source(run)
        named = [one for one in self.state.sources if not query.runs or one.name in query.runs]
        return [one for one in named if self.files(one, query).parts]

    def files(self, source: CatalogueRun, query: Query, facet: str = "") -> IndexSegment:
        """Return the index files of a run that a query reads. If `facet` is given, they can also be counted by it."""
        if facet in ANNOTATED or query.annotated:
            return IndexSegment(source, [source.annotated] if source.annotated else [])
        return IndexSegment(source, source.parts)

    def segments(self, query: Query) -> list[IndexSegment]:
        """Return the index files of a query's runs, grouped into segments."""
        chosen = self.chosen(query)
        if query.annotated:
            return [self.files(one, query) for one in chosen]
        return [one for one in self.state.segments if one.source in chosen]

    def where(self, query: Query, files: IndexSegment) -> Condition:
        """Return the SQL condition for rows of a query that this reader may see."""
        where = Condition()
        # Skip the condition if the files contain no restricted rows.
        if any(is_hidden(labels, self.hidden) for part in files.parts for labels in part.labels):
            for label in sorted(self.hidden):
                where = where.also("not contains(labels, ?)", element(label))
        for name, values in sorted(query.facets.items()):
            one, given = facet_condition(FILTERS[name], values)
            where = where.also(f"({one})", *given)
        for name, (low, high) in sorted(query.ranges.items()):
            for sign, limit in ((">=", low), ("<=", high)):
                if limit is not None:
                    where = where.also(f"{name} {sign} ?", limit)
        if query.where:
            where = where.also(*self._expressed(query, files))
        if query.text.strip():
            keys = [key for key in self.found(query).keys if key.source is files.source]
            where = where.also(AMONG, [key.shard << 32 | key.row for key in keys])
        return where

    def _expressed(self, query: Query, files: IndexSegment) -> tuple[str, *tuple[Any, ...]]:
        """Return the condition of the query's filter expression for the rows of a run.

        If the index lacks one of its columns, the condition lists the rows that match, which are found in the run's data.
        """
        source, remember = files.source, self.database.remember
        known: dict[str, ColumnKind] = {}
        for one in self.chosen(query):
            known |= remember(self.state, ("columns", one.name), lambda one=one: known_columns(_reader(one)))
        expression = parse_expression(query.where, known)
        unscanned = any(part.unknown for part in source.parts)
        if expression.columns <= INDEXED.keys() - ({"finding"} if unscanned else set()):
            sql, given = expression.to_sql(INDEXED, known)
            return sql, *given
        key = ("places", source.name, str(expression))
        return AMONG, remember(self.state, key, lambda: _places(_reader(source), expression), large=True)

    def table(self, query: Query, files: IndexSegment) -> tuple[str, list[Any]]:
        """Return the SQL of a table with the rows of a query that this reader may see, and its parameters."""
        return files.table(self.where(query, files))

    def found(self, query: Query) -> Found:
        """Return the conversations that contain the query's text, in the order of the query."""
        return self.remember(("found", query.digest), lambda: self._search(query), large=True)

    def texts(self, source: CatalogueRun) -> list[TextIndex]:
        """Return the text indexes of a run."""
        return self.database.remember(
            self.state, ("text", source.name), lambda: opened(source.folder, source.stage)
        )

    def _search(self, query: Query) -> Found:
        hits: dict[tuple[str, int, int], TextHit] = {}
        notes: list[str] = []
        keys: list[Key] = []
        for source in self.chosen(query):
            found = search(source, self.texts(source), query.text, query.facets, self.hidden)
            notes += found.notes
            values = self._values_of(source, query, found)
            for hit in found.hits:
                if values is None or (hit.shard, hit.row) in values:
                    value = -hit.score if values is None else values[hit.shard, hit.row]
                    score = -hit.score if query.sorted_by == "relevance" else value
                    keys.append(Key(source, hit.shard, hit.row, score))
                    hits[source.name, hit.shard, hit.row] = hit
        order = {source.name: number for number, source in enumerate(self.state.sources)}
        keys.sort(key=lambda key: (order[key.source.name], key.shard, key.row))
        if query.sorted_by == "relevance":
            keys.sort(key=lambda key: cast("float", key.value))  # always the best first
        elif query.sorted_by != "order":
            keys.sort(key=lambda key: cast("float", key.value), reverse=query.order == "desc")
        elif query.order == "desc":
            keys.reverse()
        return Found(keys, hits, tuple(notes))

    def _values_of(
        self, source: CatalogueRun, query: Query, found: TextFound
    ) -> dict[tuple[int, int], float] | None:
        """Return the sort keys of the hits that match the query's filters. Return None if no filter or sort key needs to be
        read.
        """
        if found.narrowed and not query.ranges and not query.where and query.sorted_by not in NUMBERS:
            return None
        if not found.hits:
            return {}
        column = sort_column(query.sorted_by) if query.sorted_by in NUMBERS else "0"
        files = self.files(source, query)
        where = self.where(replace(query, text=""), files)
        table, given = files.table(where.also(AMONG, [hit.shard << 32 | hit.row for hit in found.hits]))
        rows = self.ask(f"select shard, row, {column} from {table}", given)
        return {(shard, row): value for shard, row, value in rows}


def _reader(source: CatalogueRun) -> RunReader:
    return RunReader(source.address, source.stage)


def _places(run: RunReader, expression: Expression) -> list[int]:
    return [shard << 32 | row for shard, chosen in select_by_shard(run, expression) for row in chosen]


class Found(ListPath):
    """The best hits of a text search, in memory."""

    def __init__(
        self, keys: list[Key], hits: dict[tuple[str, int, int], TextHit], notes: tuple[str, ...]
    ) -> None:
        self.keys, self.hits, self.notes = keys, hits, notes

    def nth(self, n: int, limit: int) -> list[Key]:
        """Return the rows from index `n` on."""
        return self.keys[n : n + limit]

    def beside(self, place: Place, limit: int, *, back: bool) -> list[Key]:
        """Return the rows after a place or, if `back` is true, before it."""
        name = place.run, place.shard, place.row
        # The place is missing if it came from a conversation that is no hit, or if an index is new.
        missing = min(place.at, len(self.keys))
        at = next((n for n, key in enumerate(self.keys) if key.name == name), missing)
        return self.keys[max(0, at - limit) : at] if back else self.keys[at + 1 : at + 1 + limit]
