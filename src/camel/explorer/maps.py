"""The map of a run as one reader may see it: points, colors, texts, and the points inside an outline that the reader draws.

The one decision to know: a point is identified by its place among those that its reader may see. Rows with a hidden label
are removed first, by the label in the row, before anything is counted, colored, listed or numbered.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.index.facets import FACETS, UNKNOWN, bucket_names, elements
from camel.maps.diversity import Diversity
from camel.maps.table import MapGroup, maps_of, read_header
from camel.query.answers import NotThere
from camel.query.catalogue import Catalogue, CatalogueView
from camel.query.parts import group_starts, read_rows
from camel.query.where import Query
from camel.record.parquet import arrow

COLORS = 8
"""Number of colors. The most frequent values have one each, all others are gray, so that no color has two meanings."""
OTHERS = COLORS
BY = ("cluster", *(name for name in FACETS if name != "tool"))
"""The fields that points can be colored by."""
MOST_CORNERS = 80
"""Maximum number of corners of the line around a selection."""

Rows = NDArray[np.int64]
Narrow = Callable[[str], Any]
"""Returns an array of the rows of a map's file that match the query."""


def map_command(run: str, of: str) -> str:
    """Return the shell command that makes a map."""
    return f"camel map {shlex.quote(run)} --of {of}"


def maps_in(catalogue: Catalogue) -> dict[str, list[str]]:
    """Return the kinds of text that each run has a map of."""
    return {one.name: found for one in catalogue.runs if (found := list(maps_of(one.folder)))}


def map_of(catalogue: Catalogue, run: str, of: str, query: Query = Query()) -> MapView:  # noqa: B008 - frozen
    """Return the map of a run, with the texts that match a query. The query's own choice of runs is ignored."""
    return catalogue.derived(partial(_map_view, run, of, query))


def _map_view(run: str, of: str, query: Query, view: CatalogueView) -> MapView:
    source = view.source(run)
    path = maps_of(source.folder).get(of)
    if path is None:
        raise NotThere(
            f"'{source.name}' has no map of its {of}: make one with {map_command(source.address, of)}"
        )
    known = ("map", str(path), path.stat().st_mtime_ns)
    file = view.database.remember(view.state, known, lambda: MapFile(path), large=True)
    if file.header.fingerprint != source.folder.settings().fingerprint:
        raise NotThere(
            f"the map of '{source.name}' belongs to another run: remove its folder 'map' and run camel map again"
        )
    query = replace(query, runs=(run,), sort="", order="asc")
    narrow = partial(view.rows_of, source, query) if query.facets or query.narrowed else None
    return view.remember(
        ("drawn", *known, query.digest), lambda: MapView(file, run, view.hidden, narrow), large=True
    )


class LegendEntry(NamedTuple):
    """A line of the legend."""

    value: str
    color: int
    texts: int
    x: float = 0.0
    y: float = 0.0
    """`x` and `y` are the position of a group on the map. They are 0 for other entries."""


class Legend(NamedTuple):
    """The meaning of the colors."""

    entries: list[LegendEntry]
    steps: bool
    """Whether the entries are ranges of a number. Ranges are shown in shades of one color."""


class Point(NamedTuple):
    """A text of the map."""

    at: int
    id: str
    message: int
    text: str
    label: str
    assistant: str
    user: str
    stop: str
    copy_of: str


class MapFile:
    """A map's file, with the columns that every view of it needs."""

    def __init__(self, path: Path) -> None:
        self.path, self.header = path, read_header(path)
        table = arrow("pyarrow.parquet").read_table(path, columns=["x", "y", "cluster"])
        self.x, self.y = (table.column(name).to_numpy().astype(np.float32) for name in ("x", "y"))
        self.groups: NDArray[np.int32] = table.column("cluster").to_numpy()
        labels, self._label_of = _encoded(path, "labels")
        self._labels = [frozenset(elements(one)) for one in labels]
        self._codes: dict[str, tuple[list[str], NDArray[np.int64]]] = {}

    def visible(self, hidden: frozenset[str]) -> Rows:
        """Return the indices of the rows that have none of the hidden labels."""
        good = np.array([hidden.isdisjoint(one) for one in self._labels], np.bool_)
        return np.flatnonzero(good[self._label_of])

    def values(self, facet: str) -> tuple[list[str], NDArray[np.int64]]:
        """Return the values of a facet, and the index of the value of each row."""
        if facet not in self._codes:
            its = FACETS[facet]
            if its.edges:
                column = arrow("pyarrow.parquet").read_table(self.path, columns=[its.column]).column(0)
                names = [*bucket_names(its), UNKNOWN]
                numbers: NDArray[np.float64] = column.to_numpy().astype(np.float64)  # NaN: unknown
                edges: NDArray[np.float64] = np.array(its.edges, np.float64)
                buckets = np.maximum(np.searchsorted(edges, numbers, side="right") - 1, 0)
                codes = np.where(np.isnan(numbers), len(names) - 1, buckets)
            else:
                names, codes = _encoded(self.path, its.column)
                names = [", ".join(elements(one)) for one in names] if its.many else names
            self._codes[facet] = names, codes.astype(np.int64)
        return self._codes[facet]


def _encoded(path: Path, name: str) -> tuple[list[str], NDArray[np.int64]]:
    """Return the distinct values of a column, and the index of the value of each row."""
    table = arrow("pyarrow.parquet").read_table(path, columns=[name], read_dictionary=[name])
    column = table.column(0).unify_dictionaries().combine_chunks()
    return [str(one) for one in column.dictionary.to_pylist()], column.indices.to_numpy().astype(np.int64)


class MapView:
    """A map for one reader and one query."""

    def __init__(self, file: MapFile, run: str, hidden: frozenset[str], narrow: Narrow | None) -> None:
        self.file, self.run, self._hidden = file, run, hidden
        self.header = file.header
        """The header of the map's file. Its counts include hidden rows."""
        self.visible = file.visible(hidden)
        self.rows = self.visible
        if narrow is not None:
            found = np.asarray(narrow(str(file.path)), np.int64)
            self.rows = np.intersect1d(self.visible, found, assume_unique=True)

    @property
    def figures(self) -> Diversity | None:
        """The diversity figures of the visible texts. None if there are none."""
        whole = len(self.visible) == len(self.file.x)
        return self.header.all if whole else self.header.open

    @cached_property
    def groups(self) -> list[tuple[int, MapGroup, int]]:
        """The groups with texts that match the query: index, group and number of texts."""
        counts = np.bincount(self.file.groups[self.rows], minlength=len(self.header.groups))
        return [(n, one, int(counts[n])) for n, one in enumerate(self.header.groups) if counts[n]]

    def legend(self, by: str) -> Legend:
        """Return the meaning of the colors, with the number of texts per color."""
        slots = self._slots(by)
        if by == "cluster":
            groups = [LegendEntry(g.label, slots[n], count, g.x, g.y) for n, g, count in self.groups]
            return Legend(groups, False)
        names, codes = self.file.values(by)
        counts = np.bincount(codes[self.rows], minlength=len(names))
        entries = [
            LegendEntry(names[n], slots[n], int(counts[n])) for n in range(len(names)) if slots[n] != OTHERS
        ]
        if not FACETS[by].edges:
            entries.sort(key=lambda one: one.color)
        rest = sum(int(counts[n]) for n in range(len(names)) if slots[n] == OTHERS)
        entries = [one for one in entries if one.texts]
        return Legend(entries + ([LegendEntry("", OTHERS, rest)] if rest else []), bool(FACETS[by].edges))

    def _slots(self, by: str) -> list[int]:
        """Return the color index of each value. The most frequent visible values get their own color."""
        if by == "cluster":  # the largest groups have the lowest numbers
            return [min(number, OTHERS) for number in range(len(self.header.groups))]
        names, codes = self.file.values(by)
        if FACETS[by].edges:
            return [OTHERS if name == UNKNOWN else min(n, COLORS - 1) for n, name in enumerate(names)]
        counts = np.bincount(codes[self.visible], minlength=len(names))
        order = sorted(range(len(names)), key=lambda n: (-int(counts[n]), names[n]))
        rank = {n: place for place, n in enumerate(order)}
        return [min(rank[n], OTHERS) for n in range(len(names))]

    def points(self, by: str) -> bytes:
        """Return four arrays as bytes: x, y and color (32-bit floats), and the index among visible rows (32-bit integers)."""
        values = self.file.groups if by == "cluster" else self.file.values(by)[1]
        codes = np.array(self._slots(by), "<f4")[values[self.rows]]
        places = np.searchsorted(self.visible, self.rows).astype("<u4")
        x, y = self.file.x[self.rows].astype("<f4"), self.file.y[self.rows].astype("<f4")
        return b"".join(array.tobytes() for array in (x, y, codes, places))

    def inside(self, area: Sequence[tuple[float, float]]) -> Rows:
        """Return the indices of the rows inside a closed line."""
        xs, ys = self.file.x[self.rows], self.file.y[self.rows]
        low, high = np.min(area, axis=0), np.max(area, axis=0)
        near = np.flatnonzero((xs >= low[0]) & (xs <= high[0]) & (ys >= low[1]) & (ys <= high[1]))
        return self.rows[near[within(xs[near], ys[near], area)]]

    def at(self, place: int) -> Point:
        """Return the text at index `place` among the visible rows."""
        if not 0 <= place < len(self.visible):
            raise NotThere(f"the map has no point {place:,}")
        return self.read(self.visible[place : place + 1])[0]

    def read(self, rows: Rows) -> list[Point]:
        """Read the texts of the given rows of the map's file."""
        pq = arrow("pyarrow.parquet")
        names = ["id", "message", "text", "label", "assistant", "user", "stop", "copy_of", "labels"]
        order: list[int] = rows.tolist()
        with pq.ParquetFile(self.file.path) as file:
            read = read_rows(file, group_starts(file.metadata), order, names)
        if any(self._hidden.intersection(elements(read[at]["labels"])) for at in order):
            raise AssertionError("a restricted text passed the consent gate")
        places: list[int] = np.searchsorted(self.visible, rows).tolist()
        return [
            Point(place, **{name: read[at][name] for name in names if name != "labels"})
            for place, at in zip(places, order, strict=True)
        ]


def area_from(text: str) -> list[tuple[float, float]] | None:
    """Parse the line around a selection, `x,y;x,y;…` in a URL. Return None if the text is empty."""
    if not text.strip():
        return None
    corners: list[tuple[float, float]] = []
    try:
        for corner in text.split(";")[: MOST_CORNERS + 1]:
            x, y = corner.split(",")
            corners.append((float(x), float(y)))
    except ValueError:
        corners = []
    good = 3 <= len(corners) <= MOST_CORNERS
    if not good or not all(math.isfinite(one) and abs(one) <= 100 for corner in corners for one in corner):
        raise InputError(f"area must have 3 to {MOST_CORNERS} corners x,y;x,y;…, not {shown(text)}")
    return corners


def within(xs: Any, ys: Any, area: Sequence[tuple[float, float]]) -> NDArray[np.bool_]:
    """Return for each point whether it is inside a closed line: a ray from it crosses the line an odd number of times."""
    inside = np.zeros(len(xs), np.bool_)
    for (x1, y1), (x2, y2) in zip(area, [*area[1:], area[0]], strict=True):
        if y1 != y2:
            between = (ys < y1) != (ys < y2)
            inside ^= between & (xs < (x2 - x1) * (ys - y1) / (y2 - y1) + x1)
    return inside
