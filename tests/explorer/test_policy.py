"""The table of routes, and what it promises about each of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from camel.evaluation.votes import BallotBox, votes_folder
from camel.explorer import app as serving
from camel.explorer.app import create_app
from camel.explorer.policy import AGENTS, EXPLORER, VOTES
from camel.explorer.rooms import Agents
from camel.explorer.vote.app import create_app as create_vote
from camel.models.scripted import ScriptedModel
from camel.query.catalogue import Catalogue
from tests.support.explorer_client import BASE, form_token
from tests.support.societies import society

TOKEN = "t" * 20


def routes_of(app: Any) -> set[str]:
    return {f"{method} {route.path}" for route in app.routes for method in getattr(route, "methods", None) or () if method != "HEAD"}  # fmt: skip


def asked(client: TestClient, route: str, **more: Any) -> Any:
    method, _, path = route.partition(" ")
    filled = re.sub(r"\{\w+\}", "x", path).replace("/x/events", "/none/events")
    return client.request(method, filled, **more)


@pytest.fixture
def catalogue(tmp_path: Path):
    society(tmp_path / "caravan", rows=5)
    with Catalogue([tmp_path / "caravan"]) as found:
        yield found


def app_of(catalogue: Catalogue, tmp_path: Path, **settings: Any) -> Any:
    agents = Agents(ScriptedModel(["hello"]), tmp_path / "agents")
    return create_app(catalogue, agents=agents, **settings)


def test_the_table_has_exactly_the_routes_of_the_apps(catalogue: Catalogue, tmp_path: Path):
    app = app_of(catalogue, tmp_path)
    assert routes_of(app) == {*EXPLORER, *AGENTS}
    assert all(
        (kind == "read") == route.startswith("GET ") for route, kind in (EXPLORER | AGENTS | VOTES).items()
    )


def test_votes_have_exactly_the_routes_of_their_table(tmp_path: Path):
    box = BallotBox(votes_folder(tmp_path / "pairs.jsonl"))
    assert routes_of(create_vote([], box)) == {*VOTES}


@pytest.mark.parametrize("route", [*EXPLORER, *AGENTS])
def test_no_route_answers_without_the_token_or_to_another_host(
    route: str, catalogue: Catalogue, tmp_path: Path
):
    app = app_of(catalogue, tmp_path, token=TOKEN)
    client = TestClient(app, base_url=BASE, follow_redirects=False)
    assert asked(client, route).status_code == 401
    assert asked(client, route, headers={"host": "evil.example"}).status_code == 421


@pytest.mark.parametrize("route", [one for one in [*EXPLORER, *AGENTS] if one.startswith("POST ")])
def test_no_form_is_accepted_without_its_token(route: str, catalogue: Catalogue, tmp_path: Path):
    client = TestClient(app_of(catalogue, tmp_path), base_url=BASE, follow_redirects=False)
    # A conversation that does not exist is not found before its form is read.
    assert asked(client, route, data={"wish": "pause", "star": "yes", "task": "Oasis"}).status_code in (
        403,
        404,
    )
    public = TestClient(app_of(catalogue, tmp_path, public=True), base_url=BASE, follow_redirects=False)
    if (EXPLORER | AGENTS)[route] == "operate":
        form = {"token": form_token(public.get("/consent").text), "wish": "pause", "star": "yes"}
        assert asked(public, route, data=form).status_code == 403


def test_no_page_allows_an_inline_script(catalogue: Catalogue, tmp_path: Path):
    client = TestClient(create_app(catalogue), base_url=BASE)
    for route in EXPLORER:
        if route.startswith("GET ") and not route.endswith("/events"):
            policy = asked(client, route).headers["content-security-policy"]
            allowed = [one for one in policy.split("; ") if one.startswith(("script-src", "default-src"))]
            assert allowed, route
            assert "unsafe-inline" not in " ".join(allowed), route


def test_users_of_the_same_machine_need_the_link(
    catalogue: Catalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    links: list[str] = []
    seen: list[int] = []

    def visit(app: Any, door: object) -> None:
        client = TestClient(app, base_url=BASE, follow_redirects=False)
        seen.append(client.get("/list").status_code)

    monkeypatch.setattr(serving, "answer", visit)
    run = [str(tmp_path / "caravan")]
    serving.serve(run, ready=lambda link, runs: links.append(link))
    serving.serve(run, needs_token=False, ready=lambda link, runs: links.append(link))
    assert seen == [401, 200]
    assert "?token=" in links[0]
    assert "token" not in links[1]
