"""The page of statistics, and its plots as files."""

from __future__ import annotations

from markupsafe import Markup
from starlette.responses import Response

from camel.explorer import statistics, views
from camel.explorer.charts import drawn
from camel.explorer.routing import PageRequest, Site
from camel.query.answers import NotThere


def add_statistics_pages(site: Site) -> None:
    """Add their routes."""

    @site.get("/statistics")
    def statistics_page(asked: PageRequest) -> Response:
        made = statistics.charts(asked.catalogue, asked.state)
        total = asked.catalogue.count(asked.state.query)
        charts = [
            {
                "name": one.plot.name,
                "title": one.plot.title,
                "caption": one.plot.caption,
                "drawing": Markup(drawn(one)),  # noqa: S704 - drawn from data, every text escaped
                "files": [
                    (kind.upper(), asked.state.url(f"/statistics/{one.plot.name}.{kind}"))
                    for kind in statistics.KINDS
                ],
            }
            for one in made
        ]
        return asked.page(
            "statistics.html",
            here="statistics",
            figures=[("conversations", f"{total:,}")],
            charts=charts,
            notes=statistics.notes(asked.catalogue, asked.state, made),
            chips=views.chips(asked.state, "/statistics"),
            up=asked.state.url("/list"),
        )

    @site.get("/statistics/{file}")
    def plot(asked: PageRequest) -> Response:
        name, _, kind = asked.request.path_params["file"].rpartition(".")
        made = statistics.chart(asked.catalogue, asked.state, name) if kind in statistics.KINDS else None
        if made is None:
            raise NotThere(
                "there is no such plot of these conversations: the page of statistics has those there are"
            )
        headers = {"content-disposition": f'attachment; filename="{made.plot.name}.{kind}"'}
        media, make = statistics.KINDS[kind]
        return Response(make(made), media_type=media, headers=headers)
