"""Charts of what detectors found: by turn, seat and role."""

from __future__ import annotations

from collections.abc import Callable

from camel.detectors import DETECTORS
from camel.explorer.charts import MOST, WIDTH, Chart, Rows, plot_of, printable
from camel.explorer.views import TITLES, PageState
from camel.query.answers import Behaviours
from camel.query.catalogue import Catalogue
from camel.reports.intervals import wilson
from camel.reports.plots import (
    INK,
    Spec,
    seat_colours,
    shaded,
)

MOST_TURNS = 60


def _looked(seen: Behaviours) -> str:
    return f"Of {seen.conversations:,} conversations that were looked through."


def _title(detector: str) -> str:
    return DETECTORS[detector].title if detector in DETECTORS else printable(detector.replace("_", " "))


def by_turn(catalogue: Catalogue, state: PageState) -> Chart | None:
    """What was found, by the number of the message."""
    seen = catalogue.behaviours(state.query)
    rows: Rows = []
    # The most frequent ones: each needs a picture of its own.
    total = {name: sum(sum(counts.values()) for counts in by.values()) for name, by in seen.by_turn.items()}
    shown = sorted(total, key=lambda name: -total[name])[:8]
    for name in sorted(total, key=lambda name: -total[name]):
        for seat, counts in sorted(seen.by_turn[name].items()):
            for turn, count in sorted(counts.items()):
                of = seen.reached(turn)
                share = wilson(min(count, of), of)
                rows.append(
                    {
                        "behaviour": _title(name),
                        "message": turn + 1,
                        "seat": printable(seat),
                        "conversations": count,
                        "of": of,
                        "share": share.rate,
                        "low": share.low,
                        "high": share.high,
                    }
                )
    titles = [_title(name) for name in shown]
    drawn = [row for row in rows if row["message"] <= MOST_TURNS and row["behaviour"] in titles]
    if not drawn:
        return None
    seats = sorted(
        {row["seat"] for row in drawn}, key=lambda seat: (seat != "user", seat != "assistant", seat)
    )[:4]
    last = max(row["message"] for row in drawn)
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
                "x": {
                    "field": "message",
                    "type": "quantitative",
                    "title": "message",
                    "scale": {"domain": [0, last + 1], "nice": False},
                    "axis": {"tickCount": 4, "tickMinStep": 1, "grid": False, "format": "d"},
                },
                "y": {
                    "field": "share",
                    "type": "quantitative",
                    "title": None,
                    "axis": {"format": "~%", "tickCount": 3},
                },
                "color": {
                    "field": "seat",
                    "type": "nominal",
                    "sort": seats,
                    "scale": {"domain": seats, "range": seat_colours(seats)},
                },
            },
        },
    }
    caption = "Of the first, second, third … messages, the share in which it was found, by who said it; each on a scale of its own."
    return Chart(plot_of("by-turn", "Behaviours by message", f"{caption} {_looked(seen)}", spec), rows)


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
    seats = sorted(
        {row["seat"] for row in rows}, key=lambda seat: (seat != "user", seat != "assistant", seat)
    )
    spec: Spec = {
        "data": {"values": [row for row in rows if row["seat"] in seats[:4]]},
        "width": WIDTH,
        "height": {"step": 26},
        "mark": {"type": "bar", "size": 16},
        "encoding": {
            "y": {
                "field": "behaviour",
                "type": "nominal",
                "sort": sorted(of, key=lambda name: -of[name]),
                "title": None,
                "axis": {"labelColor": INK, "domain": False, "ticks": False},
            },
            "x": {
                "field": "messages",
                "type": "quantitative",
                "title": "messages",
                "axis": {"format": "~s", "tickCount": 4},
            },
            "color": {
                "field": "seat",
                "type": "nominal",
                "sort": seats[:4],
                "scale": {"domain": seats[:4], "range": seat_colours(seats[:4])},
            },
        },
    }
    return Chart(
        plot_of("by-seat", "Who shows them", f"Messages with a finding, by seat. {_looked(seen)}", spec), rows
    )


def by_role(seat: str) -> Callable[[Catalogue, PageState], Chart | None]:
    """What was found, by the role played in a seat."""

    def make(catalogue: Catalogue, state: PageState) -> Chart | None:
        seen = catalogue.behaviours(state.query, role=seat)
        roles = sorted(seen.roles, key=lambda role: (-seen.roles[role], role))
        found = sorted(seen.by_role, key=lambda name: -sum(seen.by_role[name].values()))
        if len(roles) < 2 or not found:
            return None
        rows: Rows = []
        for role in roles:
            for name in found:
                share = wilson(seen.by_role[name].get(role, 0), seen.roles[role])
                rows.append(
                    {
                        "role": printable(role) or "none",
                        "behaviour": _title(name),
                        "conversations": share.count,
                        "of": share.of,
                        "share": share.rate,
                        "low": share.low,
                        "high": share.high,
                    }
                )
        names = [printable(role) or "none" for role in roles[:MOST]]
        titles = [_title(name) for name in found[:7]]
        values = [row for row in rows if row["role"] in names and row["behaviour"] in titles]
        spec: Spec = {
            "data": {"values": values},
            "width": {"step": max(31, min(60, WIDTH // len(titles)))},
            "height": {"step": 24},
            "encoding": {
                "x": {
                    "field": "behaviour",
                    "type": "nominal",
                    "sort": titles,
                    "title": None,
                    "axis": {
                        "orient": "top",
                        "labelAngle": -40,
                        "labelAlign": "left",
                        "domain": False,
                        "ticks": False,
                        "labelLimit": 130,
                    },
                },
                "y": {
                    "field": "role",
                    "type": "nominal",
                    "sort": names,
                    "title": None,
                    "axis": {"labelColor": INK, "domain": False, "ticks": False, "labelLimit": 130},
                },
            },
            "layer": shaded("share", size=10, radius=2),
        }
        caption = f"Share of the conversations of each {TITLES[seat].lower()} role in which it was found. {_looked(seen)}"
        return Chart(plot_of(f"by-{seat}", f"Behaviours by {TITLES[seat].lower()} role", caption, spec), rows)

    return make
