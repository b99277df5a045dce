"""The database of a catalogue, and what there is to ask it about.

The one decision to know: what there is at one time (`State`) never changes. A run that has grown gets another one, and who
has begun to answer from the old one goes on with it.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

from camel.core.errors import CamelError, MissingExtra
from camel.query.conditions import Condition
from camel.query.parts import IndexPart
from camel.query.sources import CatalogueRun, Sources
from camel.query.where import Place
from camel.record.parquet import arrow
from camel.runs.annotations import Annotation

MEMORY = "400MB"
"""For the database."""
FRESH = 1.0
"""Seconds for which what a run has committed is not looked up again."""
SEGMENT = 4_500_000
"""Rows that are asked for together while a list is gone along."""
_REMEMBERED = 256
"""Answers that are kept: counts are asked for again on every page."""
_SEARCHES = 8
"""Searches that are kept: they are large."""
T = TypeVar("T")


class Segment(NamedTuple):
    """Neighbouring files of one run that are asked together."""

    source: CatalogueRun
    parts: list[IndexPart]

    @property
    def rows(self) -> int:
        """Of all of them."""
        return sum(part.rows for part in self.parts)

    def table(self, where: Condition) -> tuple[str, list[Any]]:
        """The rows that fulfil a condition, as the database reads them."""
        return f"read_parquet(?) {where.clause}", [[str(part.path) for part in self.parts], *where.given]

    def keys(self, places: Iterable[tuple[Any, ...]]) -> list[Key]:
        """Rows at places (shard, row) of its run."""
        return [Key(self.source, shard, row, None) for shard, row in places]

    def position(self, place: Place | None, forward: bool) -> int:
        """Where the rows begin that are after a place, or end that are before it."""
        if place is None:
            return 0 if forward else self.rows
        at = 0
        for part in self.parts:
            if part.last >= place.shard:
                return at + part.before(place.shard, place.row + forward)
            at += part.rows
        return at


class State(NamedTuple):
    """What is there at one time. Never changes; another takes its place."""

    version: int
    sources: tuple[CatalogueRun, ...]
    segments: tuple[Segment, ...]
    notes: tuple[str, ...]


class Key(NamedTuple):
    """A row, and what it is sorted by."""

    source: CatalogueRun
    shard: int
    row: int
    value: float | None

    @property
    def name(self) -> tuple[str, int, int]:
        """What tells it from all others."""
        return self.source.name, self.shard, self.row


class Database:
    """What all readers of a catalogue have in common: the files, the database, and answers that are kept."""

    def __init__(self, runs: Sequence[str], memory: str, annotations: bool = True) -> None:
        self._lock = threading.Lock()
        self._looked = -math.inf
        self._state = State(0, (), (), ())
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        self._found: OrderedDict[Hashable, Any] = OrderedDict()
        with contextlib.ExitStack() as opened:
            self._sources = Sources(runs, annotations)
            opened.callback(self._sources.close)
            self._database, self._error = _connect(memory)
            opened.callback(self._database.close)
            for part in ("pyarrow.parquet", "pyarrow.compute"):
                arrow(part)  # now, and not while the first reader waits
            arrow().array([0])  # with which Arrow looks for pandas
            self.state()
            self._opened = opened.pop_all()

    def state(self) -> State:
        """What there is now, as of a moment ago."""
        with self._lock:
            started = time.monotonic()
            if started - self._looked > FRESH:
                if self._sources.look() or not self._state.version:
                    sources = tuple(self._sources.all)
                    self._state = State(
                        self._state.version + 1, sources, tuple(segmented(sources)), self._sources.notes()
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

    def add_runs(self, runs: Sequence[str]) -> None:
        """Take in runs that have come."""
        with self._lock:
            if self._sources.add(runs):
                self._looked = -math.inf

    def annotate(self, run: str, id: str, **changes: Any) -> Annotation:
        """Change what readers say about a conversation."""
        made = self._sources.annotations(run).change(id, **changes)
        with self._lock:
            self._looked = -math.inf
        return made

    def look_through(self, seconds: float = 2.0) -> bool:
        """Find what the conversations of small runs show that nobody has looked through; whether there is more to do."""
        with self._lock:
            waiting = self._sources.unmarked()
        until = time.monotonic() + seconds
        for number, (run, part) in enumerate(waiting):
            try:
                better = run.mark(part)
            except (CamelError, *self.trouble) as error:
                better = error
            with self._lock:
                if isinstance(better, Exception):
                    run.leave(part, better)
                else:
                    run.take(part, better)
                if time.monotonic() > until or number + 1 == len(waiting):
                    self._looked = -math.inf
                    return number + 1 < len(waiting)
        return False

    def remember(self, state: State, key: Hashable, make: Callable[[], T], *, large: bool = False) -> T:
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

    def numbers(self, sql: str, parameters: Sequence[Any]) -> Any:
        """The one column of numbers that a question gives, as an array: of millions of rows, no object is made for each."""
        with self._database.cursor() as cursor:
            (column,) = cursor.execute(sql, parameters).fetchnumpy().values()
            return column

    def close(self) -> None:
        """Give back memory and files."""
        self._opened.close()


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
    for setting in ("enable_progress_bar = false", "global parquet_metadata_cache = true"):
        database.execute(f"set {setting}")
    return database, duckdb.Error


def segmented(sources: Iterable[CatalogueRun]) -> list[Segment]:
    """The files of runs, in portions of neighbours."""
    segments: list[Segment] = []
    for source in sources:
        parts: list[IndexPart] = []
        rows = 0
        for part in source.parts:
            if parts and rows + part.rows > SEGMENT:
                segments.append(Segment(source, parts))
                parts, rows = [], 0
            parts.append(part)
            rows += part.rows
        if parts:
            segments.append(Segment(source, parts))
    return segments


def positions(segment: Segment, low: int, high: int) -> Iterable[tuple[int, int]]:
    """Shards and rows at the positions of a segment."""
    before = 0
    for part in segment.parts:
        first, last = max(low - before, 0), min(high - before, part.rows)
        before += part.rows
        for position in range(first, last):
            yield part.place(position)
