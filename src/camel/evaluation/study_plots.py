"""The plots of a study."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import to_builtins

from camel.evaluation.study import Behaviour, Study, shown
from camel.reports.intervals import Rate
from camel.reports.plots import ACCENT, INK, Plot, Spec, seat_colours, shaded

MOST_TURNS = 60
"""Messages that a plot shows; the figures go on."""
LABELS = {
    "chars": "characters",
    "prompt": "prompt tokens",
    "completion": "completion tokens",
    "cached": "cached tokens",
}


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
