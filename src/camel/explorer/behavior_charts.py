"""Plots of the findings of detectors, by message, seat and role."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from camel.detectors import DETECTORS
from camel.explorer.charts import FEWEST, MOST, WIDTH, Chart, Rows, bars_spec, counts_axis, printable, shares
from camel.explorer.colors import BLUE, Mark, seats
from camel.explorer.views import TITLES, PageState
from camel.query.answers import Behaviors
from camel.query.catalogue import Catalogue
from camel.reports.numbers import counted
from camel.reports.plots import Spec, colors, names

MOST_TURNS = 60
PANELS = 4
"""Maximum number of behaviors that get their own panel in a plot."""


def _read(seen: Behaviors) -> str:
    return f"Detectors read {counted(seen.conversations, 'conversation')}."


def _title(detector: str) -> str:
    return DETECTORS[detector].title if detector in DETECTORS else printable(detector.replace("_", " "))


def _marks(rows: Rows) -> dict[str, Mark]:
    """Return the mark (color and sign) of each seat with findings. The user and the assistant come first."""
    there = {row["seat"] for row in rows}
    return seats(sorted(there, key=lambda seat: (seat != "user", seat != "assistant", seat))[:4])


def _by_seat(marks: dict[str, Mark]) -> Spec:
    return colors("seat", list(marks), [mark.color for mark in marks.values()])


def by_turn(catalogue: Catalogue, state: PageState) -> Chart | None:
    """Return the plot of findings by position of the message. Return None if there is nothing to plot."""
    seen = catalogue.behaviors(state.query)
    total = {name: sum(sum(counts.values()) for counts in by.values()) for name, by in seen.by_turn.items()}
    rows: Rows = [
        {
            "behavior": _title(name),
            "message": turn + 1,
            "seat": printable(seat),
            "conversations": count,
            "of": of,
        }
        | shares(min(count, of), of)
        for name in sorted(total, key=lambda name: -total[name])
        for seat, counts in sorted(seen.by_turn[name].items())
        for turn, count in sorted(counts.items())
        for of in [seen.reached(turn)]
    ]
    drawn = [row for row in rows if 0 < row["message"] <= MOST_TURNS]
    if not drawn or seen.conversations < FEWEST:
        return None
    marks, last = _marks(drawn), max(2, *(row["message"] for row in drawn))
    titles = list(dict.fromkeys(row["behavior"] for row in drawn))
    count_of = {(row["behavior"], row["seat"], row["message"]): row["conversations"] for row in drawn}
    panels = {
        title: [
            (f"mk {mark.css}", [count_of.get((title, seat, turn), 0) for turn in range(1, last + 1)])
            for seat, mark in marks.items()
        ]
        for title in titles[:PANELS]
    }
    labels = [(0.5, "1"), (last // 2 + 0.5, f"{last // 2 + 1}"), (last - 0.5, str(last))]
    shown = {"panels": panels, "edges": list(range(last + 1)), "labels": labels, "key": list(marks.values())}
    x = {"field": "message", "type": "quantitative", "axis": {"tickMinStep": 1, "format": "d"}}
    encoding = {"x": x, "y": counts_axis(), "color": _by_seat(marks)}
    spec: Spec = {
        "data": {"values": [row for row in drawn if row["seat"] in marks]},
        "facet": {"field": "behavior", "type": "nominal", "sort": titles},
        "columns": 2,
        "spec": {"width": WIDTH // 2, "height": 90, "mark": "bar", "encoding": encoding},
    }
    caption = f"Conversations with a finding in the first, second, third … message, by seat. {_read(seen)}"
    return Chart("by-turn", "Findings by message", caption, rows, "panels", shown, spec)


def by_seat(catalogue: Catalogue, state: PageState) -> Chart | None:
    """Return the plot of findings by seat. Return None if there is nothing to plot."""
    seen = catalogue.behaviors(state.query)
    rows: Rows = [
        {"behavior": _title(name), "seat": printable(seat), "messages": sum(counts.values())}
        for name, by in seen.by_turn.items()
        for seat, counts in sorted(by.items())
    ]
    if not rows:
        return None
    marks, of = _marks(rows), Counter[str]()
    for row in rows:
        of[row["behavior"]] += row["messages"]
    rows.sort(key=lambda row: (-of[row["behavior"]], row["behavior"], row["seat"]))
    lines = {
        title: [
            (marks[row["seat"]], row["messages"])
            for row in rows
            if row["behavior"] == title and row["seat"] in marks
        ]
        for title, _ in of.most_common(MOST)
    }
    channels: dict[str, Any] = {
        "y": names("behavior", of),
        "x": counts_axis("messages"),
        "color": _by_seat(marks),
    }
    spec = bars_spec([row for row in rows if row["seat"] in marks], "behavior", **channels)
    shown = {"lines": lines, "key": list(marks.values())}
    return Chart(
        "by-seat", "Findings by seat", f"Messages with a finding. {_read(seen)}", rows, "layers", shown, spec
    )


def by_role(seat: str) -> Callable[[Catalogue, PageState], Chart | None]:
    """Return a function that plots findings by the role of the speaker in `seat`."""

    def make(catalogue: Catalogue, state: PageState) -> Chart | None:
        if state.query.facets.get(seat):
            return None
        seen = catalogue.behaviors(state.query, role=seat)
        roles = sorted(seen.roles, key=lambda role: (-seen.roles[role], role))
        found = sorted(seen.by_role, key=lambda name: -sum(seen.by_role[name].values()))
        large = [role for role in roles if seen.roles[role] >= FEWEST]
        if len(large) < 2 or not found:
            return None
        rows: Rows = [
            {"role": printable(role) or "none", "behavior": _title(name), "conversations": count, "of": of}
            | shares(count, of)
            for role in roles
            for name in found
            for count, of in [(seen.by_role[name].get(role, 0), seen.roles[role])]
        ]
        cells = [row for row in rows if row["of"] >= FEWEST][: MOST * len(found)]
        titles, title = [_title(name) for name in found[:5]], TITLES[seat].lower()
        caption = f"Share of the conversations of each {title} role. {_read(seen)}"
        if small := len(roles) - len(large):
            caption += f" Not shown: {counted(small, 'role')} with fewer than {FEWEST} conversations."
        opacity = {"field": "share", "type": "quantitative", "legend": {"format": ".0%"}}
        spec: Spec = {
            "data": {"values": cells},
            "mark": {"type": "rect", "color": BLUE},
            "encoding": {"x": names("behavior", titles), "y": names("role", large), "opacity": opacity},
        }
        shown = {"cells": [row for row in cells if row["behavior"] in titles], "head": titles}
        return Chart(f"by-{seat}", f"Findings by {title} role", caption, rows, "heat", shown, spec)

    return make
