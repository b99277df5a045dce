"""The page of statistics, and its plots as files."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from starlette.responses import Response

from camel.explorer import statistics, views
from camel.explorer.charts import FEWEST, Chart
from camel.explorer.home import run_head
from camel.explorer.routing import PageRequest, Site
from camel.explorer.views import PageState
from camel.query.answers import NotThere
from camel.reports.numbers import money, short


def add_statistics_pages(site: Site) -> None:
    """Add their routes."""

    @site.get("/statistics")
    def statistics_page(asked: PageRequest) -> Response:
        state, query = asked.state, asked.state.query
        made = statistics.charts(asked.catalogue, state)
        return asked.page(
            "statistics.html",
            here="list",
            run=run_head(asked, query.runs[0], "statistics") if len(query.runs) == 1 else None,
            figures=figures(asked, state),
            charts=[shown_chart(state, one) for one in made],
            notes=statistics.notes(asked.catalogue, state, made),
            chips=views.chips(state, "/statistics"),
            up=state.url("/list"),
        )

    @site.get("/statistics/{file}")
    def plot(asked: PageRequest) -> Response:
        name, _, kind = asked.request.path_params["file"].rpartition(".")
        made = statistics.chart(asked.catalogue, asked.state, name) if kind in statistics.KINDS else None
        if made is None or (made.spec is None and kind != "csv"):
            raise NotThere(
                "there is no such plot of these conversations: the statistics page lists those there are"
            )
        headers = {"content-disposition": f'attachment; filename="{made.name}.{kind}"'}
        media, make = statistics.KINDS[kind]
        return Response(make(made), media_type=media, headers=headers)


def shown_chart(state: PageState, made: Chart) -> dict[str, Any]:
    """A plot with the links to its files, for the template `plots.html`."""
    kinds = [kind for kind in statistics.KINDS if made.spec is not None or kind == "csv"]
    files = [(kind.upper(), state.url(f"/statistics/{made.name}.{kind}")) for kind in kinds]
    return {
        "title": made.title,
        "caption": made.caption,
        "figure": made.figure,
        "name": made.name,
        "files": files,
    }


def figures(asked: PageRequest, state: PageState) -> list[tuple[str, str]]:
    """The line of figures about a selection: figure and label."""
    catalogue, query = asked.catalogue, state.query
    total = catalogue.count(query)
    made = [(f"{total:,}", "conversation" if total == 1 else "conversations")]
    for name in ("messages", "tokens"):
        found = catalogue.histogram(query, name, bins=1)
        if found.summary is not None and (count := sum(found.series.get("", []))):
            made.append((short(found.summary.mean * count), name))
    cost = catalogue.histogram(query, "cost", bins=1)
    if cost.summary is not None and (count := sum(cost.series.get("", []))):
        made.append((money(cost.summary.mean * count), f"for {count:,}" if count < total else "cost"))
    if total and not query.facets.get("stop"):
        done = catalogue.count(replace(query, facets=query.facets | {"stop": ("done",)}))
        made.append(
            (f"{done / total:.0%}" if total >= FEWEST else f"{done} of {total}", "ended with the task done")
        )
    if total and not query.facets.get("finding"):
        clean = catalogue.count(replace(query, facets=query.facets | {"finding": ("",)}))
        made.append((f"{total - clean:,}", "with findings"))
    return made
