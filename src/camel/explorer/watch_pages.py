"""The live page of a run, its events, and the buttons that pause, resume and stop it."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

from msgspec import ValidationError, convert
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from camel.core.errors import CamelError, InputError
from camel.explorer.home import open_source, run_head
from camel.explorer.routing import PageRequest, Refused, Site, event_stream
from camel.explorer.watch import RunWatch
from camel.query.answers import NeedsConsent, NotThere
from camel.query.sources import CatalogueRun
from camel.runs.control import Wish, read_wish, wish


def add_watch_pages(site: Site, control: bool) -> None:
    """Add the routes of the live page. If `control` is false, the page cannot pause or stop the run."""
    watched: dict[str, RunWatch] = {}

    def read_once(source: CatalogueRun) -> RunWatch:
        one = RunWatch(source)
        try:
            one.look_now()
        finally:
            one.close()
        return one

    @site.get("/watch/{run}")
    def watch(asked: PageRequest) -> Response:
        one = read_once(open_source(asked))
        return asked.page(
            "watch.html",
            here="runs",
            run=run_head(asked, one.source.name, "watch"),
            now=one.state(),
            events=f"/watch/{quote(one.source.name, safe='')}/events",
            text_hidden=not one.shows_text,
            control=control and f"/watch/{quote(one.source.name, safe='')}/control",
            wishes=(("pause", "Pause"), ("go", "Resume"), ("stop", "Stop after current calls")),
        )

    @site.app.post("/watch/{run}/control")
    async def answer_wish(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        if not control:
            raise Refused(403, "Request rejected", "This explorer is public and cannot control runs.")
        form = await site.form(request, "Open the live page of the run and press the button there.")

        def grant(wished: Wish) -> str:
            source = open_source(PageRequest(site, request))
            # The same wish twice is accepted: a button may be clicked twice.
            if wished not in read_once(source).totals()["can"] and wished != read_wish(source.folder):
                raise InputError(
                    f"the run cannot {wished} now: its live page has a button for what is possible"
                )
            wish(source.folder, wished)
            return source.name

        try:
            run = await asyncio.to_thread(grant, convert(form.get("wish", ""), Wish))
        except NeedsConsent:
            text = "Open the page of the run and give consent first."
            raise Refused(403, "Request rejected", text) from None
        except NotThere:
            raise
        except (ValidationError, CamelError, OSError) as error:
            raise Refused(400, "Request rejected", str(error)) from None
        return RedirectResponse(f"/watch/{quote(run, safe='')}", 303)

    @site.get("/watch/{run}/events")
    def events(asked: PageRequest) -> Response:
        source = open_source(asked)
        one = watched.get(source.name)
        if one is None or one.closed:
            one = watched[source.name] = RunWatch(source)
        one.source = source  # the current one, which has what was committed since
        return event_stream(one.stream(asked.request.headers.get("last-event-id", ""), asked.allowed))
