"""The database of a catalogue, and the state of its runs.

The one decision to know: a `State` is immutable. When a run has grown there is a new one, and a query that has begun with
the old one still uses it.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from camel.core.errors import CamelError
from camel.index.cube import open_database
from camel.index.files import rows_sql
from camel.query.conditions import Condition
from camel.query.parts import IndexPart
from camel.query.sources import CatalogueRun, WatchedRun, watch_run
from camel.query.where import Place
from camel.record.parquet import arrow
from camel.runs.annotations import Annotation

MEMORY = "400MB"
"""Memory limit of the database."""
FRESH = 1.0
"""Seconds after which runs are checked again for new shards."""
SEGMENT = 4_500_000
"""Maximum number of index rows that one SQL query reads when a list is read in order."""
_REMEMBERED = 256
"""Number of cached answers. Every page asks for the same counts."""
_SEARCHES = 8
"""Number of cached searches, which are large."""
T = TypeVar("T")


class IndexSegment(NamedTuple):
    """Adjacent index files of one run that are queried together."""

    source: CatalogueRun
    parts: list[IndexPart]

    @property
    def rows(self) -> int:
        """Number of rows in all files."""
        return sum(part.rows for part in self.parts)

    def table(self, where: Condition) -> tuple[str, list[Any]]:
        """Return the SQL of a table with the rows that satisfy a condition, and its parameters."""
        # In the order of the files, which the database keeps.
        groups = [
            (has, [str(p.path) for p in some]) for has, some in groupby(self.parts, lambda p: p.has_tools)
        ]
        rows = " union all by name ".join(f"from {rows_sql(has)}" for has, _ in groups)
        return f"({rows}) {where.clause}", [*(paths for _, paths in groups), *where.given]

    def keys(self, places: Iterable[tuple[Any, ...]]) -> list[Key]:
        """Return the keys of rows that are given by shard and row."""
        return [Key(self.source, shard, row, None) for shard, row in places]

    def position(self, place: Place | None, forward: bool) -> int:
        """Return the position in this segment at which the rows after `place` begin or, if `forward` is false, those before it
        end.
        """
        if place is None:
            return 0 if forward else self.rows
        at = 0
        for part in self.parts:
            if part.last >= place.shard:
                return at + part.before(place.shard, place.row + forward)
            at += part.rows
        return at


class State(NamedTuple):
    """The runs and files at one time; immutable."""

    version: int
    sources: tuple[CatalogueRun, ...]
    segments: tuple[IndexSegment, ...]
    notes: tuple[str, ...]


class Key(NamedTuple):
    """The run, shard and index of a row, and its sort key."""

    source: CatalogueRun
    shard: int
    row: int
    value: float | None

    @property
    def name(self) -> tuple[str, int, int]:
        """Run name, shard and row, which identify the row."""
        return self.source.name, self.shard, self.row


class Database:
    """The files, the SQL database and the cached answers, which all readers of a catalogue share."""

    def __init__(self, runs: Sequence[str], memory: str, annotations: bool = True) -> None:
        self._lock = threading.Lock()
        self._looked = -math.inf
        self._state = State(0, (), (), ())
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        self._found: OrderedDict[Hashable, Any] = OrderedDict()
        with contextlib.ExitStack() as opened:
            self._scratch = Path(tempfile.mkdtemp(prefix="camel-explore-"))
            opened.callback(shutil.rmtree, self._scratch, ignore_errors=True)
            self._annotated = annotations
            self._watched: list[WatchedRun] = []
            self._given: set[str] = set()
            for run in runs:
                self._watch(run)
            settings: dict[str, Any] = {
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            }
            settings |= {"memory_limit": memory, "threads": 4}
            self._database = opened.enter_context(open_database("Exploring runs", "explore", settings))
            self._database.execute("set global parquet_metadata_cache = true")
            for part in ("pyarrow.parquet", "pyarrow.compute"):
                arrow(part)  # import now, so that the first reader does not wait
            arrow().array([0])  # the first array makes Arrow import pandas
            self.state()
            self._opened = opened.pop_all()

    def _watch(self, run: str) -> None:
        taken = {one.name for one in self._watched}
        self._watched.append(watch_run(run, taken, self._scratch, self._annotated))
        self._given.add(run)

    def state(self) -> State:
        """Return the current state, at most about `FRESH` seconds old."""
        with self._lock:
            started = time.monotonic()
            if started - self._looked > FRESH:
                looks = [one.look() for one in self._watched]
                if any(looks) or not self._state.version:
                    sources = tuple(one.source for one in self._watched)
                    notes = tuple(note for one in self._watched for note in one.notes)
                    self._state = State(self._state.version + 1, sources, tuple(segmented(sources)), notes)
                    self._kept.clear()
                    self._found.clear()
                # Check less often if a check takes long, as for a large remote run.
                self._looked = time.monotonic() + 20 * (time.monotonic() - started)
            return self._state

    @property
    def trouble(self) -> tuple[type[Exception], ...]:
        """The errors that an unreadable file causes."""
        return (import_module("duckdb").Error, OSError, arrow().ArrowException)

    def doubt(self) -> None:
        """Check every index file again, because one could not be read."""
        with self._lock:
            for one in self._watched:
                one.doubt()
            self._looked = -math.inf

    def add_runs(self, runs: Sequence[str]) -> None:
        """Add the runs that the catalogue does not have yet and that can be opened."""
        with self._lock:
            for run in runs:
                if run not in self._given:
                    with contextlib.suppress(CamelError, OSError):
                        self._watch(run)
                        self._looked = -math.inf

    def annotate(self, run: str, id: str, **changes: Any) -> Annotation:
        """Change the annotation of a conversation, and return the new one."""
        watched = next(one for one in self._watched if one.name == run)
        made = watched.annotations.change(id, **changes)
        with self._lock:
            self._looked = -math.inf
        return made

    def look_through(self, seconds: float = 2.0) -> bool:
        """Run the detectors over conversations of small runs for about `seconds`. Return whether unscanned ones remain."""
        with self._lock:
            waiting = [(one, part) for one in self._watched for part in one.unmarked()]
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
        """Return the cached answer for a key. If there is none, call `make` and cache the result."""
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
        """Run an SQL query and return its rows. Pass values as parameters, never in the SQL."""
        with self._database.cursor() as cursor:
            return cursor.execute(sql, parameters).fetchall()

    def numbers(self, sql: str, parameters: Sequence[Any]) -> Any:
        """Return the only column of a query's result as a NumPy array, without a Python object per row."""
        with self._database.cursor() as cursor:
            (column,) = cursor.execute(sql, parameters).fetchnumpy().values()
            return column

    def close(self) -> None:
        """Release memory and files."""
        self._opened.close()


def segmented(sources: Iterable[CatalogueRun]) -> list[IndexSegment]:
    """Group the index files of each run into segments."""
    segments: list[IndexSegment] = []
    for source in sources:
        parts: list[IndexPart] = []
        rows = 0
        for part in source.parts:
            if parts and rows + part.rows > SEGMENT:
                segments.append(IndexSegment(source, parts))
                parts, rows = [], 0
            parts.append(part)
            rows += part.rows
        if parts:
            segments.append(IndexSegment(source, parts))
    return segments


def positions(segment: IndexSegment, low: int, high: int) -> Iterable[tuple[int, int]]:
    """Yield the shard and row at each position of a segment from `low` to `high`."""
    before = 0
    for part in segment.parts:
        first, last = max(low - before, 0), min(high - before, part.rows)
        before += part.rows
        for position in range(first, last):
            yield part.place(position)
