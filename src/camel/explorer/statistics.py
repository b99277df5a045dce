"""Statistics: the plots of a selection, for the page, as SVG, PNG and CSV.

The one decision to know: a plot is a function of the catalogue and the reader's query, so that whatever is drawn, downloaded
or listed has passed the same gate and the same filters. They are drawn as those of a study are (`evaluation.plots`), but
small, so that their labels can be read on a phone; each bar is a link to its conversations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from camel.detectors import DETECTORS
from camel.evaluation.study import SEEN, UNSEEN
from camel.explorer.behaviour_charts import by_role, by_seat, by_turn
from camel.explorer.charts import (
    BINS,
    FEWEST,
    GO,
    LABELS,
    MOST,
    WIDTH,
    Chart,
    Rows,
    as_csv,
    as_png,
    as_svg,
    bars,
    colors,
    numbers_axis,
    plot_of,
    printable,
    shares,
)
from camel.explorer.views import NUMBER_TITLES, TITLES, PageState, facet_name, toggled
from camel.index.facets import FACETS
from camel.query.answers import Histogram
from camel.query.catalogue import Catalogue
from camel.reports.numbers import money, short
from camel.reports.plots import ACCENT, SEAT_COLOURS, Spec


def charts(catalogue: Catalogue, state: PageState) -> list[Chart]:
    """All plots that a selection allows."""
    return [made for make in PLOTS.values() if (made := make(catalogue, state)) is not None]


def notes(catalogue: Catalogue, state: PageState, made: Sequence[Chart]) -> list[str]:
    """What the plots do not say of what was found: where nobody has looked, and that nobody found anything."""
    chosen = [one for one in catalogue.runs if not state.query.runs or one.name in state.query.runs]
    said = [note for note in catalogue.notes() if "--findings" in note]
    said += [f"Findings: {note}" for one in chosen for note in one.damage]
    if not catalogue.count(state.query) or any(one.plot.name == "finding" for one in made):
        return said
    if waiting := sum(part.unknown for one in chosen for part in one.parts if not part.damage):
        them = "a conversation is" if waiting == 1 else f"{waiting:,} conversations are"
        return said or [
            f"Findings: {them} not looked through yet. Reload in a moment; camel run index RUN --findings keeps it."
        ]
    return said or [
        f"Findings: the detectors looked through these conversations and found nothing. {SEEN} {UNSEEN} "
        "camel study RUN --judge MODEL asks a model."
    ]


def chart(catalogue: Catalogue, state: PageState, name: str) -> Chart | None:
    """One of them, by its name."""
    return PLOTS[name](catalogue, state) if name in PLOTS else None


# --- facets ------------------------------------------------------------------------------------------------------


def _facet(name: str) -> Callable[[Catalogue, PageState], Chart | None]:
    def make(catalogue: Catalogue, state: PageState) -> Chart | None:
        values = [one for one in catalogue.facets(state.query).get(name, []) if one[1]]
        if len(values) < 2 and not (name in ("stop", "finding") and values):
            return None
        chosen = state.query.runs if name == "run" else state.query.facets.get(name, ())
        one_each = not (name in FACETS and FACETS[name].many)
        total = sum(count for _, count in values) if one_each else catalogue.count(state.query)
        rows: Rows = []
        links: list[str] = []
        for value, count in values:
            query = state.query if value in chosen else toggled(state.query, name, value)
            links.append(state.url("/list", query=query))
            known = name == "finding" and value in DETECTORS
            shown = DETECTORS[value].title if known else facet_name(name, value)
            rows.append({name: printable(shown), "conversations": count, **shares(count, total)})
        title = f"{TITLES[name]}, the most frequent" if len(values) > MOST else TITLES[name]
        caption = f"Of {total:,} conversations. The file with the data has 95% intervals."
        return Chart(plot_of(name, title, caption, bars(rows[:MOST], name)), rows, links)

    return make


# --- numbers -----------------------------------------------------------------------------------------------------


def _number(name: str) -> Callable[[Catalogue, PageState], Chart | None]:
    def make(catalogue: Catalogue, state: PageState) -> Chart | None:
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
            plot_of(name, f"{NUMBER_TITLES[name]} of a conversation", _summary(made), spec), rows, links
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
            "link": f"{GO}{number}",
        }
        for number, row in enumerate(rows)
    ]
    leads = {"href": {"field": "link"}, "description": {"field": "n", "type": "quantitative"}}
    return _binned(values, along, "n", 170, {"color": ACCENT}, leads)


def _binned(values: Rows, along: Spec, count: str, height: int, mark: Spec, more: Mapping[str, Spec]) -> Spec:
    """Bars from `low` to `high` on an axis."""
    encoding = {"x": along, "x2": {"field": "high"}, "y": numbers_axis(count), **more}
    return {
        "data": {"values": values},
        "width": WIDTH + LABELS - 50,
        "height": height,
        "mark": {"type": "bar", "binSpacing": 1, **mark},
        "encoding": encoding,
    }


def _length_by_stop(catalogue: Catalogue, state: PageState) -> Chart | None:
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
    palette = [*SEAT_COLOURS, "#c2476b", "#7d8a34", "#5a6f8f", "#9a7a4f"][: len(names)]
    spec = _binned(values, along, "conversations", 190, {}, {"color": colors("stop", names, palette)})
    return Chart(plot_of("length-by-stop", "Length and how it ended", "", spec), rows)


KINDS: Mapping[str, tuple[str, Callable[[Chart], str | bytes]]] = {
    "svg": ("image/svg+xml", as_svg),
    "png": ("image/png", as_png),
    "csv": ("text/csv; charset=utf-8", as_csv),
}
"""The files of a plot: media type, and what makes it."""

PLOTS: Mapping[str, Callable[[Catalogue, PageState], Chart | None]] = {
    "stop": _facet("stop"),
    "messages": _number("messages"),
    "tokens": _number("tokens"),
    "cost": _number("cost"),
    "length-by-stop": _length_by_stop,
    "finding": _facet("finding"),
    "by-turn": by_turn,
    "by-seat": by_seat,
    "by-assistant": by_role("assistant"),
    "by-user": by_role("user"),
    **{name: _facet(name) for name in ("run", "scenario", "label", "assistant", "user", "other", "model")},
}
"""By the names of their files, in the order of the page."""
