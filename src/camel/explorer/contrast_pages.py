"""Plots that compare two groups: a selection with another run, or a selection with all other conversations.

The one decision to know: only group A and both groups together are counted, and group B is the difference. So a comparison
with all other conversations of a large run takes no longer than counting all conversations.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace
from starlette.responses import Response

from camel.core.errors import InputError
from camel.explorer import views
from camel.explorer.charts import csv_cell, printable, shares
from camel.explorer.routing import PageRequest, Site
from camel.query.where import Query

REST = "-"
"""The value of the run parameter that means all other conversations. No run's name begins with it."""
FACETS = ("stop", "finding", "scenario", "label", "user", "assistant", "other", "model")
NUMBERS = ("messages", "tokens", "cost")
BINS, MOST = 12, 10


class GroupPair(NamedTuple):
    """The queries for group A and for both groups together. Group B is the difference."""

    a: Query
    both: Query
    names: tuple[str, str]


def add_contrast_pages(site: Site) -> None:
    """Add the routes of the pages that compare two groups."""

    @site.get("/contrast")
    def contrast(asked: PageRequest) -> Response:
        groups = groups_of(asked)
        return asked.page(
            "contrast.html",
            here="list",
            groups=groups,
            counts=counts_of(asked, groups) if groups else (0, 0),
            plots=plots_of(asked, groups) if groups else [],
            runs=[run.name for run in asked.catalogue.runs],
            against=asked.last.get("against", ""),
            chips=views.chips(asked.state, "/contrast"),
        )

    @site.get("/contrast/groups.csv")
    def as_csv(asked: PageRequest) -> Response:
        if (groups := groups_of(asked)) is None:
            raise InputError("no second group is given. Choose one on the page first")
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["plot", "value", "group", "conversations", "share", "low", "high"])
        for plot in plots_of(asked, groups):
            for row in plot["rows"]:
                for name, side in zip(groups.names, row["sides"], strict=True):
                    writer.writerow(map(csv_cell, [plot["name"], row["name"], name, *side.values()]))
        headers = {"content-disposition": 'attachment; filename="groups.csv"'}
        return Response(text.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)


def groups_of(asked: PageRequest) -> GroupPair | None:
    """Return the two groups that the URL names. Return None if it names only one."""
    query, against = asked.state.query, asked.last.get("against", "")
    chosen = ", ".join(chip["name"] for chip in views.chips(asked.state, "/contrast")) or "all"
    if against == REST:
        # A filter is compared with the other conversations of its runs, a run with all other runs.
        plain = query.to_params() == [("run", name) for name in query.runs]
        return GroupPair(query, Query() if plain else Query(query.runs), (chosen, "everything else"))
    if not against or not query.runs:
        return None
    return GroupPair(query, replace(query, runs=(*query.runs, against)), (chosen, f"Run: {against}"))


def counts_of(asked: PageRequest, groups: GroupPair) -> tuple[int, int]:
    """Count the conversations of each group."""
    a, both = asked.catalogue.count(groups.a), asked.catalogue.count(groups.both)
    return a, both - a


def plots_of(asked: PageRequest, groups: GroupPair) -> list[dict[str, Any]]:
    """Return the plots that compare two groups. Filtered fields have no plot, because it would only show the filter."""
    catalogue, totals, query = asked.catalogue, counts_of(asked, groups), groups.a
    made: list[dict[str, Any]] = []
    for number in NUMBERS:
        both = catalogue.histogram(groups.both, number, bins=BINS)
        if number not in query.ranges and both.series and len(both.edges) > 2:
            a = catalogue.histogram(groups.a, number, edges=both.edges).series.get("", [0] * BINS)
            written = "${:.2g}" if number == "cost" else "{:,.0f}"
            names = [written.format(edge if edge >= 0.0001 else 0) for edge in both.edges]
            made.append(_plot(number, views.NUMBER_TITLES[number], names, both.series[""], a, totals))
    facets, of_a = catalogue.facets(groups.both), dict(catalogue.facets(groups.a))
    for name in FACETS:
        values, mine = facets[name][:MOST], dict(of_a[name])
        if not query.facets.get(name) and (len(values) > 1 or (name == "finding" and values)):
            names = [printable(views.facet_name(name, value)) for value, _ in values]
            a = [mine.get(value, 0) for value, _ in values]
            made.append(_plot(name, views.TITLES[name], names, [n for _, n in values], a, totals))
    return made


def _plot(
    name: str,
    title: str,
    names: Sequence[str],
    both: Sequence[int],
    a: Sequence[int],
    totals: tuple[int, int],
) -> dict[str, Any]:
    """Return the values of a plot, and for each group the count and the share of each value, with its interval."""
    rows = [
        {"name": value, "sides": [{"n": n, **shares(n, of)} for n, of in zip(pair, totals, strict=True)]}
        for value, *pair in zip(names, a, [n - m for n, m in zip(both, a, strict=True)], strict=False)
    ]
    return {"name": name, "title": title, "numbers": name in NUMBERS, "rows": rows}
