"""Pages of runs: the first page with all of them, the page of one, its configuration, and reports."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from msgspec import json, to_builtins
from starlette.responses import Response

from camel.explorer import statistics, views
from camel.explorer.home import hidden_labels, run_head, run_rows, source_of
from camel.explorer.list_pages import HISTOGRAMS, browse
from camel.explorer.measured import FILES, StoredReport, other_reports, reports_of, votes_on
from camel.explorer.reading import shown_messages
from camel.explorer.routing import PageRequest, Site
from camel.explorer.score import pulse, score
from camel.explorer.statistics_pages import figures, shown_chart
from camel.explorer.views import PageState
from camel.maps.table import maps_of
from camel.query.answers import NeedsConsent, NotThere, Row
from camel.query.sources import CatalogueRun
from camel.query.where import Query
from camel.reports.html import POLICY

GALLERY = 6
"""Conversations on the first page, besides the one with an excerpt."""
DRAWN = 40
"""Conversations of which those are chosen, always the same for the same runs."""
NO_RUN = "-"
"""Stands for the run in links to reports about no single run."""


def add_run_pages(site: Site) -> None:
    """Add their routes."""

    @site.get("/")
    def home(asked: PageRequest) -> Response:
        total = asked.catalogue.count()
        return asked.page(
            "home.html",
            here="runs",
            runs=run_rows(asked.catalogue, asked.allowed),
            total=total,
            restricted=asked.catalogue.restricted(),
            notes=asked.catalogue.notes(),
            **(_featured(asked) if total <= HISTOGRAMS else {"lead": None, "gallery": []}),
        )

    @site.get("/run/{run}")
    def run(asked: PageRequest) -> Response:
        name = asked.request.path_params["run"]
        source, state = source_of(asked.catalogue, name), PageState(Query(runs=(name,)), asked.state.pin)
        plots = statistics.charts(asked.catalogue, state, ("stop", "messages", "tokens"))
        return asked.page(
            "run.html",
            here="runs",
            run=run_head(asked, name, "run", full=True),
            figures=figures(asked, state),
            charts=[shown_chart(state, one) for one in plots],
            measured=_measured(asked, source),
            **browse(asked, state, 12, ("run",)),
        )

    @site.get("/run/{run}/configuration")
    def configuration(asked: PageRequest) -> Response:
        name = asked.request.path_params["run"]
        settings = source_of(asked.catalogue, name).folder.settings()
        text = json.format(json.encode(to_builtins(settings)), indent=2).decode()
        return asked.page(
            "configuration.html", here="runs", run=run_head(asked, name, "configuration"), text=text
        )

    @site.get("/reports")
    def reports(asked: PageRequest) -> Response:
        runs = asked.catalogue.runs
        groups = [
            {"name": one.name, "link": views.run_url(one.name), "items": _measured(asked, one)}
            for one in runs
        ]
        other = [one.shown(f"/reports/{NO_RUN}") for one in other_reports(runs)]
        groups += [{"name": "", "link": "", "items": [one for one in other if one]}]
        return asked.page("reports.html", here="reports", groups=[one for one in groups if one["items"]])

    @site.get("/reports/{run}/{folder}/{file}")
    def report(asked: PageRequest) -> Response:
        names = asked.request.path_params
        for stored in _stored(asked, names["run"]):
            name, _, kind = names["file"].rpartition(".")
            if (stored.key, stored.name) == (names["folder"], name) and kind in FILES:
                answer = Response(stored.read(kind), media_type=FILES[kind])
                # Its own policy allows its inline styles and nothing else; no script of a changed file can run.
                answer.headers["content-security-policy"] = POLICY
                return answer
        raise NotThere("there is no such report: the page Reports lists those there are")


def _stored(asked: PageRequest, run: str) -> list[StoredReport]:
    """The reports about a run that this reader may see: reports quote conversations."""
    if run == NO_RUN:
        return other_reports(asked.catalogue.runs)
    source = source_of(asked.catalogue, run)
    if hidden := hidden_labels(source, asked.allowed):
        raise NeedsConsent(hidden)
    return reports_of(source)


def _measured(asked: PageRequest, source: CatalogueRun) -> list[dict[str, str]]:
    """Everything that was measured about a run: kind, title, a sentence, the date and the link."""
    if hidden_labels(source, asked.allowed):
        return []
    base = f"/reports/{quote(source.name, safe='')}"
    made: list[dict[str, str]] = []
    for stored in reports_of(source):
        if shown := stored.shown(base):
            made.append(shown)
            if votes := votes_on(stored):
                made.append(
                    shown | {"kind": "Vote", "title": votes, "about": f"On the pairs of the {stored.name}."}
                )
    for of in maps_of(source.folder):
        link = views.url("/map", [("run", source.name), ("of", of)])
        made.append({"kind": "Map", "title": f"Map of {of}", "about": "", "date": "", "link": link})
    return made


def _featured(asked: PageRequest) -> dict[str, Any]:
    """A conversation with an excerpt, and some more: the same ones each time."""
    rows = asked.catalogue.sample(Query(), DRAWN, 0)
    rows.sort(key=lambda row: (row.stop != "done", bool(row.findings), not 4 <= row.messages <= 30))
    chosen: list[Row] = []
    for row in [row for row in rows if row.messages]:
        if len(chosen) <= GALLERY and not any(
            (row.user, row.assistant) == (one.user, one.assistant) for one in chosen[:4]
        ):
            chosen.append(row)
    shown = [_shown(asked, row) for row in chosen]
    return {"lead": shown[0] if shown else None, "gallery": shown[1 : 1 + GALLERY]}


def _shown(asked: PageRequest, row: Row) -> dict[str, Any]:
    transcript = asked.catalogue.conversation(row.run, row.id)
    messages = shown_messages(transcript, {})
    spoken = [
        part.text for message in messages for part in message.parts if part.kind in ("solution", "prose")
    ]
    return {
        "row": views.list_row(row, None, PageState(Query()), []),
        "words": sum(message.words for message in messages),
        "messages": messages[:3],
        "score": score(messages),
        "pulse": pulse(transcript),
        "quote": next((text for text in spoken if len(text) > 40), spoken[0] if spoken else ""),
    }
