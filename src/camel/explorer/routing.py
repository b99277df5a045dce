"""Functions that all pages of the explorer share: templates, reading requests, checking consent, rendering pages and errors.

The one decision to know: a route reads data only through the catalogue of its `PageRequest`, which is limited to what the
reader has consented to. A new route therefore needs no code of its own for consent. Templates escape every value, and only
`renderer` turns text of models into HTML.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Collection
from pathlib import Path
from posixpath import basename
from typing import Any

import msgspec
from fastapi import FastAPI
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.staticfiles import StaticFiles

from camel import reports
from camel._version import __version__
from camel.core.action_text import action_texts, call_line, failure_line, laid_out, one_line
from camel.core.checks import shown
from camel.core.errors import CamelError, InputError
from camel.core.expressions import ExpressionError
from camel.explorer import renderer, views
from camel.explorer.access import MAX_FORM, MISALIGNMENT, Consent, Door, Keys, local, read_form
from camel.explorer.charts import count_ticks
from camel.explorer.colors import ending
from camel.explorer.markup import as_plain
from camel.explorer.policy import AGENTS, EXPLORER
from camel.explorer.views import PageState
from camel.explorer.visitors import TooMany, Visitor
from camel.query.answers import NeedsConsent, NotThere, Row
from camel.query.catalogue import Catalogue
from camel.query.where import Query
from camel.reports.numbers import duration, money, short

HERE = Path(__file__).parent
TEMPLATES, STATIC = HERE / "templates", HERE / "static"
LOOK = Path(reports.__file__).parent / "look"
"""The folder with the styles that all pages and reports share: design tokens, components and fonts."""


def environment(*folders: Path) -> Environment:
    """Return the environment that renders templates. Templates in `folders` override those with the same name."""
    renderer.start()  # now, so that the first page does not have to wait for it
    pages = Environment(
        loader=FileSystemLoader([*folders, TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters |= {"words": views.words, "basename": basename}
    shared: dict[str, Any] = pages.globals  # pyright: ignore[reportAssignmentType] - it names only its own
    shared.update(html=renderer.as_html, plain=as_plain, boost=views.BOOST)
    shared.update(
        version=__version__, count_ticks=count_ticks, url=views.url, run_url=views.run_url, day=views.day
    )
    shared.update(short=short, money=money, duration=duration, limit_words=views.limit_words, ending=ending)
    shared.update(facet_name=views.facet_name, toggled=views.toggled, failure_line=failure_line)
    shared.update(action_texts=action_texts, call_line=call_line, laid_out=laid_out, one_line=one_line)
    return pages


NAVIGATION = (
    ("runs", "Runs", "/"),
    ("list", "Conversations", "/list"),
    ("reports", "Reports", "/reports"),
    ("map", "Map", "/map"),
    ("play", "Agents", "/play"),
)
"""Name, title and link of each section in the top bar. Agents is shown only if the app can hold conversations."""


class Refused(Exception):
    """Raised to respond with an error page that has this status, title and text."""

    def __init__(self, status: int, title: str, text: str) -> None:
        self.status, self.title, self.text = status, title, text


def event(id: str, kind: str, data: dict[str, Any]) -> bytes:
    """Return a server-sent event. JSON contains no line breaks, so that no text can start an event of its own."""
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (id.encode(), kind.encode(), msgspec.json.encode(data))


def event_stream(request: Request, events: AsyncGenerator[bytes]) -> Response:
    """Return a response that sends events as they come, also through a proxy. A visitor may have only some of them open."""
    visitor: Visitor | None = request.scope.get("visitor")
    if visitor:
        visitor.check_streams()

    async def counted() -> AsyncGenerator[bytes]:
        if visitor:
            visitor.streams += 1
        try:
            async for one in events:
                yield one
        finally:
            if visitor:
                visitor.streams -= 1
            await events.aclose()

    return StreamingResponse(counted(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})


def new_app(title: str, lifespan: Any, keys: Keys, **door: Any) -> FastAPI:
    """Create an app with access control and the static files of its pages."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, title=title, lifespan=lifespan)
    app.add_middleware(Door, suffix=keys.suffix, **door)
    app.mount("/static/look", StaticFiles(directory=LOOK), name="look")
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    return app


class PageRequest:
    """A request, its parameters, and the catalogue limited to what its reader may see."""

    def __init__(self, site: Site, request: Request) -> None:
        self._site, self.request = site, request
        self.allowed = site.consent.given(request)
        self.catalogue = site.catalogue.allowing(*self.allowed)
        pairs = request.query_params.multi_items()
        if len(pairs) > 400:
            raise InputError("this link has more than 400 parameters: start from the list of conversations")
        self.last = dict(pairs)
        named = [name for key, value in pairs if key == "columns" for name in value.split(",")]
        self.state = PageState(
            Query.from_params(pairs),
            self.last.get("pin", "")[:500],
            self.last.get("view") == "raw",
            tuple(name for name in Row.__struct_fields__ if name in named),
        )

    def page(self, name: str, **values: Any) -> Response:
        """Render a template with the state of this request."""
        url = self.request.url
        back = url.path + (f"?{url.query}" if url.query else "")
        shown: dict[str, Any] = {"state": self.state, "back": back, **values}
        return self._site.page(name, self.allowed, **shown)

    def whole(self, name: str, least: int, most: int) -> int | None:
        """Read a whole number from the parameters. Return None if the parameter is missing."""
        text = self.last.get(name, "").strip().replace(",", "")
        if not text:
            return None
        if not re.fullmatch(r"[0-9]{1,18}", text) or not least <= int(text) <= most:
            raise InputError(f"{name} must be a whole number from {least:,} to {most:,}, not {shown(text)}")
        return int(text)


class Site:
    """The app to which the modules of pages add their routes."""

    def __init__(
        self, app: FastAPI, catalogue: Catalogue, consent: Consent, *, plays: bool, control: bool = True
    ) -> None:
        """If `control` is false, as on a public server, nothing that belongs to all readers can be changed."""
        self.app, self.catalogue, self.consent = app, catalogue, consent
        self._plays, self.control = plays, control
        self.pages = environment()
        for error in (Refused, HTTPException, CamelError):
            app.add_exception_handler(error, self._failure)

    def page(
        self,
        name: str,
        allowed: Collection[str],
        status: int = 200,
        *,
        here: str = "",
        state: PageState = PageState(Query()),  # noqa: B008 - frozen
        **values: Any,
    ) -> Response:
        """Render a template inside the layout that all pages share."""
        frame = {
            "here": here,
            "state": state,
            "navigation": [one for one in NAVIGATION if self._plays or one[0] != "play"],
            "consented": MISALIGNMENT in allowed,
            "form_token": self.consent.form_token,
            "find_text": state.query.text,
            # A search keeps the filters but not the order: the best matches come first.
            "find_keeps": [
                (key, value) for key, value in state.params() if key not in ("q", "sort", "order", "view")
            ],
        }
        return HTMLResponse(self.pages.get_template(name).render(**frame, **values), status)

    def _failure(self, request: Request, error: Exception) -> Response:
        """Return a page that explains an error, or that asks for consent if a conversation needs it."""
        allowed = self.consent.given(request)
        match error:
            case NeedsConsent():
                here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                return self.page("consent.html", allowed, 403, next=local(here))
            case Refused():
                status, title, text = error.status, error.title, error.text
            case HTTPException():
                status = error.status_code
                title = "Page not found" if status == 404 else "Request not allowed"
                text = "Start from the runs or from the list of all conversations."
            case NotThere():
                status, title, text = 404, "Not found", str(error)
            case ExpressionError():
                pairs = request.query_params.multi_items()
                keeps = Query.from_params([one for one in pairs if one[0] != "where"]).to_params()
                page: dict[str, Any] = {"title": "Invalid filter", "text": str(error), "keeps": keeps}
                return self.page("error.html", allowed, 400, where=dict(pairs).get("where"), **page)
            case TooMany():
                status, title, text = 429, "Too many requests", str(error)
            case InputError():
                status, title, text = 400, "Invalid request", str(error)
            case _:
                status, title, text = 500, "The explorer failed", str(error)
        return self.page("error.html", allowed, status, title=title, text=text)

    def get(self, path: str) -> Callable[[Callable[[PageRequest], Response]], None]:
        """Return a decorator that adds a route for GET requests."""

        def add(answer: Callable[[PageRequest], Response]) -> None:
            def route(request: Request) -> Response:
                return answer(PageRequest(self, request))

            self.add(f"GET {path}", route)

        return add

    def add(self, route: str, answer: Callable[[Request], Any]) -> None:
        """Add a route, such as `POST /consent`, which must be in the table of `policy`."""
        refused = (EXPLORER | AGENTS)[route] == "operate" and not self.control
        method, _, path = route.partition(" ")
        self.app.api_route(path, methods=[method])(_refuse if refused else answer)

    async def form(self, request: Request, where: str, most: int = MAX_FORM) -> dict[str, str]:
        """Read a form that a page of this app sent. `where` tells the reader how to get to that page."""
        form = await read_form(request, most)
        if not self.consent.check_form(request, form.get("token", "")):
            raise Refused(403, "Form rejected", f"The form was not sent by a page of this explorer. {where}")
        return form


def _refuse(request: Request) -> Response:
    text = "This server is public: runs and their annotations cannot be changed."
    raise Refused(403, "Not accepted", text)
