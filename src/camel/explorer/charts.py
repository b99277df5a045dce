"""Plots of the statistics page, and their downloads.

The one decision to know: the template `plots.html` draws the plots of the page as HTML and SVG, so that their text has the size
and font of the page at every width, and their colors follow the theme. Vega-Lite draws the same rows for downloads.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec

from camel.explorer.colors import GRAY
from camel.reports.intervals import wilson
from camel.reports.plots import Plot, Spec, colors, formula_safe, names

FEWEST = 10
"""Minimum number of values for a plot with shares. Fewer values are listed instead."""
MOST = 12
"""Maximum number of values of a facet in a plot. The downloaded data contains all values."""
BINS = 24
WIDTH = 380
_UNSEEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
Rows = list[dict[str, Any]]


class Chart(msgspec.Struct, frozen=True):
    """A plot of the statistics."""

    name: str
    """The name of the plot's files, without an ending."""
    title: str
    caption: str
    rows: Rows
    """The complete data of the plot, which its CSV file contains."""
    kind: str
    """The kind of drawing in `plots.html`: `text`, `bars`, `stack`, `columns`, `panels`, `layers` or `heat`."""
    drawn: dict[str, Any]
    """The values from which the template draws the plot."""
    spec: Spec | None = None
    """The Vega-Lite specification. None if the plot is only a sentence."""


def as_plot(made: Chart) -> Plot:
    """Return a chart as the plot that is drawn for downloads."""
    return Plot(made.name, made.title, made.caption, made.spec or {})


def as_csv(made: Chart) -> str:
    """Return the data of the plot as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(made.rows[0] if made.rows else [])
    writer.writerows([csv_cell(value) for value in row.values()] for row in made.rows)
    return text.getvalue()


def csv_cell(value: Any) -> Any:
    """Return a value that no spreadsheet interprets as a formula. The text may come from a model."""
    return formula_safe(_UNSEEN.sub("\ufffd", value) if isinstance(value, str) else value)


def printable(text: str) -> str:
    """Return a text in one line, without control characters."""
    return _UNSEEN.sub("\ufffd", " ".join(text.split()))


def shares(count: int, of: int) -> dict[str, float]:
    """Return a share and its 95% confidence interval, as columns of a row."""
    found = wilson(count, of)
    return {"share": found.rate, "low": found.low, "high": found.high}


def count_ticks(most: int, wanted: int = 4) -> list[int]:
    """Return equally spaced whole numbers from 0 to the top of an axis of counts."""
    rough = max(1, most) / wanted
    power = 10 ** max(0, math.floor(math.log10(rough)))
    step = next(power * n for n in (1, 2, 5, 10) if power * n >= rough)
    return list(range(0, step * math.ceil(max(1, most) / step) + 1, step))


def counts_axis(field: str = "conversations") -> Spec:
    """Return a Vega-Lite channel for counts, with ticks only at whole numbers."""
    return {"field": field, "type": "quantitative", "axis": {"tickMinStep": 1, "format": "d", "tickCount": 4}}


def bars_spec(rows: Rows, field: str, palette: Sequence[str] = (), **more: Any) -> Spec:
    """Return the Vega-Lite specification of horizontal bars, with the name of each bar at its left."""
    order = [row[field] for row in rows]
    color = colors(field, order, list(palette) or [GRAY] * len(order), legend=None)
    encoding = {"y": names(field, order), "x": counts_axis(), "color": color} | more
    return {"data": {"values": rows}, "width": WIDTH, "mark": "bar", "encoding": encoding}


def columns_spec(rows: Rows, edges: Sequence[float], title: str, **more: Any) -> Spec:
    """Return the Vega-Lite specification of columns on a numeric axis. Each column spans `from` of its row to the next edge."""
    ends = dict(pairwise(edges))
    axis = {"format": "$~g"} if title == "dollars" else {"format": "~s", "tickMinStep": 1}
    scale = {"domain": [edges[0], edges[-1]], "nice": False, "zero": False}
    x = {"field": "from", "bin": {"binned": True}, "type": "quantitative", "title": title}
    return {
        "data": {"values": [row | {"until": ends[row["from"]]} for row in rows]},
        "width": WIDTH,
        "height": 110,
        "mark": "bar",
        "encoding": {
            "x": x | {"axis": axis, "scale": scale},
            "x2": {"field": "until"},
            "y": counts_axis(),
            **more,
        },
    }
