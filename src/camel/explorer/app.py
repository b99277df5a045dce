"""The web app: its door, and the pages that modules add to it (`routing`)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager, nullcontext

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from camel.explorer.access import Consent, Door, Keys, local
from camel.explorer.agents import Agents
from camel.explorer.forms import read_form
from camel.explorer.list_pages import add_list_pages
from camel.explorer.map_pages import add_map_pages
from camel.explorer.pages import STATIC
from camel.explorer.play import add_play
from camel.explorer.routing import PageRequest, Site
from camel.explorer.statistics_pages import add_statistics_pages
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
) -> FastAPI:
    """The app over a catalogue. With a `token`, only who shows it is let in; `hosts` are further names of this machine,
    `frames` the origins whose pages may hold it in a frame. With `agents`, conversations can be held in it. Without
    `control`, nobody can pause or stop a run.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        async with agents.open() if agents else nullcontext():
            yield

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, title="CAMEL explorer", lifespan=lifespan)
    keys = Keys(framed=bool(frames))
    consent = Consent(keys)
    command = "camel agents" if agents else "camel explore"
    app.add_middleware(Door, hosts=hosts, token=token, suffix=keys.suffix, command=command, frames=frames)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    site = Site(app, catalogue, consent, plays=agents is not None)

    @app.exception_handler(HTTPException)
    def not_found(request: Request, error: HTTPException) -> Response:  # pyright: ignore[reportUnusedFunction]
        title = "There is no such page" if error.status_code == 404 else "That cannot be done"
        return site.failure(
            request, error.status_code, title, "Begin with the runs, or with the list of all conversations."
        )

    add_list_pages(site)
    add_statistics_pages(site)
    add_map_pages(site)
    add_watch_pages(site, control)
    _add_consent(site)
    if agents is not None:
        add_play(app, agents, site.pages, catalogue, consent, keys, site.page, site.failure)
    return app


def _add_consent(site: Site) -> None:
    app, page, get, failure, consent = site.app, site.page, site.get, site.failure, site.consent

    @get("/consent")
    def ask_consent(asked: PageRequest) -> Response:
        return page(
            "consent.html",
            asked.allowed,
            form_token=consent.form_token,
            next=local(asked.last.get("next", "/")),
        )

    @app.post("/consent")
    async def answer_consent(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        form = await read_form(request)
        if not consent.check_form(request, form.get("token", "")):
            text = "This answer did not come from the explorer's own page. Open the page of the consent and answer there."
            return failure(request, 403, "Not accepted", text)
        shows = form.get("answer") == "show"
        response = RedirectResponse(local(form.get("next", "/")) if shows else "/", 303)
        (consent.give if shows else consent.withdraw)(response)
        return response
