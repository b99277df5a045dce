"""Charts of what detectors found: by turn, seat and role."""

from __future__ import annotations

from collections.abc import Callable

from camel.detectors import DETECTORS
from camel.explorer.charts import (
    MOST,
    WIDTH,
    Chart,
    Rows,
    colors,
    names_axis,
    numbers_axis,
    plot_of,
    printable,
    shares,
)
from camel.explorer.views import TITLES, PageState
from camel.query.answers import Behaviours
from camel.query.catalogue import Catalogue
from camel.reports.plots import INK, Spec, seat_colours, shaded

MOST_TURNS = 60


def _looked(seen: Behaviours) -> str:
    return f"Of {seen.conversations:,} conversations that were looked through."


def _title(detector: str) -> str:
    return DETECTORS[detector].title if detector in DETECTORS else printable(detector.replace("_", " "))


def by_turn(catalogue: Catalogue, state: PageState) -> Chart | None:
    """What was found, by the number of the message."""
    seen = catalogue.behaviours(state.query)
    # The most frequent ones: each needs a picture of its own.
    total = {name: sum(sum(counts.values()) for counts in by.values()) for name, by in seen.by_turn.items()}
    found = sorted(total, key=lambda name: -total[name])
    rows: Rows = [
        {
            "behaviour": _title(name),
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
    titles = [_title(name) for name in found[:8]]
    drawn = [row for row in rows if row["message"] <= MOST_TURNS and row["behaviour"] in titles]
    if not drawn:
        return None
    seats = _seats(drawn)[:4]
    last = max(row["message"] for row in drawn)
    along: Spec = {
        "field": "message",
        "type": "quantitative",
        "title": "message",
        "scale": {"domain": [0, last + 1], "nice": False},
        "axis": {"tickCount": 4, "tickMinStep": 1, "grid": False, "format": "d"},
    }
    spec: Spec = {
        "data": {"values": [row for row in drawn if row["seat"] in seats]},
        "facet": {"field": "behaviour", "type": "nominal", "sort": titles, "title": None},
        "columns": min(2, len(titles)),
        "spacing": 18,
        "resolve": {"scale": {"y": "independent"}},
        "spec": {
            "width": 130 if len(titles) > 1 else 300,
            "height": 90,
            "mark": {"type": "bar", "size": max(2, min(10, 120 // max(2, last))), "opacity": 0.9},
            "encoding": {
                "x": along,
                "y": numbers_axis("share", ticks=3, format="~%"),
                "color": colors("seat", seats, seat_colours(seats)),
            },
        },
    }
    caption = "Of the first, second, third … messages, the share in which it was found, by who said it; each on a scale of its own."
    return Chart(plot_of("by-turn", "Behaviours by message", f"{caption} {_looked(seen)}", spec), rows)


def _seats(rows: Rows) -> list[str]:
    """Who said something, the user and the assistant first."""
    return sorted({row["seat"] for row in rows}, key=lambda seat: (seat != "user", seat != "assistant", seat))


def by_seat(catalogue: Catalogue, state: PageState) -> Chart | None:
    """What was found, by who said it."""
    seen = catalogue.behaviours(state.query)
    rows: Rows = [
        {"behaviour": _title(name), "seat": printable(seat), "messages": sum(counts.values())}
        for name, by in seen.by_turn.items()
        for seat, counts in sorted(by.items())
    ]
    if not rows:
        return None
    of: dict[str, int] = {}
    for row in rows:
        of[row["behaviour"]] = of.get(row["behaviour"], 0) + row["messages"]
    rows.sort(key=lambda row: (-of[row["behaviour"]], row["seat"]))
    seats = _seats(rows)[:4]
    spec: Spec = {
        "data": {"values": [row for row in rows if row["seat"] in seats]},
        "width": WIDTH,
        "height": {"step": 26},
        "mark": {"type": "bar", "size": 16},
        "encoding": {
            "y": names_axis("behaviour", sorted(of, key=lambda name: -of[name]), labelColor=INK),
            "x": numbers_axis("messages", "messages"),
            "color": colors("seat", seats, seat_colours(seats)),
        },
    }
    caption = f"Messages with a finding, by seat. {_looked(seen)}"
    return Chart(plot_of("by-seat", "Who shows them", caption, spec), rows)


def by_role(seat: str) -> Callable[[Catalogue, PageState], Chart | None]:
    """What was found, by the role played in a seat."""

    def make(catalogue: Catalogue, state: PageState) -> Chart | None:
        seen = catalogue.behaviours(state.query, role=seat)
        roles = sorted(seen.roles, key=lambda role: (-seen.roles[role], role))
        found = sorted(seen.by_role, key=lambda name: -sum(seen.by_role[name].values()))
        if len(roles) < 2 or not found:
            return None
        rows: Rows = [
            {
                "role": printable(role) or "none",
                "behaviour": _title(name),
                "conversations": (count := seen.by_role[name].get(role, 0)),
                "of": seen.roles[role],
                **shares(count, seen.roles[role]),
            }
            for role in roles
            for name in found
        ]
        names = [printable(role) or "none" for role in roles[:MOST]]
        titles = [_title(name) for name in found[:7]]
        values = [row for row in rows if row["role"] in names and row["behaviour"] in titles]
        spec: Spec = {
            "data": {"values": values},
            "width": {"step": max(31, min(60, WIDTH // len(titles)))},
            "height": {"step": 24},
            "encoding": {
                "x": names_axis(
                    "behaviour", titles, orient="top", labelAngle=-40, labelAlign="left", labelLimit=130
                ),
                "y": names_axis("role", names, labelColor=INK, labelLimit=130),
            },
            "layer": shaded("share", size=10, radius=2),
        }
        caption = f"Share of the conversations of each {TITLES[seat].lower()} role in which it was found. {_looked(seen)}"
        return Chart(plot_of(f"by-{seat}", f"Behaviours by {TITLES[seat].lower()} role", caption, spec), rows)

    return make
