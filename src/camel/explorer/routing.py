"""What all pages of the explorer have in common: who asks, what they may see, and how a page or a failure is answered.

The one decision to know: a route never sees more than its reader may. It gets the catalogue from `PageRequest`, which has
looked at the reader's consent; there is no other way to the data, so that a new route is behind the gate by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from camel.core.checks import shown
from camel.core.errors import CamelError, InputError
from camel.explorer.access import MISALIGNMENT, Consent, local
from camel.explorer.pages import environment
from camel.explorer.views import PageState
from camel.query.answers import NeedsConsent, NotThere
from camel.query.catalogue import Catalogue
from camel.query.where import Query


class PageRequest:
    """A request with what its reader may see."""

    def __init__(self, request: Request, catalogue: Catalogue, consent: Consent) -> None:
        self.request = request
        self.allowed = consent.given(request)
        self.catalogue = catalogue.allowing(*self.allowed)
        pairs = request.query_params.multi_items()
        if len(pairs) > 400:
            raise InputError("this link has too many parameters: begin at the list")
        self.last = dict(pairs)
        self.state = PageState(
            Query.from_params(pairs), self.last.get("pin", "")[:500], self.last.get("view") == "raw"
        )

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

    def page(self, name: str, allowed: Collection[str], status: int = 200, **values: Any) -> Response:
        """A page from a template."""
        state: PageState = values.pop("state", PageState(Query()))
        frame = {
            "here": values.pop("here", ""),
            "consented": MISALIGNMENT in allowed,
            "plays": self._plays,
            "find_text": state.query.text,
            # A search keeps what is chosen, except the order: what fits best comes first.
            "find_keeps": [
                (key, value) for key, value in state.params() if key not in ("q", "sort", "order", "view")
            ],
        }
        return HTMLResponse(self.pages.get_template(name).render(**frame, **values), status)

    def failure(self, request: Request, status: int, title: str, text: str) -> Response:
        """A page that says what went wrong."""
        return self.page("error.html", self.consent.given(request), status, title=title, text=text)

    def get(self, path: str) -> Callable[[Callable[[PageRequest], Response]], None]:
        """Add a route."""

        def add(answer: Callable[[PageRequest], Response]) -> None:
            def route(request: Request) -> Response:
                try:
                    return answer(self.request(request))
                except NeedsConsent:
                    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                    return self.page(
                        "consent.html",
                        self.consent.given(request),
                        403,
                        form_token=self.consent.form_token,
                        next=local(here),
                    )
                except NotThere as error:
                    return self.failure(request, 404, "It is not there", str(error))
                except InputError as error:
                    return self.failure(request, 400, "That cannot be shown", str(error))
                except CamelError as error:
                    return self.failure(request, 500, "Something went wrong", str(error))

            self.app.get(path)(route)

        return add

    def request(self, request: Request) -> PageRequest:
        """A request with what its reader may see."""
        return PageRequest(request, self.catalogue, self.consent)
