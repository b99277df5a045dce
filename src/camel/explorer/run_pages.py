"""Pages of runs: the first page with all of them, the page of one, its configuration, and reports."""

from __future__ import annotations

import re
from typing import Any

from msgspec import json, to_builtins
from starlette.responses import Response

from camel.explorer import views
from camel.explorer.home import measured, open_source, run_head, run_rows, source_of
from camel.explorer.list_pages import HISTOGRAMS, browse
from camel.explorer.measured import FILES, reports_of
from camel.explorer.reading import pulse, score, shown_messages
from camel.explorer.routing import PageRequest, Site
from camel.explorer.statistics import charts, figures
from camel.explorer.views import PageState
from camel.query.answers import NotThere, Row
from camel.query.where import Query
from camel.reports.html import POLICY

GALLERY = 6
"""Number of conversations on the first page, in addition to the one with an excerpt."""
DRAWN = 40
"""Number of sampled conversations from which the first page chooses. The same runs always give the same sample."""


def add_run_pages(site: Site, intro: str = "") -> None:
    """Add the routes of the pages about runs, and of reports."""

    @site.get("/")
    def home(asked: PageRequest) -> Response:
        total = asked.catalogue.count()
        return asked.page(
            "home.html",
            here="runs",
            runs=run_rows(asked),
            total=total,
            restricted=asked.catalogue.restricted(),
            notes=asked.catalogue.notes(),
            opening=opening,
            intro=intro,
            **(_featured(asked) if total <= HISTOGRAMS else {"lead": None, "gallery": []}),
        )

    @site.get("/run/{run}")
    def run(asked: PageRequest) -> Response:
        name = asked.request.path_params["run"]
        source, state = source_of(asked.catalogue, name), PageState(Query(runs=(name,)), asked.state.pin)
        return asked.page(
            "run.html",
            here="runs",
            state=state,
            run=run_head(asked, name, "run"),
            figures=figures(asked, state),
            charts=charts(asked.catalogue, state, ("stop", "messages", "tokens")),
            measured=measured(source, asked.allowed),
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
        groups = {one.name: measured(one, asked.allowed) for one in asked.catalogue.runs}
        return asked.page(
            "reports.html", here="reports", groups={run: found for run, found in groups.items() if found}
        )

    @site.get("/reports/{run}/{folder}/{file}")
    def report(asked: PageRequest) -> Response:
        names = asked.request.path_params
        source = open_source(asked)  # reports quote conversations
        name, _, kind = names["file"].rpartition(".")
        for stored in reports_of(source):
            if (stored.key, stored.name) == (names["folder"], name) and kind in FILES:
                # Its own policy allows its inline styles and nothing else: no script of a changed file can run.
                policy = {"content-security-policy": POLICY}
                return Response(stored.read(kind), media_type=FILES[kind], headers=policy)
        raise NotThere("there is no such report: the page Reports lists those there are")


def _featured(asked: PageRequest) -> dict[str, Any]:
    """Return the conversations of the first page: one with an excerpt, and some more. The same runs give the same ones."""
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


def opening(text: str) -> str:
    """Return the prose at the beginning of a text for a short quote, without tables, code and Markdown syntax."""
    prose = re.split(r"^\s*(?:\||```|\$\$)", text, maxsplit=1, flags=re.MULTILINE)[0]
    return re.sub(r"[*`#]+", "", prose).strip() or text


def _shown(asked: PageRequest, row: Row) -> dict[str, Any]:
    transcript = asked.catalogue.conversation(row.run, row.id)
    messages = shown_messages(transcript, {})
    spoken = [
        opening(part.text)
        for message in messages
        for part in message.parts
        if part.kind in ("solution", "prose")
    ]
    return views.list_row(row, None, PageState(Query()), []) | {
        "words": sum(message.words for message in messages),
        "messages": messages[:3],
        "score": score(messages),
        "pulse": pulse(transcript),
        "quote": next((text for text in spoken if len(text) > 40), ""),
    }
