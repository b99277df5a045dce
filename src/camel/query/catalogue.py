# ruff: noqa: S608 - SQL is put together from names in this package; values are parameters, always
"""The catalogue: the one place that answers questions about conversations, of one run or of several.

    catalogue = Catalogue(["runs/ai_society", "s3://bucket/code", "camel_chat.tar.gz"])
    catalogue.facets(Query())                       # {"stop": [("done", 21_034), …], …}
    page = catalogue.page(Query(facets={"stop": ("done",)}, sort="tokens", order="desc"))
    catalogue.page(query, after=page.next)
    catalogue.conversation(page.rows[0].run, page.rows[0].id)

The one decision to know: conversations with a restricted label are in no answer of any kind unless consent for that label
was given (`Catalogue(…, allow=…)`, or `catalogue.allowing("misalignment")` for one reader). It goes by the label in the
row, never by a file's name, and what is opened is looked at once more.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

import msgspec

from camel.core.checks import shown
from camel.core.errors import CamelError, InputError
from camel.core.transcript import Transcript
from camel.index.facets import FACETS, NUMBERS, elements
from camel.index.text import TextIndex
from camel.query.answers import Behaviours, Histogram, Hit, NeedsConsent, Neighbours, NotThere, Page, Row
from camel.query.conditions import both, clause, ranked, sort_column, sortable
from camel.query.counts import Counts
from camel.query.database import MEMORY, Database, Key, State, paths
from camel.query.lists import Lists
from camel.query.parts import Part
from camel.query.sources import Source
from camel.query.text import TextFound, TextHit, indexes_of, search
from camel.query.where import Place, Query, from_cursor, to_cursor
from camel.record.release import RESTRICTED

__all__ = [
    "Catalogue",
    "Histogram",
    "Hit",
    "NeedsConsent",
    "Neighbours",
    "NotThere",
    "Page",
    "Query",
    "Row",
    "Source",
]

LARGEST = 1_000
"""Rows of a page."""
_SMALL = 20_000
_FEW_GROUPS = 4
"""An id is looked for in row groups of large files one by one, if it can only be in few of them; else by the database."""
T = TypeVar("T")
P = ParamSpec("P")


def _again(method: Callable[P, T]) -> Callable[P, T]:
    """The method, tried once more where an index file has gone or cannot be read: it is then left out."""

    @wraps(method)
    def tried(*args: P.args, **kwargs: P.kwargs) -> T:
        shared = cast("Catalogue", args[0])._shared  # pyright: ignore[reportPrivateUsage]
        try:
            return method(*args, **kwargs)
        except shared.trouble:
            shared.doubt()
            return method(*args, **kwargs)

    return tried


class Catalogue:
    """Conversations of one or several runs, found and counted."""

    def __init__(
        self,
        runs: Sequence[str | Path],
        allow: Collection[str] = (),
        *,
        memory: str = MEMORY,
    ) -> None:
        self._hidden = _hidden(allow)
        self._shared = Database([str(run) for run in runs], memory)
        try:
            now = self._now()
            for source in now.state.sources:
                now.texts(source)  # opened now, and not while the first reader waits
        except BaseException:
            self.close()
            raise

    def allowing(self, *labels: str) -> Catalogue:
        """The same catalogue for a reader who has given consent for these labels, and no others."""
        other = object.__new__(Catalogue)
        other._shared, other._hidden = self._shared, _hidden(labels)
        return other

    def keep_looking(self, stop: threading.Event) -> None:
        """What is done beside readers, until told to stop: small runs are looked through with the detectors as they grow.

        Before that, what would keep the first reader waiting is read once: text indexes, and footers of sorted copies.
        What fails, as a store may, is tried again later.
        """
        trouble = (CamelError, *self._shared.trouble)
        with contextlib.suppress(*trouble):
            self._warm(stop)
        pause = 0.0
        while not stop.wait(pause):
            pause = 2.0
            with contextlib.suppress(*trouble):
                self._shared.state()
                pause = 0.05 if self._shared.look_through() else 2.0

    def _warm(self, stop: threading.Event) -> None:
        now = self._now()
        for source in now.state.sources:
            for index in now.texts(source):
                index.search([["the"]], {}, frozenset(), 1)
            for part in source.parts:
                if not stop.is_set():
                    part.ordered("tokens")

    def _now(self) -> _Reader:
        return _Reader(self._shared, self._shared.state(), self._hidden)

    @property
    def runs(self) -> list[Source]:
        """The runs, by the names under which they are asked for."""
        return list(self._shared.state().sources)

    def close(self) -> None:
        """Give back files and memory."""
        self._shared.close()

    def __enter__(self) -> Catalogue:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @_again
    def restricted(self) -> list[str]:
        """The labels of conversations that are hidden from this reader, without how many there are."""
        return sorted(self._now().restricted())

    def notes(self) -> tuple[str, ...]:
        """What is amiss: runs without an index, files that cannot be read."""
        return self._shared.state().notes

    @_again
    def count(self, query: Query = Query()) -> int:  # noqa: B008 - frozen
        """How many conversations there are."""
        return self._now().count(query)

    @_again
    def facets(self, query: Query = Query()) -> dict[str, list[tuple[str, int]]]:  # noqa: B008 - frozen
        """By facet, each value and how many conversations have it, the most first; buckets of numbers in their order.

        The values of a facet are counted as if none of them were chosen, so that one can see what another choice would
        give. `run` is among the facets where there are several, or one is chosen.
        """
        return self._now().facets(query)

    @_again
    def page(
        self,
        query: Query = Query(),  # noqa: B008 - frozen
        after: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> Page:
        """Rows of a list: the first, those `after` a cursor, or those `before` one."""
        if after is not None and before is not None:
            raise InputError("a page is after one cursor or before one, not both")
        _check_number("limit", limit, 1, LARGEST)
        now = self._now()
        if after is not None or before is not None:
            place = from_cursor(query, cast("str", after if after is not None else before))
            return now.beside(query, place, limit, back=before is not None)
        return now.jump(query, 0, limit)

    @_again
    def jump(self, query: Query = Query(), n: int = 0, limit: int = 50) -> Page:  # noqa: B008 - frozen
        """The page that begins with row `n`, from 0; with the last rows where there are not so many."""
        _check_number("limit", limit, 1, LARGEST)
        _check_number("n", n, 0, 2**62)
        return self._now().jump(query, n, limit)

    @_again
    def sample(self, query: Query = Query(), n: int = 20, seed: int = 0) -> list[Row]:  # noqa: B008 - frozen
        """`n` rows at random, each equally likely; the same ones for the same seed, while nothing is added."""
        _check_number("n", n, 1, LARGEST)
        return self._now().sample(query, n, seed)

    @_again
    def neighbours(self, run: str, id: str, query: Query = Query()) -> Neighbours:  # noqa: B008 - frozen
        """The conversations before and after one in the list of a query."""
        now = self._now()
        place = now.place(query, now.find(run, id))
        before = now.beside(query, place, 1, back=True).rows
        after = now.beside(query, place, 1, back=False).rows
        return Neighbours(before[0] if before else None, after[0] if after else None)

    @_again
    def row(self, run: str, id: str) -> Row:
        """A conversation as a list shows it."""
        now = self._now()
        return now.rows([now.find(run, id)], Query())[0]

    @_again
    def conversation(self, run: str, id: str) -> Transcript:
        """Read one conversation; of a run, one row group of one file."""
        key = self._now().find(run, id)
        transcript = key.source.read(key.shard, key.row)
        if hidden := self._hidden.intersection(transcript.labels):
            raise NeedsConsent(hidden)
        if transcript.id != id:
            raise InputError(
                f"the index of {run} is damaged: remove its folder 'index', then camel index {run}"
            )
        return transcript

    def check(self, run: str, id: str) -> None:
        """Raise unless what holds a conversation is as it was committed: for whoever passes it on."""
        key = self._now().find(run, id)
        key.source.check(key.shard)

    @_again
    def histogram(
        self,
        query: Query = Query(),  # noqa: B008 - frozen
        number: str = "messages",
        by: str = "",
        bins: int = 30,
    ) -> Histogram:
        """How a number is distributed, over all or by the value of a facet."""
        if number not in NUMBERS:
            raise InputError(f"there is no number {shown(number)}: there are {', '.join(NUMBERS)}")
        if by and by not in FACETS:
            raise InputError(f"there is no facet {shown(by)}: there are {', '.join(FACETS)}")
        _check_number("bins", bins, 1, 1_000)
        return self._now().histogram(query, number, by, bins)

    @_again
    def derived(self, run: str, query: Query, show: Callable[[Derived], T]) -> T:
        """What `show` makes of a file that was derived from a run, and of a query; the run's name in it is left alone."""
        return show(self._now().derived(run, query))

    @_again
    def behaviours(self, query: Query = Query(), role: str = "") -> Behaviours:  # noqa: B008 - frozen
        """What was found in conversations, by message and seat; by `role` too, `assistant` or `user`."""
        if role not in ("", "assistant", "user"):
            raise InputError(f"behaviours are counted by assistant or user, not by {shown(role)}")
        return self._now().behaviours(query, role)

    @_again
    def search(self, query: Query, limit: int = 50) -> Page:
        """The conversations in which `query.text` is said, with what was found: the first page of such a query."""
        if not query.text.strip():
            raise InputError("there is nothing to search for: give the query a text")
        return self.page(query, limit=limit)


class Derived(NamedTuple):
    """What a view needs of a file that was derived from a run, such as its map."""

    source: Source
    query: Query
    hidden: frozenset[str]
    """Labels whose rows this reader may not see."""
    narrow: Callable[[str], Any] | None
    """Finds the rows of a file that fit the query, as an array; None where all do."""
    remember: Callable[[Hashable, Callable[[], Any]], Any]
    """What was made for a key, as long as the run stays as it is."""


class _Reader:
    """What one reader may see at one time."""

    def __init__(self, database: Database, state: State, hidden: frozenset[str]) -> None:
        self.database, self.state, self.hidden = database, state, hidden
        self.lists = Lists(database, state, hidden)

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

    def _named(self, source: Source, id: str) -> Iterator[tuple[int, int, str]]:
        """Where conversations of an id stand, and their labels. One that stands twice is an imported one; the first is meant."""
        many: list[Part] = []
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
        wanted: dict[Part, list[int]] = {}
        where: list[tuple[Part, int]] = []
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
            rows.append(_row(key.source.name, values, Hit(*hit.show(), hit.score) if hit else None))
        if any(self.hidden.intersection(row.labels) for row in rows):
            raise AssertionError("a restricted row has passed the gate")
        return rows

    def page(self, query: Query, keys: list[Key], at: int, total: int) -> Page:
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

    def _rows_of(self, source: Source, query: Query, path: str) -> Any:
        """The rows of a derived file that fit a query, as an array; it has the columns of an index."""
        where, parameters = self.lists.where(msgspec.structs.replace(query, text=""), source.parts)
        if query.text.strip():
            where = both(where, "(shard::bigint << 32 | row) in (select unnest(?))")
            parameters.append([key.shard << 32 | key.row for key in self.found(query).keys])
        sql = f"select file_row_number from read_parquet(?, file_row_number = true) {clause('where', where)}"
        return self.database.numbers(sql, [path, *parameters])

    def found(self, query: Query) -> _Found:
        """All conversations in which a text is said, in the order of the query."""
        key = ("found", query.digest)
        return self._remember(key, lambda: self._search(query), large=True)

    def texts(self, source: Source) -> list[TextIndex]:
        """The text indexes of a run."""
        return self.database.remember(self.state, ("text", source.name), lambda: indexes_of(source))

    def _search(self, query: Query) -> _Found:
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
        return _Found(keys, hits, tuple(notes))

    def _values_of(
        self, source: Source, query: Query, found: TextFound
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


class _Found(NamedTuple):
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


def _hidden(allow: Collection[str]) -> frozenset[str]:
    given = {allow} if isinstance(allow, str) else set(allow)
    return RESTRICTED - given


def _check_number(name: str, value: int, low: int, high: int) -> None:
    if (
        isinstance(cast("Any", value), bool)
        or not isinstance(cast("Any", value), int)
        or not low <= value <= high
    ):
        raise InputError(f"{name} is a whole number from {low:,} to {high:,}, not {shown(value)}")


def _row(run: str, values: dict[str, Any], hit: Hit | None) -> Row:
    sets: dict[str, Any] = {name: tuple(elements(values[name])) for name in ("others", "labels", "findings")}
    return Row(run=run, hit=hit, **{**values, **sets})
