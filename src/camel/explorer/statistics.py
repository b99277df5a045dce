"""Statistics of a selection: its plots, for the page and as SVG, PNG and CSV.

The one decision to know: a plot is a function of the catalogue and the reader's query. What is drawn, downloaded or listed
has therefore passed the same consent gate and the same filters. The plot of a filtered field is omitted, because it
would show nothing but the filter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from camel.detectors import DETECTORS
from camel.evaluation.study import SEEN, UNSEEN
from camel.explorer.behavior_charts import by_role, by_seat, by_turn
from camel.explorer.charts import (
    BINS,
    FEWEST,
    MOST,
    Chart,
    Rows,
    as_csv,
    as_png,
    as_svg,
    bars_figure,
    bars_spec,
    color_channel,
    columns_figure,
    columns_spec,
    printable,
    shares,
)
from camel.explorer.colors import ending, ending_order
from camel.explorer.views import NUMBER_TITLES, TITLES, PageState, facet_name, toggled
from camel.index.facets import FACETS
from camel.query.answers import Histogram
from camel.query.catalogue import Catalogue
from camel.reports.numbers import counted, money, short

Maker = Callable[[Catalogue, PageState], Chart | None]


def charts(catalogue: Catalogue, state: PageState, names: Sequence[str] = ()) -> list[Chart]:
    """All plots of a selection, or those that are named."""
    made = (chart(catalogue, state, name) for name in names or PLOTS)
    return [one for one in made if one is not None]


def chart(catalogue: Catalogue, state: PageState, name: str) -> Chart | None:
    """One plot by its name; None if there is no such plot of these conversations."""
    return PLOTS[name](catalogue, state) if name in PLOTS else None


def notes(catalogue: Catalogue, state: PageState, made: Sequence[Chart]) -> list[str]:
    """What the plots do not say about findings: which conversations no detector has read, or that nothing was found."""
    chosen = [one for one in catalogue.runs if not state.query.runs or one.name in state.query.runs]
    said = [note for note in catalogue.notes() if "--findings" in note]
    said += [f"Findings: {note}" for one in chosen for note in one.damage]
    if not catalogue.count(state.query) or any(one.name == "finding" for one in made):
        return said
    if waiting := sum(part.unknown for one in chosen for part in one.parts if not part.damage):
        return said or [
            f"Findings: the detectors have not read {counted(waiting, 'conversation')} yet. Reload in a moment, "
            "or store the findings with `camel run index RUN --findings`."
        ]
    return said or [
        f"Findings: the detectors read these conversations and found nothing. {SEEN} {UNSEEN} "
        "`camel study RUN --judge` asks a model."
    ]


# --- facets ------------------------------------------------------------------------------------------------------


def _facet(name: str) -> Maker:
    def make(catalogue: Catalogue, state: PageState) -> Chart | None:
        if state.query.runs if name == "run" else state.query.facets.get(name):
            return None
        values = [one for one in catalogue.facets(state.query).get(name, []) if one[1]]
        if name == "stop":
            values.sort(key=lambda one: ending_order(one[0]))
        if len(values) < 2 and not (name in ("stop", "finding") and values):
            return None
        one_each = not (name in FACETS and FACETS[name].many)
        total = sum(count for _, count in values) if one_each else catalogue.count(state.query)
        rows: Rows = []
        for value, count in values:
            known = name == "finding" and value in DETECTORS
            shown = DETECTORS[value].title if known else facet_name(name, value)
            rows.append({name: printable(shown), "conversations": count, **shares(count, total)})
        title, caption = TITLES[name], f"Of {counted(total, 'conversation')}"
        caption += ", with 95% intervals." if total >= FEWEST else "."
        if one_each and len(values) == 1:
            text = (
                f"All {counted(total, 'conversation')}: {rows[0][name]}."
                if total > 1
                else f"{rows[0][name]}."
            )
            return Chart(name, title, "", rows, {"kind": "text", "text": text})
        if one_each and len({count for _, count in values}) == 1 and values[0][1] > 1 and len(values) <= MOST:
            text = f"{counted(values[0][1], 'conversation')} each: {', '.join(row[name] for row in rows)}."
            return Chart(name, title, "", rows, {"kind": "text", "text": text})
        marks = [ending(value) for value, _ in values[:MOST]] if name == "stop" else []
        links = [state.url("/list", query=toggled(state.query, name, value)) for value, _ in values[:MOST]]
        if len(values) > MOST:
            caption = f"The {MOST} most frequent of {len(values):,}. {caption}"
        figure = bars_figure(rows[:MOST], name, total, links, marks)
        spec = bars_spec(rows[:MOST], name, [mark.color for mark in marks])
        return Chart(name, title, caption, rows, figure, spec)

    return make


# --- numbers -----------------------------------------------------------------------------------------------------


def _number(name: str) -> Maker:
    title = f"{NUMBER_TITLES[name]} per conversation"

    def make(catalogue: Catalogue, state: PageState) -> Chart | None:
        if name in state.query.ranges:
            return None
        made = catalogue.histogram(state.query, name, bins=BINS)
        counts = made.series.get("", [])
        if not (total := sum(counts)):
            return None
        unknown = f"Unknown for {made.unknown:,}." if made.unknown else ""
        if len(counts) == 1 or total < FEWEST:
            return _few(catalogue, state, name, title, made, unknown)
        rows: Rows = []
        links: list[str] = []
        for low, high, count in zip(made.edges, made.edges[1:], counts, strict=False):
            last = high if name == "cost" else high - 1
            rows.append({"from": low, "to": last, "conversations": count})
            limits = state.query.ranges | {name: (low, last)}
            links.append(state.url("/list", query=replace(state.query, ranges=limits)))
        shown, middle = _words(name), made.summary
        median = (middle.median + _half(made), shown(middle.median)) if middle else None
        figure = columns_figure(made.edges, [("nb", counts)], _labels(made), links, median)
        values = [row | {"until": high} for row, high in zip(rows, made.edges[1:], strict=True)]
        spec = columns_spec(values, made.edges, NUMBER_TITLES[name].lower(), {}, name == "cost")
        caption = f"{counted(total, 'conversation')}."
        if middle:
            mean = f"{middle.mean:.1f}" if name != "cost" and middle.mean < 100 else shown(middle.mean)
            caption += f" Mean {mean}; 90% are between {shown(middle.low)} and {shown(middle.high)}."
        return Chart(name, title, f"{caption} {unknown}".strip(), rows, figure, spec)

    return make


def _few(
    catalogue: Catalogue, state: PageState, name: str, title: str, made: Histogram, unknown: str
) -> Chart:
    """One distinct value, or too few values for a plot: a sentence."""
    total, shown = sum(made.series[""]), _words(name)
    unit = "" if name == "cost" else f" {NUMBER_TITLES[name].lower()}"
    if len(made.series[""]) == 1 and (name == "cost" or made.edges[1] - made.edges[0] == 1):
        values = [made.edges[0]] * total
        all_of = f"All {total:,} conversations have" if total > 1 else "The conversation has"
        text = f"{all_of} {shown(values[0])}{unit}."
        if name == "cost":
            text = f"{money(sum(values))} in total."
    else:
        found = catalogue.page(replace(state.query, sort=name, order="asc"), limit=50).rows
        values = [value for row in found if (value := getattr(row, name)) is not None]
        text = f"{', '.join(map(shown, values))}{unit}."
    rows = [{name: value, "conversations": values.count(value)} for value in dict.fromkeys(values)]
    return Chart(name, title, unknown, rows, {"kind": "text", "text": text})


def _words(name: str) -> Callable[[float], str]:
    return money if name == "cost" else short


def _half(made: Histogram) -> float:
    """Where in the column of a whole number its middle is."""
    return 0.5 if made.number != "cost" and made.edges[1] - made.edges[0] == 1 else 0.0


def _labels(made: Histogram) -> list[tuple[float, str]]:
    """Places and words on the axis of a histogram: each number below its column, or four at equal distances."""
    shown, low, high = _words(made.number), made.edges[0], made.edges[-1]
    if half := _half(made):
        step = math.ceil((high - low) / 8)
        return [(number + half, shown(number)) for number in range(int(low), int(high), step)]
    places = [low + (high - low) * part / 3 for part in range(4)]
    if made.number == "cost":
        return [(place, f"${place:.2g}" if place else "$0") for place in places]
    places[-1] -= 1  # the last whole number before the edge
    return [(place, shown(round(place))) for place in places]


def _length_by_stop(catalogue: Catalogue, state: PageState) -> Chart | None:
    if state.query.facets.get("stop") or "messages" in state.query.ranges:
        return None
    made = catalogue.histogram(state.query, "messages", by="stop", bins=BINS)
    total = sum(map(sum, made.series.values()))
    if len(made.series) < 2 or len(made.edges) < 3 or total < FEWEST:
        return None
    order = sorted(made.series, key=lambda stop: -sum(made.series[stop]))[:8]
    rows: Rows = [
        {"stop": ending(stop).title, "from": low, "to": high - 1, "conversations": count}
        for stop in order
        for low, high, count in zip(made.edges, made.edges[1:], made.series[stop], strict=False)
    ]
    figure = columns_figure(
        made.edges, [(f"mk {ending(stop).css}", made.series[stop]) for stop in order], _labels(made)
    )
    figure["key"] = [ending(stop) for stop in order]
    names, palette = [ending(stop).title for stop in order], [ending(stop).color for stop in order]
    values = [row | {"until": row["to"] + 1} for row in rows]
    color = {"color": color_channel("stop", names, palette)}
    spec = columns_spec(values, made.edges, "messages", color, money=False)
    return Chart(
        "length-by-stop", "Messages by ending", f"{counted(total, 'conversation')}.", rows, figure, spec
    )


KINDS: Mapping[str, tuple[str, Callable[[Chart], str | bytes]]] = {
    "svg": ("image/svg+xml", as_svg),
    "png": ("image/png", as_png),
    "csv": ("text/csv; charset=utf-8", as_csv),
}
"""The files of a plot: media type, and what makes it."""

PLOTS: Mapping[str, Maker] = {
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
