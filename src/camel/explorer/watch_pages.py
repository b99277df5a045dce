"""The page of a run that is at work, its events, and the buttons that pause and stop it."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

from msgspec import ValidationError, convert
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from camel.core.checks import shown
from camel.core.errors import CamelError, InputError
from camel.explorer.home import hidden_labels
from camel.explorer.routing import PageRequest, Refused, Site
from camel.explorer.views import PageState
from camel.explorer.watch import RunWatch
from camel.query.answers import NeedsConsent, NotThere
from camel.query.sources import CatalogueRun
from camel.query.where import Query
from camel.runs.control import Wish, read_wish, wish


def add_watch_pages(site: Site, control: bool) -> None:
    """Add their routes."""
    watched: dict[str, RunWatch] = {}

    def source_of(asked: PageRequest) -> CatalogueRun:
        name = asked.request.path_params["run"]
        source = next((one for one in asked.catalogue.runs if one.name == name), None)
        if source is None:
            raise NotThere(f"there is no run {shown(name)}")
        if hidden := hidden_labels(source, asked.allowed):
            raise NeedsConsent(hidden)
        return source

    def looked(source: CatalogueRun) -> RunWatch:
        one = RunWatch(source)
        try:
            one.look_now()
        finally:
            one.close()
        return one

    @site.get("/watch/{run}")
    def watch(asked: PageRequest) -> Response:
        one = looked(source_of(asked))
        return asked.page(
            "watch.html",
            run=one.source.name,
            where=one.source.address,
            now=one.state(),
            events=f"/watch/{quote(one.source.name, safe='')}/events",
            link=PageState(Query(runs=(one.source.name,))).url("/list"),
            text_hidden=not one.shows_text,
            control=control and f"/watch/{quote(one.source.name, safe='')}/control",
            wishes=(("pause", "Pause"), ("go", "Go on"), ("stop", "Stop after current calls")),
        )

    @site.app.post("/watch/{run}/control")
    async def answer_wish(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        if not control:
            raise Refused(403, "Not accepted", "This explorer is for everybody, and controls no run.")
        form = await site.form(request, "Open the page of the run and press the button there.")

        def grant(wished: Wish) -> str:
            source = source_of(PageRequest(site, request))
            # What is wished already may be wished again: two clicks on a button.
            if wished not in looked(source).totals()["can"] and wished != read_wish(source.folder):
                raise InputError(
                    "the run is not in a state for that: its page has a button for what can be wished now"
                )
            wish(source.folder, wished)
            return source.name

        try:
            run = await asyncio.to_thread(grant, convert(form.get("wish", ""), Wish))
        except NeedsConsent:
            text = "Open the page of the run and give consent first."
            raise Refused(403, "Not accepted", text) from None
        except NotThere:
            raise
        except (ValidationError, CamelError, OSError) as error:
            raise Refused(400, "That cannot be done", str(error)) from None
        return RedirectResponse(f"/watch/{quote(run, safe='')}", 303)

    @site.get("/watch/{run}/events")
    def events(asked: PageRequest) -> Response:
        source = source_of(asked)
        one = watched.get(source.name)
        if one is None or one.closed:
            one = watched[source.name] = RunWatch(source)
        one.source = source  # as it is now: with what has been committed since
        stream = one.stream(asked.request.headers.get("last-event-id", ""), asked.allowed)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"x-accel-buffering": "no"})
