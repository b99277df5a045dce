"""The table view: chosen columns, sorted by what the index has in order; and histograms among the facets."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from camel.core.transcript import Transcript
from camel.explorer import list_pages
from camel.query.catalogue import Catalogue
from tests.support.explorer_client import client
from tests.support.societies import society
from tests.support.web_page import Page


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Catalogue, list[Transcript]]]:
    where = tmp_path_factory.mktemp("runs") / "caravan"
    made = society(where, rows=60)
    with Catalogue([where]) as catalogue:
        yield catalogue, made


@pytest.fixture
def app(rows: tuple[Catalogue, list[Transcript]]) -> TestClient:
    return client(rows[0])


def heads(html: str) -> list[str]:
    return [re.sub("<[^>]+>", "", head).strip() for head in re.findall(r"<th\b.*?</th>", html)]


def test_the_chosen_columns_are_shown_in_a_fixed_order(
    app: TestClient, rows: tuple[Catalogue, list[Transcript]]
):
    html = app.get("/list?columns=id&columns=tokens,user&columns=nonsense").text
    assert not Page(html).wrong
    assert heads(html) == ["#", "Star", "User", "Tokens", "Id"]
    assert len(re.findall(r'<tr class="row"', html)) == len(rows[1])
    assert all(one.id in html for one in rows[1])
    chosen = re.findall(r'name="columns" value="(\w+)" checked', html)
    assert chosen == ["user", "tokens", "id"]


def test_only_numbers_of_the_index_can_be_sorted_by(
    app: TestClient, rows: tuple[Catalogue, list[Transcript]]
):
    html = app.get("/list?columns=user,task,messages,tokens,calls,cost,completion,stop").text
    sorted_by = set(re.findall(r'<th[^>]*><a href="[^"]*sort=(\w+)', html))
    assert sorted_by == {"messages", "tokens", "calls", "cost"}
    html = app.get("/list?columns=id,calls&sort=calls&order=desc").text
    found = re.findall(r'href="/conversation/caravan\?id=(\w+)[^"]*">\1</a>', html)
    calls = {one.id: one.usage.calls for one in rows[1]}
    assert [calls[id] for id in found] == sorted(calls.values(), reverse=True)
    assert 'aria-sort="descending"' in html


def test_links_keep_the_view(app: TestClient):
    links = Page(app.get("/list?columns=user,task").text).links
    assert any("stop=" in link and "columns=user%2Ctask" in link for link in links)
    link = next(link for link in links if link.startswith("/conversation/"))
    assert any(one.startswith("/list?") and "columns=" in one for one in Page(app.get(link).text).links)
    assert "/list" in links  # back to the list
    assert any("columns=" in link for link in Page(app.get("/list").text).links)


def test_numbers_among_the_facets_are_histograms_of_small_runs_and_buckets_of_large_ones(
    app: TestClient, monkeypatch: pytest.MonkeyPatch
):
    bars = re.findall(
        r'<a href="/list\?([^"]*range=[^"]*)" aria-label="(\d+) conversation', app.get("/list").text
    )
    for name in ("messages", "tokens"):
        assert sum(int(count) for link, count in bars if f"{name}-range" in link) == 60
    link, count = max(bars, key=lambda bar: int(bar[1]))
    assert f"{count} conversation" in Page(app.get(f"/list?{link.replace('&amp;', '&')}").text).said
    monkeypatch.setattr(list_pages, "HISTOGRAMS", 59)
    html = app.get("/list").text
    assert 'class="hist"' not in html
    assert "/list?length=3-10" in Page(html).links
