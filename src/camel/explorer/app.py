"""The web app: its access control, and the pages that modules add to it (`routing`)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager, nullcontext

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from camel.explorer.access import Consent, Keys, local
from camel.explorer.annotation_pages import add_annotations
from camel.explorer.contrast_pages import add_contrast_pages
from camel.explorer.downloads import add_downloads
from camel.explorer.list_pages import add_list_pages
from camel.explorer.map_pages import add_map_pages
from camel.explorer.play_pages import add_play
from camel.explorer.rooms import Agents
from camel.explorer.routing import PageRequest, Site, new_app
from camel.explorer.run_pages import add_run_pages
from camel.explorer.statistics import add_statistics_pages
from camel.explorer.watch_pages import add_watch_pages
from camel.query.catalogue import Catalogue


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
