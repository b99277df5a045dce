"""Clients of the explorer's web app, in this process."""

from __future__ import annotations

import re
from typing import Any

from starlette.testclient import TestClient

from camel.explorer.app import create_app
from camel.query.catalogue import Catalogue

BASE = "http://127.0.0.1:8090"


def client(catalogue: Catalogue, **settings: Any) -> TestClient:
    """A browser that visits the explorer of a catalogue; it does not follow redirects."""
    return TestClient(create_app(catalogue, **settings), base_url=BASE, follow_redirects=False)


def form_token(page: str) -> str:
    """The token that a page's form sends against forgery."""
    found = re.search(r'name="token" value="([0-9a-f]+)"', page)
    assert found
    return found[1]


def consent(app: TestClient, **changed: str) -> Any:
    """Agree to see restricted conversations; `changed` replaces fields of the form."""
    token = form_token(app.get("/consent").text)
    return app.post("/consent", data={"token": token, "answer": "show", "next": "/list", **changed})
