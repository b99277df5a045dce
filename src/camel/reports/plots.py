"""Functions that all plots share. vl-convert draws their Vega-Lite specifications without network access.

The one decision to know: a plot carries the light colors of `look/vega-config.json`, and the page maps them to its tokens
(`look/components.css`), so that one drawing serves both themes. It is drawn once per width and never scaled, so that its
text keeps its size.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from camel.core.errors import MissingExtra
from camel.storage import inside

LOOK = Path(__file__).parent / "look"
"""Folder of the CSS tokens, components, fonts and the plot configuration that all pages share."""
Spec = dict[str, Any]
CONFIG: Spec = msgspec.json.decode((LOOK / "vega-config.json").read_bytes())
PALETTE: list[str] = CONFIG["range"]["category"]
GRAY = "#7c7f83"
SIDE_A, SIDE_B = PALETTE[6:8]
SEATS = {
    "user": (PALETTE[0], "circle"),
    "assistant": (PALETTE[1], "square"),
    "critic": (PALETTE[2], "diamond"),
}
WIDE, NARROW = 928, 328
"""Widths of plots in pixels: for the column of a report, and for a phone."""


class Plot(NamedTuple):
    """A plot with its title and caption."""

    name: str
    """Name of the plot and of its files."""
    title: str
    caption: str
    spec: Spec
    narrow: Spec | None = None
    """The specification for a phone. If it is None, the page scrolls the wide plot."""


def plot(name: str, title: str, caption: str, draw: Callable[[int], Spec]) -> Plot:
    """Make a plot by calling `draw` with both widths."""
    return Plot(name, title, caption, draw(WIDE), draw(NARROW))


def drawn(plot: Plot) -> list[str]:
    """Return the plot as a list of SVGs: the wide one, then the narrow one if it exists."""
    both = [svg(plot)]
    if plot.narrow is not None:
        both.append(svg(plot._replace(name=f"{plot.name}-narrow", spec=plot.narrow)))
    return both


def svg(plot: Plot) -> str:
    """Return the plot as SVG. Its ids start with the plot's name, so that a page can contain several plots."""
    made: str = _converter().vegalite_to_svg(_whole(plot.spec))
    made = re.sub(r'\bid="([^"]+)"', rf'id="{plot.name}-\1"', made)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{plot.name}-\1)", made)


def png(plot: Plot) -> bytes:
    """Return the plot as PNG on white, at twice its size."""
    return bytes(_converter().vegalite_to_png({**_whole(plot.spec), "background": "#ffffff"}, scale=2))


def as_csv(rows: Sequence[Mapping[str, Any]], fields: Sequence[str] = ()) -> str:
    """Return rows as CSV. Text that a spreadsheet would interpret as a formula gets an apostrophe."""
    text = io.StringIO()
    names = fields or list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: formula_safe(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def formula_safe(value: Any) -> Any:
    """Return a value of a CSV cell. Text that a spreadsheet would interpret as a formula gets an apostrophe."""
    risky = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if risky else value


def write_plots(folder: Path, plots: Iterable[Plot], pictures: Mapping[str, Sequence[str]]) -> None:
    """Write each plot as SVG, PNG and CSV into the folder `plots`, and remove the plots of an earlier report."""
    for old in inside.entries(folder, "plots"):
        if old.name.endswith((".svg", ".png", ".csv")) and old.name.count("/") == 1:
            inside.remove(folder, old.name)
    for plot in plots:
        inside.write(folder, f"plots/{plot.name}.svg", pictures[plot.name][0])
        inside.write(folder, f"plots/{plot.name}.png", png(plot))
        inside.write(folder, f"plots/{plot.name}.csv", as_csv(plot.spec["data"]["values"]))


def dots(
    rows: Sequence[Spec],
    width: int,
    *,
    domain: tuple[float, float] | None = None,
    middle: float | None = None,
) -> Spec:
    """Return a plot with a dot and an interval per row, between the row's name and its figures. The default domain is 0 to 1.

    A row has `name`, `value`, `low`, `high`, `says` and `span` (the figures in words), and optionally `color` and `shape`.
    A row with nothing but a `name` is the title of those below it.
    """
    low, high = domain or (0, 1)
    usual = {"color": GRAY, "shape": "circle", "says": "", "span": ""}
    values = [{**usual, **row, "row": at} for at, row in enumerate(rows)]
    params = {"middle": middle, "from": low, "to": high, "shares": domain is None}
    return drawing("dots", values, width, 32 if width > 600 else 48, **params)


def outcomes(rows: Sequence[Spec], width: int) -> Spec:
    """Return a plot with the shares that A won, drew and lost as one bar per row.

    A row has `name`, the shares `won`, `drawn` and `lost`, the same in words (`won_words` …), and, if the share won has an
    interval, `low`, `high` and `says`.
    """
    return drawing("outcomes", [{"says": "", **row, "row": at} for at, row in enumerate(rows)], width, 92)


def bars(rows: Sequence[Spec], width: int) -> Spec:
    """Return a bar plot of counts by `name`, with the `count` at the end of each bar."""
    return drawing("bars", rows, width, 28)


def lines(rows: Sequence[Spec], width: int, unit: str) -> Spec:
    """Return a line plot of shares. A row has the line's `name`, and `x` and `y`; `unit` is the title of the x-axis."""
    made = drawing("lines", rows, width)
    x = made["encoding"]["x"]
    x["title"], places = unit, [row["x"] for row in rows]
    x["axis"] = {**count_axis(max(places, default=1) - min(places, default=0)), **x["axis"]}
    return made


def heat(rows: Sequence[Spec], size: tuple[int, int], *, most: float = 1.0) -> Spec:
    """Return a heat map of cells by `row` and `column`. A larger `size` is darker; `most` is the size of the darkest.

    A cell has a `color` and `words`, and optionally a `span` below them; some are `outlined`. Labels break at spaces, so that
    none has to be rotated.
    """
    lines = max(len(row["column"].split()) for row in rows)
    params: dict[str, Any] = {"most": most, "lines": lines, "spans": any(row.get("span") for row in rows)}
    return drawing("heat", rows, 0, **params) | {"width": {"step": size[0]}, "height": {"step": size[1]}}


def panels(rows: list[Spec], field: str, unit: Spec, width: int, *, columns: int = 3) -> Spec:
    """Return a grid of plots, one per value of `field`, each with its own scale. A single plot has no title."""
    order = list(dict.fromkeys(row[field] for row in rows))
    columns = min(columns if width > 600 else 1, len(order) or 1)
    unit = {"width": width // columns - 60, "height": 210 if len(order) == 1 else 120, **unit}
    if len(order) < 2:
        return {"data": {"values": rows}, **unit}
    return {
        "data": {"values": rows},
        "facet": {"field": field, "type": "nominal", "sort": order, "title": None},
        "columns": columns,
        "spacing": 30,
        "resolve": {"scale": {"y": "independent"}},
        "spec": unit,
    }


def count_axis(most: float) -> Spec:
    """Return an axis for counts up to `most`. `tickMinStep` alone allows ticks at halves, so the number of ticks is limited
    too."""
    return {"tickCount": max(1, min(4, int(most))), "tickMinStep": 1, "format": "d"}


def drawing(name: str, rows: Sequence[Spec], width: int, step: int = 0, **params: Any) -> Spec:
    """Return the specification `specs/<name>.json` with `rows` as its data and `params` as its parameters."""
    made: Spec = msgspec.json.decode((Path(__file__).parent / "specs" / f"{name}.json").read_bytes())
    values = [{"name": key, "value": value} for key, value in {"wide": width > 600, **params}.items()]
    height = {"height": {"step": step}} if step else {}
    return {**made, "data": {"values": list(rows)}, "width": width, "params": values, **height}


def names(field: str, order: Iterable[str], **axis: Any) -> Spec:
    """Return a Vega-Lite channel of names, in the given order."""
    return {"field": field, "type": "nominal", "sort": list(order), "title": None, "axis": axis}


def colors(field: str, order: Sequence[str], range: Sequence[str], **more: Any) -> Spec:
    """Return a Vega-Lite color channel. The names in `order` get the colors in `range`."""
    scale = {"domain": list(order), "range": list(range)}
    return {"field": field, "type": "nominal", "sort": list(order), "scale": scale, **more}


def bands(low: Spec, value: str, line: Spec) -> list[Spec]:
    """Return two layers: a band between the fields `low` and `high`, and a line through the field `value`."""
    return [
        {"mark": {"type": "area", "opacity": 0.16}, "encoding": {"y": low, "y2": {"field": "high"}}},
        {"mark": line, "encoding": {"y": {**low, "field": value}}},
    ]


def seat_colors(seats: Sequence[str]) -> list[str]:
    """Return a color for each seat. Members of a society get the free colors of the palette in order, then gray."""
    own = {seat: SEATS[seat][0] for seat in seats if seat in SEATS}
    free = iter([color for color in PALETTE if color not in own.values()])
    return [own.get(seat) or next(free, GRAY) for seat in seats]


def _converter() -> Any:
    try:
        return import_module("vl_convert")
    except ImportError:
        raise MissingExtra("Drawing plots", "study") from None


def _whole(spec: Spec) -> Spec:
    schema = "https://vega.github.io/schema/vega-lite/v5.json"  # a name, not downloaded
    return {"$schema": schema, "config": {**CONFIG, "aria": False}, **spec}
