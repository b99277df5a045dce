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
import threading
import time
from collections.abc import Callable, Collection, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from camel.core.checks import shown
from camel.core.errors import CamelError, InputError
from camel.core.transcript import Transcript
from camel.index.facets import FACETS, NUMBERS
from camel.query.answers import Behaviours, Histogram, NeedsConsent, Neighbours, Page, Row
from camel.query.counting import count_rows
from camel.query.database import MEMORY, Database
from camel.query.histograms import behaviours, histogram
from camel.query.sources import CatalogueRun
from camel.query.view import CatalogueView, Derived
from camel.query.where import Query, from_cursor
from camel.record.release import RESTRICTED
from camel.runs.annotations import Annotation

LARGEST = 1_000
"""Rows of a page."""
_ONE_BY_ONE = 4
"""Conversations of a shard below which each is read by itself."""
PAUSE = 2.0
"""Seconds between two looks at what has come."""
EVERYTHING = Query()
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
        annotations: bool = True,
    ) -> None:
        """Open runs. Without `annotations`, stars, tags and notes are neither shown nor stored."""
        self._hidden = _hidden(allow)
        self._shared = Database([str(run) for run in runs], memory, annotations)
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

    def keep_looking(
        self, stop: threading.Event, find_runs: Callable[[], Sequence[str]] = lambda: ()
    ) -> None:
        """Work in the background until `stop` is set: look through small runs with the detectors as they grow, and take in
        the runs that `find_runs` returns as they appear.

        Before that, what would keep the first reader waiting is read once: text indexes, and footers of sorted copies.
        What fails, as a store may, is tried again later.
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
                    # Where a search takes long, in a large tree or a store far away, it is made less often.
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
    def count(self, query: Query = EVERYTHING) -> int:
        """How many conversations there are."""
        return count_rows(self._now(), query)

    @_again
    def facets(self, query: Query = EVERYTHING) -> dict[str, list[tuple[str, int]]]:
        """By facet, each value and how many conversations have it, the most first; buckets of numbers in their order.

        The values of a facet are counted as if none of them were chosen, so that one can see what another choice would
        give. `run` is among the facets where there are several, or one is chosen.
        """
        return self._now().facets(query)

    @_again
    def page(
        self, query: Query = EVERYTHING, after: str | None = None, before: str | None = None, limit: int = 50
    ) -> Page:
        """Rows of a list: the first, those `after` a cursor, or those `before` one."""
        if after is not None and before is not None:
            raise InputError("a page is after one cursor or before one, not both")
        _check_number("limit", limit, 1, LARGEST)
        cursor = before if after is None else after
        if cursor is None:
            return self._now().jump(query, 0, limit)
        return self._now().beside(query, from_cursor(query, cursor), limit, back=before is not None)

    @_again
    def jump(self, query: Query = EVERYTHING, n: int = 0, limit: int = 50) -> Page:
        """The page that begins with row `n`, from 0; with the last rows where there are not so many."""
        _check_number("limit", limit, 1, LARGEST)
        _check_number("n", n, 0, 2**62)
        return self._now().jump(query, n, limit)

    @_again
    def sample(self, query: Query = EVERYTHING, n: int = 20, seed: int = 0) -> list[Row]:
        """`n` rows at random, each equally likely; the same ones for the same seed, while nothing is added."""
        _check_number("n", n, 1, LARGEST)
        return self._now().sample(query, n, seed)

    @_again
    def neighbours(self, run: str, id: str, query: Query = EVERYTHING) -> Neighbours:
        """The conversations before and after one in the list of a query."""
        now = self._now()
        place = now.place(query, now.find(run, id))
        before, after = (now.beside(query, place, 1, back=back).rows for back in (True, False))
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
        return self._checked(key.source.read(key.shard, key.row), run, id)

    @_again
    def conversations(self, rows: Sequence[Row]) -> list[Transcript]:
        """Read the conversations of a page, in its order; several of one shard in one pass over it."""
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
        """A conversation that was read, if this reader may see it and it is the one that the index names."""
        if hidden := self._hidden.intersection(transcript.labels):
            raise NeedsConsent(hidden)
        if transcript.id != id:
            raise InputError(
                f"the index of {run} is damaged: remove its folder 'index', then camel run index {run}"
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
        """Give a conversation a star, tags or a note, stored next to its run; what is None stays as it is."""
        self._now().find(run, id)
        return self._shared.annotate(run, id, star=star, tags=tags, note=note)

    def check(self, run: str, id: str) -> None:
        """Raise unless what holds a conversation is as it was committed: for whoever passes it on."""
        key = self._now().find(run, id)
        key.source.check(key.shard)

    @_again
    def histogram(
        self,
        query: Query = EVERYTHING,
        number: str = "messages",
        by: str = "",
        bins: int = 30,
        edges: Sequence[float] | None = None,
    ) -> Histogram:
        """How a number is distributed, over all or by the value of a facet.

        `edges` are those of another histogram, to compare with, whose range holds all values; then there is no summary.
        """
        if number not in NUMBERS:
            raise InputError(f"there is no number {shown(number)}: there are {', '.join(NUMBERS)}")
        if by and by not in FACETS:
            raise InputError(f"there is no facet {shown(by)}: there are {', '.join(FACETS)}")
        _check_number("bins", bins, 1, 1_000)
        now = self._now()
        given = None if edges is None else list(edges)
        key = ("histogram", query.digest, number, by, bins, None if edges is None else tuple(edges))
        return now.remember(key, lambda: histogram(now, query, number, by, bins, given))

    @_again
    def derived(self, run: str, query: Query, show: Callable[[Derived], T]) -> T:
        """What `show` makes of a file that was derived from a run, and of a query; the run's name in it is left alone."""
        return show(self._now().derived(run, query))

    @_again
    def behaviours(self, query: Query = EVERYTHING, role: str = "") -> Behaviours:
        """What was found in conversations, by message and seat; by `role` too, `assistant` or `user`."""
        if role not in ("", "assistant", "user"):
            raise InputError(f"behaviours are counted by assistant or user, not by {shown(role)}")
        now = self._now()
        return now.remember(("behaviours", query.digest, role), lambda: behaviours(now, query, role))

    @_again
    def search(self, query: Query, limit: int = 50) -> Page:
        """The conversations in which `query.text` is said, with what was found: the first page of such a query."""
        if not query.text.strip():
            raise InputError("there is nothing to search for: give the query a text")
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
        raise InputError(f"{name} is a whole number from {low:,} to {high:,}, not {shown(value)}")
