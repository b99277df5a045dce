# ruff: noqa: S608 - SQL is put together from names in this package; values are parameters, always
"""The answers for one reader at one time: rows, pages and counts; and the choice of a list path."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from camel.core.checks import shown
from camel.index.facets import NUMBERS, elements
from camel.query.annotated import ANNOTATED, FILTERS
from camel.query.answers import NeedsConsent, NotThere, Page, Row, ShownHit
from camel.query.conditions import Condition, ranked, sortable
from camel.query.counting import count_facets, count_rows
from camel.query.database import Key
from camel.query.number_scan import NumberScan
from camel.query.parts import IndexPart
from camel.query.paths import ListPath
from camel.query.run_order import RunOrder
from camel.query.scope import AMONG, Scope
from camel.query.sorted_copies import SortedCopies
from camel.query.sources import CatalogueRun
from camel.query.where import Place, Query, to_cursor


def choose_list(scope: Scope, query: Query) -> ListPath:
    """Return the cheapest list path that can answer a query."""
    if query.text.strip():
        return scope.found(query)
    if query.sorted_by not in NUMBERS:
        return RunOrder(scope, query)
    return SortedCopies.of(scope, query) or NumberScan(scope, query)


class CatalogueView(Scope):
    """The answers to queries for one reader, as of one state of the runs."""

    def facets(self, query: Query) -> dict[str, list[tuple[str, int]]]:
        """Return for each facet its values with their numbers of rows."""
        return self.remember(("facets", query.digest), lambda: self._facets(query))

    def _facets(self, query: Query) -> dict[str, list[tuple[str, int]]]:
        counted = {name: Counter[str]() for name in FILTERS}
        groups = [(query, [name for name in FILTERS if name not in query.facets])]
        groups += [(query.without(name), [name]) for name in query.facets]
        for asked, names in groups:
            for name, counts in count_facets(self, asked, names):
                counted[name].update(counts)
        for name in ANNOTATED:
            counted[name].pop("", None)
        result = {name: ranked(FILTERS[name], counts) for name, counts in counted.items()}
        if len(self.state.sources) > 1 or query.runs:
            runs = [one.name for one in self.state.sources]
            result["run"] = [(run, count_rows(self, replace(query, runs=(run,)))) for run in runs]
        return result

    def sample(self, query: Query, n: int, seed: int) -> list[Row]:
        """Return random rows."""
        total = count_rows(self, query)
        chosen = sorted(random.Random(seed).sample(range(total), min(n, total)))  # noqa: S311
        # The rows of a search are in memory; others are found fastest in the order of the runs.
        asked = query if query.text.strip() else replace(query, sort="order", order="asc")
        return self.rows(choose_list(self, asked).at(chosen), query)

    def restricted(self) -> set[str]:
        """Return the labels of hidden rows."""
        labels = {one for segment in self.state.segments for part in segment.parts for one in part.labels}
        return {one for some in labels for one in elements(some)} & self.hidden

    def find(self, run: str, id: str) -> Key:
        """Return the position of a conversation. Raise an error if it does not exist or this reader may not see it."""
        source = self.source(run)
        for shard, row, labels in self._named(source, id):
            if hidden := self.hidden.intersection(elements(labels)):
                raise NeedsConsent(hidden)
            return Key(source, shard, row, None)
        raise NotThere(f"'{run}' has no conversation {shown(id)}")

    def _named(self, source: CatalogueRun, id: str) -> list[tuple[Any, ...]]:
        """Return shard, row and labels of conversations with an id. Imported runs may have an id twice. The first is used."""
        # Only files whose row groups may contain the id; the database skips the other groups.
        paths = [
            str(part.path)
            for part in source.parts
            if any(low <= id <= high for low, high in part.extremes("id"))
        ]
        sql = "select shard, row, labels from read_parquet(?) where id = ? order by shard, row limit 1"
        return self.ask(sql, [paths, id]) if paths else []

    def place(self, query: Query, key: Key) -> Place:
        """Return the place of a row in the order of a query. The field `at` is not set."""
        value = None
        if query.sorted_by in NUMBERS:
            value = sortable(getattr(self.rows([key], Query())[0], query.sorted_by))
        return Place(0, value, key.source.name, key.shard, key.row)

    def rows(self, keys: Sequence[Key], query: Query) -> list[Row]:
        """Return the complete rows for these keys, in the same order."""
        wanted: dict[IndexPart, list[int]] = {}
        where: list[tuple[IndexPart, int]] = []
        for key in keys:
            # Annotated rows are close together in their own file, but far apart in the index.
            small = key.source.annotated if query.annotated else None
            part = small or key.source.part_of(key.shard)
            position = part.position(key.shard, key.row)
            wanted.setdefault(part, []).append(position)
            where.append((part, position))
        read = {part: part.rows_at(positions) for part, positions in wanted.items()}
        hits = self.found(query).hits if query.text.strip() else {}
        rows: list[Row] = []
        for key, (part, position) in zip(keys, where, strict=True):
            values = read[part][position]
            hit = hits.get(key.name)
            row = _row(key.source.name, values, ShownHit(*hit.show(), hit.score) if hit else None)
            if said := key.source.annotations.get(row.id):
                row = replace(row, star=said.star, tags=said.tags, note=said.note)
            rows.append(row)
        if any(self.hidden.intersection(row.labels) for row in rows):
            raise AssertionError("a restricted row has passed the gate")
        return rows

    def page(self, query: Query, keys: list[Key], at: int, total: int) -> Page:
        """Return the page with these rows, which begins at row `at`."""
        rows = self.rows(keys, query)
        first = last = None
        if keys:
            first = to_cursor(query, Place(at, keys[0].value, *keys[0].name))
            last = to_cursor(query, Place(at + len(keys) - 1, keys[-1].value, *keys[-1].name))
        more = at + len(keys) < total
        notes = self.found(query).notes if query.text.strip() else ()
        return Page(
            rows, last if more else None, first if at > 0 else None, total, at, (*self.state.notes, *notes)
        )

    def jump(self, query: Query, n: int, limit: int) -> Page:
        """Return the page that begins with row `n`."""
        total = count_rows(self, query)
        n = min(n, max(0, total - 1))
        return self.page(query, choose_list(self, query).nth(n, limit), n, total)

    def beside(self, query: Query, place: Place, limit: int, *, back: bool) -> Page:
        """Return the page after a place or, if `back` is true, before it."""
        total = count_rows(self, query)
        keys = choose_list(self, query).beside(place, limit, back=back)
        at = max(0, place.at - len(keys)) if back else place.at + 1
        return self.page(query, keys, at, max(total, at + len(keys)))

    def rows_of(self, source: CatalogueRun, query: Query, path: str) -> Any:
        """Return the indices of the rows of a derived file that match a query. The file must have the columns of an index."""
        files = self.files(source, query)
        where = self.where(query, files) if files.parts else Condition("false")
        if files.parts and (query.annotated or "tools" in where.sql):
            table, given = files.table(where)
            places = self.ask(f"select shard::bigint << 32 | row from {table}", given)
            where = Condition(AMONG, [[place for (place,) in places]])
        sql = f"select file_row_number from read_parquet(?, file_row_number = true) {where.clause}"
        return self.database.numbers(sql, [path, *where.given])


def _row(run: str, values: dict[str, Any], hit: ShownHit | None) -> Row:
    sets: dict[str, Any] = {name: tuple(elements(values[name])) for name in ("others", "labels", "findings")}
    return Row(run=run, hit=hit, **{**values, **sets})
