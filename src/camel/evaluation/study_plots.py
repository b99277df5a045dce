"""The plots of a study."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import to_builtins

from camel.evaluation.study import Behavior, Study, shown
from camel.reports.blocks import TEXTS
from camel.reports.intervals import Rate
from camel.reports.numbers import FEW, interval, share
from camel.reports.plots import GRAY, SEATS, Plot, Spec, bands, colors, dots, panels, plot, seat_colors

MOST_TURNS = 60
"""Maximum number of messages per conversation in a plot. `study.json` has more."""
LABELS = TEXTS["measures"]


def plots(study: Study) -> list[Plot]:
    """Return the plots of a study. Return an empty list if there are too few conversations."""
    if study.conversations < FEW:
        return []
    found = shown(study.behaviors)
    made = [_stops(study)] if len(study.stops) > 1 else []
    if found:
        made += [_overview(study, found), _by_turn(study, found), _by_seat(found)]
    made.append(_growth(study, ("chars",), "length", "Length of messages"))
    # No curve of cached tokens if the endpoint does not report them.
    counted = {curve.measure for curve in study.growth if any(point.high for point in curve.points)}
    if tokens := [name for name in ("prompt", "completion", "cached") if name in counted]:
        made.append(_growth(study, tokens, "tokens", "Tokens per call"))
    return made


def _dot(name: str, rate: Rate, **more: Any) -> Spec:
    return {
        "name": name, "value": rate.rate, "low": rate.low, "high": rate.high, "says": share(rate), "span": interval(rate), **more
    }  # fmt: skip


def _stops(study: Study) -> Plot:
    rows = [_dot(stop.replace("_", " "), rate) for stop, rate in study.stops.items()]
    caption = f"Share of {study.conversations:,} conversations, with 95% intervals."
    return plot("stops", "Why conversations end", caption, lambda width: dots(rows, width))


def _overview(study: Study, found: list[Behavior]) -> Plot:
    rows = [_dot(one.title, one.conversations) for one in found]
    caption = (
        f"Share of {study.conversations:,} conversations with at least one such message, with 95% intervals."
    )
    return plot("behaviors", "Conversations that show a behavior", caption, lambda width: dots(rows, width))


def _by_turn(study: Study, found: list[Behavior]) -> Plot:
    rows: list[Spec] = [
        {"behavior": one.title, "turn": turn, "seat": seat, **to_builtins(rate)}
        for one in found
        for turn, (rate, seat) in enumerate(zip(one.by_turn, study.speakers, strict=True), 1)
        # A seat that never shows the behavior would be a line at zero.
        if turn <= MOST_TURNS and rate.of and one.by_seat[seat].count
    ]
    y = _amount("low", axis={"format": ".0%", "tickCount": 3}, scale={"domainMin": 0})
    caption = TEXTS["study"]["by_turn"].format(conversations=study.conversations)
    return plot(
        "by-turn",
        "When behaviors occur",
        caption,
        lambda width: panels(rows, "behavior", _lines(rows, y, "rate"), width),
    )


def _amount(field: str, **more: Any) -> Spec:
    return {"field": field, "type": "quantitative", "title": None, **more}


def _lines(rows: list[Spec], y: Spec, value: str) -> Spec:
    """Return a plot with a line and a band for each seat, by position in the conversation."""
    last = max((row["turn"] for row in rows), default=1)
    x = _amount(
        "turn", scale={"domain": [1, max(2, last)], "nice": False}, axis={"tickMinStep": 1, "format": "d"}
    ) | {"title": "message"}
    seats = _ordered({row["seat"] for row in rows})
    color = colors("seat", seats, seat_colors(seats))
    line = {"type": "line", "point": {"size": 24, "opacity": 1} if last <= 20 else False}
    return {"encoding": {"x": x, "color": color}, "layer": bands(y, value, line)}


def _ordered(seats: Iterable[str]) -> list[str]:
    """Return the seats in their usual order: user, assistant, others."""
    return sorted(seats, key=lambda seat: (seat != "user", seat != "assistant", seat))


def _by_seat(found: list[Behavior]) -> Plot:
    seats = _ordered(found[0].by_seat)[:8]
    colors = dict(zip(seats, seat_colors(seats), strict=True))
    rows = [
        _dot(
            one.title if seat == seats[0] else "",
            rate,
            color=colors[seat],
            shape=SEATS.get(seat, (GRAY, "circle"))[1],
        )
        | {"says": f"{seat} {share(rate)}"}
        for one in found
        for seat, rate in ((seat, one.by_seat[seat]) for seat in seats)
    ]
    caption = TEXTS["study"]["by_seat"].format(messages=found[0].messages.of)
    return plot("by-seat", "Which seats show behaviors", caption, lambda width: dots(rows, width))


def _growth(study: Study, measures: Sequence[str], name: str, title: str) -> Plot:
    rows: list[Spec] = [
        {"seat": curve.seat, "measure": LABELS[curve.measure], **to_builtins(point)}
        for curve in study.growth
        if curve.measure in measures
        for point in curve.points
        if point.turn <= MOST_TURNS
    ]
    y = _amount("low", axis={"format": "~s", "tickCount": 4}, scale={"domainMin": 0})
    caption = TEXTS["study"]["growth"].format(
        conversations=study.conversations, unit=", in characters" if name == "length" else ""
    )
    return plot(name, title, caption, lambda width: panels(rows, "measure", _lines(rows, y, "median"), width))
