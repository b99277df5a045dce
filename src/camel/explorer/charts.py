"""Plots of the statistics: what one is, how the page draws it, and how it is downloaded.

The one decision to know: a page draws its plots itself, as HTML and SVG in templates, so that their text has the size and
the font of the page at every width and their colors follow the theme. Vega-Lite draws the same rows for downloads.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from camel.explorer.colors import GRAY
from camel.reports.intervals import wilson
from camel.reports.plots import Plot, Spec, png, svg

FEWEST = 10
"""Values from which on a plot is drawn and shares are given; fewer are listed."""
MOST = 12
"""Values of a facet that are drawn; the downloaded data has them all."""
BINS = 24
HEIGHT = 112
"""Of the area of columns, in pixels."""
WIDTH = 380
_UNSEEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
Rows = list[dict[str, Any]]


class Chart(msgspec.Struct, frozen=True):
    """A plot of the statistics."""

    name: str
    """Of its files."""
    title: str
    caption: str
    rows: Rows
    """All of the data."""
    figure: dict[str, Any]
    """What the template `plots.html` draws."""
    spec: Spec | None = None
    """The same for Vega-Lite; None where it is a sentence."""


def as_svg(made: Chart) -> str:
    """The plot as an SVG file."""
    return svg(_plot(made))


def as_png(made: Chart) -> bytes:
    """The plot as a PNG file."""
    return png(_plot(made))


def _plot(made: Chart) -> Plot:
    return Plot(made.name, made.title, made.caption, made.spec or {})


def as_csv(made: Chart) -> str:
    """The data of the plot."""
    text = io.StringIO()
    names = list(made.rows[0]) if made.rows else []
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_cell(row[name]) for name in names] for row in made.rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula: the text may come from a model."""
    if isinstance(value, str):
        value = _UNSEEN.sub("\ufffd", value)
        return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
    return value


def printable(text: str) -> str:
    """In one line, without control characters."""
    return _UNSEEN.sub("\ufffd", " ".join(text.split()))


def shares(count: int, of: int) -> dict[str, float]:
    """A share and its 95% interval, as columns of a row."""
    found = wilson(count, of)
    return {"share": found.rate, "low": found.low, "high": found.high}


def interval(row: Mapping[str, Any]) -> str:
    """The interval of a share in whole percents."""
    return f"{100 * row['low']:.0f} to {100 * row['high']:.0f}%"


# --- what the page draws -------------------------------------------------------------------------------------------


def bars_figure(
    rows: Rows, field: str, total: int, links: Sequence[str], marks: Sequence[Any] = ()
) -> dict[str, Any]:
    """Bars from 0 to the largest count; with at least `FEWEST` conversations also their shares and intervals."""
    most = max((row["conversations"] for row in rows), default=1) or 1
    drawn = [
        {
            "name": row[field],
            "count": row["conversations"],
            "share": f"{row['share']:.0%}" if total >= FEWEST else "",
            "interval": interval(row) if total >= FEWEST else "",
            "width": 100 * row["conversations"] / most,
            "link": link,
        }
        for row, link in zip(rows, links, strict=False)
    ]
    for bar, mark in zip(drawn, marks, strict=False):
        bar["mark"] = mark
    return {"kind": "stack" if marks else "bars", "rows": drawn, "total": total}


def columns_figure(
    edges: Sequence[float],
    series: Sequence[tuple[str, Sequence[int]]],
    labels: Sequence[tuple[float, str]],
    links: Sequence[str] = (),
    median: tuple[float, str] | None = None,
) -> dict[str, Any]:
    """Columns on an axis of counts. `series` has a class and the counts of each layer, from the lowest; places are percents."""
    totals = [sum(counts[place] for _, counts in series) for place in range(len(edges) - 1)]
    top, ticks = count_ticks(max(totals, default=1))
    low, span = edges[0], (edges[-1] - edges[0]) or 1
    columns: list[dict[str, Any]] = []
    for place, (start, total) in enumerate(zip(edges, totals, strict=False)):
        layers, y = [], float(HEIGHT)
        for css, counts in series:
            high = HEIGHT * counts[place] / top
            y -= high
            layers.append({"css": css, "y": round(y, 1), "height": round(high, 1)})
        columns.append(
            {
                "x": round(100 * (start - low) / span, 2),
                "width": round(100 * (edges[place + 1] - start) / span, 2),
                "layers": layers,
                "count": total,
                "link": links[place] if links else "",
            }
        )
    return {
        "kind": "columns",
        "columns": columns,
        "ticks": [{"y": round(HEIGHT * (1 - tick / top), 1), "label": f"{tick:,}"} for tick in ticks],
        "labels": [{"x": round(100 * (at - low) / span, 2), "label": label} for at, label in labels],
        "median": median and {"x": round(100 * (median[0] - low) / span, 2), "label": f"median {median[1]}"},
    }


def count_ticks(most: int, wanted: int = 4) -> tuple[int, list[int]]:
    """The top of an axis of counts, and whole numbers at equal distances on it."""
    rough = max(1, most) / wanted
    power = 10 ** max(0, math.floor(math.log10(rough)))
    step = max(1, next(power * n for n in (1, 2, 5, 10) if power * n >= rough))
    top = step * math.ceil(max(1, most) / step)
    return top, list(range(0, top + 1, step))


# --- the same for Vega-Lite ----------------------------------------------------------------------------------------


def names_axis(field: str, order: Iterable[str]) -> Spec:
    """A channel of names in an order."""
    return {"field": field, "type": "nominal", "sort": list(order), "title": None}


def counts_axis(field: str = "conversations", title: str = "") -> Spec:
    """A channel of counts, with whole numbers at its ticks."""
    axis = {"tickMinStep": 1, "format": "d", "tickCount": 4}
    return {"field": field, "type": "quantitative", "title": title or field, "axis": axis}


def color_channel(field: str, names: Sequence[str], palette: Sequence[str]) -> Spec:
    """A color for each name."""
    return {
        "field": field,
        "type": "nominal",
        "sort": list(names),
        "scale": {"domain": list(names), "range": list(palette)},
    }


def bars_spec(rows: Rows, field: str, colors: Sequence[str] = ()) -> Spec:
    """Bars with their names at the left and their counts at the end."""
    # Two names may be equal once they are printable, so that bars go by their number.
    values = [{"at": number, "n": row["conversations"]} for number, row in enumerate(rows)]
    names = msgspec.json.encode(
        [re.sub(r"[^\w .,:;&()'+*/#%$€–-]", " ", row[field])[:60] for row in rows]
    ).decode()
    y = {"field": "at", "type": "ordinal", "title": None, "axis": {"labelExpr": f"{names}[datum.value]"}}
    x = {"field": "n", "type": "quantitative", "axis": None, "scale": {"domainMin": 0}}
    color = {
        "field": "at",
        "type": "ordinal",
        "legend": None,
        "scale": {"domain": [one["at"] for one in values], "range": list(colors) or [GRAY] * len(values)},
    }
    text = {"type": "text", "align": "left", "dx": 6}
    return {
        "data": {"values": values},
        "width": WIDTH,
        "encoding": {"y": y, "x": x},
        "layer": [
            {"mark": "bar", "encoding": {"color": color}},
            {"mark": text, "encoding": {"text": {"field": "n", "format": ",d"}}},
        ],
    }


def columns_spec(
    values: Rows, edges: Sequence[float], title: str, more: Mapping[str, Spec], money: bool
) -> Spec:
    """Columns from `from` to `until` on an axis of numbers."""
    x: Spec = {
        "field": "from",
        "bin": {"binned": True},
        "type": "quantitative",
        "title": title,
        "axis": {"format": "$~g" if money else "~s", "tickCount": 5, **({} if money else {"tickMinStep": 1})},
        "scale": {"domain": [edges[0], edges[-1]], "nice": False, "zero": False},
    }
    return {
        "data": {"values": values},
        "width": WIDTH,
        "height": HEIGHT,
        "mark": {"type": "bar"},
        "encoding": {"x": x, "x2": {"field": "until"}, "y": counts_axis(), **more},
    }
