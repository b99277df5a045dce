# ruff: noqa: S608 - SQL is put together from names in this package; values are parameters, always
"""The rows that one reader may see at one time, and text searches in them: by the text index if there is one, otherwise by
reading a limited part of the run.

The one decision to know: `where` excludes restricted rows, and every query to an index file uses it.

Access paths are the algorithms that find and count rows. A list path finds the rows of a page in the order of a query; a
count path counts the rows of some index files.

    list    Found         results of a text search                         (`scope.py`)
            RunOrder      in the order of the runs: by position, or by     (`run_order.py`)
                          reading until there are enough rows
            SortedCopies  sorted by a number, from sorted copies           (`sorted_copies.py`)
            NumberScan    sorted by a number, from the query's columns     (`sorted_copies.py`)
    count   Footers       from the footers of index files                  (`counting.py`)
            Cube          from precomputed combinations of facets          (`counting.py`)
            Scan          any rows, from the query's columns               (`counting.py`)

The cheapest path that can answer a query is used. `catalogue.choose_list` chooses a list path. The method `of` of a count path
decides which files it can count, and `counting.COUNT_PATHS` has the cheapest first.
"""

from __future__ import annotations

import re
import shlex
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from msgspec.structs import replace

from camel.core.checks import shown
from camel.core.errors import Damaged, InputError
from camel.core.expressions import ColumnKind, Expression, parse_expression
from camel.index.facets import NUMBERS
from camel.index.text import KEPT, UNSPACED, TextIndex, opened, texts_of, words_of
from camel.query.answers import NotThere, first_few
from camel.query.columns import INDEXED, known_columns, select_by_shard
from camel.query.conditions import Condition, element, facet_condition, is_hidden, sort_column
from camel.query.database import Database, IndexSegment, Key, State
from camel.query.parts import ANNOTATED, FILTERS, IndexPart
from camel.query.sources import CatalogueRun
from camel.query.where import Place, Query
from camel.runs.reader import RunReader

MOST = 2_000
"""Maximum number of conversations in a search result."""
SCANNED = 5_000
"""Maximum number of conversations that a search without a text index reads."""
PATIENCE = 2.0
"""Seconds after which a search without a text index stops."""
AROUND = 90
"""Number of characters of context before a hit. After it, there are twice as many."""

_SEARCHING = ThreadPoolExecutor(4, "camel-search")
_SPACED = rf"[^\W_{UNSPACED}]"
"""A character of a script that separates words by spaces."""
_WORD = re.compile(rf"[{UNSPACED}]+|{_SPACED}+")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_ASKED = re.compile(r'"([^"]*)"|(\S+)')

Pieces = tuple[tuple[str, bool], ...]
Shown = tuple[int, Pieces]
"""Index of the message with the hit (from 0, -1 for the task), and the text around the hit."""


class TextHit(NamedTuple):
    """A conversation that contains the search text."""

    shard: int
    row: int
    score: float
    show: Callable[[], Shown]


class TextFound(NamedTuple):
    """The result of a search in one run: at most the best `MOST` conversations, and a note if there are more.

    They fit into memory, so filters, counts and pages of a search are as fast and exact as those of a list.
    """

    hits: list[TextHit]
    notes: list[str]
    narrowed: bool = False
    """Whether the hits already satisfy all facet filters."""


def phrases_of(text: str, words: Callable[[str], list[str]]) -> list[list[str]]:
    """Split a search text into phrases: single words, and words in quotes that must be adjacent."""
    found = [words(quoted or word) for quoted, word in _ASKED.findall(text)]
    return [some for some in found if some][:32]


def pattern_of(phrases: Iterable[Sequence[str]]) -> re.Pattern[str]:
    """Return a pattern that matches any of the phrases."""
    ways = [_adjacent(words) for words in sorted(phrases, key=len, reverse=True)]
    return re.compile("|".join(ways), re.IGNORECASE)


def _adjacent(words: Sequence[str]) -> str:
    """Return a pattern that matches adjacent words. Words of different scripts need no space between them."""
    unspaced = [bool(_UNSPACED.match(word)) for word in words]
    text = "" if unspaced[0] else rf"(?<!{_SPACED})"
    for number, word in enumerate(words):
        if number:
            text += r"[\W_]*" if unspaced[number] != unspaced[number - 1] else r"[\W_]+"
        text += re.escape(word)
    return text + ("" if unspaced[-1] else rf"(?!{_SPACED})")


def search(
    source: CatalogueRun,
    indexes: Sequence[TextIndex],
    text: str,
    facets: dict[str, tuple[str, ...]],
    hidden: frozenset[str],
) -> TextFound:
    """Return the conversations that contain all phrases of a text, the best first. Those with hidden labels are excluded."""
    plain = phrases_of(text, lambda part: _WORD.findall(part.lower()))
    if not plain:
        return TextFound([], ["the search text contains no words: enter at least one word"])
    if not indexes:
        return _scan(source, plain, hidden, set())
    found = _look_up(source, indexes, text, pattern_of(plain), facets, hidden)
    covered = {one.shard for index in indexes for one in index.header.shards}
    if any(one.shard not in covered for part in source.parts for one in part.header.shards):
        more = _scan(source, plain, hidden, covered)
        best = sorted([*found.hits, *more.hits], key=lambda hit: -hit.score)[:MOST]
        return TextFound(best, [*found.notes, *more.notes])
    return found


def _look_up(
    source: CatalogueRun,
    indexes: Sequence[TextIndex],
    text: str,
    pattern: re.Pattern[str],
    facets: dict[str, tuple[str, ...]],
    hidden: frozenset[str],
) -> TextFound:
    # The text index cannot filter by an empty value; such a filter is applied to the hits later.
    narrow = {name: values for name, values in facets.items() if name in KEPT and values and "" not in values}
    phrases = phrases_of(text, words_of)
    if not phrases:  # only punctuation, which the engine does not index
        return TextFound([], [])
    scored: list[tuple[float, int, Any]] = []
    total = 0

    def ask(index: TextIndex) -> tuple[list[tuple[float, Any]], int]:
        return index.search(phrases, narrow, hidden, MOST)

    def show(index: TextIndex, address: Any) -> Shown:
        return snippet(index.texts(address), pattern)

    # In threads, because the engine releases the GIL while it searches.
    answers = _SEARCHING.map(ask, indexes)
    for number, (found, count) in enumerate(answers):
        total += count
        scored += [(score, number, address) for score, address in found]
    scored.sort(key=lambda one: -one[0])
    hits: list[TextHit] = []
    for number, index in enumerate(indexes):
        mine = [(score, address) for score, which, address in scored[:MOST] if which == number]
        places = index.places([address for _, address in mine])
        for place, (score, address) in zip(places, mine, strict=True):
            hits.append(TextHit(place >> 32, place & 0xFFFFFFFF, score, partial(show, index, address)))
    said = f"{source.name}: {total:,} conversations match; only the best {MOST:,} are listed and counted"
    return TextFound(hits, [said] if total > MOST else [], narrow.keys() == facets.keys())


def _given(shown: Shown) -> Shown:
    return shown


def _scan(
    source: CatalogueRun, phrases: Sequence[Sequence[str]], hidden: frozenset[str], covered: set[int]
) -> TextFound:
    """Search conversations one by one, without a text index, until a limit of time or number is reached."""
    single, pattern = [pattern_of([words]) for words in phrases], pattern_of(phrases)
    started, read = time.monotonic(), 0
    hits: list[TextHit] = []
    notes: list[str] = []
    damage: list[str] = []
    for one in (one for part in source.parts for one in part.header.shards if one.shard not in covered):
        if notes:
            break
        try:
            for row, transcript in enumerate(source.shard(one.shard, one.rows)):
                if read >= SCANNED or (read % 64 == 0 and time.monotonic() - started > PATIENCE):
                    which = "a part of it has no text index" if covered else "it has no text index"
                    notes.append(
                        f"{source.name}: {which}, and only {read:,} conversations without one were searched; run "
                        f"camel run index {shlex.quote(source.address)} --text to search all"
                    )
                    break
                read += 1
                if not hidden.isdisjoint(transcript.labels):
                    continue
                texts = texts_of(transcript)
                counts = [sum(len(each.findall(text)) for text in texts) for each in single]
                if all(counts):
                    show = partial(_given, snippet(texts, pattern))
                    hits.append(TextHit(one.shard, row, float(sum(counts)), show))
        except Damaged as error:
            damage.append(f"{source.name}: some conversations could not be searched: {error}")
    hits.sort(key=lambda hit: -hit.score)
    return TextFound(hits[:MOST], [*first_few(source.name, damage), *notes])


def snippet(texts: Sequence[str], pattern: re.Pattern[str]) -> Shown:
    """Return the index of the first message with a hit, and the text around it. The task is used only if no message has one."""
    for number in [*range(1, len(texts)), 0]:
        if match := pattern.search(texts[number]):
            return number - 1, cut(texts[number], match, pattern)
    return -1, ((texts[0][: 2 * AROUND], False),) if texts else ()


def cut(text: str, match: re.Match[str], pattern: re.Pattern[str]) -> Pieces:
    """Return the text around a hit in pieces. The flag of a piece is True if it is a hit."""
    start, end = max(0, match.start() - AROUND), min(len(text), match.end() + 2 * AROUND)
    part = ("…" if start else "") + " ".join(text[start:end].split()) + ("…" if end < len(text) else "")
    pieces: list[tuple[str, bool]] = []
    last = 0
    for hit in pattern.finditer(part):
        pieces += [(part[last : hit.start()], False), (hit[0], True)]
        last = hit.end()
    return tuple(piece for piece in [*pieces, (part[last:], False)] if piece[0])


class ListPath(ABC):
    """An algorithm that finds the rows of a query, in the order of the query."""

    @abstractmethod
    def nth(self, n: int, limit: int) -> list[Key]:
        """Return up to `limit` rows, beginning with index `n`."""

    @abstractmethod
    def beside(self, place: Place, limit: int, *, back: bool) -> list[Key]:
        """Return the rows after a place or, if `back` is true, before it. Both are in the order of the list."""

    def at(self, wanted: Sequence[int]) -> list[Key]:
        """Return the rows at these positions, which must be ascending."""
        return [key for position in wanted for key in self.nth(position, 1)]


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


class CountPath(ABC):
    """An algorithm that counts the rows of a query in some index files of a run."""

    parts: Collection[IndexPart]
    """The index files that this path counts. The next path counts the others."""
    key: Hashable
    """Paths with equal keys can count several facets in one reading."""

    @classmethod
    @abstractmethod
    def of(cls, scope: Scope, files: IndexSegment, query: Query, facet: str) -> CountPath | None:
        """Return a path that counts some of the files, by a facet if `facet` is not empty. Return None if it can count none."""

    @abstractmethod
    def count(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def facets(self, names: Sequence[str]) -> Iterable[tuple[str, Counter[str]]]:
        """Return for each facet its values with their numbers of rows."""
