"""What all pages of the explorer have in common: who asks, what they may see, and how a page or a failure is answered.

The one decision to know: a route never sees more than its reader may. It gets the catalogue from `PageRequest`, which has
looked at the reader's consent; there is no other way to the data, so that a new route is behind the gate by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles

from camel.core.checks import shown
from camel.core.errors import CamelError, InputError
from camel.explorer.access import MAX_FORM, MISALIGNMENT, Consent, Door, Keys, local, read_form
from camel.explorer.pages import STATIC, environment
from camel.explorer.views import PageState
from camel.query.answers import NeedsConsent, NotThere
from camel.query.catalogue import Catalogue
from camel.query.where import Query


class Refused(Exception):
    """A page to answer with instead."""

    def __init__(self, status: int, title: str, text: str) -> None:
        self.status, self.title, self.text = status, title, text


def new_app(title: str, lifespan: Any, keys: Keys, **door: Any) -> FastAPI:
    """An app behind the door, with the files that its pages load."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, title=title, lifespan=lifespan)
    app.add_middleware(Door, suffix=keys.suffix, **door)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    return app


class PageRequest:
    """A request with what its reader may see."""

    def __init__(self, site: Site, request: Request) -> None:
        self._site, self.request = site, request
        self.allowed = site.consent.given(request)
        self.catalogue = site.catalogue.allowing(*self.allowed)
        pairs = request.query_params.multi_items()
        if len(pairs) > 400:
            raise InputError("this link has too many parameters: begin at the list")
        self.last = dict(pairs)
        self.state = PageState(
            Query.from_params(pairs), self.last.get("pin", "")[:500], self.last.get("view") == "raw"
        )

    def page(self, name: str, **values: Any) -> Response:
        """A page from a template, in the state in which it was asked for."""
        return self._site.page(name, self.allowed, state=self.state, **values)

    def whole(self, name: str, least: int, most: int) -> int | None:
        """A whole number among the parameters, None where it is not given."""
        text = self.last.get(name, "").strip().replace(",", "")
        if not text:
            return None
        if not re.fullmatch(r"[0-9]{1,18}", text) or not least <= int(text) <= most:
            raise InputError(f"{name} is a whole number from {least:,} to {most:,}, not {shown(text)}")
        return int(text)


class Site:
    """The app, as modules with pages add their routes to it."""

    def __init__(self, app: FastAPI, catalogue: Catalogue, consent: Consent, *, plays: bool) -> None:
        self.app, self.catalogue, self.consent, self._plays = app, catalogue, consent, plays
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
        """A page from a template."""
        frame = {
            "here": here,
            "consented": MISALIGNMENT in allowed,
            "plays": self._plays,
            "form_token": self.consent.form_token,
            "find_text": state.query.text,
            # A search keeps what is chosen, except the order: what fits best comes first.
            "find_keeps": [
                (key, value) for key, value in state.params() if key not in ("q", "sort", "order", "view")
            ],
        }
        return HTMLResponse(self.pages.get_template(name).render(**frame, **values), status)

    def _failure(self, request: Request, error: Exception) -> Response:
        """A page that says what went wrong, or that asks for consent."""
        allowed = self.consent.given(request)
        match error:
            case NeedsConsent():
                here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                return self.page("consent.html", allowed, 403, next=local(here))
            case Refused():
                status, title, text = error.status, error.title, error.text
            case HTTPException():
                status = error.status_code
                title = "There is no such page" if status == 404 else "That cannot be done"
                text = "Begin with the runs, or with the list of all conversations."
            case NotThere():
                status, title, text = 404, "It is not there", str(error)
            case InputError():
                status, title, text = 400, "That cannot be shown", str(error)
            case _:
                status, title, text = 500, "Something went wrong", str(error)
        return self.page("error.html", allowed, status, title=title, text=text)

    def get(self, path: str) -> Callable[[Callable[[PageRequest], Response]], None]:
        """Add a route."""

        def add(answer: Callable[[PageRequest], Response]) -> None:
            def route(request: Request) -> Response:
                return answer(PageRequest(self, request))

            self.app.get(path)(route)

        return add

    async def form(self, request: Request, where: str, most: int = MAX_FORM) -> dict[str, str]:
        """The fields of a form that came from our own page; `where` says how to get there."""
        form = await read_form(request, most)
        if not self.consent.check_form(request, form.get("token", "")):
            raise Refused(403, "Not accepted", f"This did not come from our own page. {where}")
        return form
