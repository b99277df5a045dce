"""Stars, tags and notes in the explorer: who may store them, what pages show of them, and that they filter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from camel.core.transcript import Transcript
from camel.explorer.site import chosen, write_site
from camel.query.catalogue import Catalogue
from camel.query.where import Query
from camel.runs.annotations import FILE, NOTE_CHARS
from tests.support.explorer_client import client, consent, form_token
from tests.support.payloads import PAYLOADS
from tests.support.societies import SECRET, society
from tests.support.web_page import Page

RESTRICTED = {3, 10}
World = tuple[Catalogue, list[Transcript], Path]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = society(tmp_path / "caravan", rows=30, restricted=RESTRICTED)
    with Catalogue([tmp_path / "caravan"]) as catalogue:
        yield catalogue, made, tmp_path / "caravan"


def send(app: TestClient, id: str, **form: str) -> Any:
    token = form_token(app.get("/list").text)
    return app.post("/annotate/caravan", data={"token": token, "id": id, "next": "/list?stop=done", **form})


def test_a_star_is_stored_next_to_the_run_and_filters(world: World):
    catalogue, made, folder = world
    app, id = client(catalogue), made[5].id
    answer = send(app, id, star="yes")
    assert (answer.status_code, answer.headers["location"]) == (303, "/list?stop=done")
    assert (folder / FILE).exists()
    assert [row.id for row in catalogue.page(Query(facets={"starred": ("yes",)})).rows] == [id]
    page = Page(app.get("/list?starred=yes").text)
    assert not page.wrong
    assert "1 conversation" in page.said
    assert "/list?starred=yes" in Page(app.get("/list").text).links  # among the facets
    send(app, id, star="no")
    assert catalogue.count(Query(facets={"starred": ("yes",)})) == 0


def test_tags_and_a_note_are_shown_and_can_be_emptied(world: World):
    catalogue, made, _ = world
    app, id = client(catalogue), made[5].id
    send(app, id, star="yes")
    send(app, id, what="text", tags="odd, for the paper,, odd", note=" first\r\nsecond ")
    row = catalogue.row("caravan", id)
    assert (row.star, row.tags, row.note) == (True, ("odd", "for the paper"), "first\nsecond")
    page = Page(app.get(f"/conversation/caravan?id={id}").text)
    assert not page.wrong
    assert "first\nsecond" in page.said
    assert "for the paper" in Page(app.get("/list?tag=odd&noted=yes").text).said
    send(app, id, what="text")
    row = catalogue.row("caravan", id)
    assert (row.star, row.tags, row.note) == (True, (), "")


@pytest.mark.parametrize(
    ("change", "headers"),
    [
        ({"token": "0" * 64}, {}),
        ({"token": ""}, {}),
        ({}, {"origin": "http://evil.invalid"}),
        ({}, {"sec-fetch-site": "cross-site"}),
    ],
)
def test_a_form_from_elsewhere_is_refused(world: World, change: dict[str, str], headers: dict[str, str]):
    catalogue, made, folder = world
    app = client(catalogue)
    form = {"token": form_token(app.get("/list").text), "id": made[5].id, "star": "yes", **change}
    assert app.post("/annotate/caravan", data=form, headers=headers).status_code == 403
    assert not (folder / FILE).exists()


def test_a_public_explorer_stores_and_shows_none(world: World, tmp_path: Path):
    catalogue, made, _ = world
    catalogue.annotate("caravan", made[5].id, star=True, note="private")
    with Catalogue([tmp_path / "caravan"], annotations=False) as public:
        app = client(public, public=True)
        assert public.count(Query(facets={"starred": ("yes",)})) == 0
        page = app.get(f"/conversation/caravan?id={made[5].id}").text
        assert "private" not in page
        assert "/annotate/" not in page + app.get("/list").text
        form = {"token": form_token(app.get("/consent").text), "id": made[5].id, "star": "yes"}
        assert app.post("/annotate/caravan", data=form).status_code == 403


def test_what_a_reader_may_not_see_cannot_be_annotated_or_guessed(world: World):
    catalogue, made, folder = world
    app, id = client(catalogue), made[3].id
    assert send(app, id, star="yes").status_code == 403
    assert not (folder / FILE).exists()
    consent(app)
    assert send(app, id, what="text", tags=SECRET, note=SECRET).status_code == 303
    consent(app, answer="hide")
    for path in (
        "/list",
        f"/list?tag={SECRET}",
        "/list?noted=yes",
        "/download/conversations.csv",
        "/statistics",
    ):
        text = app.get(path).text
        assert id not in text
        # What the reader typed is shown as a filter that selects nothing.
        said = re.sub(rf"Tag: {SECRET}|Tag\s*{SECRET}0", "", Page(text).said)
        assert SECRET not in said


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({"id": "nothing", "star": "yes"}, 404),
        ({"what": "text", "note": "x" * (NOTE_CHARS + 1)}, 400),
        ({"what": "text", "tags": ",".join(map(str, range(30)))}, 400),
        ({"star": "yes", "next": "https://evil.invalid/"}, 303),
    ],
)
def test_what_cannot_be_stored_is_refused(world: World, form: dict[str, str], status: int):
    catalogue, made, _ = world
    answer = send(client(catalogue), **{"id": made[5].id, **form})
    assert answer.status_code == status
    assert "evil" not in answer.headers.get("location", "")


def test_a_published_site_has_none(world: World, tmp_path: Path):
    catalogue, made, _ = world
    catalogue.annotate("caravan", made[5].id, star=True, tags=["privatetag"], note="privatenote")
    write_site(catalogue, chosen(catalogue, Query(facets={"starred": ("yes",)})), tmp_path / "site")
    files = [path for path in (tmp_path / "site").rglob("*") if path.is_file()]
    assert len([path for path in files if path.parent.name != "fonts"]) == 4
    assert not any(
        b"privatetag" in path.read_bytes() or b"privatenote" in path.read_bytes() for path in files
    )


def test_hostile_annotations_are_text(world: World):
    catalogue, made, _ = world
    text = " ".join(PAYLOADS)[:5000]
    catalogue.annotate("caravan", made[5].id, tags=["<script>alert(1)</script>"], note=text)
    app = client(catalogue)
    for path in ("/list", "/list?columns=tags,note", f"/conversation/caravan?id={made[5].id}"):
        assert not Page(app.get(path).text).wrong
