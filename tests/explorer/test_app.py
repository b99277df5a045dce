"""The web app, route by route: what it shows, whom it lets in, and what it does with hostile text and parameters."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

import pytest
from starlette.testclient import TestClient

from camel.core.message import Deliberation, Message, Proposal
from camel.core.task import Task
from camel.core.transcript import Transcript
from camel.detectors import detect
from camel.explorer import app as serving
from camel.explorer import views
from camel.explorer.access import HEADERS, is_loopback, is_ours, local
from camel.explorer.app import create_app
from camel.explorer.charts import Chart, as_csv
from camel.explorer.reading import Found
from camel.explorer.statistics import KINDS, PLOTS
from camel.query.catalogue import Catalogue
from camel.query.where import Query
from camel.runs.control import read_wish
from camel.runs.run import open_folder
from camel.runs.settings import Settings
from tests.support.explorer_client import BASE, client, consent, form_token
from tests.support.mapped import mapped
from tests.support.payloads import PAYLOADS, hostile, hostile_crowd
from tests.support.societies import SECRET, commit, society
from tests.support.web_page import Page

RESTRICTED = {3, 10, 11, 59}
CROWD = 15
"""Payloads that are shown on one page."""


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Catalogue, list[Transcript]]]:
    where = tmp_path_factory.mktemp("runs") / "caravan"
    made = society(where, restricted=RESTRICTED)
    mapped(where)
    report(where)
    with Catalogue([where]) as catalogue:
        yield catalogue, made


@pytest.fixture
def app(rows: tuple[Catalogue, list[Transcript]]) -> TestClient:
    return client(rows[0])


def report(run: Path) -> None:
    """A study as `camel study` leaves it in a run."""
    (run / "study").mkdir()
    for ending in ("html", "md", "json"):
        (run / "study" / f"study.{ending}").write_text(f"# Study of {SECRET}\n\n{SECRET} was said")


@pytest.mark.parametrize("where", ["messages > 4", 'task contains "oasis"'])
def test_a_list_is_filtered_by_an_expression(
    app: TestClient, rows: tuple[Catalogue, list[Transcript]], where: str
):
    catalogue, made = rows
    page = app.get("/list?" + urlencode({"where": where, "stop": "done"}))
    assert page.status_code == 200
    ids = {
        one.id
        for number, one in enumerate(made)
        if number not in RESTRICTED and one.stop and one.stop.reason == "done"
        if (len(one.messages) > 4 if where.startswith("messages") else "oasis" in one.task.original)
    }
    assert len(ids) == catalogue.count(Query(where=where, facets={"stop": ("done",)}))
    assert {one.id for one in made if f"id={one.id}" in page.text} == ids


def test_a_malformed_expression_is_shown_with_its_position(app: TestClient):
    for where, position in (
        ("messages >", 11),
        ("nothing = 1", 1),
        ("<script> = '<b>'", 1),
        ("x" * 9_000, 0),
    ):
        page = app.get("/list?" + urlencode({"where": where, "stop": "done"}))
        assert page.status_code == 400
        assert f"character {position}" in page.text or not position
        assert "<script> =" not in page.text
        assert "Traceback" not in page.text


def open_paths(id: str) -> list[str]:
    """Every route that is asked by GET, with a conversation where it takes one."""
    asked = urlencode({"id": id})
    return [
        "/",
        "/list",
        "/list?q=oasis",
        "/list?where=messages+%3E+0",
        "/list?sample=60&seed=1",
        "/list?at=1",
        "/statistics",
        *(f"/statistics/{name}.{kind}" for name in ("stop", "tokens", "by-turn") for kind in KINDS),
        "/random",
        "/consent",
        "/contrast?stop=done&against=-",
        "/contrast/groups.csv?stop=done&against=-",
        "/download/conversations.csv",
        "/download/conversations.jsonl",
        "/reports",
        "/reports/caravan/study/study.html",
        "/run/caravan",
        "/run/caravan/configuration",
        f"/pulses?of=caravan/{id}",
        f"/conversation/caravan?{asked}",
        f"/conversation/caravan/json?{asked}",
        f"/conversation/caravan/json?{asked}&download=1",
        f"/conversation/caravan/markdown?{asked}",
        "/compare?" + urlencode({"left": f"caravan/{id}", "right": f"caravan/{id}"}),
        "/map",
        "/map?area=-2,-2;2,-2;2,2;-2,2",
        "/map/points?color=label",
        "/map/text?at=10",
        "/map/rows?area=-2,-2;2,-2;2,2;-2,2",
        "/watch/caravan",
        "/watch/caravan/events",
    ]


def test_every_route_is_in_these_tests(app: TestClient):
    asked = {re.sub("caravan", "{run}", path.partition("?")[0]) for path in open_paths("x")}
    asked = {re.sub("^/(statistics|download)/.*", r"/\1/{file}", path) for path in asked}
    asked = {re.sub("study/study.html", "{folder}/{file}", path) for path in asked}
    there = {route.path for route in app.app.routes if hasattr(route, "methods")}  # type: ignore[attr-defined]
    assert there == asked | {"/watch/{run}/control", "/annotate/{run}", "/fork/{run}", "/fork/{run}/start"}


# --- reading -----------------------------------------------------------------------------------------------------


def test_a_conversation_without_an_end_is_called_the_same_everywhere(
    app: TestClient, rows: tuple[Catalogue, list[Transcript]]
):
    id = next(one.id for one in rows[1] if one.stop is None and not one.labels)
    address = f"caravan/{id}"
    for path in (
        f"/conversation/caravan?{urlencode({'id': id})}",
        "/compare?" + urlencode({"left": address, "right": address}),
        "/list?stop=unfinished",
    ):
        assert re.search(r'<span class="end-of c-0" title="unfinished">', app.get(path).text), path


def test_the_list_shows_each_row_once_page_by_page(app: TestClient, rows: tuple[Catalogue, list[Transcript]]):
    seen: list[str] = []
    path: str | None = "/list"
    while path:
        page = Page(app.get(path).text)
        assert not page.wrong
        seen += [m[1] for link in page.links if (m := re.match(r"/conversation/caravan\?id=([^&#]+)", link))]
        path = next((link for link in page.links if re.match(r"/list\?after=[^&]+$", link)), None)
    assert seen == [t.id for n, t in enumerate(rows[1]) if n not in RESTRICTED]


def test_a_conversation_shows_all_that_was_said(app: TestClient, rows: tuple[Catalogue, list[Transcript]]):
    wanted = next(t for n, t in enumerate(rows[1]) if n not in RESTRICTED and len(t.messages) == 12)
    page = Page(app.get(f"/conversation/caravan?id={wanted.id}").text)
    assert not page.wrong
    for message in wanted.messages:
        content = message.content.removeprefix("Instruction: ").removeprefix("Solution: ")
        assert content.removesuffix("\n\nNext request.") in page.said
    copied = app.get(f"/conversation/caravan/json?id={wanted.id}").content
    assert Transcript.from_json(copied) == wanted
    assert app.get(f"/conversation/caravan/markdown?id={wanted.id}").text == wanted.to_markdown()
    raw = Page(app.get(f"/conversation/caravan?id={wanted.id}&view=raw").text)
    assert all(message.content in raw.said for message in wanted.messages)


def test_next_and_previous_lead_through_a_search(app: TestClient):
    first = Page(app.get("/list?stop=done").text)
    link = next(link for link in first.links if link.startswith("/conversation/"))
    seen: list[str] = []
    while link:
        page = app.get(link).text
        seen.append(link)
        found = re.search(r'rel="next" data-key="n" href="([^"]+)"', page)
        link = found[1].replace("&amp;", "&") if found else ""
    assert len(seen) == len(set(seen)) > 3
    assert all("stop=done" in one for one in seen)


def test_found_words_are_marked(app: TestClient):
    page = app.get("/list?q=oasis").text
    assert "<mark>oasis</mark>" in page
    link = next(link for link in Page(page).links if link.startswith("/conversation/"))
    assert "<mark>oasis</mark>" in app.get(link).text


def test_ranges_of_a_form_become_one_link(app: TestClient):
    answer = app.get("/list?messages-from=2&messages-to=12&stop=done")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/list?stop=done&messages-range=2..12"
    page = Page(app.get(answer.headers["location"]).text)
    assert "/list?stop=done" in page.links  # the chip that removes the range
    assert "/list?messages-range=2..12" in page.links


def test_comparing_takes_two_steps(app: TestClient):
    page = Page(app.get("/list").text)
    pin = next(link for link in page.links if "pin=" in link)
    page = Page(app.get(pin).text)
    compare = [link for link in page.links if link.startswith("/compare")]
    answer = app.get(compare[0])
    assert answer.status_code == 200
    assert [len(re.findall(f'class="side-letter d-{side}"', answer.text)) for side in "ab"] == [1, 1]


def test_statistics_lead_to_the_rows_they_count(app: TestClient):
    page = Page(app.get("/statistics").text)
    assert not page.wrong
    bars = [link for link in page.links if link.startswith("/list?stop=")]
    assert bars
    for bar in bars:
        assert app.get(bar).status_code == 200


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_can_be_taken_away_with_its_data(rows: tuple[Catalogue, list[Transcript]], name: str):
    catalogue, made = rows
    assert not catalogue._shared.look_through(60)  # type: ignore[reportPrivateUsage] - as the server does meanwhile
    app = client(catalogue)
    seen = [one for n, one in enumerate(made) if n not in RESTRICTED]
    drawn = app.get(f"/statistics/{name}.svg?user=Poet")
    if drawn.status_code == 404:
        # One run, label, or filtered role; too few conversations of a role; scenarios of equal size, which is a sentence.
        assert name in ("run", "label", "other", "user", "by-user", "by-assistant", "scenario")
        return
    ElementTree.fromstring(drawn.text)
    assert app.get(f"/statistics/{name}.png").content.startswith(b"\x89PNG")
    answer = app.get(f"/statistics/{name}.csv?user=Poet")
    assert answer.headers["content-disposition"] == f'attachment; filename="{name}.csv"'
    table = list(csv.DictReader(io.StringIO(answer.text)))
    poets = [one for one in seen if one.speakers[0].role == "Poet"]
    counted = {
        "stop": len(poets),
        "messages": len(poets),
        "tokens": len(poets),
        "cost": sum(one.models == ["gpt-4o-mini"] for one in map(_Counted, poets)),
        "length-by-stop": len(poets),
        "finding": sum(len({found.detector for found in detect(one)}) for one in poets),
        "by-turn": sum(len({(f.detector, f.index) for f in detect(one)}) for one in poets),
        "assistant": len(poets),
        "scenario": len(poets),
        "model": len(poets),
    }
    if name in counted:
        assert sum(int(row["conversations"]) for row in table) == counted[name]
    assert all(row["low"] <= row["high"] for row in table if "low" in row and name != "cost")


class _Counted:
    def __init__(self, one: Transcript) -> None:
        self.models = list(dict.fromkeys(message.model for message in one.messages))


def test_a_spreadsheet_gets_no_formula(app: TestClient):
    rows = [{"role": "=cmd|' /C calc'!A0", "n": -3}, {"role": 'a, "b"\n', "n": 1}]
    evil = Chart("x", "", "", rows, "bars", {})
    assert list(csv.reader(io.StringIO(as_csv(evil)))) == [
        ["role", "n"],
        ["'=cmd|' /C calc'!A0", "-3"],
        ['a, "b"\n', "1"],
    ]
    assert app.get("/statistics/nothing.csv").status_code == 404
    assert app.get("/statistics/stop.exe").status_code == 404


def test_a_sample_is_the_same_for_its_seed(app: TestClient):
    def links(seed: int) -> list[str]:
        return [
            one for one in Page(app.get(f"/list?sample=5&seed={seed}").text).links if one.startswith("/conv")
        ]

    assert links(4) == links(4) != links(5)
    assert len(links(4)) == 5


def test_deliberation_is_shown(
    app: TestClient, rows: tuple[Catalogue, list[Transcript]], monkeypatch: pytest.MonkeyPatch
):
    chosen = Deliberation(
        "Critic", (Proposal("One way"), Proposal("Another way", score=2.5, reason="Better")), 1, "It fits"
    )
    talk = Transcript(
        rows[1][0].id, Task("t"), [], [Message(0, "user", "Poet", "Another way", deliberation=chosen)]
    )
    monkeypatch.setattr(Catalogue, "conversation", lambda *_: talk)
    said = Page(app.get(f"/conversation/caravan?id={rows[1][0].id}").text).said
    for words in ("2 proposals", "Critic", "One way", "2.5 of 10", "chosen", "Better", "It fits"):
        assert words in said


def test_findings_are_shown_at_their_message(
    app: TestClient, rows: tuple[Catalogue, list[Transcript]], monkeypatch: pytest.MonkeyPatch
):
    found = [
        Found("flake_reply", "Flake reply", "it only promises", "I will"),
        Found("x", "Loop", "of all", ""),
    ]
    monkeypatch.setattr(views, "findings", lambda talk: {1: found[:1], -1: found[1:]})
    talk = next(t for n, t in enumerate(rows[1]) if n not in RESTRICTED and len(t.messages) > 2)
    text = app.get(f"/conversation/caravan?id={talk.id}").text
    second = text[text.index('id="m2"') : text.index('id="m3"')]
    assert "t only promises" in second
    assert "“I will”" in second
    assert "Of all" in text[: text.index('id="m1"')]
    assert '<a href="#m2">1, Flake reply</a>' in text


# --- the door ----------------------------------------------------------------------------------------------------


def test_every_answer_has_the_headers(app: TestClient):
    for path in (
        "/",
        "/list",
        "/nothing",
        "/conversation/caravan?id=nobody",
        "/static/style.css",
        "/list?sort=evil",
    ):
        answer = app.get(path)
        for name, value in HEADERS.items():
            assert answer.headers[name] == value, path
    policy = HEADERS["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy


def test_foreign_hosts_are_turned_away(app: TestClient):
    for host in (
        "evil.invalid",
        "evil.invalid:8090",
        "127.0.0.1.evil.invalid",
        "localhost.evil.invalid",
        "",
        "x@127.0.0.1",
        "[::1].evil",
    ):
        assert app.get("/", headers={"host": host}).status_code == 421, host
    for host in ("localhost", "LOCALHOST:8090", "127.0.0.1:1", "[::1]:8090"):
        assert app.get("/", headers={"host": host}).status_code == 200, host
    assert is_ours("box:1", {"box"})
    assert not is_ours("box.evil:1", {"box"})


def test_without_the_token_nothing_is_answered(rows: tuple[Catalogue, list[Transcript]]):
    app = client(rows[0], token="right")
    id = rows[1][0].id
    for path in open_paths(id):
        joined = "&" if "?" in path else "?"
        for asked in (
            path,
            f"{path}{joined}token=",
            f"{path}{joined}token=wrong",
            f"{path}{joined}token=%ff",
        ):
            answer = app.get(asked)
            assert answer.status_code == 401, asked
            assert "oasis" not in answer.text
            assert "set-cookie" not in answer.headers
    assert app.post("/consent", data={"answer": "show"}).status_code == 401
    assert app.get("/", headers={"cookie": 'camel-token-x="right"; a=b;;=;\x01'}).status_code == 401
    assert app.get("/static/style.css").status_code == 200


def test_the_token_of_the_link_is_remembered(rows: tuple[Catalogue, list[Transcript]]):
    app = client(rows[0], token="right")
    answer = app.get("/list?token=right&stop=done")
    assert answer.status_code == 200
    assert "/list?stop=done" in answer.text
    assert "right" not in answer.text
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert app.get("/list").status_code == 200
    assert app.get("/%22%3E%3Cscript%3E?token=right").text.count("<script") == 0
    assert 'href="/evil' in app.get("/%2fevil?token=right").text


def test_only_loopback_needs_no_token():
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.0.2.1", "nowhere.invalid")))


def test_static_files_are_ours_only(app: TestClient):
    for path in (
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/..%5capp.py",
        "/static/",
        "/static/nothing.js",
    ):
        assert app.get(path).status_code == 404, path


# --- the gate ----------------------------------------------------------------------------------------------------


def read(app: TestClient, path: str) -> tuple[int, str]:
    """An answer, of a stream its beginning; a redirect is followed within the app."""
    answer = app.get(path)
    if answer.status_code == 303:
        return read(app, answer.headers["location"])
    return answer.status_code, answer.text


@pytest.mark.slow
def test_nothing_restricted_on_any_route(app: TestClient, rows: tuple[Catalogue, list[Transcript]]):
    hidden = [rows[1][n] for n in RESTRICTED]
    for number, talk in enumerate(hidden):
        for path in open_paths(talk.id):
            if number and f"{talk.id}" not in path:
                continue  # the same as for the first of them
            status, text = read(app, path)
            assert SECRET not in text, path
            assert (status == 403) == any(
                part in path for part in ("/conversation/", "compare", "watch", "study")
            ), path
            if status == 200:
                assert f"id={talk.id}" not in text, path
    expression = f"where=task+contains+%22{SECRET}%22"
    for query in ("label=misalignment", f"q={SECRET}", expression):  # which only restricted ones fit
        assert app.get(f"/random?{query}").headers["location"].startswith("/list?")
    assert (
        "misalignment" not in Page(app.get("/list?label=misalignment").text).said.partition("Nothing fits")[2]
    )
    assert "56 conversations" in app.get("/list").text
    assert "0 conversations" in app.get(f"/list?q={SECRET}").text
    assert "0 conversations" in app.get(f"/list?{expression}").text


def test_after_consent_it_is_shown_until_it_is_withdrawn(
    app: TestClient, rows: tuple[Catalogue, list[Transcript]]
):
    talk = next(rows[1][n] for n in RESTRICTED if rows[1][n].messages)
    answer = consent(app)
    assert (answer.status_code, answer.headers["location"]) == (303, "/list")
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert "SameSite=strict" in answer.headers["set-cookie"]
    assert "60 conversations" in app.get("/list").text
    assert SECRET in app.get(f"/conversation/caravan?id={talk.id}").text
    assert '"misalignment"' in app.get(f"/conversation/caravan/json?id={talk.id}").text
    consent(app, answer="hide")
    assert app.get(f"/conversation/caravan?id={talk.id}").status_code == 403


def test_consent_cannot_be_forged(app: TestClient, rows: tuple[Catalogue, list[Transcript]]):
    talk = next(rows[1][n] for n in RESTRICTED)
    path = f"/conversation/caravan?id={talk.id}"
    assert app.post("/consent", data={"answer": "show"}).status_code == 403
    assert app.post("/consent", data={"answer": "show", "token": "0" * 64}).status_code == 403
    assert app.post("/consent", content=b"&" * 9_999).status_code == 403
    assert app.post("/consent", content=b"token=" + b"x" * 100_000).status_code == 403
    page = app.get("/consent").text
    token = re.search(r'name="token" value="([0-9a-f]+)"', page)
    assert token
    good = {"token": token[1], "answer": "show"}
    for headers in (
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://evil.invalid"},
    ):
        assert app.post("/consent", data=good, headers=headers).status_code == 403
    name = next(n for n in [consent(client(rows[0])).headers["set-cookie"].partition("=")])[0]
    for cookie in (
        f"{name}=1",
        f"{name}={'0' * 64}",
        f"{name}=misalignment",
        consent(client(rows[0])).headers["set-cookie"],
    ):
        assert app.get(path, headers={"cookie": cookie}).status_code == 403
    assert app.get("/consent?answer=show&token=" + token[1]).status_code == 200
    assert app.get(path).status_code == 403


def test_the_gate_goes_by_the_row_not_by_the_name(tmp_path: Path):
    society(tmp_path / "holiday_photos", rows=12, shard=5, restricted=range(12))
    with Catalogue([tmp_path / "holiday_photos"]) as catalogue:
        app = client(catalogue)
        for path in ("/", "/list", "/statistics", "/list?sample=9"):
            assert SECRET not in app.get(path).text
        for name in PLOTS:
            assert app.get(f"/statistics/{name}.csv").status_code == 404
        assert "0 conversations" in app.get("/list").text
        assert app.get("/watch/holiday_photos").status_code == 403
        assert app.get("/watch/holiday_photos/events").status_code == 403


def test_only_our_own_page_can_wish_something_of_a_run(tmp_path: Path):
    society(tmp_path / "caravan", rows=5)
    society(tmp_path / "closed", rows=5, restricted=range(5))
    folder = open_folder(tmp_path / "caravan")
    with Catalogue([tmp_path / "caravan", tmp_path / "closed"]) as catalogue, folder.locked():
        app = client(catalogue)
        token = form_token(app.get("/watch/caravan").text)
        path, sent = "/watch/caravan/control", {"token": token, "wish": "pause"}
        assert app.get(path).status_code == 405
        assert app.post(path, data={"wish": "pause"}).status_code == 403
        assert app.post(path, data=sent | {"token": "0" * 64}).status_code == 403
        assert app.post(path, data=sent, headers={"origin": "http://evil.invalid"}).status_code == 403
        assert app.post(path, data=sent, headers={"sec-fetch-site": "cross-site"}).status_code == 403
        assert app.post(path, data=sent | {"wish": "delete"}).status_code == 400
        assert app.post("/watch/nowhere/control", data=sent).status_code == 404
        assert app.post("/watch/closed/control", data=sent).status_code == 403
        assert not list(tmp_path.rglob("control.json"))
        with_token = client(catalogue, token="secret")
        assert with_token.post(path, data=sent).status_code == 401
        answer = app.post(path, data=sent)
        assert (answer.status_code, answer.headers["location"]) == (303, "/watch/caravan")
        assert read_wish(folder) == "pause"
        page = Page(app.get("/watch/caravan").text)
        assert "paused" in page.said
        assert not page.wrong
        app.post(path, data=sent | {"wish": "go"})
        assert read_wish(folder) == "go"
        assert not (tmp_path / "caravan" / "control.json").exists()


def test_only_what_can_be_is_wished_of_a_run(tmp_path: Path):
    society(tmp_path / "caravan", rows=5)
    folder = open_folder(tmp_path / "caravan")
    with Catalogue([tmp_path / "caravan"]) as catalogue:
        app = client(catalogue)
        sent = {"token": form_token(app.get("/watch/caravan").text)}

        def wished(what: str) -> int:
            return app.post("/watch/caravan/control", data=sent | {"wish": what}).status_code

        # Nobody works on it: a pause would hold the next start, of which nobody here knows.
        assert (wished("pause"), wished("stop")) == (400, 400)
        assert not list(tmp_path.rglob("control.json"))
        with folder.locked():
            assert (wished("pause"), wished("pause"), read_wish(folder)) == (303, 303, "pause")
            assert (wished("go"), wished("go"), read_wish(folder)) == (303, 303, "go")


def test_where_everybody_is_let_in_nobody_controls_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    society(tmp_path / "caravan", rows=5)
    folder = open_folder(tmp_path / "caravan")
    shown: list[tuple[bool, int]] = []

    def visit(app: Any, door: object) -> None:
        visitor = TestClient(app, base_url=BASE, follow_redirects=False)
        sent = {"token": form_token(visitor.get("/consent").text), "wish": "pause"}
        has_form = "/watch/caravan/control" in visitor.get("/watch/caravan").text
        shown.append((has_form, visitor.post("/watch/caravan/control", data=sent).status_code))

    monkeypatch.setattr(serving, "answer", visit)
    with folder.locked():
        serving.serve([str(tmp_path / "caravan")], public=True)
        assert read_wish(folder) == "go"
        serving.serve([str(tmp_path / "caravan")], needs_token=False)
        assert read_wish(folder) == "pause"
    assert shown == [(False, 403), (True, 303)]


def test_after_the_answer_only_to_our_own_pages():
    for evil in (
        "//evil.invalid",
        "/\\evil.invalid",
        "http://evil.invalid",
        "javascript:1",
        "",
        "x",
        "/a\nb",
        "/" + "x" * 9_999,
    ):
        assert local(evil) == "/"
    assert local("/list?q=a%0ab") == "/list?q=a%0ab"


# --- hostile parameters and text -----------------------------------------------------------------------------------

HOSTILE = [
    "", " ", "\x00", "'", '"', "'; drop table x; --", "-1", "0", "9" * 40, "1e9", "nan", "../../etc/passwd", "<script>",
    "%", "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "🐪" * 300, "a" * 3_000, "*", "\\", "🐪..", "..5", "a..b",
]  # fmt: skip
QUERY = ["q", "run", "stop", "label", "length", "cost", "messages-range", "sort", "order", "pin"]
ASKED = {
    "/list": [*QUERY, "messages-from", "after", "before", "at", "sample", "seed", "view"],
    "/statistics": ["q", "run", "messages-range"],
    "/random": ["q", "run"],
    "/conversation/caravan": ["id", "q", "pin", "sort"],
    "/conversation/caravan/json": ["id", "download"],
    "/compare": ["left", "right"],
    "/consent": ["next"],
}


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("path", ASKED)
def test_hostile_parameters_are_answered_with_a_page(
    app: TestClient, rows: tuple[Catalogue, list[Transcript]], path: str, step: int
):
    for number, name in enumerate(ASKED[path]):
        for value in HOSTILE[number % step :: step]:  # together, the parameters of a path have all values
            keeps = {"id": rows[1][0].id} if "caravan" in path and name != "id" else {}
            answer = app.get(f"{path}?{urlencode({**keeps, name: value})}")
            assert answer.status_code in (200, 303, 400, 403, 404), (name, value)
            if answer.headers.get("content-type", "").startswith("text/html"):
                assert not Page(answer.text).wrong, (name, value)


def test_hostile_paths_are_not_there(app: TestClient):
    for value in HOSTILE:
        for start in ("/conversation/", "/watch/", "/"):
            if start == "/" and not value.strip():
                continue
            answer = app.get(start + quote(value, safe=""))
            assert answer.status_code in (400, 404, 405), (start, value)
            assert not Page(answer.text).wrong
    assert app.get("/list?" + "&".join(f"stop={n}" for n in range(900))).status_code == 400
    assert app.put("/list").status_code == 405


@pytest.fixture(scope="module")
def hostiles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, list[Transcript]]]:
    where = tmp_path_factory.mktemp("hostile") / "caravan"
    folder = open_folder(where)
    folder.create(Settings("f", {"scenario": PAYLOADS[0]}, "0"))
    made = [hostile(number, text) for number, text in enumerate(PAYLOADS)]
    made += [
        hostile_crowd(1000 + start, PAYLOADS[start : start + CROWD])
        for start in range(0, len(PAYLOADS), CROWD)
    ]
    commit(folder, 0, made)
    with Catalogue([where]) as catalogue:
        yield client(catalogue), made


def test_there_are_enough_payloads():
    assert len(PAYLOADS) >= 150


@pytest.mark.slow
@pytest.mark.parametrize("step", [20, pytest.param(1, marks=pytest.mark.thorough)])
def test_hostile_text_is_only_ever_text(
    hostiles: tuple[TestClient, list[Transcript]], monkeypatch: pytest.MonkeyPatch, step: int
):
    """Every payload as a message on a page with others, and every twentieth one, or all, in every place of its own page."""
    app, made = hostiles
    by_id = {talk.id: talk for talk in made}
    # With what a table may not keep yet: the proposals.
    monkeypatch.setattr(Catalogue, "conversation", lambda self, run, id: by_id[id])
    for talk in [*made[: len(PAYLOADS) : step], *made[len(PAYLOADS) :]]:
        asked = urlencode({"id": talk.id, "q": talk.task.original[:900], "pin": talk.id[:400]})
        for path in (f"/conversation/caravan?{asked}", f"/conversation/caravan?{asked}&view=raw"):
            answer = app.get(path)
            assert answer.status_code == 200
            assert Page(answer.text).wrong == [], talk.task.original
        beside = urlencode({"left": f"caravan/{talk.id}", "right": f"caravan/{made[0].id}"})
        assert Page(app.get(f"/compare?{beside}").text).wrong == []
        copied = app.get(f"/conversation/caravan/json?{asked}&download=1")
        assert copied.headers["content-type"] == "application/json"
        assert re.fullmatch(r'attachment; filename="[\w-]+\.json"', copied.headers["content-disposition"])
        assert (
            app.get(f"/conversation/caravan/markdown?{asked}")
            .headers["content-type"]
            .startswith("text/markdown")
        )


@pytest.mark.slow
def test_hostile_text_in_lists_facets_and_charts(hostiles: tuple[TestClient, list[Transcript]]):
    app, made = hostiles
    path: str | None = "/list"
    rows = 0
    while path:
        page = Page(app.get(path).text)
        assert page.wrong == []
        rows += sum(link.startswith("/conversation/") for link in page.links)
        path = next((link for link in page.links if re.match(r"/list\?after=[^&]+$", link)), None)
    assert rows == len(made)
    for path in ("/", "/statistics", "/watch/caravan", "/list?q=script", "/list?q=pwned&sort=tokens"):
        assert Page(app.get(path).text).wrong == [], path
    for name in ("assistant", "scenario", "label", "model", "by-assistant"):
        drawn = app.get(f"/statistics/{name}.svg")
        if name != "by-assistant" or drawn.status_code == 200:
            tags = {one.tag.rpartition("}")[2] for one in ElementTree.fromstring(drawn.text).iter()}
            assert tags <= {"svg", "g", "path", "rect", "text", "line", "defs", "clipPath", "tspan"}
    for number, talk in enumerate(made[::15]):
        name = ("assistant", "q", "label", "pin")[number % 4]
        text = talk.task.original[:900]
        assert Page(app.get(f"/list?{urlencode({name: text})}").text).wrong == []


def test_also_what_goes_wrong_leaves_with_every_header(rows: tuple[Catalogue, list[Transcript]]):
    made = create_app(rows[0])
    visitor = TestClient(made, base_url=BASE, raise_server_exceptions=False)
    usual = {
        name: value for name, value in visitor.get("/").headers.items() if not name.startswith("content-l")
    }

    @made.get("/broken")
    def broken() -> None:
        raise RuntimeError("a secret of this machine")

    answer = visitor.get("/broken")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "camel explore" in answer.text
    assert {name: answer.headers[name] for name in usual} == usual


def test_scripts_are_sent_again_only_when_they_changed(app: TestClient):
    first = app.get("/static/app.js")
    assert first.headers["cache-control"] == "no-cache"
    assert app.get("/static/app.js", headers={"If-None-Match": first.headers["etag"]}).status_code == 304
