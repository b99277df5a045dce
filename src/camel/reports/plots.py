"""What all plots share: Vega-Lite drawn by vl-convert, SVG for a page, SVG and PNG as files. Nothing is fetched.

The one decision to know: there is one set of colours that reads on white and on black. Text and lines are drawn in three
fixed greys, which the page replaces by its own where it is dark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from camel.core.errors import MissingExtra
from camel.storage import inside

INK, MUTED, GRID = "#1d2129", "#667085", "#e4e7ec"
ACCENT = "#3d74db"
SEAT_COLOURS = ("#d97a1f", "#3d74db", "#1f9d7a", "#a35bd1")
"""The user's, the assistant's, and two more."""

Spec = dict[str, Any]

CONFIG: Spec = {
    "background": "#ffffff",
    "font": "sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": MUTED,
        "titleColor": MUTED,
        "titleFontWeight": "normal",
        "gridColor": GRID,
        "domainColor": GRID,
        "tickColor": GRID,
        "labelFontSize": 11,
        "titleFontSize": 11,
        "labelLimit": 260,
        "labelPadding": 6,
    },
    "header": {"labelColor": INK, "labelFontSize": 12, "labelFontWeight": "bold", "title": None},
    "legend": {
        "labelColor": INK,
        "titleColor": MUTED,
        "title": None,
        "orient": "top",
        "labelFontSize": 11,
        "symbolOpacity": 1,
        "symbolSize": 70,
        "symbolStrokeWidth": 0,
    },
    "text": {"color": INK},
}


class Plot(NamedTuple):
    """A plot, and what it says."""

    name: str
    """Of its files."""
    title: str
    caption: str
    spec: Spec


def svg(plot: Plot) -> str:
    """The plot as SVG, with names of its own for what it refers to, so that several fit on one page."""
    drawn: str = _converter().vegalite_to_svg(_whole(plot.spec))
    drawn = re.sub(r'\bid="([^"]+)"', rf'id="{plot.name}-\1"', drawn)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{plot.name}-\1)", drawn)


def png(plot: Plot) -> bytes:
    """The plot as PNG, at twice its size."""
    return bytes(_converter().vegalite_to_png(_whole(plot.spec), scale=2))


def write_plots(folder: Path, pictures: Iterable[tuple[Plot, str]]) -> None:
    """Write plots, with the SVG that was drawn of each, into the folder `plots`; older ones go, which had more to show."""
    for old in inside.entries(folder, "plots"):
        if old.name.endswith((".svg", ".png")) and old.name.count("/") == 1:
            inside.remove(folder, old.name)
    for plot, picture in pictures:
        inside.write(folder, f"plots/{plot.name}.svg", picture)
        inside.write(folder, f"plots/{plot.name}.png", png(plot))


def shaded(field: str, *, size: int, radius: int) -> list[Spec]:
    """The layers of cells that are the darker the larger a share is, with the share in them."""
    opacity = {
        "field": field,
        "type": "quantitative",
        "scale": {"domain": [0, 1], "range": [0.04, 0.8]},
        "legend": None,
    }
    return [
        {"mark": {"type": "rect", "color": ACCENT, "cornerRadius": radius}, "encoding": {"opacity": opacity}},
        {
            "mark": {"type": "text", "fontSize": size},
            "encoding": {"text": {"field": field, "type": "quantitative", "format": ".0%"}},
        },
    ]


def names(field: str, order: Iterable[str], title: str | None = None, **axis: Any) -> Spec:
    """A channel of names in an order, with labels and no line."""
    plain: Spec = {"labelColor": INK, "labelFontSize": 12, "domain": False, "ticks": False}
    return {"field": field, "type": "nominal", "sort": list(order), "title": title, "axis": plain | axis}


def shares(field: str, title: str | None, **more: Any) -> Spec:
    """A channel of shares in percent."""
    axis = {"format": "~%", "tickCount": 5}
    return {"field": field, "type": "quantitative", "title": title, "axis": axis, **more}


def colors(field: str, order: Sequence[str], range: Sequence[str], **more: Any) -> Spec:
    """A channel of colors for names in an order."""
    scale = {"domain": list(order), "range": list(range)}
    return {"field": field, "type": "nominal", "sort": list(order), "scale": scale, **more}


def intervals(
    low: Spec, value: str, *, color: str | Spec | None = None, size: int = 60, opacity: float = 0.45
) -> list[Spec]:
    """The layers of figures with intervals from `low` to `high`, in one color or in those of a channel."""
    mark: Spec = {"color": color} if isinstance(color, str) else {}
    channel: Spec = {"color": color} if isinstance(color, dict) else {}
    rule = {"type": "rule", "strokeWidth": 3, "opacity": opacity, "strokeCap": "round", **mark}
    point = {"type": "point", "filled": True, "size": size, "opacity": 1, **mark}
    # Both layers share a scale; the first alone says where it begins.
    middle = {name: of for name, of in low.items() if of != {"domainMin": 0}} | {"field": value}
    return [
        {"mark": rule, "encoding": {"x": low, "x2": {"field": "high"}, **channel}},
        {"mark": point, "encoding": {"x": middle, **channel}},
    ]


def bands(low: Spec, value: str, line: Spec, *, opacity: float = 0.16) -> list[Spec]:
    """The layers of a line with a band from `low` to `high` around it."""
    area = {"type": "area", "opacity": opacity}
    return [
        {"mark": area, "encoding": {"y": low, "y2": {"field": "high"}}},
        {"mark": line, "encoding": {"y": {**low, "field": value}}},
    ]


def _converter() -> Any:
    try:
        return import_module("vl_convert")
    except ImportError:
        raise MissingExtra("Drawing plots", "study") from None


def _whole(spec: Spec) -> Spec:
    schema = "https://vega.github.io/schema/vega-lite/v5.json"  # a name, not an address: nothing is fetched
    return {
        "$schema": schema,
        "config": CONFIG,
        "padding": {"left": 16, "right": 12, "top": 4, "bottom": 4},
        **spec,
    }


def seat_colours(seats: Sequence[str]) -> list[str]:
    """The user and the assistant have theirs; others take what is left, again and again where they are many."""
    own = {"user": SEAT_COLOURS[0], "assistant": SEAT_COLOURS[1]}
    free = [colour for colour in SEAT_COLOURS if colour not in [own.get(seat) for seat in seats]]
    others = [seat for seat in seats if seat not in own]
    return [own.get(seat) or free[others.index(seat) % len(free)] for seat in seats]
