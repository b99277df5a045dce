"""Plots of what detectors found: by message, seat and role."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from camel.detectors import DETECTORS
from camel.explorer.charts import (
    FEWEST,
    MOST,
    WIDTH,
    Chart,
    Rows,
    color_channel,
    columns_figure,
    counts_axis,
    names_axis,
    printable,
    shares,
)
from camel.explorer.colors import BLUE, seats
from camel.explorer.views import TITLES, PageState
from camel.query.answers import Behaviours
from camel.query.catalogue import Catalogue
from camel.reports.numbers import counted
from camel.reports.plots import Spec

MOST_TURNS = 60
PANELS = 4
"""Behaviors that have a panel of their own."""


def _read(seen: Behaviours) -> str:
    return f"Detectors read {counted(seen.conversations, 'conversation')}."


def _title(detector: str) -> str:
    return DETECTORS[detector].title if detector in DETECTORS else printable(detector.replace("_", " "))


def by_turn(catalogue: Catalogue, state: PageState) -> Chart | None:
    """What was found, by the number of the message."""
    seen = catalogue.behaviours(state.query)
    total = {name: sum(sum(counts.values()) for counts in by.values()) for name, by in seen.by_turn.items()}
    found = sorted(total, key=lambda name: -total[name])
    rows: Rows = [
        {
            "behavior": _title(name),
            "message": turn + 1,
            "seat": printable(seat),
            "conversations": count,
            "of": of,
            **shares(min(count, of), of),
        }
        for name in found
        for seat, counts in sorted(seen.by_turn[name].items())
        for turn, count in sorted(counts.items())
        for of in [seen.reached(turn)]
    ]
    drawn = [row for row in rows if 0 < row["message"] <= MOST_TURNS]
    if not drawn or seen.conversations < FEWEST:
        return None
    marks, last = seats(_seats(drawn)[:4]), max(2, *(row["message"] for row in drawn))
    panels: list[dict[str, Any]] = []
    for title in dict.fromkeys(row["behavior"] for row in drawn):
        own = [row for row in drawn if row["behavior"] == title]
        layers: list[tuple[str, list[int]]] = []
        for seat, mark in marks.items():
            by_place = {row["message"]: row["conversations"] for row in own if row["seat"] == seat}
            layers.append((f"mk {mark.css}", [by_place.get(turn, 0) for turn in range(1, last + 1)]))
        labels = [(0.5, "1"), (last / 2, f"{round(last / 2 + 0.5)}"), (last - 0.5, str(last))]
        panels.append({"title": title, **columns_figure(range(last + 1), layers, labels)})
    figure = {"kind": "panels", "panels": panels[:PANELS], "key": list(marks.values())}
    spec: Spec = {
        "data": {"values": [row for row in drawn if row["seat"] in marks]},
        "facet": {
            "field": "behavior",
            "type": "nominal",
            "sort": list(dict.fromkeys(row["behavior"] for row in drawn)),
        },
        "columns": 2,
        "spec": {
            "width": WIDTH // 2,
            "height": 90,
            "mark": "bar",
            "encoding": {
                "x": {"field": "message", "type": "quantitative", "axis": {"tickMinStep": 1, "format": "d"}},
                "y": counts_axis(),
                "color": color_channel("seat", list(marks), [mark.color for mark in marks.values()]),
            },
        },
    }
    caption = f"Conversations with a finding in the first, second, third … message, by seat. {_read(seen)}"
    return Chart("by-turn", "Findings by message", caption, rows, figure, spec)


def _seats(rows: Rows) -> list[str]:
    """The seats that said something, the user and the assistant first."""
    return sorted({row["seat"] for row in rows}, key=lambda seat: (seat != "user", seat != "assistant", seat))


def by_seat(catalogue: Catalogue, state: PageState) -> Chart | None:
    """What was found, by seat."""
    seen = catalogue.behaviours(state.query)
    rows: Rows = [
        {"behavior": _title(name), "seat": printable(seat), "messages": sum(counts.values())}
        for name, by in seen.by_turn.items()
        for seat, counts in sorted(by.items())
    ]
    if not rows:
        return None
    of: dict[str, int] = {}
    for row in rows:
        of[row["behavior"]] = of.get(row["behavior"], 0) + row["messages"]
    rows.sort(key=lambda row: (-of[row["behavior"]], row["seat"]))
    marks, most = seats(_seats(rows)[:4]), max(of.values())
    lines: list[dict[str, Any]] = []
    for title in sorted(of, key=lambda name: -of[name])[:MOST]:
        layers, x = [], 0.0
        for row in rows:
            if row["behavior"] == title and row["seat"] in marks:
                width = 100 * row["messages"] / most
                layers.append(
                    {
                        "mark": marks[row["seat"]],
                        "x": round(x, 2),
                        "width": round(width, 2),
                        "count": row["messages"],
                    }
                )
                x += width
        lines.append({"name": title, "layers": layers, "count": of[title]})
    spec: Spec = {
        "data": {"values": [row for row in rows if row["seat"] in marks]},
        "width": WIDTH,
        "mark": "bar",
        "encoding": {
            "y": names_axis("behavior", sorted(of, key=lambda name: -of[name])),
            "x": counts_axis("messages"),
            "color": color_channel("seat", list(marks), [mark.color for mark in marks.values()]),
        },
    }
    figure = {"kind": "layered", "lines": lines, "key": list(marks.values())}
    return Chart("by-seat", "Findings by seat", f"Messages with a finding. {_read(seen)}", rows, figure, spec)


def by_role(seat: str) -> Callable[[Catalogue, PageState], Chart | None]:
    """What was found, by the role in a seat."""

    def make(catalogue: Catalogue, state: PageState) -> Chart | None:
        if state.query.facets.get(seat):
            return None
        seen = catalogue.behaviours(state.query, role=seat)
        roles = sorted(seen.roles, key=lambda role: (-seen.roles[role], role))
        found = sorted(seen.by_role, key=lambda name: -sum(seen.by_role[name].values()))
        large = [role for role in roles if seen.roles[role] >= FEWEST]
        if len(large) < 2 or not found:
            return None
        rows: Rows = [
            {
                "role": printable(role) or "none",
                "behavior": _title(name),
                "conversations": (count := seen.by_role[name].get(role, 0)),
                "of": seen.roles[role],
                **shares(count, seen.roles[role]),
            }
            for role in roles
            for name in found
        ]
        titles = [_title(name) for name in found[:5]]
        names = [printable(role) or "none" for role in large[:MOST]]
        cells = [row for row in rows if row["role"] in names and row["behavior"] in titles]
        most = max(row["share"] for row in cells) or 1
        table = [
            {
                "name": name,
                "of": next(row["of"] for row in cells if row["role"] == name),
                "cells": [
                    {
                        "share": f"{row['share']:.0%}",
                        "opacity": round(0.08 + 0.32 * row["share"] / most, 2) if row["share"] else 0,
                    }
                    for row in cells
                    if row["role"] == name
                ],
            }
            for name in names
        ]
        spec: Spec = {
            "data": {"values": cells},
            "width": {"step": 60},
            "height": {"step": 24},
            "mark": {"type": "rect", "color": BLUE},
            "encoding": {
                "x": names_axis("behavior", titles),
                "y": names_axis("role", names),
                "opacity": {
                    "field": "share",
                    "type": "quantitative",
                    "title": "share",
                    "legend": {"format": ".0%"},
                },
            },
        }
        title = TITLES[seat].lower()
        small = len(roles) - len(large)
        caption = f"Share of the conversations of each {title} role. {_read(seen)}"
        if small:
            caption += f" {counted(small, 'role')} with fewer than {FEWEST} conversations {'is' if small == 1 else 'are'} not shown."
        figure = {"kind": "heat", "head": titles, "lines": table}
        return Chart(f"by-{seat}", f"Findings by {title} role", caption, rows, figure, spec)

    return make
