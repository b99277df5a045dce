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

import math
import random
import threading
import time
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from functools import wraps
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

import msgspec

from camel.core.errors import InputError, MissingExtra, shown
from camel.core.transcript import Transcript
from camel.explorer.query import Place, Query, from_cursor, to_cursor
from camel.explorer.sources import Part, Source, Sources
from camel.storage.cube import facet_sql
from camel.storage.index import (
    FACETS,
    NUMBERS,
    SEPARATOR,
    UNKNOWN,
    Facet,
    bucket_names,
    elements,
)
from camel.storage.release import RESTRICTED
from camel.storage.table import arrow

FRESH = 1.0
"""Seconds for which what a run has committed is not looked up again."""
LARGEST = 1_000
"""Rows of a page."""
MEMORY = "400MB"
"""For the database."""
_SEGMENT = 4_500_000
"""Rows that are asked for together while the list is gone along."""
_SORTED_AT_ONCE = 100_000
"""Rows up to which going to one far down a sorted list is done by sorting."""
_STEPS = 4_096
"""Into which the range of a number is divided to find a row far down."""
_REMEMBERED = 256
"""Answers that are kept: counts are asked for again on every page."""
_SEARCHES = 8
"""Searches that are kept: they are large."""
T = TypeVar("T")
P = ParamSpec("P")


class NeedsConsent(InputError):
    """A conversation has a restricted label; `labels` says for which consent must be given first."""

    def __init__(self, labels: Iterable[str]) -> None:
        self.labels = tuple(sorted(labels))
        super().__init__(f"this conversation is labelled {', '.join(self.labels)}: it is shown after consent")


class NotThere(InputError):
    """There is no such run, or no such conversation in it."""


class Row(msgspec.Struct, frozen=True):
    """A conversation as a list shows it."""

    run: str
    id: str
    scenario: str
    assistant: str
    user: str
    others: tuple[str, ...]
    """Roles of other seats."""
    task: str
    """Its beginning."""
    stop: str
    model: str
    labels: tuple[str, ...]
    findings: tuple[str, ...]
    messages: int
    tokens: int
    completion: int
    calls: int
    cost: float | None
    """Dollars, where the price is known."""
    shard: int
    row: int
    """Where it stands: the row in its shard."""
    hit: Hit | None = None
    """What was found in it, where text was searched for."""


class Hit(msgspec.Struct, frozen=True):
    """Where in a conversation words were found."""

    message: int
    """The message's place in the conversation, from 0; -1 where they are in its task."""
    pieces: tuple[tuple[str, bool], ...]
    """Its text around the words, in pieces; True where a piece is one of the words. Not escaped."""
    score: float


class Page(msgspec.Struct, frozen=True):
    """A part of a list."""

    rows: list[Row]
    next: str | None
    """The cursor of the page after it; None on the last."""
    previous: str | None
    """The cursor of the page before it, to be given as `before`."""
    total: int
    """All rows of the query."""
    at: int
    """How many rows are before the first of these."""
    notes: tuple[str, ...] = ()
    """What whoever reads it should know: that only a part was searched, or that an index is missing."""


class Neighbours(NamedTuple):
    """The conversations before and after one in the order of a query."""

    previous: Row | None
    next: Row | None


class Histogram(msgspec.Struct, frozen=True):
    """How often a number has which value."""

    number: str
    edges: list[float]
    """Where the bars begin, and where the last one ends."""
    series: dict[str, list[int]]
    """By value of the facet, or under "" for all: how many conversations each bar has."""
    unknown: int
    """Conversations without the number."""


class _Segment(NamedTuple):
    """Neighbouring files of one run that are asked together."""

    source: Source
    parts: list[Part]

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    def position(self, place: Place | None, forward: bool) -> int:
        """Where the rows begin that are after a place, or end that are before it."""
        if place is None:
            return 0 if forward else self.rows
        at = 0
        for part in self.parts:
            if part.last >= place.shard:
                return at + (
                    part.after(place.shard, place.row) if forward else part.before(place.shard, place.row)
                )
            at += part.rows
        return at


class _CubeQuery(NamedTuple):
    """A question to a cube."""

    path: str
    where: str
    parameters: list[Any]
    left: list[Part]
    """The files that it does not count."""

    def ask(self, shared: _Shared, columns: str, group: str = "") -> list[tuple[Any, ...]]:
        return shared.ask(
            f"select {columns} from read_parquet(?) where {self.where} {group}", [self.path, *self.parameters]
        )


class _State(NamedTuple):
    """What is there at one time. Never changes; another takes its place."""

    version: int
    sources: tuple[Source, ...]
    segments: tuple[_Segment, ...]
    notes: tuple[str, ...]


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
        self._shared = _Shared([str(run) for run in runs], memory)
        self._hidden = _hidden(allow)

    def allowing(self, *labels: str) -> Catalogue:
        """The same catalogue for a reader who has given consent for these labels, and no others."""
        other = object.__new__(Catalogue)
        other._shared, other._hidden = self._shared, _hidden(labels)
        return other

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

    # ------------------------------------------------------------ what there is

    @_again
    def restricted(self) -> list[str]:
        """The labels of conversations that are hidden from this reader, without how many there are."""
        found: set[str] = set()
        for part in _parts(self._segments(self._shared.state(), Query())):
            found |= {one for labels in part.labels for one in elements(labels)} & self._hidden
        return sorted(found)

    def notes(self) -> tuple[str, ...]:
        """What is amiss: runs without an index, files that cannot be read."""
        return self._shared.state().notes

    @_again
    def count(self, query: Query = Query()) -> int:  # noqa: B008 - frozen
        """How many conversations there are."""
        state = self._shared.state()
        if query.text.strip():
            return len(self._found(state, query).keys)
        return self._count(state, query)

    @_again
    def facets(self, query: Query = Query()) -> dict[str, list[tuple[str, int]]]:  # noqa: B008 - frozen
        """By facet, each value and how many conversations have it, the most first; buckets of numbers in their order.

        The values of a facet are counted as if none of them were chosen, so that one can see what another choice would
        give. `run` is among the facets where there are several.
        """
        state = self._shared.state()
        key = ("facets", query.digest, self._hidden)
        return self._shared.remember(state, key, lambda: self._facets(state, query))

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
        state = self._shared.state()
        if after is not None or before is not None:
            place = from_cursor(query, cast("str", after if after is not None else before))
            return self._beside(state, query, place, limit, back=before is not None)
        return self._jump(state, query, 0, limit)

    @_again
    def jump(self, query: Query = Query(), n: int = 0, limit: int = 50) -> Page:  # noqa: B008 - frozen
        """The page that begins with row `n`, from 0; with the last rows where there are not so many."""
        _check_number("limit", limit, 1, LARGEST)
        _check_number("n", n, 0, 2**62)
        return self._jump(self._shared.state(), query, n, limit)

    @_again
    def sample(self, query: Query = Query(), n: int = 20, seed: int = 0) -> list[Row]:  # noqa: B008 - frozen
        """`n` rows at random, each equally likely; the same ones for the same seed, while nothing is added."""
        _check_number("n", n, 1, LARGEST)
        state = self._shared.state()
        total = self.count(query)
        chosen = sorted(random.Random(seed).sample(range(total), min(n, total)))  # noqa: S311
        if query.text.strip():
            return self._rows(state, [self._found(state, query).keys[at] for at in chosen], query)
        plain = msgspec.structs.replace(query, sort="order", order="asc")
        return self._rows(state, self._at_many(state, plain, chosen), query)

    @_again
    def neighbours(self, run: str, id: str, query: Query = Query()) -> Neighbours:  # noqa: B008 - frozen
        """The conversations before and after one in the list of a query."""
        state = self._shared.state()
        place = self._place(state, query, self._find(state, run, id))
        before = self._beside(state, query, place, 1, back=True).rows
        after = self._beside(state, query, place, 1, back=False).rows
        return Neighbours(before[0] if before else None, after[0] if after else None)

    @_again
    def row(self, run: str, id: str) -> Row:
        """A conversation as a list shows it."""
        state = self._shared.state()
        return self._rows(state, [self._find(state, run, id)], Query())[0]

    @_again
    def conversation(self, run: str, id: str) -> Transcript:
        """Read one conversation; of a run, one row group of one file."""
        state = self._shared.state()
        key = self._find(state, run, id)
        transcript = key.source.read(key.shard, key.row)
        if hidden := self._hidden.intersection(transcript.labels):
            raise NeedsConsent(hidden)
        if transcript.id != id:
            raise InputError(
                f"the index of {run} is damaged: remove its folder 'index', then camel index {run}"
            )
        return transcript

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
        state = self._shared.state()
        key = ("histogram", query.digest, self._hidden, number, by, bins)
        return self._shared.remember(state, key, lambda: self._histogram(state, query, number, by, bins))

    # ------------------------------------------------------------ which files, which rows

    def _segments(self, state: _State, query: Query) -> list[_Segment]:
        chosen = self._chosen(state, query)
        return [one for one in state.segments if one.source in chosen]

    def _gate(self, parts: Iterable[Part]) -> tuple[str, list[Any]]:
        """The condition that keeps restricted rows out; none where the files say that they hold none."""
        hidden = sorted(self._hidden)
        if not any(_is_hidden(labels, self._hidden) for part in parts for labels in part.labels):
            return "", []
        return " and ".join("not contains(labels, ?)" for _ in hidden), [_element(one) for one in hidden]

    def _where(self, query: Query, parts: Iterable[Part]) -> tuple[str, list[Any]]:
        """The conditions of a query on the columns of an index, and their parameters; empty for none."""
        gate, parameters = self._gate(parts)
        conditions = [gate] if gate else []
        for name, values in sorted(query.facets.items()):
            one, given = _facet_condition(FACETS[name], values)
            conditions.append(f"({one})")
            parameters += given
        for name, (low, high) in sorted(query.ranges.items()):
            for sign, limit in ((">=", low), ("<=", high)):
                if limit is not None:
                    conditions.append(f"{name} {sign} ?")
                    parameters.append(limit)
        return " and ".join(conditions), parameters

    def _count(self, state: _State, query: Query) -> int:
        """Rows of a query without text."""
        key = ("count", _unsorted(query).digest, self._hidden)
        return self._shared.remember(
            state, key, lambda: sum(self._count_source(one, query) for one in self._chosen(state, query))
        )

    def _count_source(self, source: Source, query: Query) -> int:
        if (counted := _from_headers(source.parts, query, self._hidden)) is not None:
            return counted
        total, parts = 0, source.parts
        if (cube := self._cube(source, query, ())) is not None:
            total, parts = cube.ask(self._shared, "coalesce(sum(n), 0)")[0][0], cube.left
        if parts:
            where, parameters = self._where(query, parts)
            sql = f"select count(*) from read_parquet(?) {_and('where', where)}"
            total += self._shared.ask(sql, [_paths(parts), *parameters])[0][0]
        return int(total)

    def _cube(self, source: Source, query: Query, facets: Iterable[str]) -> _CubeQuery | None:
        """The cube that can answer a query, grouped by facets, for the files that it counts."""
        if source.counted is None or query.ranges or query.text.strip():
            return None
        number = source.counted.cubes.best({*query.facets, *facets})
        if number is None:
            return None
        conditions, parameters = ["cube = ?"], [number]
        for label in sorted(self._hidden):
            conditions.append("not contains(label, ?)")
            parameters.append(_element(label))
        for name, values in sorted(query.facets.items()):
            one, given = _cube_condition(name, values)
            conditions.append(f"({one})")
            parameters += given
        left = [part for part in source.parts if part not in source.counted.parts]
        return _CubeQuery(str(source.counted.path), " and ".join(conditions), parameters, left)

    def _chosen(self, state: _State, query: Query) -> list[Source]:
        """The runs that a query is about."""
        if unknown := set(query.runs) - {source.name for source in state.sources}:
            raise NotThere(f"there is no run {shown(min(unknown))}")
        return [one for one in state.sources if one.parts and (not query.runs or one.name in query.runs)]

    def _count_segments(self, state: _State, query: Query) -> list[int]:
        """Rows of each segment, for who goes straight to a row far down."""
        key = ("counts", _unsorted(query).digest, self._hidden)
        return self._shared.remember(
            state, key, lambda: [self._count_segment(one, query) for one in self._segments(state, query)]
        )

    def _count_segment(self, segment: _Segment, query: Query) -> int:
        if (counted := _from_headers(segment.parts, query, self._hidden)) is not None:
            return counted
        where, parameters = self._where(query, segment.parts)
        sql = f"select count(*) from read_parquet(?) {_and('where', where)}"
        return self._shared.ask(sql, [_paths(segment.parts), *parameters])[0][0]

    def _find(self, state: _State, run: str, id: str) -> _Key:
        """The place of a conversation that this reader may see."""
        source = next((one for one in state.sources if one.name == run), None)
        if source is None:
            raise NotThere(f"there is no run {shown(run)}")
        for segment in state.segments:
            if segment.source is not source:
                continue
            # An id that stands twice is an imported one; the first is meant.
            sql = "select shard, row, labels from read_parquet(?) where id = ? order by shard, row limit 1"
            for shard, row, labels in self._shared.ask(sql, [_paths(segment.parts), id]):
                if hidden := self._hidden.intersection(elements(labels)):
                    raise NeedsConsent(hidden)
                return _Key(source, shard, row, None)
        raise NotThere(f"{run} has no conversation {shown(id)}")

    def _place(self, state: _State, query: Query, key: _Key) -> Place:
        """Where a row stands in the order of a query, as far as its neighbours need."""
        value = None
        if query.sorted_by in NUMBERS:
            value = _sortable(getattr(self._rows(state, [key], Query())[0], query.sorted_by))
        return Place(0, value, key.source.name, key.shard, key.row)

    def _rows(self, state: _State, keys: Sequence[_Key], query: Query) -> list[Row]:
        """Whole rows, in the order of their keys."""
        wanted: dict[Part, list[int]] = {}
        where: list[tuple[Part, int]] = []
        for key in keys:
            part = key.source.part_of(key.shard)
            position = part.position(key.shard, key.row)
            wanted.setdefault(part, []).append(position)
            where.append((part, position))
        read = {part: part.rows_at(positions) for part, positions in wanted.items()}
        hits = self._found(state, query).hits if query.text.strip() else {}
        rows: list[Row] = []
        for key, (part, position) in zip(keys, where, strict=True):
            values = read[part][position]
            show = hits.get(key.name)
            rows.append(_row(key.source.name, values, show() if show else None))
        if any(self._hidden.intersection(row.labels) for row in rows):
            raise AssertionError("a restricted row has passed the gate")
        return rows

    # ------------------------------------------------------------ lists

    def _page(self, state: _State, query: Query, keys: list[_Key], at: int, total: int) -> Page:
        rows = self._rows(state, keys, query)
        first = last = None
        if keys:
            first = to_cursor(query, Place(at, keys[0].value, *keys[0].name))
            last = to_cursor(query, Place(at + len(keys) - 1, keys[-1].value, *keys[-1].name))
        more = at + len(keys) < total
        notes = self._found(state, query).notes if query.text.strip() else ()
        return Page(
            rows, last if more else None, first if at > 0 else None, total, at, (*state.notes, *notes)
        )

    def _jump(self, state: _State, query: Query, n: int, limit: int) -> Page:
        total = self.count(query)
        n = min(n, max(0, total - 1))
        if query.text.strip():
            keys = self._found(state, query).keys[n : n + limit]
        elif query.sorted_by in NUMBERS:
            keys = self._nth_by_number(state, query, n, limit)
        elif n == 0:
            keys = self._along(state, query, None, limit, back=False)
        else:
            keys = self._in_order(state, query, n, limit)
        return self._page(state, query, keys, n, total)

    def _beside(self, state: _State, query: Query, place: Place, limit: int, *, back: bool) -> Page:
        """The page after a place, or before it."""
        total = self.count(query)
        if query.text.strip():
            keys = self._found(state, query).beside(place, limit, back)
        elif query.sorted_by in NUMBERS:
            keys = self._by_number(state, query, place, limit, back=back)
        else:
            keys = self._along(state, query, place, limit, back=back)
        at = max(0, place.at - len(keys)) if back else place.at + 1
        return self._page(state, query, keys, at, max(total, at + len(keys)))

    def _in_order(self, state: _State, query: Query, n: int, limit: int) -> list[_Key]:
        """The rows from `n` on, in the order of the runs or against it."""
        counts = self._count_segments(state, query)
        segments = self._segments(state, query)
        total = sum(counts)
        if query.order == "desc":
            first, last = max(0, total - n - limit), total - n
        else:
            first, last = n, min(total, n + limit)
        keys: list[_Key] = []
        before = 0
        for segment, count in zip(segments, counts, strict=True):
            low, high = max(first - before, 0), min(last - before, count)
            before += count
            if low < high:
                keys += self._slice(segment, query, low, high)
        return keys[::-1] if query.order == "desc" else keys

    def _slice(self, segment: _Segment, query: Query, low: int, high: int) -> list[_Key]:
        """The rows from `low` to `high` of those that a segment has of a query."""
        where, parameters = self._where(query, segment.parts)
        if not where:
            return [_Key(segment.source, shard, row, None) for shard, row in _positions(segment, low, high)]
        # The files are given in order and the database keeps it: it need not sort, and stops when it has enough.
        sql = f"select shard, row from read_parquet(?) where {where} limit ? offset ?"
        found = self._shared.ask(sql, [_paths(segment.parts), *parameters, high - low, low])
        return [_Key(segment.source, shard, row, None) for shard, row in found]

    def _at_many(self, state: _State, query: Query, positions: Sequence[int]) -> list[_Key]:
        """The rows at these positions, ascending, of a query in the runs' order."""
        starts = [0, *accumulate(self._count_segments(state, query))]
        segments = self._segments(state, query)
        keys: list[_Key] = []
        for number, segment in enumerate(segments):
            here = [at - starts[number] for at in positions if starts[number] <= at < starts[number + 1]]
            if not here:
                continue
            where, parameters = self._where(query, segment.parts)
            if not where:
                for at in here:
                    keys += self._slice(segment, query, at, at + 1)
                continue
            sql = (
                f"select shard, row from (select shard, row, row_number() over () - 1 as n from read_parquet(?) "
                f"where {where}) where n in (select unnest(?)) order by n"
            )
            found = self._shared.ask(sql, [_paths(segment.parts), *parameters, here])
            keys += [_Key(segment.source, shard, row, None) for shard, row in found]
        return keys

    def _along(
        self, state: _State, query: Query, place: Place | None, limit: int, *, back: bool
    ) -> list[_Key]:
        """The rows that follow a place in the order of the runs, or are before it; without a place, the first."""
        forward = back == (query.order == "desc")
        segments = self._segments(state, query)
        names = [source.name for source in state.sources]
        if place is not None and place.run not in names:
            raise InputError("this page is of a run that is not here: begin with the first")
        run = names.index(place.run) if place is not None else None
        keys: list[_Key] = []
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
        self, segment: _Segment, query: Query, place: Place | None, limit: int, forward: bool
    ) -> list[_Key]:
        where, parameters = self._where(query, segment.parts)
        source, parts = segment
        if not where:
            at = segment.position(place, forward)
            low, high = (at, min(segment.rows, at + limit)) if forward else (max(0, at - limit), at)
            found = list(_positions(segment, low, high))
            return [_Key(source, *one, None) for one in (found if forward else reversed(found))]
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
        found = self._shared.ask(sql, [_paths(parts), *parameters, limit])
        return [_Key(source, shard, row, None) for shard, row in found]

    def _nth_by_number(self, state: _State, query: Query, n: int, limit: int) -> list[_Key]:
        """The rows from `n` on in the order of a number, without sorting all: first which value the `n`th has."""
        if n < _SORTED_AT_ONCE:
            return self._by_number(state, query, None, limit, back=False, skip=n)
        low, high, before = self._narrowed(state, query, n)
        if low < high:
            return self._by_number(
                state, query, None, limit, back=False, skip=n - before, between=(low, high)
            )
        # All of them have one value: they are in the order of the runs.
        equal = _equal(query, low)
        keys = [key._replace(value=low) for key in self._in_order(state, equal, n - before, limit)]
        if len(keys) < limit:
            last = keys[-1]
            place = Place(0, low, *last.name)
            keys += self._by_number(state, query, place, limit - len(keys), back=False)
        return keys

    def _narrowed(self, state: _State, query: Query, n: int) -> tuple[float, float, int]:
        """A short range of values that the `n`th row is in, and how many rows are before that range."""
        down = query.order == "desc"
        table, parameters = self._values(state, query)
        found = self._shared.remember(
            state,
            ("limits", query.digest, self._hidden),
            lambda: self._shared.ask(f"select min(value), max(value) from ({table})", parameters),
        )
        low, high = map(float, found[0])
        before = 0
        while low < high:
            width = max((high - low) / _STEPS, 0.0 if query.sorted_by == "cost" else 1.0)
            if width <= 0 or low + width == low:
                break
            counts = self._shared.remember(
                state,
                ("steps", query.digest, self._hidden, low, high),
                lambda low=low, high=high, width=width: self._shared.ask(
                    f"select least(floor((value - ?) / ?), ?) as step, min(value), max(value), count(*) from ({table}) "
                    "where value >= ? and value <= ? group by step order by step",
                    [low, width, _STEPS, *parameters, low, high],
                ),
            )
            for _, first, last, count in reversed(counts) if down else counts:
                if before + count > n:
                    low, high = float(first), float(last)
                    break
                before += count
            if count <= _SORTED_AT_ONCE:
                break
        return low, high, before

    def _values(
        self, state: _State, query: Query, likely: float | None = None, up: bool = True
    ) -> tuple[str, list[Any]]:
        """What a query sorts by, with where it stands, as a table and its parameters; up to a value, if one is given."""
        column = _sort_column(query.sorted_by)
        selects: list[str] = []
        parameters: list[Any] = []
        for source in self._chosen(state, query):
            number = state.sources.index(source)
            where, given = self._where(query, source.parts)
            if likely is not None:
                where = _both(where, _up_to(query.sorted_by, up))
                given.append(likely)
            selects.append(
                f"select {number} as run, {column} as value, shard, row from read_parquet(?) {_and('where', where)}"
            )
            parameters += [_paths(source.parts), *given]
        return " union all ".join(selects), parameters

    def _by_number(
        self,
        state: _State,
        query: Query,
        place: Place | None,
        limit: int,
        *,
        back: bool,
        skip: int = 0,
        between: tuple[float, float] | None = None,
    ) -> list[_Key]:
        """Rows in the order of a number; equal ones in the order of the runs."""
        sources = self._chosen(state, query)
        if not sources:
            return []
        up = (query.order == "asc") != back
        for limits in self._likely(sources, query, place, limit + skip, up) if between is None else [None]:
            keys = self._ask_by_number(state, query, place, limit, back, up, skip, between, limits)
            if limits is None or len(keys) == limit:
                return keys
        return []

    def _likely(
        self, sources: Sequence[Source], query: Query, place: Place | None, count: int, up: bool
    ) -> Iterable[float | None]:
        """Values up to which enough rows are likely to be found, closer ones first, in the end without any.

        A row group has a row with its greatest value. So as many rows as there are groups are at least as great as the
        least of those, and all other groups need not be looked at.
        """
        bounds = [
            bound[0 if up else 1]
            for source in sources
            for part in source.parts
            for bound in part.extremes(query.sorted_by)
        ]
        if place is not None:
            value = _sortable(place.value)
            bounds = [bound for bound in bounds if (bound > value if up else bound < value)]
        bounds.sort(reverse=not up)
        for enough in (2 * count, 40 * count):
            if 2 * enough < len(bounds):
                yield bounds[enough]
        yield None

    def _ask_by_number(
        self,
        state: _State,
        query: Query,
        place: Place | None,
        limit: int,
        back: bool,
        up: bool,
        skip: int,
        between: tuple[float, float] | None,
        likely: float | None,
    ) -> list[_Key]:
        sources = state.sources
        table, parameters = self._values(state, query, likely, up)
        sql = f"select run, value, shard, row from ({table})"
        if between is not None:
            sql += " where value >= ? and value <= ?"
            parameters += between
        if place is not None:
            run = next((n for n, one in enumerate(sources) if one.name == place.run), None)
            if run is None:
                raise InputError("this page is of a run that is not here: begin with the first")
            beyond, after = (">" if up else "<"), ("<" if back else ">")
            sql += (
                f" where value {beyond}= ? and (value {beyond} ? or run {after} ? or (run = ? and "
                f"(shard {after} ? or (shard = ? and row {after} ?))))"
            )
            value = _sortable(place.value)
            parameters += [value, value, run, run, place.shard, place.shard, place.row]
        way, ties = ("asc" if up else "desc"), ("desc" if back else "asc")
        sql += f" order by value {way}, run {ties}, shard {ties}, row {ties} limit ? offset ?"
        found = self._shared.ask(sql, [*parameters, limit, skip])
        keys = [_Key(sources[run], shard, row, value) for run, value, shard, row in found]
        return keys[::-1] if back else keys

    # ------------------------------------------------------------ counts

    def _facets(self, state: _State, query: Query) -> dict[str, list[tuple[str, int]]]:
        counted: dict[str, Counter[str]] = {name: Counter() for name in FACETS}
        groups = [(query, [name for name in FACETS if name not in query.facets])]
        groups += [(query.without(name), [name]) for name in query.facets]
        for asked, wanted in groups:
            for source in self._chosen(state, asked):
                for name, counts in self._facet_counts(state, source, asked, wanted):
                    counted[name].update(counts)
        result = {name: _ranked(FACETS[name], counts) for name, counts in counted.items()}
        if len(state.sources) > 1:
            result["run"] = [
                (one.name, self.count(msgspec.structs.replace(query, runs=(one.name,))))
                for one in state.sources
            ]
        return result

    def _facet_counts(
        self, state: _State, source: Source, query: Query, names: Sequence[str]
    ) -> Iterable[tuple[str, Counter[str]]]:
        """The values of facets among the rows that a run has of a query, in one or several portions."""
        left: list[str] = []
        by_cube: dict[tuple[str, Any], list[str]] = {}
        cubes: dict[tuple[str, Any], _CubeQuery] = {}
        plain = not (query.facets or query.ranges or query.text.strip())
        for name in names:
            if plain and (counts := _header_facet(source.parts, name, self._hidden)) is not None:
                yield name, counts
            elif (cube := self._cube(source, query, [name])) is not None:
                key = (cube.path, cube.parameters[0])
                cubes[key] = cube
                by_cube.setdefault(key, []).append(name)
            else:
                left.append(name)
        for key, some in by_cube.items():
            cube = cubes[key]
            columns, group = _grouping(some)
            yield from _grouped(some, cube.ask(self._shared, f"{columns}, sum(n)", group))
            yield from self._scan_facets(state, source, query, some, cube.left)
        yield from self._scan_facets(state, source, query, left, source.parts)

    def _scan_facets(
        self, state: _State, source: Source, query: Query, names: Sequence[str], parts: Sequence[Part]
    ) -> Iterable[tuple[str, Counter[str]]]:
        """The same, counted from the index."""
        if not names or not parts:
            return
        where, parameters = self._where(query, parts)
        given: list[Any] = [_paths(parts), *parameters]
        if query.text.strip():
            where = _both(where, "(shard::bigint << 32 | row) in (select unnest(?))")
            keys = self._found(state, query).keys
            given.append([key.shard << 32 | key.row for key in keys if key.source is source])
        named = ", ".join(f'{facet_sql(FACETS[name])} as "{name}"' for name in names)
        columns, group = _grouping(names)
        sql = f"select {columns}, count(*) from (select {named} from read_parquet(?) {_and('where', where)}) {group}"
        yield from _grouped(names, self._shared.ask(sql, given))

    def _histogram(self, state: _State, query: Query, number: str, by: str, bins: int) -> Histogram:
        segments = [one for one in self._segments(state, query) if one.parts]
        parts = list(_parts(segments))
        if not parts:
            return Histogram(number, [0.0, 1.0], {}, 0)
        where, parameters = self._where(query, parts)
        given: list[Any] = [_paths(parts), *parameters]
        if query.text.strip():
            return self._histogram_of(
                self._rows(state, self._found(state, query).keys, Query()), number, by, bins
            )
        table = f"read_parquet(?) {_and('where', where)}"
        low, high = self._shared.ask(f"select min({number}), max({number}) from {table}", given)[0]
        edges = _edges(low, high, bins, whole=number != "cost")
        facet = facet_sql(FACETS[by]) if by else "''"
        # Not `least` alone: it passes over what is null.
        bar = (
            f"case when {number} is not null then least({len(edges) - 2}, floor(({number} - ?) / ?))::int end"
        )
        width = edges[1] - edges[0]
        sql = f"select {facet} as f, {bar} as bar, count(*) from {table} group by all"
        found = self._shared.ask(sql, [edges[0], width, *given])
        return _histogram(number, by, edges, found)

    def _histogram_of(self, rows: Sequence[Row], number: str, by: str, bins: int) -> Histogram:
        values = [getattr(row, number) for row in rows]
        known = [value for value in values if value is not None]
        edges = _edges(min(known, default=None), max(known, default=None), bins, whole=number != "cost")
        width = edges[1] - edges[0]
        found = [
            (
                _row_facet(row, by) if by else "",
                None if value is None else min(len(edges) - 2, int((value - edges[0]) / width)),
                1,
            )
            for row, value in zip(rows, values, strict=True)
        ]
        return _histogram(number, by, edges, found)

    # ------------------------------------------------------------ text

    @_again
    def search(self, query: Query, limit: int = 50) -> Page:
        """The conversations in which `query.text` is said, with what was found: the first page of such a query."""
        if not query.text.strip():
            raise InputError("there is nothing to search for: give the query a text")
        return self.page(query, limit=limit)

    def _found(self, state: _State, query: Query) -> _Found:
        """All conversations in which a text is said, in the order of the query."""
        key = ("found", query.digest, self._hidden)
        return self._shared.remember(state, key, lambda: self._search(state, query), large=True)

    def _search(self, state: _State, query: Query) -> _Found:
        from camel.explorer.text import indexes_of, search

        wanted = msgspec.structs.replace(query, text="", sort="", order="asc")
        hits: dict[tuple[str, int, int], Callable[[], Hit]] = {}
        notes: list[str] = []
        keys: list[_Key] = []
        for source in dict.fromkeys(one.source for one in self._segments(state, query)):
            indexes = self._shared.remember(
                state, ("text", source.name), lambda source=source: indexes_of(source)
            )
            found = search(source, indexes, query.text, query.facets, self._hidden)
            notes += found.notes
            column = _sort_column(query.sorted_by) if query.sorted_by in NUMBERS else "null"
            where, parameters = self._where(wanted, source.parts)
            asked = [hit.shard << 32 | hit.row for hit in found.hits]
            conditions = _both(where, "(shard::bigint << 32 | row) in (select unnest(?))")
            sql = f"select shard, row, {column} from read_parquet(?) where {conditions} order by shard, row"
            if not asked:
                continue
            rows = {
                (shard, row): value
                for shard, row, value in self._shared.ask(sql, [_paths(source.parts), *parameters, asked])
            }
            for hit in found.hits:
                if (hit.shard, hit.row) in rows:
                    score = -hit.score if query.sorted_by == "relevance" else rows[hit.shard, hit.row]
                    keys.append(_Key(source, hit.shard, hit.row, score))
                    hits[source.name, hit.shard, hit.row] = lambda hit=hit: Hit(*hit.show(), hit.score)
        order = {source.name: number for number, source in enumerate(state.sources)}
        keys.sort(key=lambda key: (order[key.source.name], key.shard, key.row))
        if query.sorted_by != "order":
            keys.sort(key=lambda key: cast("float", key.value), reverse=query.order == "desc")
        elif query.order == "desc":
            keys.reverse()
        return _Found(keys, hits, tuple(notes))


class _Key(NamedTuple):
    """A row, and what it is sorted by."""

    source: Source
    shard: int
    row: int
    value: float | None

    @property
    def name(self) -> tuple[str, int, int]:
        return self.source.name, self.shard, self.row


class _Found(NamedTuple):
    """What a search gave."""

    keys: list[_Key]
    hits: dict[tuple[str, int, int], Callable[[], Hit]]
    notes: tuple[str, ...]

    def beside(self, place: Place, limit: int, back: bool) -> list[_Key]:
        at = next(
            (n for n, key in enumerate(self.keys) if key.name == (place.run, place.shard, place.row)), None
        )
        if at is None:
            # It is not among them: a neighbour was asked for, or an index has come since.
            at = min(place.at, len(self.keys))
        return self.keys[max(0, at - limit) : at] if back else self.keys[at + 1 : at + 1 + limit]


class _Shared:
    """What all readers of a catalogue have in common: the files, the database, and answers that are kept."""

    def __init__(self, runs: Sequence[str], memory: str) -> None:
        self._sources = Sources(runs)
        self._lock = threading.Lock()
        self._looked = -math.inf
        self._state = _State(0, (), (), ())
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        self._found: OrderedDict[Hashable, Any] = OrderedDict()
        self._database, self._error = _connect(memory)
        for part in ("pyarrow.parquet", "pyarrow.compute"):
            arrow(part)  # now, and not while the first reader waits
        self.state()

    def state(self) -> _State:
        """What there is now, as of a moment ago."""
        with self._lock:
            started = time.monotonic()
            if started - self._looked > FRESH:
                if self._sources.look() or not self._state.version:
                    sources = tuple(self._sources.all)
                    self._state = _State(
                        self._state.version + 1, sources, tuple(_segmented(sources)), self._sources.notes()
                    )
                    self._kept.clear()
                    self._found.clear()
                # Where a look takes long, for a large run far away, it is taken less often.
                self._looked = time.monotonic() + 20 * (time.monotonic() - started)
            return self._state

    @property
    def trouble(self) -> tuple[type[Exception], ...]:
        """What is raised where a file cannot be read."""
        return (self._error, OSError, arrow().ArrowException)

    def doubt(self) -> None:
        """Look at every file anew."""
        with self._lock:
            self._sources.doubt()
            self._looked = -math.inf

    def remember(self, state: _State, key: Hashable, make: Callable[[], T], *, large: bool = False) -> T:
        """An answer, from those that are kept or made anew."""
        whole = (state.version, key)
        kept, most = (self._found, _SEARCHES) if large else (self._kept, _REMEMBERED)
        with self._lock:
            if whole in kept:
                kept.move_to_end(whole)
                return kept[whole]
        made = make()
        with self._lock:
            kept[whole] = made
            while len(kept) > most:
                kept.popitem(last=False)
        return made

    def ask(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Ask the database; values are parameters, always."""
        with self._database.cursor() as cursor:
            return cursor.execute(sql, parameters).fetchall()

    def close(self) -> None:
        self._database.close()
        self._sources.close()


def _connect(memory: str) -> tuple[Any, type[Exception]]:
    try:
        duckdb: Any = import_module("duckdb")
    except ImportError:
        raise MissingExtra("Exploring runs", "explore") from None
    settings = {
        "memory_limit": memory,
        "threads": 4,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    database = duckdb.connect(config=settings)
    for setting in ("enable_progress_bar = false", "parquet_metadata_cache = true"):
        database.execute(f"set {setting}")
    return database, duckdb.Error


def _segmented(sources: Iterable[Source]) -> list[_Segment]:
    segments: list[_Segment] = []
    for source in sources:
        parts: list[Part] = []
        rows = 0
        for part in source.parts:
            if parts and rows + part.rows > _SEGMENT:
                segments.append(_Segment(source, parts))
                parts, rows = [], 0
            parts.append(part)
            rows += part.rows
        if parts:
            segments.append(_Segment(source, parts))
    return segments


def _parts(segments: Iterable[_Segment]) -> Iterable[Part]:
    return (part for segment in segments for part in segment.parts)


def _paths(parts: Iterable[Part]) -> list[str]:
    return [str(part.path) for part in parts]


def _and(word: str, conditions: str) -> str:
    return f"{word} {conditions}" if conditions else ""


def _both(one: str, other: str) -> str:
    return f"{one} and {other}" if one else other


def _unsorted(query: Query) -> Query:
    return msgspec.structs.replace(query, sort="", order="asc")


def _hidden(allow: Collection[str]) -> frozenset[str]:
    given = {allow} if isinstance(allow, str) else set(allow)
    return RESTRICTED - given


def _element(value: str) -> str:
    return f"{SEPARATOR}{value}{SEPARATOR}"


def _is_hidden(labels: str, hidden: frozenset[str]) -> bool:
    return bool(labels) and not hidden.isdisjoint(elements(labels))


def _check_number(name: str, value: int, low: int, high: int) -> None:
    if (
        isinstance(cast("Any", value), bool)
        or not isinstance(cast("Any", value), int)
        or not low <= value <= high
    ):
        raise InputError(f"{name} is a whole number from {low:,} to {high:,}, not {shown(value)}")


def _positions(segment: _Segment, low: int, high: int) -> Iterable[tuple[int, int]]:
    """Shards and rows at the positions of a segment."""
    before = 0
    for part in segment.parts:
        first, last = max(low - before, 0), min(high - before, part.rows)
        before += part.rows
        for position in range(first, last):
            yield part.place(position)


def _from_headers(parts: Sequence[Part], query: Query, hidden: frozenset[str]) -> int | None:
    """The number of rows, where the files' own counts tell: of all, or of a facet's values that exclude each other."""
    if query.ranges or len(query.facets) > 1 or any(part.header.counts is None for part in parts):
        return None
    if not query.facets:
        return sum(
            number
            for part in parts
            for labels, number in part.labels.items()
            if not _is_hidden(labels, hidden)
        )
    [(name, values)] = query.facets.items()
    if FACETS[name].many:
        return None
    counts = _header_facet(parts, name, hidden)
    return None if counts is None else sum(counts[value] for value in values)


def _header_facet(parts: Sequence[Part], name: str, hidden: frozenset[str]) -> Counter[str] | None:
    total: Counter[str] = Counter()
    for part in parts:
        if part.header.counts is None:
            return None
        for labels, by in part.header.counts.items():
            if name not in by:
                return None
            if not _is_hidden(labels, hidden):
                total.update(by[name])
    return total


def _facet_condition(facet: Facet, values: Sequence[str]) -> tuple[str, list[Any]]:
    """The condition that a row has one of these values."""
    if not values:
        return "true", []
    column = f'"{facet.column}"'
    if facet.many:
        one = [f"{column} = ?" if value == "" else f"contains({column}, ?)" for value in values]
        return " or ".join(one), [_element(value) if value else "" for value in values]
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


def _cube_condition(name: str, values: Sequence[str]) -> tuple[str, list[Any]]:
    """The same on a cube, whose columns have the facets' names and whose buckets are numbers."""
    facet = FACETS[name]
    if not facet.edges:
        return _facet_condition(facet._replace(column=name), values)
    known = [UNKNOWN, *bucket_names(facet)]
    numbers = [known.index(value) - 1 for value in values if value in known]
    if not values or not numbers:
        return ("false" if values else "true"), []
    return f"{name} in ({', '.join('?' for _ in numbers)})", numbers


def _grouping(names: Sequence[str]) -> tuple[str, str]:
    """The columns and the clause that count each of these columns by itself, in one go."""
    quoted = [f'"{name}"' for name in names]
    every = ", ".join(quoted)
    return (
        f"grouping({every}), {every}",
        f"group by grouping sets ({', '.join(f'({one})' for one in quoted)})",
    )


def _grouped(names: Sequence[str], found: Iterable[tuple[Any, ...]]) -> Iterable[tuple[str, Counter[str]]]:
    """What such a question gave, by facet."""
    counted: dict[str, Counter[str]] = {}
    for which, *values, number in found:
        # A bit for each column that is not grouped by, the first the highest.
        place = next(n for n in range(len(names)) if not which >> (len(names) - 1 - n) & 1)
        into = counted.setdefault(names[place], Counter())
        for value in _facet_values(FACETS[names[place]], values[place]):
            into[value] += int(number)
    return counted.items()


def _facet_values(facet: Facet, value: Any) -> list[str]:
    """The values of a facet behind what was grouped by."""
    if facet.many:
        return elements(value)
    if facet.edges:
        return [UNKNOWN if value < 0 else bucket_names(facet)[value]]
    return [value]


def _ranked(facet: Facet, counts: Counter[str]) -> list[tuple[str, int]]:
    if facet.edges:
        order = [UNKNOWN, *bucket_names(facet)]
        return [(name, counts[name]) for name in order if counts[name]]
    return sorted(
        ((value, number) for value, number in counts.items() if number), key=lambda one: (-one[1], one[0])
    )


def _sort_column(name: str) -> str:
    return "coalesce(cost, -1)" if name == "cost" else name


def _up_to(name: str, up: bool) -> str:
    """The condition that a number is not beyond a value. One that is not known comes before all others."""
    if not up:
        return f"{name} >= ?"
    return "(cost is null or cost <= ?)" if name == "cost" else f"{name} <= ?"


def _equal(query: Query, value: float) -> Query:
    """The rows of a query that have one value of what it is sorted by, in the order of the runs."""
    name = query.sorted_by
    if name == "cost" and value < 0:
        if "unknown" not in query.facets.get("cost", (UNKNOWN,)):
            raise AssertionError("a query for known costs has found an unknown one")
        facets = {**query.facets, "cost": (UNKNOWN,)}
        return msgspec.structs.replace(query, facets=facets, sort="order", order="asc")
    ranges = {**query.ranges, name: (value, value)}
    return msgspec.structs.replace(query, ranges=ranges, sort="order", order="asc")


def _sortable(value: float | None) -> float:
    return -1 if value is None else value


def _row(run: str, values: dict[str, Any], hit: Hit | None) -> Row:
    sets = {name: tuple(elements(values[name])) for name in ("others", "labels", "findings")}
    return Row(run=run, hit=hit, **{**values, **sets})


def _row_facet(row: Row, name: str) -> Any:
    facet = FACETS[name]
    value: Any = getattr(row, facet.column)
    if facet.many:
        return f"{SEPARATOR}{SEPARATOR.join(value)}{SEPARATOR}" if value else ""
    if facet.edges:
        return -1 if value is None else max(0, bisect_right(facet.edges, value) - 1)
    return value


def _edges(low: float | None, high: float | None, bins: int, *, whole: bool) -> list[float]:
    """Where bars begin and end: of whole numbers each as wide as the others."""
    if low is None or high is None:
        return [0.0, 1.0]
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
        for name in _facet_values(FACETS[by], value) if by else [""]:
            series.setdefault(name, [0] * (len(edges) - 1))[bar] += count
    return Histogram(number, edges, dict(sorted(series.items())), unknown)
