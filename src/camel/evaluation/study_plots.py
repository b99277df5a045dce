"""The plots of a study."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import to_builtins

from camel.evaluation.study import Behaviour, Study, shown
from camel.reports.intervals import Rate
from camel.reports.plots import (
    ACCENT,
    Plot,
    Spec,
    bands,
    colors,
    intervals,
    names,
    seat_colours,
    shaded,
    shares,
)

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


def _row(rate: Rate, **more: Any) -> Spec:
    return {**more, **to_builtins(rate)}


def _dots(rows: list[Spec], field: str, order: Sequence[str]) -> Spec:
    """Shares of conversations with their intervals, one below the other."""
    x, y = shares("low", "of conversations", scale={"domainMin": 0}), names(field, order)
    layers = intervals(x, "rate", color=ACCENT, size=70, opacity=0.4)
    return {
        "data": {"values": rows},
        "width": 620,
        "height": {"step": 26},
        "encoding": {"y": y},
        "layer": layers,
    }


def _stops(study: Study) -> Plot:
    words = [stop.replace("_", " ") for stop in study.stops]
    rows = [_row(rate, stop=stop) for stop, rate in zip(words, study.stops.values(), strict=True)]
    caption = "Share of all conversations, with 95% intervals."
    return Plot("stops", "Why conversations end", caption, _dots(rows, "stop", words))


def _behaviours(found: list[Behaviour]) -> Plot:
    rows = [_row(one.conversations, behaviour=one.title) for one in found]
    caption = "Conversations in which a behaviour was found at least once, with 95% intervals."
    return Plot("behaviours", "Behaviours", caption, _dots(rows, "behaviour", [one.title for one in found]))


def _by_turn(study: Study, found: list[Behaviour]) -> Plot:
    rows = [
        _row(rate, behaviour=behaviour.title, turn=turn, seat=seat)
        for behaviour in found
        for turn, (rate, seat) in enumerate(zip(behaviour.by_turn, study.speakers, strict=True), 1)
        # Where a seat never shows it, its line would only run along the bottom.
        if turn <= MOST_TURNS and rate.of and behaviour.by_seat[seat].count
    ]
    y = shares("low", None, axis={"format": "~%", "tickCount": 3}, scale={"domainMin": 0})
    drawn = {"width": 250, "height": 100, **_lines(rows, y, "rate", opacity=0.18)}
    caption = (
        "Share of the first, second, third … messages that show a behaviour, by who mostly speaks there; each behaviour on a "
        "scale of its own."
    )
    return Plot(
        "by-turn", "When they occur", caption, _panels(rows, "behaviour", [one.title for one in found], drawn)
    )


def _lines(rows: list[Spec], y: Spec, value: str, *, opacity: float) -> Spec:
    """A line for each seat along the messages of a conversation, with a band around it."""
    last = max((row["turn"] for row in rows), default=1)
    x: Spec = {
        "field": "turn",
        "type": "quantitative",
        "title": "message",
        "scale": {"domain": [1, max(2, last)], "nice": False},
        "axis": {"tickMinStep": 1, "grid": False, "format": "d"},
    }
    line = {"type": "line", "strokeWidth": 2, "point": {"size": 24, "opacity": 1} if last <= 20 else False}
    color = _seat_colour(_ordered({row["seat"] for row in rows}))
    return {"encoding": {"x": x, "color": color}, "layer": bands(y, value, line, opacity=opacity)}


def _seat_colour(seats: Sequence[str]) -> Spec:
    return colors("seat", seats, seat_colours(seats), legend=None if len(seats) == 1 else {})


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
    words = {stop: f"{stop.replace('_', ' ')} ({rate.count:,})" for stop, rate in study.stops.items()}
    rows = [
        _row(rate, behaviour=behaviour.title, stop=words[stop])
        for behaviour in found
        for stop, rate in behaviour.by_stop.items()
    ]
    flat = len(words) <= 4
    turned: Spec = (
        {"labelAngle": 0, "labelAlign": "center"} if flat else {"labelAngle": -28, "labelAlign": "left"}
    )
    spec: Spec = {
        "data": {"values": rows},
        "width": {"step": max(90, 7 * max(map(len, words.values())) + 14) if flat else 84},
        "height": {"step": 28},
        "encoding": {
            "x": names("stop", words.values(), orient="top", **turned),
            "y": names("behaviour", [one.title for one in found]),
        },
        "layer": shaded("rate", size=12, radius=3),
    }
    caption = "Of the conversations that ended for a reason (their number in brackets), the share that showed a behaviour."
    return Plot("by-stop", "Behaviours and endings", caption, spec)


def _by_seat(found: list[Behaviour]) -> Plot:
    order = _ordered(found[0].by_seat)[:12]
    rows = [_row(one.by_seat[seat], behaviour=one.title, seat=seat) for one in found for seat in order]
    spec: Spec = {
        "data": {"values": rows},
        "width": 620,
        "height": {"step": 34 if len(order) < 3 else 16 * len(order), "for": "position"},
        "encoding": {
            "y": names("behaviour", [one.title for one in found]),
            "yOffset": {"field": "seat", "type": "nominal", "sort": order},
            "color": _seat_colour(order),
        },
        "layer": intervals(shares("low", "of the seat's messages", scale={"domainMin": 0}), "rate"),
    }
    caption = "Share of each seat's messages, with 95% intervals that take the messages of one conversation together."
    return Plot("by-seat", "Who shows them", caption, spec)


def _growth(study: Study, measures: Sequence[str], name: str, title: str) -> Plot:
    rows: list[Spec] = [
        {"seat": curve.seat, "measure": LABELS[curve.measure], **to_builtins(point)}
        for curve in study.growth
        if curve.measure in measures
        for point in curve.points
        if point.turn <= MOST_TURNS
    ]
    order = [LABELS[measure] for measure in measures]
    one = len(measures) == 1
    y = shares("low", order[0] if one else None, axis={"format": "~s", "tickCount": 5})
    drawn = {
        "width": 620 if one else 250,
        "height": 210 if one else 160,
        **_lines(rows, y, "median", opacity=0.16),
    }
    caption = "The median message (line) and the middle half (band), by its place in the conversation."
    spec = {"data": {"values": rows}, **drawn} if one else _panels(rows, "measure", order, drawn)
    return Plot(name, title, caption, spec)
