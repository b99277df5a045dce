"""The plots of a study, as Vega-Lite drawn by vl-convert: SVG for the page, SVG and PNG as files. Nothing is fetched.

The one decision to know: there is one set of colours that reads on white and on black. Text and lines are drawn in three
fixed greys, which the page replaces by its own where it is dark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import to_builtins

from camel.core.errors import MissingExtra
from camel.evaluation.intervals import Rate
from camel.evaluation.study import Behaviour, Study, shown

INK, MUTED, GRID = "#1d2129", "#667085", "#e4e7ec"
ACCENT = "#3d74db"
SEAT_COLOURS = ("#d97a1f", "#3d74db", "#1f9d7a", "#a35bd1")
"""The user's, the assistant's, and two more."""
MOST_TURNS = 60
"""Messages that a plot shows; the figures go on."""
LABELS = {
    "chars": "characters",
    "prompt": "prompt tokens",
    "completion": "completion tokens",
    "cached": "cached tokens",
}

Spec = dict[str, Any]

_CONFIG: Spec = {
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


def plots(study: Study) -> list[Plot]:
    """All plots that the figures allow."""
    found = shown(study.behaviours)
    made = [_stops(study)]
    if found:
        made += [_behaviours(found), _by_turn(study, found), _by_stop(study, found), _by_seat(found)]
    made.append(_growth(study, ("chars",), "length", "Length of messages"))
    # An endpoint that reports no cached tokens has no curve of them.
    counted = {curve.measure for curve in study.growth if any(point.high for point in curve.points)}
    if tokens := [name for name in ("prompt", "completion", "cached") if name in counted]:
        made.append(_growth(study, tokens, "tokens", "Tokens of a call"))
    return made


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
    folder = folder / "plots"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.*"):
        if old.suffix in (".svg", ".png"):
            old.unlink()
    for plot, picture in pictures:
        (folder / f"{plot.name}.svg").write_text(picture, "utf-8")
        (folder / f"{plot.name}.png").write_bytes(png(plot))


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


def _converter() -> Any:
    try:
        return import_module("vl_convert")
    except ImportError:
        raise MissingExtra("Drawing plots", "study") from None


def _whole(spec: Spec) -> Spec:
    schema = "https://vega.github.io/schema/vega-lite/v5.json"  # a name, not an address: nothing is fetched
    return {
        "$schema": schema,
        "config": _CONFIG,
        "padding": {"left": 16, "right": 12, "top": 4, "bottom": 4},
        **spec,
    }


def _row(rate: Rate, **names: Any) -> Spec:
    return {
        **names,
        "rate": rate.rate,
        "low": rate.low,
        "high": rate.high,
        "count": rate.count,
        "of": rate.of,
    }


def _percent(field: str, title: str | None, **more: Any) -> Spec:
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "axis": {"format": "~%", "tickCount": 5},
        **more,
    }


def _dots(rows: list[Spec], field: str, order: Sequence[str], title: str) -> Spec:
    """Shares with their intervals, one below the other."""
    y: Spec = {
        "field": field,
        "type": "nominal",
        "sort": list(order),
        "title": None,
        "axis": {"labelColor": INK, "labelFontSize": 12, "domain": False, "ticks": False},
    }
    return {
        "data": {"values": rows},
        "width": 620,
        "height": {"step": 26},
        "encoding": {"y": y},
        "layer": [
            {
                "mark": {
                    "type": "rule",
                    "strokeWidth": 3,
                    "color": ACCENT,
                    "opacity": 0.4,
                    "strokeCap": "round",
                },
                "encoding": {"x": _percent("low", title, scale={"domainMin": 0}), "x2": {"field": "high"}},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 70, "color": ACCENT, "opacity": 1},
                "encoding": {"x": _percent("rate", title)},
            },
        ],
    }


def _stops(study: Study) -> Plot:
    names = {stop: f"{stop.replace('_', ' ')}" for stop in study.stops}
    rows = [_row(rate, stop=names[stop]) for stop, rate in study.stops.items()]
    return Plot(
        "stops",
        "Why conversations end",
        "Share of all conversations, with 95% intervals.",
        _dots(rows, "stop", list(names.values()), "of conversations"),
    )


def _behaviours(found: list[Behaviour]) -> Plot:
    rows = [_row(behaviour.conversations, behaviour=behaviour.title) for behaviour in found]
    return Plot(
        "behaviours",
        "Behaviours",
        "Conversations in which a behaviour was found at least once, with 95% intervals.",
        _dots(rows, "behaviour", [behaviour.title for behaviour in found], "of conversations"),
    )


def _by_turn(study: Study, found: list[Behaviour]) -> Plot:
    rows = [
        _row(rate, behaviour=behaviour.title, turn=turn, seat=seat)
        for behaviour in found
        for turn, (rate, seat) in enumerate(zip(behaviour.by_turn, study.speakers, strict=True), 1)
        # Where a seat never shows it, its line would only run along the bottom.
        if turn <= MOST_TURNS and rate.of and behaviour.by_seat[seat].count
    ]
    seats = _ordered({row["seat"] for row in rows})
    last = max((row["turn"] for row in rows), default=1)
    y = _percent("low", None, axis={"format": "~%", "tickCount": 3}, scale={"domainMin": 0})
    spec = _panels(
        rows,
        "behaviour",
        [one.title for one in found],
        {
            "width": 250,
            "height": 100,
            "encoding": {"x": _place(last), "color": _seat_colour(seats)},
            "layer": [
                {"mark": {"type": "area", "opacity": 0.18}, "encoding": {"y": y, "y2": {"field": "high"}}},
                {"mark": _line(last), "encoding": {"y": {**y, "field": "rate"}}},
            ],
        },
    )
    return Plot(
        "by-turn",
        "When they occur",
        "Share of the first, second, third … messages that show a behaviour, by who mostly speaks there; each behaviour on a scale of its own.",
        spec,
    )


def _place(last: int) -> Spec:
    return {
        "field": "turn",
        "type": "quantitative",
        "title": "message",
        "scale": {"domain": [1, max(2, last)], "nice": False},
        "axis": {"tickMinStep": 1, "grid": False, "format": "d"},
    }


def _line(last: int) -> Spec:
    return {"type": "line", "strokeWidth": 2, "point": {"size": 24, "opacity": 1} if last <= 20 else False}


def _seat_colour(seats: Sequence[str]) -> Spec:
    scale = {"domain": list(seats), "range": seat_colours(seats)}
    return {
        "field": "seat",
        "type": "nominal",
        "sort": list(seats),
        "scale": scale,
        "legend": None if len(seats) == 1 else {},
    }


def _ordered(seats: Iterable[str]) -> list[str]:
    """Seats in the order in which they are named: the paper's two first."""
    return sorted(seats, key=lambda seat: (seat != "user", seat != "assistant", seat))


def _panels(rows: list[Spec], field: str, order: Sequence[str], drawn: Spec) -> Spec:
    """The same plot for each value of a field, on scales of their own."""
    return {
        "data": {"values": rows},
        "facet": {"field": field, "type": "nominal", "sort": list(order), "title": None},
        "columns": min(3, len(order)),
        "spacing": 26,
        "resolve": {"scale": {"y": "independent"}},
        "spec": drawn,
    }


def _by_stop(study: Study, found: list[Behaviour]) -> Plot:
    names = {stop: f"{stop.replace('_', ' ')} ({rate.count:,})" for stop, rate in study.stops.items()}
    rows = [
        _row(rate, behaviour=behaviour.title, stop=names[stop])
        for behaviour in found
        for stop, rate in behaviour.by_stop.items()
    ]
    flat = len(names) <= 4
    side: Spec = {"domain": False, "ticks": False, "labelColor": INK, "labelFontSize": 12}
    y: Spec = {
        "field": "behaviour",
        "type": "nominal",
        "sort": [one.title for one in found],
        "title": None,
        "axis": side,
    }
    x: Spec = {
        "field": "stop",
        "type": "nominal",
        "sort": list(names.values()),
        "title": None,
        "axis": {
            **side,
            "orient": "top",
            "labelAngle": 0 if flat else -28,
            "labelAlign": "center" if flat else "left",
        },
    }
    spec: Spec = {
        "data": {"values": rows},
        "width": {"step": max(90, 7 * max(map(len, names.values())) + 14) if flat else 84},
        "height": {"step": 28},
        "encoding": {"x": x, "y": y},
        "layer": shaded("rate", size=12, radius=3),
    }
    return Plot(
        "by-stop",
        "Behaviours and endings",
        "Of the conversations that ended for a reason (their number in brackets), the share that showed a behaviour.",
        spec,
    )


def _by_seat(found: list[Behaviour]) -> Plot:
    order = _ordered(found[0].by_seat)[:12]
    rows = [
        _row(behaviour.by_seat[seat], behaviour=behaviour.title, seat=seat)
        for behaviour in found
        for seat in order
    ]
    base: Spec = {
        "y": {
            "field": "behaviour",
            "type": "nominal",
            "sort": [one.title for one in found],
            "title": None,
            "axis": {"labelColor": INK, "labelFontSize": 12, "domain": False, "ticks": False},
        },
        "yOffset": {"field": "seat", "type": "nominal", "sort": order},
        "color": _seat_colour(order),
    }
    spec: Spec = {
        "data": {"values": rows},
        "width": 620,
        "height": {"step": 34 if len(order) < 3 else 16 * len(order), "for": "position"},
        "encoding": base,
        "layer": [
            {
                "mark": {"type": "rule", "strokeWidth": 3, "opacity": 0.45, "strokeCap": "round"},
                "encoding": {
                    "x": _percent("low", "of the seat's messages", scale={"domainMin": 0}),
                    "x2": {"field": "high"},
                },
            },
            {
                "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
                "encoding": {"x": _percent("rate", "of the seat's messages")},
            },
        ],
    }
    return Plot(
        "by-seat",
        "Who shows them",
        "Share of each seat's messages, with 95% intervals that take the messages of one conversation together.",
        spec,
    )


def _growth(study: Study, measures: Sequence[str], name: str, title: str) -> Plot:
    rows: list[Spec] = [
        {"seat": curve.seat, "measure": LABELS[curve.measure], **to_builtins(point)}
        for curve in study.growth
        if curve.measure in measures
        for point in curve.points
        if point.turn <= MOST_TURNS
    ]
    last = max((row["turn"] for row in rows), default=1)
    one = len(measures) == 1
    unit = LABELS[measures[0]] if one else None
    y: Spec = {
        "field": "low",
        "type": "quantitative",
        "title": unit,
        "axis": {"format": "~s", "tickCount": 5},
    }
    drawn: Spec = {
        "width": 620 if one else 250,
        "height": 210 if one else 160,
        "encoding": {"x": _place(last), "color": _seat_colour(_ordered({row["seat"] for row in rows}))},
        "layer": [
            {"mark": {"type": "area", "opacity": 0.16}, "encoding": {"y": y, "y2": {"field": "high"}}},
            {"mark": _line(last), "encoding": {"y": {**y, "field": "median"}}},
        ],
    }
    order = [LABELS[measure] for measure in measures]
    spec = {"data": {"values": rows}, **drawn} if one else _panels(rows, "measure", order, drawn)
    return Plot(
        name,
        title,
        "The median message (line) and the middle half (band), by its place in the conversation.",
        spec,
    )


def seat_colours(seats: Sequence[str]) -> list[str]:
    """The user and the assistant have theirs; others take what is left, again and again where they are many."""
    own = {"user": SEAT_COLOURS[0], "assistant": SEAT_COLOURS[1]}
    free = [colour for colour in SEAT_COLOURS if colour not in [own.get(seat) for seat in seats]]
    others = [seat for seat in seats if seat not in own]
    return [own.get(seat) or free[others.index(seat) % len(free)] for seat in seats]
