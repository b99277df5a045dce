"""The map in a real browser, under software WebGL: it is drawn, read, chosen from, and no text of a model does anything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from camel.runs.run import open_folder
from camel.runs.settings import Settings
from tests.support.browser import Reader
from tests.support.mapped import mapped
from tests.support.payloads import PAYLOADS, hostile
from tests.support.societies import SECRET, commit, society
from tests.support.thread_server import ThreadServer
from tests.support.waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadServer]:
    root = tmp_path_factory.mktemp("maps")
    society(root / "caravan", rows=120, shard=30, restricted=range(100, 120))
    mapped(root / "caravan")
    mapped(root / "caravan", "instructions")
    bad = open_folder(root / "hostile")
    bad.create(Settings("f", {"scenario": "x"}, "0"))
    commit(bad, 0, [hostile(n, text) for n, text in enumerate(PAYLOADS)])
    mapped(root / "hostile")
    made = ThreadServer("explore", root / "caravan", root / "hostile")
    yield made
    made.stop()


@pytest.fixture
def reader(drawing_chromium: Any, server: ThreadServer) -> Iterator[Reader]:
    made = Reader(drawing_chromium, server)
    yield made
    # What the graphics driver says of its own speed, when the test reads pixels, is not the page's.
    made.wrong = [one for one in made.wrong if "GPU stall due to ReadPixels" not in one]
    made.close()


def open_map(reader: Reader, path: str) -> Any:
    assert reader.go(path).status == 200
    reader.page.wait_for_selector("#map[data-drawn], #map[data-failed]")
    assert not reader.page.get_attribute("#map", "data-failed")
    return reader.page


PIXELS = """() => {
  const from = document.querySelector("#map canvas"), into = document.createElement("canvas");
  [into.width, into.height] = [from.width, from.height];
  const brush = into.getContext("2d");
  brush.drawImage(from, 0, 0);
  const data = brush.getImageData(0, 0, into.width, into.height).data, seen = new Map();
  for (let at = 0; at < data.length; at += 4) {
    const color = `${data[at]},${data[at + 1]},${data[at + 2]},${data[at + 3]}`;
    seen.set(color, (seen.get(color) ?? 0) + 1);
  }
  return seen.size;
}"""


FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"


def draw(page: Any) -> None:
    """Wait until the page has drawn what it knows by now."""
    page.evaluate(FRAMES)


def hover(page: Any, name: Any) -> bool:
    """Move the pointer around a group's name, which is over its points, until a text is shown."""
    box = name.bounding_box()
    for dx in (0, -6, 6, -12, 12, -20, 20):
        page.mouse.move(box["x"] + box["width"] / 2 + dx, box["y"] + box["height"] / 2)
        draw(page)
        if page.locator("#map.over").count():
            page.wait_for_selector("#tip:visible")
            return True
    return False


def lasso(page: Any, half: float = 0.49) -> None:
    """Draw a line around the middle of the map."""
    frame = page.locator("#map").bounding_box()
    x, y, w, h = (
        frame["x"] + frame["width"] / 2,
        frame["y"] + frame["height"] / 2,
        frame["width"],
        frame["height"],
    )
    corners = [(-half, -half), (half, -half), (half, half), (-half, half), (-half, -half + 0.02)]
    page.mouse.move(x + corners[0][0] * w, y + corners[0][1] * h)
    page.mouse.down()
    for dx, dy in corners[1:]:
        page.mouse.move(x + dx * w, y + dy * h, steps=8)
        page.wait_for_timeout(40)
    page.mouse.up()


def test_points_are_drawn_in_both_themes_and_on_a_phone(reader: Reader):
    page = open_map(reader, "/map?run=caravan")
    assert page.get_attribute("#map", "data-drawn") == "100"
    assert page.evaluate(PIXELS) > 3
    assert page.locator(".map-names span.on").count() > 0
    page.click("#theme")
    draw(page)
    assert page.evaluate(PIXELS) > 3
    page.set_viewport_size({"width": 390, "height": 844})
    page = open_map(reader, "/map?run=caravan&color=length")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(PIXELS) > 3
    page.click("#names")
    assert not page.locator(".map-names").is_visible()


def test_a_line_around_points_becomes_a_list_and_a_link(reader: Reader):
    page = open_map(reader, "/map?run=caravan")
    assert not page.locator("#choice").is_visible()
    page.click("#lasso")
    lasso(page)
    page.wait_for_selector("#points .point")
    chosen = page.inner_text("#chosen")
    assert chosen == "100"
    assert page.locator("#points .point").count() == 40
    page.click("[data-more]")
    until(page, "document.querySelectorAll('#points .point').length === 80")
    assert "area=" in page.url
    assert SECRET not in page.inner_text("#points")
    # The link shows the same selection in another browser.
    page = open_map(reader, page.url)
    until(page, "chosen => document.querySelector('#chosen').innerText === chosen", chosen)
    assert page.locator("#points .point").count() == 40
    page.click("#clear")
    until(page, "!location.search.includes('area')")
    assert not page.locator("#choice").is_visible()


def test_the_text_under_the_pointer_is_shown_and_a_click_opens_it(reader: Reader):
    page = open_map(reader, "/map?run=caravan")
    frame = page.locator("#map").bounding_box()
    assert any(hover(page, name) for name in page.locator(".map-names span.on").all())
    assert page.locator("#tip .said").inner_text().startswith("find a")
    tip = page.locator("#tip").bounding_box()
    assert tip["x"] >= frame["x"]
    assert tip["x"] + tip["width"] <= frame["x"] + frame["width"]
    page.mouse.down()
    page.mouse.up()
    page.wait_for_url("**/conversation/caravan?id=*")


def test_no_text_does_anything_but_be_read(reader: Reader):
    page = open_map(reader, "/map?run=hostile")
    tips = set[str]()
    for name in page.locator(".map-names span.on").all():
        if hover(page, name):
            tips.add(page.inner_text("#tip .said"))
    assert tips
    page.click("#lasso")
    lasso(page)
    page.wait_for_selector("#points .point")
    while page.locator("[data-more]").count():
        count = page.locator("#points .point").count()
        page.click("[data-more]")
        until(page, "n => document.querySelectorAll('#points .point').length > n", count)
    for color in ("scenario", "assistant", "label", "model"):
        open_map(reader, f"/map?run=hostile&color={color}")
    assert page.evaluate("window.pwned") is None
    assert page.locator("#points script, #points img, #map script").count() == 0


def test_a_finger_moves_the_map_and_two_zoom(drawing_chromium: Any, server: ThreadServer):
    made = Reader(drawing_chromium, server, has_touch=True)
    page = open_map(made, "/map?run=caravan")
    draw(page)
    place = """() => {
      const box = document.querySelector(".map-names span.on").getBoundingClientRect();
      return [box.x + box.width / 2, box.y];
    }"""
    remote = made.context.new_cdp_session(page)

    def touch(kind: str, *points: tuple[float, float]) -> None:
        fingers = [{"x": x, "y": y, "id": n} for n, (x, y) in enumerate(points)]
        remote.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": fingers})
        draw(page)

    before = page.evaluate(place)
    touch("touchStart", (500, 400))
    for step in range(1, 6):
        touch("touchMove", (500 + 8 * step, 400 + 4 * step))
    touch("touchEnd")
    draw(page)
    after = page.evaluate(place)
    assert (after[0] - before[0], after[1] - before[1]) == (
        pytest.approx(40, abs=6),
        pytest.approx(20, abs=6),
    )
    spread = "() => [...document.querySelectorAll('.map-names span.on')].length"
    touch("touchStart", (480, 400))
    touch("touchStart", (480, 400), (520, 400))
    for step in range(1, 8):
        touch("touchMove", (480 - 10 * step, 400), (520 + 10 * step, 400))
    touch("touchEnd")
    draw(page)
    assert page.evaluate(spread) == 0 or page.evaluate(place) != after
    assert "/map" in page.url
    made.wrong = [one for one in made.wrong if "GPU stall due to ReadPixels" not in one]
    made.close()


def test_without_javascript_the_groups_and_the_list_are_there(drawing_chromium: Any, server: ThreadServer):
    made = Reader(drawing_chromium, server, java_script_enabled=False)
    made.go("/map?run=caravan&area=-2,-2;2,-2;2,2;-2,2")
    assert made.page.locator("#points .point").count() == 40
    assert made.page.locator("#legend li").count() > 1
    made.close()


def test_the_map_can_be_found_from_every_page(reader: Reader):
    reader.go("/list")
    reader.page.click("nav >> text=Map")
    reader.page.wait_for_selector("#map[data-drawn]")
