"""Two groups in one plot: their counts are those of the conversations, and add up."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

from camel.core.transcript import Transcript
from camel.query.catalogue import Catalogue
from tests.support.explorer_client import client
from tests.support.societies import SECRET, society
from tests.support.web_page import Page

RESTRICTED = {3, 10}
Made = dict[str, list[Transcript]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, Made]]:
    where = tmp_path_factory.mktemp("runs")
    made = {
        name: society(where / name, rows=rows, restricted=RESTRICTED, seed=seed)
        for name, rows, seed in (("caravan", 60, 1), ("oasis", 40, 2), ("tiny", 12, 3))
    }
    visible = {
        name: [one for n, one in enumerate(some) if n not in RESTRICTED] for name, some in made.items()
    }
    with Catalogue([where / name for name in made]) as catalogue:
        yield client(catalogue), visible


def table(app: TestClient, **query: str) -> dict[tuple[str, str], dict[str, int]]:
    """By plot and group, how many conversations have each value."""
    answer = app.get(f"/contrast/groups.csv?{urlencode(query)}")
    assert answer.status_code == 200
    found: dict[tuple[str, str], dict[str, int]] = {}
    for row in csv.DictReader(io.StringIO(answer.text)):
        found.setdefault((row["plot"], row["group"]), {})[row["value"]] = int(row["conversations"])
    return found


def users(some: list[Transcript]) -> dict[str, int]:
    return dict(Counter(next(one.role for one in t.speakers if one.name == "user") for t in some))


def test_two_runs_are_counted_apart(world: tuple[TestClient, Made]):
    app, made = world
    found = table(app, run="caravan", against="oasis")
    assert found["user", "Run: caravan"] == users(made["caravan"])
    assert found["user", "Run: oasis"] == users(made["oasis"])
    for group, run in (("Run: caravan", "caravan"), ("Run: oasis", "oasis")):
        assert sum(found["messages", group].values()) == len(made[run])
        assert sum(found["tokens", group].values()) == len(made[run])


def test_everything_else_is_what_the_filter_leaves(world: tuple[TestClient, Made]):
    app, made = world
    done = [t for t in made["caravan"] if t.stop and t.stop.reason == "done"]
    rest = [t for t in made["caravan"] if t not in done]
    found = table(app, run="caravan", stop="done", against="-")
    group = "Run: caravan, Ending: done"
    assert found["user", group] == users(done)
    assert found["user", "everything else"] == users(rest)
    assert sum(found["messages", "everything else"].values()) == len(rest)
    assert not any(plot == "stop" for plot, _ in found)  # would show nothing but the filter


def test_the_rest_of_a_run_is_the_other_runs(world: tuple[TestClient, Made]):
    app, made = world
    found = table(app, run="caravan", against="-")
    assert found["user", "everything else"] == users([*made["oasis"], *made["tiny"]])


def test_the_page_names_its_groups_and_links_to_it(world: tuple[TestClient, Made]):
    app, made = world
    html = app.get("/contrast?run=caravan&against=oasis").text
    said = Page(html).said
    assert f"{len(made['caravan'])} conversations" in said
    assert f"{len(made['oasis'])} conversations" in said
    assert SECRET not in said
    assert html.count('class="mk d-a"') == html.count('class="mk d-b"') > 10
    assert "/contrast?run=caravan" in Page(app.get("/statistics?run=caravan").text).links


def test_shares_of_few_conversations_are_counts(world: tuple[TestClient, Made]):
    app, _ = world
    assert "%</td>" in app.get("/contrast?run=caravan&against=oasis").text
    few = app.get("/contrast?run=tiny&user=Poet&against=caravan").text
    assert 'class="plot"' in few
    assert "%</td>" not in few


def test_what_to_compare_with_is_offered(world: tuple[TestClient, Made]):
    app, _ = world
    links = Page(app.get("/contrast").text).links
    assert {"/contrast?run=caravan", "/contrast?run=oasis", "/contrast?run=tiny"} <= set(links)
    links = Page(app.get("/contrast?run=caravan").text).links
    assert {"/contrast?against=-&run=caravan", "/contrast?against=oasis&run=caravan"} <= set(links)
    assert app.get("/contrast/groups.csv").status_code == 400
    assert app.get("/contrast?run=caravan&against=nowhere").status_code == 404
    assert "Nothing to compare" in app.get("/contrast?run=caravan&user=Nobody&against=oasis").text
