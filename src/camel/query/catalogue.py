# ruff: noqa: S608 - SQL is put together from names in this package; values are parameters, always
"""The catalogue: answers all queries about conversations of one or more runs.

    catalogue = Catalogue(["runs/ai_society", "s3://bucket/code", "camel_chat.tar.gz"])
    catalogue.facets(Query())                       # {"stop": [("done", 21_034), …], …}
    page = catalogue.page(Query(facets={"stop": ("done",)}, sort="tokens", order="desc"))
    catalogue.page(query, after=page.next)
    catalogue.conversation(page.rows[0].run, page.rows[0].id)

The one decision to know: no answer contains a conversation with a restricted label unless the reader has consented to the
label (`Catalogue(…, allow=…)`, or `catalogue.allowing("misalignment")` for one reader). Rows are filtered by their own
labels, not by file names, and the labels of an opened conversation are checked again.
"""

from __future__ import annotations

import contextlib
import random
import shlex
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from msgspec.structs import replace

from camel.core.checks import shown
from camel.core.errors import CamelError, InputError
from camel.core.transcript import Transcript
from camel.index.facets import FACETS, NUMBERS, elements
from camel.query.answers import Behaviors, Histogram, NeedsConsent, Neighbors, NotThere, Page, Row, ShownHit
from camel.query.conditions import Condition, ranked, sortable
from camel.query.counting import count_facets, count_rows
from camel.query.database import MEMORY, Database, Key
from camel.query.histograms import behaviors, histogram
from camel.query.parts import ANNOTATED, FILTERS, IndexPart
from camel.query.run_order import RunOrder
from camel.query.scope import AMONG, ListPath, Scope
from camel.query.sorted_copies import NumberScan, SortedCopies
from camel.query.sources import CatalogueRun
from camel.query.where import Place, Query, from_cursor, to_cursor
from camel.record.release import RESTRICTED
from camel.runs.annotations import Annotation


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


LARGEST = 1_000
"""Maximum number of rows per page."""
_ONE_BY_ONE = 4
"""From this number of conversations of one shard on, the shard is read once instead of one conversation at a time."""
PAUSE = 2.0
"""Seconds between two checks for new data."""
EVERYTHING = Query()
T = TypeVar("T")
P = ParamSpec("P")


def _retry_once(method: Callable[P, T]) -> Callable[P, T]:
    """Return the method with one retry, which happens if an index file is missing or damaged. The retry skips that file."""

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
    """Finds and counts conversations of one or more runs."""

    def __init__(
        self,
        runs: Sequence[str | Path],
        allow: Collection[str] = (),
        *,
        memory: str = MEMORY,
        annotations: bool = True,
    ) -> None:
        """Open runs. If `annotations` is false, stars, tags and notes are neither shown nor stored."""
        self._hidden = _hidden(allow)
        self._shared = Database([str(run) for run in runs], memory, annotations)
        try:
            now = self._now()
            for source in now.state.sources:
                now.texts(source)  # open text indexes now, so that the first reader does not wait
        except BaseException:
            self.close()
            raise

    def allowing(self, *labels: str) -> Catalogue:
        """Return a view of this catalogue for a reader who has consented to exactly these labels."""
        other = object.__new__(Catalogue)
        other._shared, other._hidden = self._shared, _hidden(labels)
        return other

    def keep_looking(
        self, stop: threading.Event, find_runs: Callable[[], Sequence[str]] = lambda: ()
    ) -> None:
        """Run the detectors over small runs as they grow, and add the runs that `find_runs` returns, until `stop` is set.

        Call it in a background thread. It first reads text indexes and footers of sorted copies, so that the first reader
        does not wait for them. Failures, for example of an object store, are retried later.
        """
        trouble = (CamelError, *self._shared.trouble)
        with contextlib.suppress(*trouble):
            self._warm(stop)
        pause, next_search = 0.0, 0.0
        while not stop.wait(pause):
            pause = PAUSE
            with contextlib.suppress(*trouble):
                if (started := time.monotonic()) >= next_search:
                    self._shared.add_runs(find_runs())
                    # Search less often if a search takes long, as in a large tree or a remote store.
                    next_search = time.monotonic() + max(PAUSE, 20 * (time.monotonic() - started))
                self._shared.state()
                pause = 0.05 if self._shared.look_through() else PAUSE

    def _warm(self, stop: threading.Event) -> None:
        now = self._now()
        for source in now.state.sources:
            _ = source.annotated
            for index in now.texts(source):
                index.search([["the"]], {}, frozenset(), 1)
            for part in source.parts:
                if not stop.is_set():
                    part.ordered("tokens")

    def _now(self) -> CatalogueView:
        return CatalogueView(self._shared, self._shared.state(), self._hidden)

    @property
    def runs(self) -> list[CatalogueRun]:
        """The runs of the catalogue; queries use their names."""
        return list(self._shared.state().sources)

    def add(self, run: str) -> str:
        """Add a run, and return its name in the catalogue."""
        self._shared.add_runs([run])
        return next(source.name for source in self.runs if source.address == run)

    def close(self) -> None:
        """Release files and memory."""
        self._shared.close()

    def __enter__(self) -> Catalogue:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @_retry_once
    def restricted(self) -> list[str]:
        """Return the labels of conversations that are hidden from this reader."""
        return sorted(self._now().restricted())

    def notes(self) -> tuple[str, ...]:
        """Return notes about problems, such as runs without an index and unreadable files."""
        return self._shared.state().notes

    @_retry_once
    def count(self, query: Query = EVERYTHING) -> int:
        """Return the number of conversations."""
        return count_rows(self._now(), query)

    @_retry_once
    def facets(self, query: Query = EVERYTHING) -> dict[str, list[tuple[str, int]]]:
        """Return for each facet its values with their numbers of conversations, largest first. Ranges of numbers stay in order.

        A facet's own filter does not apply to its counts, so that a reader sees what another choice would give. `run` is
        included if there are several runs, or if the query names one.
        """
        return self._now().facets(query)

    @_retry_once
    def page(
        self, query: Query = EVERYTHING, after: str | None = None, before: str | None = None, limit: int = 50
    ) -> Page:
        """Return a page of the list. Without a cursor it is the first one, otherwise that `after` or `before` the cursor."""
        if after is not None and before is not None:
            raise InputError("`after` and `before` cannot be combined: give one cursor")
        _check_number("limit", limit, 1, LARGEST)
        cursor = before if after is None else after
        if cursor is None:
            return self._now().jump(query, 0, limit)
        return self._now().beside(query, from_cursor(query, cursor), limit, back=before is not None)

    def pages(self, query: Query, limit: int) -> Iterator[Page]:
        """Yield all pages of a list."""
        page = self.page(query, limit=limit)
        yield page
        while page.next is not None:
            page = self.page(query, after=page.next, limit=limit)
            yield page

    @_retry_once
    def jump(self, query: Query = EVERYTHING, n: int = 0, limit: int = 50) -> Page:
        """Return the page that begins with row `n`, counted from 0. If there are fewer rows, it begins with the last one."""
        _check_number("limit", limit, 1, LARGEST)
        _check_number("n", n, 0, 2**62)
        return self._now().jump(query, n, limit)

    @_retry_once
    def sample(self, query: Query = EVERYTHING, n: int = 20, seed: int = 0) -> list[Row]:
        """Return `n` random rows. The same seed gives the same rows, unless conversations are added."""
        _check_number("n", n, 1, LARGEST)
        return self._now().sample(query, n, seed)

    @_retry_once
    def neighbors(self, run: str, id: str, query: Query = EVERYTHING) -> Neighbors:
        """Return the conversations before and after the given one in the list of a query."""
        now = self._now()
        place = now.place(query, now.find(run, id))
        before, after = (now.beside(query, place, 1, back=back).rows for back in (True, False))
        return Neighbors(before[0] if before else None, after[0] if after else None)

    @_retry_once
    def row(self, run: str, id: str) -> Row:
        """Return the row of a conversation, as shown in a list."""
        now = self._now()
        return now.rows([now.find(run, id)], Query())[0]

    @_retry_once
    def conversation(self, run: str, id: str) -> Transcript:
        """Read one conversation."""
        key = self._now().find(run, id)
        return self._checked(key.source.read(key.shard, key.row), run, id)

    @_retry_once
    def conversations(self, rows: Sequence[Row]) -> list[Transcript]:
        """Read the conversations of these rows, in the same order."""
        now = self._now()
        shards: dict[tuple[str, int], list[Row]] = {}
        for row in rows:
            shards.setdefault((row.run, row.shard), []).append(row)
        read: dict[tuple[str, int, int], Transcript] = {}
        for (run, shard), some in shards.items():
            source, wanted = now.source(run), {row.row: row.id for row in some}
            if len(some) < _ONE_BY_ONE:
                found = ((row, source.read(shard, row)) for row in wanted)
            else:
                found = enumerate(source.shard(shard, max(wanted) + 1))
            for row, transcript in found:
                if row in wanted:
                    read[run, shard, row] = self._checked(transcript, run, wanted[row])
        return [read[row.run, row.shard, row.row] for row in rows]

    def _checked(self, transcript: Transcript, run: str, id: str) -> Transcript:
        """Return `transcript` after two checks. Raise if this reader may not see it, or if its id is not the expected one."""
        if hidden := self._hidden.intersection(transcript.labels):
            raise NeedsConsent(hidden)
        if transcript.id != id:
            raise InputError(
                f"the index of '{run}' is damaged: remove its folder 'index', then camel run index {shlex.quote(str(run))}"
            )
        return transcript

    def annotate(
        self,
        run: str,
        id: str,
        *,
        star: bool | None = None,
        tags: Collection[str] | None = None,
        note: str | None = None,
    ) -> Annotation:
        """Set the star, tags or note of a conversation, and store them next to its run. None does not change a value."""
        self._now().find(run, id)
        return self._shared.annotate(run, id, star=star, tags=tags, note=note)

    def check(self, run: str, id: str) -> None:
        """Raise an error if the data file of a conversation has changed since it was committed. Call it before an export."""
        key = self._now().find(run, id)
        key.source.check(key.shard)

    @_retry_once
    def histogram(
        self,
        query: Query = EVERYTHING,
        number: str = "messages",
        by: str = "",
        bins: int = 30,
        edges: Sequence[float] | None = None,
    ) -> Histogram:
        """Return the distribution of a number, over all conversations or by the values of a facet.

        `edges` reuses the bars of another histogram, whose range must contain all values. Then there is no summary.
        """
        if number not in NUMBERS:
            raise InputError(f"unknown number {shown(number)}: use one of {', '.join(NUMBERS)}")
        if by and by not in FACETS:
            raise InputError(f"unknown facet {shown(by)}: use one of {', '.join(FACETS)}")
        _check_number("bins", bins, 1, 1_000)
        now = self._now()
        given = None if edges is None else list(edges)
        key = ("histogram", query.digest, number, by, bins, None if edges is None else tuple(edges))
        return now.remember(key, lambda: histogram(now, query, number, by, bins, given))

    @_retry_once
    def derived(self, show: Callable[[CatalogueView], T]) -> T:
        """Return what `show` makes of a file derived from a run, such as its map. It gets the rows that this reader may see."""
        return show(self._now())

    @_retry_once
    def behaviors(self, query: Query = EVERYTHING, role: str = "") -> Behaviors:
        """Return the findings of detectors by message and seat, and also by role if `role` is `assistant` or `user`."""
        if role not in ("", "assistant", "user"):
            raise InputError(f"role must be assistant or user, not {shown(role)}")
        now = self._now()
        return now.remember(("behaviors", query.digest, role), lambda: behaviors(now, query, role))

    @_retry_once
    def search(self, query: Query, limit: int = 50) -> Page:
        """Return the first page of conversations that contain `query.text`, with the hits."""
        if not query.text.strip():
            raise InputError("the search text is empty: set the query's text")
        return self.page(query, limit=limit)


def _hidden(allow: Collection[str]) -> frozenset[str]:
    given = {allow} if isinstance(allow, str) else set(allow)
    return RESTRICTED - given


def _check_number(name: str, value: int, low: int, high: int) -> None:
    if (
        isinstance(cast("Any", value), bool)
        or not isinstance(cast("Any", value), int)
        or not low <= value <= high
    ):
        raise InputError(f"{name} must be a whole number from {low:,} to {high:,}, not {shown(value)}")
