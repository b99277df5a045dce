"""Statistics of a selection: the page, and its plots as SVG, PNG and CSV.

The one decision to know: a plot is a function of the catalogue and the reader's query. What is drawn, downloaded or listed
has therefore passed the same consent gate and the same filters. The plot of a filtered field is omitted, because it
would show nothing but the filter.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from msgspec.structs import replace
from starlette.responses import Response

from camel.detectors import DETECTORS
from camel.evaluation.study import SEEN, UNSEEN
from camel.explorer.charts import (
    BINS,
    FEWEST,
    MOST,
    WIDTH,
    Chart,
    Rows,
    as_csv,
    as_plot,
    bars_spec,
    columns_spec,
    counts_axis,
    printable,
    shares,
)
from camel.explorer.colors import BLUE, Mark, ending, ending_order, seats
from camel.explorer.home import run_head
from camel.explorer.routing import PageRequest, Site
from camel.explorer.views import NUMBER_TITLES, TITLES, PageState, chips, facet_name, number_words, toggled
from camel.index.facets import FACETS
from camel.query.answers import Behaviors, Histogram, NotThere
from camel.query.catalogue import Catalogue
from camel.reports.numbers import counted, money
from camel.reports.plots import Spec, colors, names, png, svg

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


Maker = Callable[[Catalogue, PageState], Chart | None]


def charts(catalogue: Catalogue, state: PageState, names: Sequence[str] = ()) -> list[Chart]:
    """Return all plots of a selection, or only those in `names`."""
    made = (chart(catalogue, state, name) for name in names or PLOTS)
    return [one for one in made if one is not None]


def chart(catalogue: Catalogue, state: PageState, name: str) -> Chart | None:
    """Return a plot by its name. Return None if these conversations have no such plot."""
    return PLOTS[name](catalogue, state) if name in PLOTS else None


def notes(catalogue: Catalogue, state: PageState, made: Sequence[Chart]) -> list[str]:
    """Return notes about findings: that conversations were not scanned yet, or that nothing was found."""
    chosen = [one for one in catalogue.runs if not state.query.runs or one.name in state.query.runs]
    found = [note for note in catalogue.notes() if "--findings" in note]
    found += [f"Findings: {note}" for one in chosen for note in one.damage]
    if not catalogue.count(state.query) or any(one.name == "finding" for one in made):
        return found
    if waiting := sum(part.unknown for one in chosen for part in one.parts if not part.damage):
        return found or [
            f"Findings: the detectors have not read {counted(waiting, 'conversation')} yet. Reload in a moment, "
            "or store the findings with camel run index RUN --findings."
        ]
    return found or [
        f"Findings: the detectors read these conversations and found nothing. {SEEN} {UNSEEN} "
        "camel study RUN --judge MODEL asks a model."
    ]


def _facet(name: str) -> Maker:
    def make(catalogue: Catalogue, state: PageState) -> Chart | None:
        if state.query.runs if name == "run" else state.query.facets.get(name):
            return None
        values = [one for one in catalogue.facets(state.query).get(name, []) if one[1]]
        if len(values) < 2 and not (name in ("stop", "finding") and values):
            return None
        if name == "stop":
            values.sort(key=lambda one: ending_order(one[0]))
        one_each = not (name in FACETS and FACETS[name].many)
        total = sum(count for _, count in values) if one_each else catalogue.count(state.query)
        rows: Rows = []
        for value, count in values:
            known = name == "finding" and value in DETECTORS
            shown = printable(DETECTORS[value].title if known else facet_name(name, value))
            rows.append({name: shown, "conversations": count, **shares(count, total)})
        title, text = TITLES[name], ""
        if one_each and len(values) == 1:
            text = f"{f'All {total:,} conversations' if total > 1 else 'The conversation'} ended: {rows[0][name]}."
        elif one_each and len({count for _, count in values}) == 1 and len(values) <= MOST:
            text = f"{counted(values[0][1], 'conversation')} each: {', '.join(row[name] for row in rows)}."
        if text:
            return Chart(name, title, "", rows, "text", {"text": text})
        caption = f"Of {counted(total, 'conversation')}{', with 95% intervals' if total >= FEWEST else ''}."
        caption = f"The {MOST} most frequent of {len(values):,}. {caption}" if len(values) > MOST else caption
        marks = [ending(value) for value, _ in values[:MOST]] if name == "stop" else []
        links = [state.url("/list", query=toggled(state.query, name, value)) for value, _ in values[:MOST]]
        drawn = {"field": name, "rows": rows[:MOST], "total": total, "links": links, "marks": marks}
        spec = bars_spec(rows[:MOST], name, [mark.color for mark in marks])
        return Chart(name, title, caption, rows, "stack" if marks else "bars", drawn, spec)

    return make


def _number(name: str) -> Maker:
    title, unit = f"{NUMBER_TITLES[name]} per conversation", NUMBER_TITLES[name].lower()
    shown = number_words(name)

    def make(catalogue: Catalogue, state: PageState) -> Chart | None:
        if name in state.query.ranges:
            return None
        made = catalogue.histogram(state.query, name, bins=BINS)
        counts = made.series.get("", [])
        if not (total := sum(counts)):
            return None
        unknown = f"Unknown for {made.unknown:,}." if made.unknown else ""
        if len(counts) == 1 or total < FEWEST:
            text, rows = _few(catalogue, state, name, made)
            return Chart(name, title, unknown, rows, "text", {"text": text})
        ends = [(low, high if name == "cost" else high - 1) for low, high in pairwise(made.edges)]
        rows: Rows = [
            {"from": low, "to": last, "conversations": count}
            for (low, last), count in zip(ends, counts, strict=True)
        ]
        ranged = [replace(state.query, ranges=state.query.ranges | {name: limits}) for limits in ends]
        caption, middle = f"{counted(total, 'conversation')}.", made.summary
        drawn: dict[str, Any] = {
            "edges": made.edges,
            "layers": [("nb", counts)],
            "labels": _labels(made),
            "median": None,
        }
        drawn["links"] = [state.url("/list", query=query) for query in ranged]
        if middle:
            drawn["median"] = middle.median + _half(made), f"median {shown(middle.median)}"
            mean = f"{middle.mean:.1f}" if name != "cost" and middle.mean < 100 else shown(middle.mean)
            caption += f" Mean {mean}; 90% are between {shown(middle.low)} and {shown(middle.high)}."
        spec = columns_spec(rows, made.edges, unit)
        return Chart(name, title, f"{caption} {unknown}".strip(), rows, "columns", drawn, spec)

    return make


def _few(catalogue: Catalogue, state: PageState, name: str, made: Histogram) -> tuple[str, Rows]:
    """Return a sentence and its data, instead of a plot, for one distinct value or for too few values."""
    total, shown = sum(made.series[""]), number_words(name)
    unit = "" if name == "cost" else f" {NUMBER_TITLES[name].lower()}"
    if len(made.series[""]) == 1 and (name == "cost" or made.edges[1] - made.edges[0] == 1):
        values = [made.edges[0]] * total
        text = f"All {total:,} conversations have" if total > 1 else "The conversation has"
        text = f"{money(sum(values))} in total." if name == "cost" else f"{text} {shown(values[0])}{unit}."
    else:
        found = catalogue.page(replace(state.query, sort=name, order="asc"), limit=50).rows
        values = [value for row in found if (value := getattr(row, name)) is not None]
        text = f"{', '.join(map(shown, values))}{unit}."
    return text, [{name: value, "conversations": values.count(value)} for value in dict.fromkeys(values)]


def _half(made: Histogram) -> float:
    """Return the offset to the middle of a column that is one whole number wide; else 0."""
    return 0.5 if made.number != "cost" and made.edges[1] - made.edges[0] == 1 else 0.0


def _labels(made: Histogram) -> list[tuple[float, str]]:
    """Return positions and labels of an axis: each number below its column, or four numbers at equal distances."""
    shown, low, high = number_words(made.number), made.edges[0], made.edges[-1]
    if half := _half(made):
        return [(n + half, shown(n)) for n in range(int(low), int(high), math.ceil((high - low) / 8))]
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
    order = sorted(made.series, key=ending_order)[:8]
    marks = [ending(stop) for stop in order]
    rows: Rows = [
        {"stop": mark.title, "from": low, "to": high - 1, "conversations": count}
        for stop, mark in zip(order, marks, strict=True)
        for (low, high), count in zip(pairwise(made.edges), made.series[stop], strict=True)
    ]
    layers = [(f"mk {mark.css}", made.series[stop]) for stop, mark in zip(order, marks, strict=True)]
    drawn = {
        "edges": made.edges,
        "layers": layers,
        "labels": _labels(made),
        "median": None,
        "links": [],
        "key": marks,
    }
    color = colors("stop", [mark.title for mark in marks], [mark.color for mark in marks])
    spec = columns_spec(rows, made.edges, "messages", color=color)
    caption = f"{counted(total, 'conversation')}."
    return Chart("length-by-stop", "Messages by ending", caption, rows, "columns", drawn, spec)


KINDS: Mapping[str, tuple[str, Callable[[Chart], str | bytes]]] = {
    "svg": ("image/svg+xml", lambda made: svg(as_plot(made))),
    "png": ("image/png", lambda made: png(as_plot(made))),
    "csv": ("text/csv; charset=utf-8", as_csv),
}
"""By file ending: the media type, and the function that makes the file of a plot."""

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
"""Functions that make the plots, by the name of the plot's files, in the order of the page."""


# --- the page ---------------------------------------------------------------------------------------------------


def add_statistics_pages(site: Site) -> None:
    """Add the routes of the statistics page and of its plots."""

    @site.get("/statistics")
    def statistics_page(asked: PageRequest) -> Response:
        state, query = asked.state, asked.state.query
        made = charts(asked.catalogue, state)
        return asked.page(
            "statistics.html",
            here="list",
            run=run_head(asked, query.runs[0], "statistics") if len(query.runs) == 1 else None,
            figures=figures(asked, state),
            charts=made,
            notes=notes(asked.catalogue, state, made),
            chips=chips(state, "/statistics"),
        )

    @site.get("/statistics/{file}")
    def plot(asked: PageRequest) -> Response:
        name, _, kind = asked.request.path_params["file"].rpartition(".")
        made = chart(asked.catalogue, asked.state, name) if kind in KINDS else None
        if made is None or (made.spec is None and kind != "csv"):
            raise NotThere(
                "there is no such plot of these conversations: the statistics page lists those there are"
            )
        headers = {"content-disposition": f'attachment; filename="{made.name}.{kind}"'}
        media, make = KINDS[kind]
        return Response(make(made), media_type=media, headers=headers)


def figures(asked: PageRequest, state: PageState) -> list[tuple[str, str]]:
    """Return the key figures of a selection, such as its number of messages: each value with its label."""
    catalogue, query = asked.catalogue, state.query
    total = catalogue.count(query)
    made = [(f"{total:,}", "conversation" if total == 1 else "conversations")]
    for name in ("messages", "tokens", "cost"):
        found = catalogue.histogram(query, name, bins=1)
        if found.summary is not None and (count := sum(found.series.get("", []))):
            label = f"for {count:,}" if name == "cost" and count < total else name
            made.append((number_words(name)(found.summary.mean * count), label))
    if total and not query.facets.get("stop"):
        done = catalogue.count(replace(query, facets=query.facets | {"stop": ("done",)}))
        made.append(
            (f"{done / total:.0%}" if total >= FEWEST else f"{done} of {total}", "ended with the task done")
        )
    if total and not query.facets.get("finding"):
        clean = catalogue.count(replace(query, facets=query.facets | {"finding": ("",)}))
        made.append((f"{total - clean:,}", "with findings"))
    return made
