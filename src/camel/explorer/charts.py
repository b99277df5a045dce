"""Charts of the statistics page: what one is, and how it is drawn and handed out."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from camel.reports.intervals import wilson
from camel.reports.plots import ACCENT, CONFIG, INK, Plot, Spec, png, svg

WIDTH = 205
"""Of what is drawn, beside the labels: all of it fits a phone, where it is shown about as large as it is."""
LABELS = 145
FONT = 13


GO = "https://link.invalid/"
"""Stands for a link until it is drawn: the drawer would make a path of ours into one of a site of its own."""
_LINK = re.compile(rf'xlink:href="{re.escape(GO)}(\d+)"')
_UNSEEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


_LEGEND = {"labelFontSize": FONT, "columns": 2, "columnPadding": 30, "labelLimit": 180}
_CONFIG: Spec = {
    **CONFIG,
    "axis": {**CONFIG["axis"], "labelFontSize": FONT, "titleFontSize": FONT, "labelLimit": LABELS},
    "legend": {**CONFIG["legend"], **_LEGEND},
    "header": {**CONFIG["header"], "labelFontSize": FONT},
}


Rows = list[dict[str, Any]]


class Chart(msgspec.Struct, frozen=True):
    """A plot, what it was drawn from, and where its bars lead."""

    plot: Plot
    rows: Rows
    """The data, all of it."""
    links: list[str] = []


def drawn(made: Chart) -> str:
    """The plot as SVG for a page, its bars links."""
    return _LINK.sub(
        lambda found: f'href="{html.escape(made.links[int(found[1])])}"', _svg(msgspec.json.encode(made.plot))
    )


def as_svg(made: Chart) -> str:
    """The plot as a file, without links."""
    return re.sub(r"</?a\b[^>]*>", "", _svg(msgspec.json.encode(made.plot)))


def as_png(made: Chart) -> bytes:
    """The plot as a picture."""
    return png(made.plot)


def as_csv(made: Chart) -> str:
    """What the plot was drawn from."""
    text = io.StringIO()
    names = [name for name in made.rows[0] if name != "link"] if made.rows else []
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([csv_cell(row[name]) for name in names] for row in made.rows)
    return text.getvalue()


def csv_cell(value: Any) -> Any:
    """A cell that a spreadsheet shows as it is: text of a model must not become a formula."""
    if isinstance(value, str):
        value = _UNSEEN.sub("\ufffd", value)
        return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
    return value


@lru_cache(maxsize=128)
def _svg(plot: bytes) -> str:
    """Drawn once, whoever looks: the same data makes the same picture."""
    return svg(msgspec.json.decode(plot, type=Plot))


def warm() -> None:
    """Start the drawer, which takes a second the first time."""
    svg(plot_of("warm", "", "", {"data": {"values": [{"x": 1}]}, "mark": "point"}))


def plot_of(name: str, title: str, caption: str, spec: Spec) -> Plot:
    """A plot in the size and the colors of the page."""
    return Plot(
        name,
        title,
        caption,
        {"config": _CONFIG, "padding": {"left": 12, "right": 12, "top": 4, "bottom": 4}, **spec},
    )


def printable(text: str) -> str:
    """In one line, without characters that a picture cannot show."""
    return _UNSEEN.sub("\ufffd", " ".join(text.split()))


MOST = 14
"""Values of a facet that are drawn; the data has them all."""
BINS = 24
FEWEST = 5
"""Numbers for which a plot of bars has room, though it has fewer."""


def shares(count: int, of: int) -> dict[str, float]:
    """A share and its 95% interval, as columns of a row."""
    found = wilson(count, of)
    return {"share": found.rate, "low": found.low, "high": found.high}


def names_axis(field: str, order: Sequence[str], **style: Any) -> Spec:
    """An axis with names in an order, without lines."""
    axis = {"domain": False, "ticks": False, **style}
    return {"field": field, "type": "nominal", "sort": order, "title": None, "axis": axis}


def numbers_axis(field: str, title: str | None = None, ticks: int = 4, format: str = "~s") -> Spec:
    """An axis with numbers."""
    axis = {"format": format, "tickCount": ticks}
    return {"field": field, "type": "quantitative", "title": title, "axis": axis}


def colors(field: str, names: Sequence[str], palette: Sequence[str]) -> Spec:
    """A color for each name."""
    scale = {"domain": names, "range": palette}
    return {"field": field, "type": "nominal", "sort": names, "scale": scale}


def bars(rows: Rows, field: str) -> Spec:
    """Bars with their names at the left and their numbers at the end."""
    values = [
        {
            "name": row[field],
            "at": number,
            "n": row["conversations"],
            "says": f"{row['conversations']:,} · {row['share']:.0%}",
            "link": f"{GO}{number}",
        }
        for number, row in enumerate(rows)
    ]
    most = max((row["n"] for row in values), default=1)
    x: Spec = {
        "field": "n",
        "type": "quantitative",
        "axis": None,
        # Room for the numbers beside the longest.
        "scale": {"domain": [0, most], "range": [0, WIDTH - 95]},
    }
    labels = f"{_expression([row[field] for row in rows])}[datum.value]"
    return {
        "data": {"values": values},
        "width": WIDTH,
        "height": {"step": 28},
        "encoding": {
            "y": {
                "field": "at",
                "type": "ordinal",
                "title": None,
                "axis": {"labelColor": INK, "domain": False, "ticks": False, "labelExpr": labels},
            },
            "href": {"field": "link"},
            "description": {"field": "name", "type": "nominal"},
        },
        "layer": [
            {
                "mark": {"type": "bar", "color": ACCENT, "cornerRadiusEnd": 3, "size": 18},
                "encoding": {"x": x},
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 6, "fontSize": FONT},
                "encoding": {"x": x, "text": {"field": "says"}},
            },
        ],
    }


def _expression(names: Sequence[str]) -> str:
    """Texts as a list in an expression of the drawer. Two values may look the same once shortened: bars go by number."""
    return msgspec.json.encode(
        [re.sub(r"[^\w .,:;&()'+*/#%$€–-]", " ", name)[:60] for name in names]
    ).decode()
