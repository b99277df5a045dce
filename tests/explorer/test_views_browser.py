"""Stars, columns, downloads and two groups in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from camel.query.catalogue import Catalogue
from camel.query.where import Query
from tests.support.browser import Reader
from tests.support.societies import society
from tests.support.thread_server import ThreadServer
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("views")
    society(where / "oasis", rows=30, seed=2)
    society(where / "caravan", rows=60)
    return where / "caravan"


@pytest.fixture(scope="module")
def server(run: Path) -> Iterator[ThreadServer]:
    made = ThreadServer("explore", run.parent)
    yield made
    made.stop()


@pytest.fixture
def reader(chromium: Any, server: ThreadServer) -> Iterator[Reader]:
    made = Reader(chromium, server)
    yield made
    made.close()


def starred(run: Path) -> list[str]:
    with Catalogue([run]) as catalogue:
        return [row.id for row in catalogue.page(Query(facets={"starred": ("yes",)})).rows]


def test_the_key_s_stars_the_current_row_and_the_conversation(reader: Reader, run: Path):
    reader.go("/list?run=caravan")
    reader.page.keyboard.press("j")
    reader.page.keyboard.press("s")
    reader.page.wait_for_selector(".row >> nth=0 >> button[aria-pressed=true]")
    assert "/list" in reader.page.url
    (first,) = starred(run)
    reader.go(f"/conversation/caravan?id={first}")
    reader.page.keyboard.press("s")
    reader.page.wait_for_selector("button[data-key=s][aria-pressed=false]")
    assert starred(run) == []


def test_a_note_is_saved_and_comes_back(reader: Reader):
    reader.go("/conversation/caravan?id=000_007")
    reader.page.click("#annotation > summary")
    reader.page.fill("textarea[name=note]", "read again")
    reader.page.fill("input[name=tags]", "odd, long")
    reader.page.click("#annotation button")
    reader.page.wait_for_selector("#annotation .peek:has-text('read again')")
    reader.go("/list?tag=odd")
    assert reader.page.locator(".row").count() == 1


def test_columns_are_chosen_and_the_list_is_downloaded(reader: Reader, tmp_path: Path):
    reader.go("/list?run=caravan&stop=done")
    reader.page.click("text=Table")
    reader.page.click("text=Columns")
    reader.page.check("input[value=model]")
    reader.page.click("text=Show >> visible=true")
    reader.page.wait_for_selector("th:has-text('Model')")
    reader.page.click("summary:has-text('Download')")
    with reader.page.expect_download() as started:
        reader.page.click("text=CSV, one line per conversation")
    started.value.save_as(tmp_path / "list.csv")
    lines = (tmp_path / "list.csv").read_text().splitlines()
    assert len(lines) - 1 == reader.page.locator(".row").count()


def test_no_page_is_wider_than_a_phone(reader: Reader):
    columns = "columns=user,assistant,task,messages,tokens,cost,stop,model,scenario,run,id,tags,note"
    for width in (360, 1440):
        reader.page.set_viewport_size({"width": width, "height": 800})
        for path in (
            f"/list?{columns}",
            "/contrast",
            "/contrast?run=caravan&against=oasis",
            "/contrast?run=caravan&stop=done&against=-",
            "/conversation/caravan?id=000_007",
        ):
            assert reader.go(path).status == 200, path
            for menu in [None, *reader.page.locator("details.menu, #annotation").all()]:
                if menu is not None:
                    menu.evaluate("one => { one.open = true; }")
                assert reader.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
                    path,
                    width,
                )


def test_a_new_run_appears_on_the_page(reader: Reader, run: Path):
    society(run.parent / "latecomer", rows=5, seed=9)

    def there() -> bool:
        reader.go("/")
        return reader.page.locator("text=latecomer").count() > 0

    wait_for(there)
