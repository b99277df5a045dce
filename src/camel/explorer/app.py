"""The web app: its access control, and the pages that modules add to it (`routing`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from camel.explorer.access import MAX_FORM, Consent, Keys, local
from camel.explorer.contrast_pages import add_contrast_pages
from camel.explorer.list_pages import add_downloads, add_list_pages
from camel.explorer.map_pages import add_map_pages
from camel.explorer.play_pages import add_play
from camel.explorer.rooms import Agents
from camel.explorer.routing import PageRequest, Refused, Site, new_app
from camel.explorer.run_pages import add_run_pages
from camel.explorer.statistics import add_statistics_pages
from camel.explorer.watch import add_watch_pages
from camel.query.answers import NeedsConsent
from camel.query.catalogue import Catalogue
from camel.runs.annotations import MOST_TAGS, NOTE_CHARS, TAG_CHARS

MAX_ANNOTATION = 12 * (NOTE_CHARS + MOST_TAGS * TAG_CHARS) + MAX_FORM
"""Maximum size of the form in bytes: a character can take four bytes, each escaped as three."""


def add_annotations(site: Site, control: bool) -> None:
    """Add the route that changes stars, tags and notes, which `annotations.html` shows.

    A change is a posted form, followed by a redirect to the page; the script only avoids the reload. If `control` is false,
    as in a public explorer, nothing can be changed.
    """
    site.pages.globals.update(annotates=control)  # pyright: ignore[reportCallIssue, reportArgumentType]

    @site.app.post("/annotate/{run}")
    async def annotate(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        if not control:
            raise Refused(403, "Not accepted", "This explorer is public, and stores no annotations.")
        form = await site.form(request, "Open the conversation and use the form on its page.", MAX_ANNOTATION)
        changes: dict[str, Any] = {}
        if "star" in form:
            changes["star"] = form["star"] == "yes"
        if form.get("what") == "text":  # a field that was emptied is not in the form
            changes["tags"] = form.get("tags", "").split(",")
            changes["note"] = form.get("note", "").replace("\r\n", "\n").strip()
        run, id = request.path_params["run"], form.get("id", "")
        catalogue = PageRequest(site, request).catalogue
        try:
            await asyncio.to_thread(catalogue.annotate, run, id, **changes)
        except NeedsConsent:
            text = "Open the conversation and give consent first."
            raise Refused(403, "Not accepted", text) from None
        return RedirectResponse(local(form.get("next", "/list")), 303)


def create_app(
    catalogue: Catalogue,
    *,
    token: str = "",
    hosts: Collection[str] = (),
    frames: Collection[str] = (),
    agents: Agents | None = None,
    control: bool = True,
    intro: str = "",
) -> FastAPI:
    """Create the app over a catalogue.

    With a `token`, requests must show it. `hosts` are further names of this machine, `frames` the origins whose pages
    may show the app in a frame. With `agents`, the app can hold conversations. Without `control`, no page can pause or
    stop a run. `intro` is what the first page says about the runs.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        async with agents.open() if agents else nullcontext():
            yield

    keys = Keys(framed=bool(frames))
    command = "camel agents" if agents else "camel explore"
    app = new_app("CAMEL explorer", lifespan, keys, hosts=hosts, token=token, command=command, frames=frames)
    site = Site(app, catalogue, Consent(keys), plays=agents is not None)
    add_run_pages(site, intro)
    add_list_pages(site)
    add_downloads(site)
    add_statistics_pages(site)
    add_contrast_pages(site)
    add_map_pages(site)
    add_watch_pages(site, control)
    add_annotations(site, control)
    _add_consent(site)
    if agents is not None:
        add_play(site, agents, keys)
    return app


def _add_consent(site: Site) -> None:
    @site.get("/consent")
    def ask_consent(asked: PageRequest) -> Response:
        return asked.page("consent.html", next=local(asked.last.get("next", "/")))

    @site.app.post("/consent")
    async def answer_consent(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        return site.consent.answered(await site.form(request, "Open the consent page and answer there."))
