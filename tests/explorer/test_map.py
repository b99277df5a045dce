"""The map's routes: points, colors, texts and lists, each for the rows that its reader may see."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from camel.core.errors import InputError
from camel.core.transcript import Transcript
from camel.explorer.maps import BY, COLORS, MapView, area_from, map_of, within
from camel.query.catalogue import Catalogue
from camel.query.where import Query
from camel.runs.run import open_folder
from camel.runs.settings import Settings
from tests.support.explorer_client import client, consent
from tests.support.mapped import mapped
from tests.support.payloads import PAYLOADS, hostile
from tests.support.societies import SECRET, commit, society, transcript
from tests.support.web_page import Page

RESTRICTED = {3, 10, 11, 59}
ALL = "-2,-2;2,-2;2,2;-2,2"


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Catalogue, list[Transcript]]]:
    where = tmp_path_factory.mktemp("runs") / "caravan"
    made = society(where, restricted=RESTRICTED)
    mapped(where)
    mapped(where, "instructions")
    with Catalogue([where]) as catalogue:
        yield catalogue, made


@pytest.fixture
def app(rows: tuple[Catalogue, list[Transcript]]) -> TestClient:
    return client(rows[0])


def read(data: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    n = len(data) // 16
    x, y, color = (np.frombuffer(data, "<f4", n, 4 * n * part) for part in range(3))
    return x, y, color, np.frombuffer(data, "<u4", n, 12 * n)


def visible(made: list[Transcript]) -> list[Transcript]:
    return [talk for n, talk in enumerate(made) if n not in RESTRICTED]


def test_points_are_those_of_the_rows_that_may_be_seen(
    app: TestClient, rows: tuple[Catalogue, list[Transcript]]
):
    free = visible(rows[1])
    for color in BY:
        answer = app.get(f"/map/points?color={color}")
        x, y, codes, places = read(answer.content)
        assert len(x) == len(free)
        assert np.abs([x, y]).max() <= 1.0001
        assert set(codes.tolist()) <= set(range(COLORS + 1))
        # Without gaps: they would tell how many are hidden.
        assert places.tolist() == list(range(len(free)))
    for place, talk in enumerate(free):
        said = app.get(f"/map/text?at={place}").json()
        assert said["text"] == talk.task.text.strip()
        assert said["link"] == f"/conversation/caravan?id={talk.id}"
    assert app.get(f"/map/text?at={len(free)}").status_code == 404
    assert app.get("/map/points?color=nothing").status_code == 400
    assert app.get("/map?of=dreams").status_code == 400
    assert app.get("/map?run=elsewhere").status_code == 200


def test_the_gate_holds_on_every_part_of_the_map(app: TestClient, rows: tuple[Catalogue, list[Transcript]]):
    for of in ("tasks", "instructions"):
        texts = [app.get(f"/map/rows?of={of}&area={ALL}").text]
        while found := re.search(r'data-more href="([^"]+)"', texts[-1]):
            texts.append(app.get(found[1].replace("&amp;", "&")).text)
        texts += [app.get(f"/map?of={of}&color={color}&area={ALL}").text for color in BY]
        texts += [app.get(f"/map/rows?of={of}&area={ALL}&label=misalignment").text]
        assert not any(SECRET in text for text in texts)
        listed = sum(text.count('class="point"') for text in texts[: -1 - len(BY)])
        shown = len(read(app.get(f"/map/points?of={of}").content)[0])
        assert listed == shown
        assert app.get(f"/map/points?of={of}&label=misalignment").content == b""
    assert f">{56}</b><span>tasks" in app.get("/map").text
    legend = Page(app.get("/map?color=label").text)
    assert "misalignment4" not in legend.said.replace("\n", "").replace(" ", "")
    consent(app)
    assert len(read(app.get("/map/points").content)[0]) == 60
    assert SECRET in app.get(f"/map/rows?area={ALL}").text + app.get(f"/map/rows?area={ALL}&from=40").text


def test_the_gate_goes_by_the_label_in_the_row(tmp_path: Path):
    society(tmp_path / "innocent", rows=12, restricted=[5])
    mapped(tmp_path / "innocent")
    (tmp_path / "innocent").rename(tmp_path / "renamed")
    with Catalogue([tmp_path / "renamed"]) as catalogue:
        app = client(catalogue)
        assert len(read(app.get("/map/points").content)[0]) == 11
        assert SECRET not in app.get(f"/map?area={ALL}").text


@pytest.mark.parametrize("color", BY)
def test_the_legend_counts_what_is_drawn(rows: tuple[Catalogue, list[Transcript]], color: str):
    for query in (
        Query(),
        Query(facets={"stop": ("done",)}),
        Query(text="oasis"),
        Query(ranges={"messages": (2, 12)}),
    ):
        view = map_of(rows[0], "caravan", "tasks", query)
        legend = view.legend(color)
        codes = Counter(read(view.points(color))[2].astype(int).tolist())
        counted: Counter[int] = Counter()
        for entry in legend.entries:
            counted[entry.color] += entry.texts
        assert counted == codes


def test_every_query_of_the_list_can_be_asked_of_the_map(rows: tuple[Catalogue, list[Transcript]]):
    catalogue = rows[0]
    for query in (
        Query(),
        Query(facets={"stop": ("done", "error")}),
        Query(facets={"assistant": ("Guide",), "length": ("3-10",)}),
        Query(facets={"label": ("fine",)}),
        Query(facets={"label": ("misalignment",)}),
        Query(ranges={"tokens": (1_000, None)}),
        Query(facets={"tool": ("python",), "stop": ("done",)}),
        Query(facets={"tool": ("",)}),
        Query(where='tool = "search" and messages > 2'),
        Query(text="oasis"),
        Query(text="oasis", facets={"stop": ("done",)}),
        Query(text="oasis", facets={"tool": ("python",)}),
    ):
        view = map_of(catalogue, "caravan", "tasks", query)
        listed = [row.id for row in catalogue.page(query, limit=100).rows]
        assert sorted(point.id for point in view.read(view.rows)) == sorted(listed)


def test_no_color_stands_for_two_groups(tmp_path: Path):
    society(tmp_path / "large", rows=120, shard=60)
    mapped(tmp_path / "large", "instructions")
    with Catalogue([tmp_path / "large"]) as catalogue:
        view = map_of(catalogue, "large", "instructions")
        entries = view.legend("cluster").entries
        colors = [entry.color for entry in entries]
        assert len(colors) > COLORS
        assert colors == [*range(COLORS), *[COLORS] * (len(colors) - COLORS)]
        assert sorted((entry.texts for entry in entries), reverse=True) == [entry.texts for entry in entries]


def test_an_instruction_leads_to_its_message(app: TestClient, rows: tuple[Catalogue, list[Transcript]]):
    by_id = {talk.id: talk for talk in rows[1]}
    view: MapView = map_of(rows[0], "caravan", "instructions")
    for point in view.read(view.rows[::7]):
        assert point.text in by_id[point.id].messages[point.message].content
        link = app.get(f"/map/text?of=instructions&at={point.at}").json()["link"]
        assert link == f"/conversation/caravan?id={point.id}#m{point.message + 1}"


def test_a_run_without_a_map_says_how_to_make_one(tmp_path: Path):
    society(tmp_path / "plain", rows=4)
    with Catalogue([tmp_path / "plain"]) as catalogue:
        app = client(catalogue)
        said = Page(app.get("/map").text).said
        assert f"camel map {tmp_path / 'plain'} --of tasks" in said
        assert app.get("/map/points").status_code == 404


def test_a_map_older_than_its_run_says_so(tmp_path: Path):
    society(tmp_path / "run", rows=10)
    mapped(tmp_path / "run")
    commit(open_folder(tmp_path / "run"), 2, [transcript(n) for n in range(10, 13)])
    with Catalogue([tmp_path / "run"]) as catalogue:
        assert "3 conversations" in Page(client(catalogue).get("/map").text).said


@pytest.mark.slow
def test_hostile_text_is_only_ever_text_on_the_map(tmp_path: Path):
    folder = open_folder(tmp_path / "caravan")
    folder.create(Settings("f", {"scenario": PAYLOADS[0]}, "0"))
    made = [hostile(number, text) for number, text in enumerate(PAYLOADS)]
    commit(folder, 0, made)
    mapped(tmp_path / "caravan")
    with Catalogue([tmp_path / "caravan"]) as catalogue:
        app = client(catalogue)
        for color in BY:
            assert Page(app.get(f"/map?color={color}&area={ALL}").text).wrong == []
        for start in range(0, len(made), 40):
            assert Page(app.get(f"/map/rows?area={ALL}&from={start}").text).wrong == []
        said = [
            app.get(f"/map/text?at={at}") for at in range(len(map_of(catalogue, "caravan", "tasks").visible))
        ]
        assert {one.headers["content-type"] for one in said} == {"application/json"}
        texts = {" ".join(talk.task.text.split())[:600] for talk in made}
        assert all(any(one.json()["text"][:600] in text for text in texts) for one in said[::5])


@pytest.mark.parametrize(
    "text", ["1,2", "1,2;3,4", "a,b;c,d;e,f", "1,2;3,4;nan,1", "1,2;3,4;1e9,1", ";;;", "1,2,3;4,5;6,7"]
)
def test_an_area_that_is_none_is_refused(app: TestClient, text: str):
    with pytest.raises(InputError):
        area_from(text)
    assert app.get("/map/rows", params={"area": text}).status_code == 400


@given(
    st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=1, max_size=30),
    st.floats(0.05, 1),
    st.integers(3, 40),
)
def test_within_a_round_line_are_the_points_close_to_its_middle(
    points: list[tuple[float, float]], radius: float, corners: int
):
    angles = np.linspace(0, 2 * np.pi, corners, endpoint=False)
    area = [(radius * float(np.cos(a)), radius * float(np.sin(a))) for a in angles]
    xs, ys = np.array(points).T
    found = within(xs, ys, area)
    away = np.hypot(xs, ys)
    inner = radius * np.cos(np.pi / corners)
    assert found[away < inner - 1e-9].all()
    assert not found[away > radius + 1e-9].any()
