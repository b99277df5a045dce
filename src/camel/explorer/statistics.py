"""Statistics: the plots of a selection, for the page, as SVG, PNG and CSV.

The one decision to know: a plot is a function of the catalogue and the reader's query, so that whatever is drawn, downloaded
or listed has passed the same gate and the same filters. They are drawn as those of a study are (`evaluation.plots`), but
small, so that their labels can be read on a phone; each bar is a link to its conversations.
"""

from __future__ import annotations

import csv
import html
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from camel.detectors import DETECTORS
from camel.evaluation.study import SEEN, UNSEEN
from camel.explorer.views import NUMBER_TITLES, TITLES, State, facet_name, money, short, toggled
from camel.query.answers import Behaviours, Histogram
from camel.query.catalogue import Catalogue
from camel.reports.intervals import wilson
from camel.reports.plots import (
    ACCENT,
    GRID,
    INK,
    MUTED,
    SEAT_COLOURS,
    Plot,
    Spec,
    png,
    seat_colours,
    shaded,
    svg,
)

MOST = 14
"""Values of a facet that are drawn; the data has them all."""
BINS = 24
FEWEST = 5
"""Numbers for which a plot of bars has room, though it has fewer."""
MOST_TURNS = 60
WIDTH = 205
"""Of what is drawn, beside the labels: all of it fits a phone, where it is shown about as large as it is."""
LABELS = 145
_FONT = 13
_GO = "https://link.invalid/"
"""Stands for a link until it is drawn: the drawer would make a path of ours into one of a site of its own."""
_LINK = re.compile(rf'xlink:href="{re.escape(_GO)}(\d+)"')
_UNSEEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_CONFIG: Spec = {
    "axis": {
        "labelFontSize": _FONT,
        "titleFontSize": _FONT,
        "labelLimit": LABELS,
        "labelColor": MUTED,
        "titleColor": MUTED,
        "titleFontWeight": "normal",
        "gridColor": GRID,
        "domainColor": GRID,
        "tickColor": GRID,
        "labelPadding": 6,
    },
    "legend": {
        "labelFontSize": _FONT,
        "labelColor": INK,
        "title": None,
        "orient": "top",
        "columns": 2,
        "columnPadding": 30,
        "labelLimit": 180,
    },
    "header": {"labelColor": INK, "labelFontSize": _FONT, "labelFontWeight": "bold", "title": None},
    "text": {"color": INK},
    "view": {"stroke": None},
    "background": "#ffffff",
    "font": "sans-serif",
}

Rows = list[dict[str, Any]]


class Chart(msgspec.Struct, frozen=True):
    """A plot, what it was drawn from, and where its bars lead."""

    plot: Plot
    rows: Rows
    """The data, all of it."""
    links: list[str] = []


def charts(catalogue: Catalogue, state: State) -> list[Chart]:
    """All plots that a selection allows."""
    return [made for make in PLOTS.values() if (made := make(catalogue, state)) is not None]


def notes(catalogue: Catalogue, state: State, made: Sequence[Chart]) -> list[str]:
    """What the plots do not say of what was found: where nobody has looked, and that nobody found anything."""
    chosen = [one for one in catalogue.runs if not state.query.runs or one.name in state.query.runs]
    said = [note for note in catalogue.notes() if "--findings" in note]
    said += [f"Findings: {note}" for one in chosen for note in one.damage]
    if not catalogue.count(state.query) or any(one.plot.name == "finding" for one in made):
        return said
    if waiting := sum(part.unknown for one in chosen for part in one.parts if not part.damage):
        them = "a conversation is" if waiting == 1 else f"{waiting:,} conversations are"
        return said or [
            f"Findings: {them} not looked through yet. Reload in a moment; camel index RUN --findings keeps it."
        ]
    return said or [
        f"Findings: the detectors looked through these conversations and found nothing. {SEEN} {UNSEEN} "
        "camel study RUN --judge asks a model."
    ]


def chart(catalogue: Catalogue, state: State, name: str) -> Chart | None:
    """One of them, by its name."""
    return PLOTS[name](catalogue, state) if name in PLOTS else None


def drawn(made: Chart) -> str:
    """The plot as SVG for a page, its bars links."""
    return _LINK.sub(
        lambda found: f'href="{html.escape(made.links[int(found[1])])}"', _svg(msgspec.json.encode(made.plot))
    )


def as_svg(made: Chart) -> str:
    """The plot as a file, without links."""
    return re.sub(r"</?a\b[^>]*>", "", _svg(msgspec.json.encode(made.plot)))


def as_png(made: Chart) -> bytes:
    """The plot as a picture."""
    return png(made.plot)


def as_csv(made: Chart) -> str:
    """What the plot was drawn from."""
    text = io.StringIO()
    names = [name for name in made.rows[0] if name != "link"] if made.rows else []
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_cell(row[name]) for name in names] for row in made.rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """A cell that a spreadsheet takes for what it is: a text of a model's may not become a formula."""
    if isinstance(value, str):
        value = _UNSEEN.sub("\ufffd", value)
        return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
    return value


@lru_cache(maxsize=128)
def _svg(plot: bytes) -> str:
    """Drawn once, whoever looks: the same data makes the same picture."""
    return svg(msgspec.json.decode(plot, type=Plot))


def warm() -> None:
    """Start the drawer, which takes a second the first time."""
    svg(_plot("warm", "", "", {"data": {"values": [{"x": 1}]}, "mark": "point"}))


def _plot(name: str, title: str, caption: str, spec: Spec) -> Plot:
    return Plot(
        name,
        title,
        caption,
        {"config": _CONFIG, "padding": {"left": 12, "right": 12, "top": 4, "bottom": 4}, **spec},
    )


def _clean(text: str) -> str:
    return _UNSEEN.sub("\ufffd", " ".join(text.split()))


# --- facets ------------------------------------------------------------------------------------------------------


def _facet(name: str) -> Callable[[Catalogue, State], Chart | None]:
    def make(catalogue: Catalogue, state: State) -> Chart | None:
        values = [one for one in catalogue.facets(state.query).get(name, []) if one[1]]
        if len(values) < 2 and not (name in ("stop", "finding") and values):
            return None
        chosen = state.query.runs if name == "run" else state.query.facets.get(name, ())
        one_each = name != "finding" and name != "label" and name != "other"
        total = sum(count for _, count in values) if one_each else catalogue.count(state.query)
        rows: Rows = []
        links: list[str] = []
        for value, count in values:
            query = state.query if value in chosen else toggled(state.query, name, value)
            links.append(state.url("/list", query=query))
            share = wilson(count, total)
            shown = (
                DETECTORS[value].title
                if name == "finding" and value in DETECTORS
                else facet_name(name, value)
            )
            rows.append(
                {
                    name: _clean(shown),
                    "conversations": count,
                    "share": share.rate,
                    "low": share.low,
                    "high": share.high,
                }
            )
        title = f"{TITLES[name]}, the most frequent" if len(values) > MOST else TITLES[name]
        caption = f"Of {total:,} conversations. The file with the data has 95% intervals."
        return Chart(_plot(name, title, caption, _bars(rows[:MOST], name)), rows, links)

    return make


def _bars(rows: Rows, field: str) -> Spec:
    """Bars with their names at the left and their numbers at the end."""
    values = [
        {
            "name": row[field],
            "at": number,
            "n": row["conversations"],
            "says": f"{row['conversations']:,} · {row['share']:.0%}",
            "link": f"{_GO}{number}",
        }
        for number, row in enumerate(rows)
    ]
    most = max((row["n"] for row in values), default=1)
    x: Spec = {
        "field": "n",
        "type": "quantitative",
        "axis": None,
        # Room for the numbers beside the longest.
        "scale": {"domain": [0, most], "range": [0, WIDTH - 95]},
    }
    described: Spec = {"field": "name", "type": "nominal"}
    return {
        "data": {"values": values},
        "width": WIDTH,
        "height": {"step": 28},
        "encoding": {
            "y": {
                "field": "at",
                "type": "ordinal",
                "title": None,
                "axis": {
                    "labelColor": INK,
                    "domain": False,
                    "ticks": False,
                    "labelExpr": f"{_expression([row[field] for row in rows])}[datum.value]",
                },
            },
            "href": {"field": "link"},
            "description": described,
        },
        "layer": [
            {
                "mark": {"type": "bar", "color": ACCENT, "cornerRadiusEnd": 3, "size": 18},
                "encoding": {"x": x},
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 6, "fontSize": _FONT},
                "encoding": {"x": x, "text": {"field": "says"}},
            },
        ],
    }


def _expression(names: Sequence[str]) -> str:
    """Texts as a list in an expression of the drawer. Two values may look the same once shortened: bars go by number."""
    return msgspec.json.encode(
        [re.sub(r"[^\w .,:;&()'+*/#%$€–-]", " ", name)[:60] for name in names]
    ).decode()


# --- numbers -----------------------------------------------------------------------------------------------------


def _number(name: str) -> Callable[[Catalogue, State], Chart | None]:
    def make(catalogue: Catalogue, state: State) -> Chart | None:
        made = catalogue.histogram(state.query, name, bins=BINS)
        if not made.series:
            return None
        rows: Rows = []
        links: list[str] = []
        for low, high, count in zip(made.edges, made.edges[1:], made.series[""], strict=False):
            last = high - 1 if name != "cost" else high
            rows.append({"from": low, "to": last, "conversations": count})
            limits = state.query.ranges | {name: (low, last)}
            links.append(state.url("/list", query=replace(state.query, ranges=limits)))
        spec = _columns(rows, made, NUMBER_TITLES[name].lower())
        return Chart(
            _plot(name, f"{NUMBER_TITLES[name]} of a conversation", _summary(made), spec), rows, links
        )

    return make


def _summary(made: Histogram) -> str:
    """The mean and quantiles, in words."""
    shown = money if made.number == "cost" else short
    said = made.summary
    if said is None:
        return ""
    mean = f"{said.mean:.1f}" if made.number != "cost" and said.mean < 100 else shown(said.mean)
    text = f"Mean {mean}, median {shown(said.median)}; nine of ten between {shown(said.low)} and {shown(said.high)}."
    return text + (f" Not known of {made.unknown:,}." if made.unknown else "")


def _along(made: Histogram, title: str) -> tuple[float, Spec]:
    """The axis on which the bars of a histogram stand, and by how much they are moved there.

    Where each bar is one number it stands above it, and a single one is not all of the plot.
    """
    low, high, moved = made.edges[0], made.edges[-1], 0.0
    style: dict[str, Any] = {"tickCount": 5, "grid": False, "labelFlush": True}
    style["format"] = "$~g" if made.number == "cost" else "~s"
    if made.number != "cost" and made.edges[1] - low == 1:
        moved = -0.5
        style["values"] = list(range(int(low), int(high), math.ceil((high - low) / 10)))
        style["labelFlush"] = False
        middle = (low + high) / 2
        low, high = min(low, middle - FEWEST / 2), max(high, middle + FEWEST / 2)
    return moved, {
        "field": "low",
        "bin": {"binned": True},
        "type": "quantitative",
        "title": title,
        "axis": style,
        "scale": {"domain": [low + moved, high + moved], "nice": False, "zero": False},
    }


def _columns(rows: Rows, made: Histogram, title: str) -> Spec:
    width = made.edges[1] - made.edges[0]
    moved, along = _along(made, title)
    values = [
        {
            "low": row["from"] + moved,
            "high": row["from"] + moved + width,
            "n": row["conversations"],
            "link": f"{_GO}{number}",
        }
        for number, row in enumerate(rows)
    ]
    return {
        "data": {"values": values},
        "width": WIDTH + LABELS - 50,
        "height": 170,
        "mark": {"type": "bar", "color": ACCENT, "binSpacing": 1},
        "encoding": {
            "x": along,
            "x2": {"field": "high"},
            "y": {
                "field": "n",
                "type": "quantitative",
                "title": None,
                "axis": {"format": "~s", "tickCount": 4},
            },
            "href": {"field": "link"},
            "description": {"field": "n", "type": "quantitative"},
        },
    }


def _length_by_stop(catalogue: Catalogue, state: State) -> Chart | None:
    made = catalogue.histogram(state.query, "messages", by="stop", bins=BINS)
    if len(made.series) < 2:
        return None
    order = sorted(made.series, key=lambda stop: -sum(made.series[stop]))[:8]
    rows: Rows = [
        {"stop": facet_name("stop", stop), "from": low, "to": high - 1, "conversations": count}
        for stop in order
        for low, high, count in zip(made.edges, made.edges[1:], made.series[stop], strict=False)
    ]
    moved, along = _along(made, "messages")
    values = [{**row, "low": row["from"] + moved, "high": row["to"] + 1 + moved} for row in rows]
    names = [facet_name("stop", stop) for stop in order]
    spec: Spec = {
        "data": {"values": values},
        "width": WIDTH + LABELS - 50,
        "height": 190,
        "mark": {"type": "bar", "binSpacing": 1},
        "encoding": {
            "x": along,
            "x2": {"field": "high"},
            "y": {
                "field": "conversations",
                "type": "quantitative",
                "title": None,
                "axis": {"format": "~s", "tickCount": 4},
            },
            "color": {
                "field": "stop",
                "type": "nominal",
                "sort": names,
                "scale": {
                    "domain": names,
                    "range": [*SEAT_COLOURS, "#c2476b", "#7d8a34", "#5a6f8f", "#9a7a4f"][: len(names)],
                },
            },
        },
    }
    return Chart(_plot("length-by-stop", "Length and how it ended", "", spec), rows)


# --- behaviours --------------------------------------------------------------------------------------------------


def _looked(seen: Behaviours) -> str:
    return f"Of {seen.conversations:,} conversations that were looked through."


def _title(detector: str) -> str:
    return DETECTORS[detector].title if detector in DETECTORS else _clean(detector.replace("_", " "))


def _by_turn(catalogue: Catalogue, state: State) -> Chart | None:
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
                        "seat": _clean(seat),
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
    return Chart(_plot("by-turn", "Behaviours by message", f"{caption} {_looked(seen)}", spec), rows)


def _by_seat(catalogue: Catalogue, state: State) -> Chart | None:
    seen = catalogue.behaviours(state.query)
    rows: Rows = [
        {"behaviour": _title(name), "seat": _clean(seat), "messages": sum(counts.values())}
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
        _plot("by-seat", "Who shows them", f"Messages with a finding, by seat. {_looked(seen)}", spec), rows
    )


def _by_role(seat: str) -> Callable[[Catalogue, State], Chart | None]:
    def make(catalogue: Catalogue, state: State) -> Chart | None:
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
                        "role": _clean(role) or "none",
                        "behaviour": _title(name),
                        "conversations": share.count,
                        "of": share.of,
                        "share": share.rate,
                        "low": share.low,
                        "high": share.high,
                    }
                )
        names = [_clean(role) or "none" for role in roles[:MOST]]
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
        return Chart(_plot(f"by-{seat}", f"Behaviours by {TITLES[seat].lower()} role", caption, spec), rows)

    return make


class Kind(NamedTuple):
    """A way to take a plot away."""

    type: str
    make: Callable[[Chart], str | bytes]


KINDS = {
    "svg": Kind("image/svg+xml", as_svg),
    "png": Kind("image/png", as_png),
    "csv": Kind("text/csv; charset=utf-8", as_csv),
}

PLOTS: Mapping[str, Callable[[Catalogue, State], Chart | None]] = {
    "stop": _facet("stop"),
    "messages": _number("messages"),
    "tokens": _number("tokens"),
    "cost": _number("cost"),
    "length-by-stop": _length_by_stop,
    "finding": _facet("finding"),
    "by-turn": _by_turn,
    "by-seat": _by_seat,
    "by-assistant": _by_role("assistant"),
    "by-user": _by_role("user"),
    **{name: _facet(name) for name in ("run", "scenario", "label", "assistant", "user", "other", "model")},
}
"""By the names of their files, in the order of the page."""
