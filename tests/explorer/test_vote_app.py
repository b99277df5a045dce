"""The voting app, route by route: blind, once, only for whom it is meant, and nothing that a model wrote does anything."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from camel.evaluation.pairs import Pair
from camel.evaluation.votes import BallotBox, CastVote, latest, read_records
from camel.explorer.access import HEADERS, Keys
from camel.explorer.vote.app import Booth, Passes, create_app, keep_invited
from tests.support.ballots import SYSTEMS, hidden_fields, pairs
from tests.support.payloads import PAYLOADS
from tests.support.web_page import Page

BASE = "http://127.0.0.1:8091"
Open = Callable[..., TestClient]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Opens the app; each client is another browser. All that they were answered is looked at in the end."""
    clients: list[TestClient] = []
    said: list[Any] = []

    def open_app(made: list[Pair], **options: Any) -> TestClient:
        box = BallotBox(tmp_path / "votes")
        client = TestClient(create_app(made, box, **options), base_url=BASE, follow_redirects=False)
        client.event_hooks["response"].append(said.append)
        client.__enter__()
        clients.append(client)
        return client

    yield open_app
    for client in clients:
        client.__exit__(None, None, None)
    for answer in said:
        whole = f"{answer.request.url} {answer.headers} {answer.text}"
        assert not any(name in whole for name in SYSTEMS), "no page names a system"
        assert all(answer.headers[name] == value for name, value in HEADERS.items()), answer.request.url


def browser(client: TestClient) -> TestClient:
    """Another browser before the same app."""
    other = TestClient(client.app, base_url=BASE, follow_redirects=False)
    other.event_hooks = client.event_hooks
    return other


def enter(client: TestClient, name: str) -> Any:
    return client.post("/join", data={**hidden_fields(client.get("/").text), "name": name})


def go_on(client: TestClient) -> str:
    """Where the voter is sent."""
    answer = client.get("/")
    return answer.headers["location"] if answer.status_code == 303 else ""


def cast(client: TestClient, path: str, choice: str, **changed: str) -> Any:
    return client.post(path, data={**hidden_fields(client.get(path).text), "choice": choice, **changed})


def on_disk(folder: Path) -> list[CastVote]:
    return [one for mine in latest(read_records(folder / "votes")).values() for one in mine.values()]


# --- voting --------------------------------------------------------------------------------------------------------


def test_what_is_clicked_is_what_counts(opened: Open, tmp_path: Path):
    """The expected votes are read from the page: the text in the chosen half shows whose it is."""
    made = pairs(24)
    client = opened(made)
    assert enter(client, "Ada").status_code == 303
    wanted: dict[str, str] = {}
    firsts = Counter[str]()
    for number in range(24):
        path = go_on(client)
        html = client.get(path).text
        assert not Page(
            html.replace(f'action="{path}"', 'action="/list"').replace('action="/leave"', "")
        ).wrong
        halves = re.findall(r'<article class="side-col.*?</article>', html, re.DOTALL)
        one = next(p for p in made if f"Task number {p.id.rpartition('/')[2]}:" in html)
        first = "a" if "<strong>first</strong>" in halves[0] else "b"
        assert ("<em>second</em>" in halves[1]) == (first == "a")
        firsts[first] += 1
        answer = ("A", "B", "draw", "skip")[number % 4]
        wanted[one.id] = (
            answer if answer in ("draw", "skip") else first if answer == "A" else "ab"[first == "a"]
        )
        assert cast(client, path, answer).status_code == 303
        assert f">{number + 1} of 24<" in client.get("/join?pass=" + Passes(keys_of(tmp_path)).of("Ada")).text
    assert client.get("/").status_code == 200, "the end"
    assert {one.pair: one.choice for one in on_disk(tmp_path)} == wanted
    assert min(firsts.values()) > 3, "both orders occur"


def keys_of(tmp_path: Path) -> Keys:
    return Keys((tmp_path / "votes" / ".secret").read_bytes())


def test_orders_differ_between_voters_and_stay_for_each(tmp_path: Path):
    box = BallotBox(tmp_path)
    booth = Booth(pairs(40), box)
    orders = {who: [booth.first(who, key) for key in booth.pairs] for who in ("Ada", "Ben", "Cleo")}
    assert len(set(map(tuple, orders.values()))) == 3
    # The secret is random: fewer than four of 40 coins are equal in one of 10 million runs.
    assert all(3 < order.count("a") < 37 for order in orders.values())
    again = Booth(pairs(40), box)
    assert [again.first("Ada", key) for key in again.pairs] == orders["Ada"]
    box._lock.close()  # pyright: ignore[reportPrivateUsage]


def test_double_clicks_reloads_retries_and_tabs(opened: Open, tmp_path: Path):
    client = opened(pairs(5))
    enter(client, "Ada")
    path = go_on(client)
    assert path == go_on(client) == go_on(client), "a reload shows the same pair"
    form = {**hidden_fields(client.get(path).text), "choice": "A"}
    other_tab = {**hidden_fields(client.get(path).text), "choice": "B"}
    answers = [client.post(path, data=form) for _ in range(3)]
    assert {one.status_code for one in answers} == {303}
    assert len({one.headers["location"] for one in answers}) == 1, "a second click does not run ahead"
    # Another tab, opened before: its page shows a warning, and nothing changes.
    told = client.post(path, data=other_tab)
    assert told.status_code == 409
    assert 'class="note warn"' in told.text
    assert client.post(path, data={**other_tab, "choice": "A"}).status_code == 303
    assert [one.choice == one.first for one in on_disk(tmp_path)] == [True]
    # The vote can be changed from the page with the warning.
    assert client.post(path, data={**hidden_fields(told.text), "choice": "B"}).status_code == 303
    assert [one.choice == one.first for one in on_disk(tmp_path)] == [False]
    # The first form, sent late by a network that had kept it.
    assert client.post(path, data=form).status_code == 409
    assert [one.choice == one.first for one in on_disk(tmp_path)] == [False]
    assert len([one for one in read_records(tmp_path / "votes") if isinstance(one, CastVote)]) == 2


def test_going_back_shows_the_vote_and_can_change_it(opened: Open, tmp_path: Path):
    client = opened(pairs(3))
    enter(client, "Ada")
    first = go_on(client)
    cast(client, first, "A")
    second = go_on(client)
    cast(client, second, "draw")
    third = go_on(client)
    page = client.get(third).text
    assert f'data-key="p" href="{second}"' in page
    assert "aria-pressed" not in page
    page = client.get(second).text
    assert f'data-key="p" href="{first}"' in page
    assert re.search(r'value="draw"[^>]*aria-pressed="true"', page)
    page = client.get(first).text
    assert f'data-key="n" href="{second}"' in page
    assert re.search(r'value="A"[^>]*aria-pressed="true"', page)
    assert cast(client, first, "B").headers["location"] == third
    assert re.search(r'value="B"[^>]*aria-pressed="true"', client.get(first).text)
    cast(client, third, "skip")
    end = client.get("/").text
    assert f'href="{third}"' in end
    cast(client, third, "B")
    assert "skipped" not in client.get("/").text
    assert len(on_disk(tmp_path)) == 3


@pytest.mark.parametrize(
    "changed",
    [{"choice": "a"}, {"choice": ""}, {"choice": "AB"}, {"nonce": ""}, {"nonce": "x" * 32}, {"nonce": "é"}],
)
def test_what_is_no_answer(opened: Open, tmp_path: Path, changed: dict[str, str]):
    client = opened(pairs(2))
    enter(client, "Ada")
    assert cast(client, go_on(client), **{"choice": "A", **changed}).status_code == 400
    assert on_disk(tmp_path) == []


def test_the_voter_sees_that_the_disk_is_full(opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    client = opened(pairs(2))
    enter(client, "Ada")
    path = go_on(client)

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", full)
        answer = cast(client, path, "A")
        assert answer.status_code == 503
        assert 'class="note warn"' in answer.text
        assert str(tmp_path) not in answer.text
        assert enter(browser(client), "Ben").status_code == 503
    assert client.post(path, data={**hidden_fields(answer.text), "choice": "B"}).status_code == 303
    assert [one.choice == one.first for one in on_disk(tmp_path)] == [False]


# --- who -----------------------------------------------------------------------------------------------------------


def test_by_name_on_this_machine(opened: Open):
    client = opened(pairs(3))
    page = client.get("/").text
    assert 'name="name"' in page
    assert enter(client, "").status_code == 400
    assert enter(client, "=x").status_code == 400
    assert enter(client, "Grace  Hopper").status_code == 303
    path = go_on(client)
    cast(client, path, "A")
    # The same name in another browser continues where it was.
    other = browser(client)
    assert other.get(path).status_code == 401
    assert enter(other, "grace hopper").status_code == 303
    assert re.search(r'value="A"[^>]*aria-pressed="true"', other.get(path).text)
    token = re.search(r'name="token" value="(\w+)"', other.get(path).text)
    assert token
    assert other.post("/leave", data={"token": token[1]}).status_code == 303
    assert 'name="name"' in other.get("/").text


def test_elsewhere_only_by_a_link(opened: Open, tmp_path: Path):
    asyncio.run(keep_invited(tmp_path / "votes", ["Grace Hopper"]))
    client = opened(pairs(3), by_name=False)
    passes = Passes(keys_of(tmp_path))
    stranger = browser(client)
    for path in ("/", "/pair/x", "/consent", "/join", "/join?pass=x"):
        assert stranger.get(path).status_code in (401, 404), path
        assert "cross the desert" not in stranger.get(path).text
    assert stranger.post("/join", data={"name": "Eve"}).status_code == 401
    # Her own link: on any device, again and again.
    for device in (client, browser(client)):
        answer = device.get(passes.link("Grace Hopper"))
        assert "Welcome, Grace Hopper" in answer.text
        assert "httponly" in answer.headers["set-cookie"].lower()
        assert go_on(device).startswith("/pair/")
    # The link for guests: any name that is free.
    guest = browser(client)
    page = guest.get(passes.link("")).text
    for taken in ("Grace Hopper", "GRACE hopper"):
        assert 'id="wrong"' in guest.post("/join", data={**hidden_fields(page), "name": taken}).text
    assert guest.post("/join", data={**hidden_fields(page), "name": "Eve"}).status_code == 303
    assert go_on(guest).startswith("/pair/")
    assert guest.get(passes.link("")).headers["location"] == "/", "who has a name keeps it"
    # And hers is not for others, nor after a change of a letter.
    for bad in (
        passes.of("Eve")[:-1] + ("1" if passes.of("Eve").endswith("0") else "0"),
        "." + passes.of("Eve").partition(".")[2],
        passes.of("Eve").upper(),
        "é.x",
    ):
        assert browser(client).get("/join", params={"pass": bad}).status_code == 401
    assert browser(client).get(Passes(Keys()).link("Eve")).status_code == 401, "of other votes"


def test_of_two_strangers_at_once_one_gets_the_name(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    client = opened(pairs(3), by_name=False)
    fsync = os.fdatasync

    def slow(file: int) -> None:
        time.sleep(0.3)  # so that the second asks while the first is being written
        fsync(file)

    monkeypatch.setattr(os, "fdatasync", slow)

    def come(name: str) -> int:
        guest = browser(client)
        guest.portal = client.portal
        page = guest.get(Passes(keys_of(tmp_path)).link("")).text
        return guest.post("/join", data={**hidden_fields(page), "name": name}).status_code

    with ThreadPoolExecutor(2) as both:
        assert sorted(both.map(come, ("Eve", "EVE"))) == [303, 400]


def test_forms_of_others_are_not_accepted(opened: Open, tmp_path: Path):
    client = opened(pairs(3))
    enter(client, "Ada")
    path = go_on(client)
    form = {**hidden_fields(client.get(path).text), "choice": "A"}
    assert client.post(path, data={**form, "token": ""}).status_code == 403
    assert client.post(path, data=form, headers={"origin": "http://evil.invalid"}).status_code == 403
    assert client.post(path, data=form, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    mallory = browser(client)
    enter(mallory, "Mallory")
    stolen = hidden_fields(mallory.get(path).text)["token"]
    assert client.post(path, data={**form, "token": stolen}).status_code == 403
    assert client.post(path, content=b"x" * 20_000).status_code == 403
    assert on_disk(tmp_path) == []


def test_only_under_a_name_of_its_own(opened: Open):
    client = opened(pairs(1), hosts=["vote.example.org"])
    assert client.get("/", headers={"host": "evil.invalid"}).status_code == 421
    assert "camel vote" in client.get("/", headers={"host": "evil.invalid"}).text
    assert client.get("/", headers={"host": "vote.example.org"}).status_code == 200


def test_after_a_restart_pages_that_are_open_still_work(opened: Open, tmp_path: Path):
    first = opened(pairs(3))
    enter(first, "Ada")
    path = go_on(first)
    form = {**hidden_fields(first.get(path).text), "choice": "A"}
    cookies = dict(first.cookies)
    first.__exit__(None, None, None)
    second = opened(pairs(3))
    second.cookies.update(cookies)
    assert second.post(path, data=form).status_code == 303
    assert second.post(path, data=form).status_code == 303
    assert len(on_disk(tmp_path)) == 1


# --- the gate ------------------------------------------------------------------------------------------------------


def test_labeled_pairs_are_shown_only_after_consent(opened: Open, tmp_path: Path):
    made = pairs(6, labels={2: "misalignment", 5: "misalignment"})
    client = opened(made)
    enter(client, "Ada")
    booth_paths = [f"/pair/{keys_of(tmp_path).sign(f'pair{chr(10)}{key}')[:24]}" for key in key_list(made)]
    for _ in range(4):
        assert ">0 of 4<" in client.get(go_on(client)).text or on_disk(tmp_path)
        cast(client, go_on(client), "A")
    end = client.get("/").text
    assert "2 more pairs" in end
    assert 'href="/consent"' in end
    for number in (2, 5):
        answer = client.get(booth_paths[number])
        assert answer.status_code == 403
        assert "desert" not in answer.text
        assert client.post(booth_paths[number], data={"choice": "A"}).status_code == 403
    assert len(on_disk(tmp_path)) == 4
    form = hidden_fields(client.get("/consent").text)
    assert client.post("/consent", data={**form, "token": "0", "answer": "show"}).status_code == 403
    answer = client.post("/consent", data={**form, "answer": "show", "next": "//evil.invalid"})
    assert answer.headers["location"] == "/"
    page = client.get(go_on(client)).text
    assert "4 of 6" in page
    assert 'class="chip shown-label">misalignment<' in page
    assert browser(client).get(booth_paths[2]).status_code == 401
    client.post("/consent", data={**hidden_fields(client.get("/consent").text), "answer": "hide"})
    assert client.get("/").status_code == 200


def key_list(made: list[Pair]) -> list[str]:
    from camel.evaluation.votes import key_of

    return [key_of(one) for one in made]


# --- hostile text --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.thorough)])
def test_no_payload_gets_out_of_its_place(opened: Open, step: int):
    """Every payload in a solution, with others or alone, and every fifth one, or all, as a task."""
    made: list[Pair] = []
    for n in range(0, len(PAYLOADS), step):
        text = "\n\n".join(PAYLOADS[n : n + step])
        made.append(Pair(f"{SYSTEMS[0]}-{n}", PAYLOADS[n], SYSTEMS[0], text, SYSTEMS[1], f"plain\n\n{text}"))
    client = opened(made)
    enter(client, "Ada <script>alert(1)</script>")
    seen = 0
    while path := go_on(client):
        html = client.get(path).text
        own = html.replace(f'action="{path}"', 'action="/list"').replace('action="/leave"', 'action="/list"')
        assert Page(own).wrong == []
        assert cast(client, path, "A").status_code == 303
        seen += 1
    assert seen == len(made)


def test_every_route_was_asked(opened: Open):
    client = opened(pairs(1))
    there = {(route.path, *route.methods) for route in client.app.routes if hasattr(route, "methods")}  # type: ignore[attr-defined]
    assert there == {
        ("/", "GET"),
        ("/join", "GET"),
        ("/join", "POST"),
        ("/leave", "POST"),
        ("/pair/{handle}", "GET"),
        ("/pair/{handle}", "POST"),
        ("/consent", "GET"),
        ("/consent", "POST"),
    }
    for path in ("/x", "/results", "/pair", "/static/../app.py", "/list"):
        assert client.get(path).status_code == 404
