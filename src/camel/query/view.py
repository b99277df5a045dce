# ruff: noqa: S608 - SQL is put together from names in this package; values are parameters, always
"""What one reader may see of a catalogue at one time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from camel.core.checks import shown
from camel.index.facets import FACETS, NUMBERS, elements
from camel.index.text import TextIndex
from camel.query.answers import Behaviours, Histogram, NeedsConsent, NotThere, Page, Row, ShownHit
from camel.query.by_number import NumberedLists
from camel.query.conditions import both, clause, ranked, sort_column, sortable
from camel.query.counts import Counts
from camel.query.database import Database, Key, State, paths
from camel.query.parts import IndexPart
from camel.query.sources import CatalogueRun
from camel.query.text import TextFound, TextHit, indexes_of, search
from camel.query.where import Place, Query, to_cursor

T = TypeVar("T")
_SMALL = 20_000


_FEW_GROUPS = 4
"""An id is looked for in row groups of large files one by one, if it can only be in few of them; else by the database."""


class Derived(NamedTuple):
    """What a view needs of a file that was derived from a run, such as its map."""

    source: CatalogueRun
    query: Query
    hidden: frozenset[str]
    """Labels whose rows this reader may not see."""
    narrow: Callable[[str], Any] | None
    """Finds the rows of a file that fit the query, as an array; None where all do."""
    remember: Callable[[Hashable, Callable[[], Any]], Any]
    """What was made for a key, as long as the run stays as it is."""


class CatalogueView:
    """What one reader may see at one time."""

    def __init__(self, database: Database, state: State, hidden: frozenset[str]) -> None:
        self.database, self.state, self.hidden = database, state, hidden
        self.lists = NumberedLists(database, state, hidden)

    def _remember(self, key: Hashable, make: Callable[[], T], *, large: bool = False) -> T:
        return self.database.remember(self.state, (key, self.hidden), make, large=large)

    def count(self, query: Query) -> int:
        """How many rows there are."""
        return len(self.found(query).keys) if query.text.strip() else self.lists.count(query)

    def counts(self, query: Query) -> Counts:
        """What counts the rows of a query."""
        if not query.text.strip():
            return Counts(self.lists, None)
        return Counts(self.lists, self.found(query).keys)

    def facets(self, query: Query) -> dict[str, list[tuple[str, int]]]:
        """By facet, each value and how many rows have it."""
        return self._remember(("facets", query.digest), lambda: self._facets(query))

    def _facets(self, query: Query) -> dict[str, list[tuple[str, int]]]:
        counted = {name: Counter[str]() for name in FACETS}
        groups = [(query, [name for name in FACETS if name not in query.facets])]
        groups += [(query.without(name), [name]) for name in query.facets]
        for asked, names in groups:
            for name, counts in self.counts(asked).facets(asked, names):
                counted[name].update(counts)
        result = {name: ranked(FACETS[name], counts) for name, counts in counted.items()}
        if len(self.state.sources) > 1 or query.runs:
            alone = [
                (one.name, msgspec.structs.replace(query, runs=(one.name,))) for one in self.state.sources
            ]
            result["run"] = [(name, self.count(asked)) for name, asked in alone]
        return result

    def histogram(self, query: Query, number: str, by: str, bins: int) -> Histogram:
        """How a number is distributed."""
        key = ("histogram", query.digest, number, by, bins)
        return self._remember(key, lambda: self.counts(query).histogram(query, number, by, bins))

    def behaviours(self, query: Query, role: str) -> Behaviours:
        """What was found, by message, seat and role."""
        key = ("behaviours", query.digest, role)
        return self._remember(key, lambda: self.counts(query).behaviours(query, role))

    def sample(self, query: Query, n: int, seed: int) -> list[Row]:
        """Rows at random."""
        total = self.count(query)
        chosen = sorted(random.Random(seed).sample(range(total), min(n, total)))  # noqa: S311
        if query.text.strip():
            keys = self.found(query).keys
            return self.rows([keys[at] for at in chosen], query)
        plain = msgspec.structs.replace(query, sort="order", order="asc")
        return self.rows(self.lists.at_many(plain, chosen), query)

    def restricted(self) -> set[str]:
        """Labels of what is hidden."""
        labels = {one for segment in self.state.segments for part in segment.parts for one in part.labels}
        return {one for some in labels for one in elements(some)} & self.hidden

    def find(self, run: str, id: str) -> Key:
        """The place of a conversation that this reader may see."""
        source = next((one for one in self.state.sources if one.name == run), None)
        if source is None:
            raise NotThere(f"there is no run {shown(run)}")
        for shard, row, labels in self._named(source, id):
            if hidden := self.hidden.intersection(elements(labels)):
                raise NeedsConsent(hidden)
            return Key(source, shard, row, None)
        raise NotThere(f"{run} has no conversation {shown(id)}")

    def _named(self, source: CatalogueRun, id: str) -> Iterator[tuple[int, int, str]]:
        """Where conversations of an id stand, and their labels. One that stands twice is an imported one; the first is meant."""
        many: list[IndexPart] = []
        for part in source.parts:
            groups = part.groups_with(id)
            if 0 < len(groups) <= _FEW_GROUPS and part.rows > _SMALL:
                if found := part.find(id, groups):
                    yield found
            elif groups:
                many.append(part)
        if many:
            sql = "select shard, row, labels from read_parquet(?) where id = ? order by shard, row limit 1"
            yield from self.database.ask(sql, [paths(many), id])

    def place(self, query: Query, key: Key) -> Place:
        """Where a row stands in the order of a query, as far as its neighbours need."""
        value = None
        if query.sorted_by in NUMBERS:
            value = sortable(getattr(self.rows([key], Query())[0], query.sorted_by))
        return Place(0, value, key.source.name, key.shard, key.row)

    def rows(self, keys: Sequence[Key], query: Query) -> list[Row]:
        """Whole rows, in the order of their keys."""
        wanted: dict[IndexPart, list[int]] = {}
        where: list[tuple[IndexPart, int]] = []
        for key in keys:
            part = key.source.part_of(key.shard)
            position = part.position(key.shard, key.row)
            wanted.setdefault(part, []).append(position)
            where.append((part, position))
        read = {part: part.rows_at(positions) for part, positions in wanted.items()}
        hits = self.found(query).hits if query.text.strip() else {}
        rows: list[Row] = []
        for key, (part, position) in zip(keys, where, strict=True):
            values = read[part][position]
            hit = hits.get(key.name)
            rows.append(_row(key.source.name, values, ShownHit(*hit.show(), hit.score) if hit else None))
        if any(self.hidden.intersection(row.labels) for row in rows):
            raise AssertionError("a restricted row has passed the gate")
        return rows

    def page(self, query: Query, keys: list[Key], at: int, total: int) -> Page:
        """The page with these rows, which begins at a place."""
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
        """The page that begins with the `n`th row."""
        total = self.count(query)
        n = min(n, max(0, total - 1))
        if query.text.strip():
            keys = self.found(query).keys[n : n + limit]
        elif query.sorted_by in NUMBERS:
            keys = self.lists.nth_by_number(query, n, limit)
        elif n == 0:
            keys = self.lists.along(query, None, limit, back=False)
        else:
            keys = self.lists.in_order(query, n, limit)
        return self.page(query, keys, n, total)

    def beside(self, query: Query, place: Place, limit: int, *, back: bool) -> Page:
        """The page after a place, or before it."""
        total = self.count(query)
        if query.text.strip():
            keys = self.found(query).beside(place, limit, back)
        elif query.sorted_by in NUMBERS:
            keys = self.lists.by_number(query, place, limit, back=back)
        else:
            keys = self.lists.along(query, place, limit, back=back)
        at = max(0, place.at - len(keys)) if back else place.at + 1
        return self.page(query, keys, at, max(total, at + len(keys)))

    def derived(self, run: str, query: Query) -> Derived:
        """What a view of a file needs that was derived from a run."""
        source = next((one for one in self.state.sources if one.name == run), None)
        if source is None:
            raise NotThere(f"there is no run {shown(run)}")
        asked = msgspec.structs.replace(query, runs=(run,), sort="", order="asc")
        plain = not (asked.facets or asked.ranges or asked.text.strip())
        return Derived(
            source,
            asked,
            self.hidden,
            None if plain else partial(self._rows_of, source, asked),
            partial(self.database.remember, self.state, large=True),
        )

    def _rows_of(self, source: CatalogueRun, query: Query, path: str) -> Any:
        """The rows of a derived file that fit a query, as an array; it has the columns of an index."""
        where, parameters = self.lists.where(msgspec.structs.replace(query, text=""), source.parts)
        if query.text.strip():
            where = both(where, "(shard::bigint << 32 | row) in (select unnest(?))")
            parameters.append([key.shard << 32 | key.row for key in self.found(query).keys])
        sql = f"select file_row_number from read_parquet(?, file_row_number = true) {clause('where', where)}"
        return self.database.numbers(sql, [path, *parameters])

    def found(self, query: Query) -> _SearchResult:
        """All conversations in which a text is said, in the order of the query."""
        key = ("found", query.digest)
        return self._remember(key, lambda: self._search(query), large=True)

    def texts(self, source: CatalogueRun) -> list[TextIndex]:
        """The text indexes of a run."""
        return self.database.remember(self.state, ("text", source.name), lambda: indexes_of(source))

    def _search(self, query: Query) -> _SearchResult:
        hits: dict[tuple[str, int, int], TextHit] = {}
        notes: list[str] = []
        keys: list[Key] = []
        for source in self.lists.chosen(query):
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
            keys.sort(key=lambda key: cast("float", key.value))  # the best first, whatever the order
        elif query.sorted_by != "order":
            keys.sort(key=lambda key: cast("float", key.value), reverse=query.order == "desc")
        elif query.order == "desc":
            keys.reverse()
        return _SearchResult(keys, hits, tuple(notes))

    def _values_of(
        self, source: CatalogueRun, query: Query, found: TextFound
    ) -> dict[tuple[int, int], float] | None:
        """Of what was found, the rows that fit the query, with what they are sorted by; None where all of them do."""
        if found.narrowed and not query.ranges and query.sorted_by not in NUMBERS:
            return None
        if not found.hits:
            return {}
        column = sort_column(query.sorted_by) if query.sorted_by in NUMBERS else "0"
        where, parameters = self.lists.where(msgspec.structs.replace(query, text=""), source.parts)
        where = both(where, "(shard::bigint << 32 | row) in (select unnest(?))")
        places = [hit.shard << 32 | hit.row for hit in found.hits]
        sql = f"select shard, row, {column} from read_parquet(?) where {where}"
        rows = self.database.ask(sql, [paths(source.parts), *parameters, places])
        return {(shard, row): value for shard, row, value in rows}


class _SearchResult(NamedTuple):
    """What a search gave."""

    keys: list[Key]
    hits: dict[tuple[str, int, int], TextHit]
    notes: tuple[str, ...]

    def beside(self, place: Place, limit: int, back: bool) -> list[Key]:
        at = next(
            (n for n, key in enumerate(self.keys) if key.name == (place.run, place.shard, place.row)), None
        )
        if at is None:
            # It is not among them: a neighbour was asked for, or an index has come since.
            at = min(place.at, len(self.keys))
        return self.keys[max(0, at - limit) : at] if back else self.keys[at + 1 : at + 1 + limit]


def _row(run: str, values: dict[str, Any], hit: ShownHit | None) -> Row:
    sets: dict[str, Any] = {name: tuple(elements(values[name])) for name in ("others", "labels", "findings")}
    return Row(run=run, hit=hit, **{**values, **sets})
