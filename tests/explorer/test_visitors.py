"""Limits of the visitors of a public server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from camel.core.message import Usage
from camel.core.model import Choice, Model, Reply, Request
from camel.explorer.app import create_app
from camel.explorer.rooms import Agents, RoomLimits
from camel.explorer.visitors import TooMany, Visitor, VisitorLimits, Visitors, network_of
from camel.jobs.budget import Budget
from camel.query.catalogue import Catalogue
from tests.support.explorer_client import BASE, form_token

FORM = {"assistant": "Chef", "user": "Guest", "task": "Soup", "messages": "4", "seat": ""}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Speaker(Model):
    """Answers forever, with 100 tokens per call."""

    name = "speaker"

    def __init__(self) -> None:
        self.calls = 0

    async def reply(self, request: Request) -> Reply:
        self.calls += 1
        text = (
            f"Instruction: {self.calls}\nInput: None" if self.calls % 2 else "Solution: soup. Next request."
        )
        return Reply((Choice(text),), Usage(60, 40, calls=1))


def visitor(clock: Clock, **limits: Any) -> Visitor:
    found = Visitors(True, VisitorLimits(**limits), Budget(tokens=1000), clock).of("192.0.2.1")
    assert found is not None
    return found


def test_requests_are_limited_per_minute():
    clock = Clock()
    one = visitor(clock, requests=60)
    for _ in range(60):
        one.request()
    with pytest.raises(TooMany) as wait:
        one.request()
    assert wait.value.seconds == pytest.approx(1, abs=0.1)
    clock.now += 2
    one.request()
    one.request()
    with pytest.raises(TooMany):
        one.request()


def test_conversations_are_limited_per_hour_and_at_once():
    clock = Clock()
    one = visitor(clock, per_hour=2, at_once=1)
    one.start(0)
    with pytest.raises(TooMany):
        one.start(1)
    one.start(0)
    with pytest.raises(TooMany):
        one.start(0)
    clock.now += 3601
    one.start(0)


def test_a_visitor_has_a_share_of_the_budget():
    one = visitor(Clock(), share=0.1)
    one.used += Usage(50, 40, calls=1)
    one.start(0)
    one.used += Usage(5, 5, calls=1)
    with pytest.raises(TooMany):
        one.start(0)


def test_an_address_is_a_visitor_and_so_is_a_network_of_ipv6():
    visitors = Visitors(True)
    assert visitors.of("192.0.2.1") is visitors.of("192.0.2.1")
    assert visitors.of("192.0.2.1") is not visitors.of("192.0.2.2")
    assert visitors.of("2001:db8::1") is visitors.of("2001:db8::ffff")
    assert visitors.of("2001:db8::1") is not visitors.of("2001:db8:0:1::1")
    assert network_of("::ffff:192.0.2.1") == "192.0.2.1"
    assert Visitors(False).of("192.0.2.1") is None


def test_visitors_are_forgotten_but_not_those_with_open_pages():
    visitors = Visitors(True)
    first, second = visitors.of("198.51.100.1"), visitors.of("198.51.100.2")
    assert first is not None
    first.streams = 1
    for number in range(10_001):
        visitors.of(f"10.{number // 65536}.{number // 256 % 256}.{number % 256}")
    assert visitors.of("198.51.100.1") is first
    assert visitors.of("198.51.100.2") is not second


def browser(app: Any, address: str) -> TestClient:
    return TestClient(app, base_url=BASE, follow_redirects=False, client=(address, 1000))


def test_a_visitor_sees_and_pays_for_conversations_of_their_own(tmp_path: Path):
    model = Speaker()
    agents = Agents(model, tmp_path / "agents", limits=RoomLimits(at_once=9), budget=Budget(tokens=20_000))
    with Catalogue([]) as catalogue:
        app = create_app(
            catalogue, agents=agents, public=True, visitors=VisitorLimits(share=0.015, per_hour=3)
        )
        with browser(app, "192.0.2.1") as ada:
            ben = browser(app, "192.0.2.2")
            ben.portal = ada.portal  # the same event loop
            room = ada.post("/play", data=FORM | {"token": form_token(ada.get("/play").text)}).headers[
                "location"
            ]
            assert ada.get(room).status_code == 200
            for path in (room, f"{room}/events"):
                assert ben.get(path).status_code == 404
            token = form_token(ben.get("/play").text)
            assert ben.post(room, data={"token": token, "do": "stop"}).status_code == 404
            # 300 tokens are Ada's share, which is three of the four calls.
            with ada.stream("GET", f"{room}/events") as events:
                for line in events.iter_lines():
                    if line == "event: ended":
                        break
            assert model.calls == 3
            again = ada.post("/play", data=FORM | {"token": form_token(ada.get("/play").text)})
            assert again.status_code == 429
            assert ben.post("/play", data=FORM | {"token": token}).status_code == 303


def test_too_many_requests_are_refused_and_other_visitors_are_not(tmp_path: Path):
    with Catalogue([]) as catalogue:
        app = create_app(catalogue, public=True, visitors=VisitorLimits(requests=10))
        loud, quiet = browser(app, "192.0.2.1"), browser(app, "192.0.2.2")
        answers = [loud.get("/list") for _ in range(15)]
        assert [one.status_code for one in answers] == [200] * 10 + [429] * 5
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert loud.get("/static/style.css").status_code == 200
        assert quiet.get("/list").status_code == 200


def test_without_public_nobody_is_limited(tmp_path: Path):
    with Catalogue([]) as catalogue:
        client = browser(create_app(catalogue, visitors=VisitorLimits(requests=2)), "192.0.2.1")
        assert {client.get("/list").status_code for _ in range(6)} == {200}
