"""Voting in a real browser: by key, by click and by thumb, and nothing runs or loads that is not ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from camel.evaluation.pairs import Pair
from camel.evaluation.votes import CastVote, latest, read_records
from tests.support.ballots import SYSTEMS, folder_of, pairs
from tests.support.browser import Reader, Serves
from tests.support.payloads import PAYLOADS
from tests.support.thread_server import ThreadServer
from tests.support.waiting import until

pytestmark = pytest.mark.slow
GUARD = 650
"""Milliseconds after which a page takes answers, and some more; by the virtual clock of the pages."""
SUBMIT = """() => {
  const answers = document.querySelector("#answers"), choice = document.createElement("input");
  Object.assign(choice, {name: "choice", value: "draw"});
  answers.append(choice);
  HTMLFormElement.prototype.submit.call(answers);
}"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_of(tmp_path / "evaluation", pairs(6, labels={5: "misalignment"}))


@pytest.fixture
def server(folder: Path) -> Iterator[ThreadServer]:
    made = ThreadServer("vote", folder)
    yield made
    made.stop()


def choices(folder: Path, voter: str = "Ada") -> list[str]:
    """A voter's answers in terms of the screen, in their order."""
    mine = latest(read_records(folder / "votes")).get(voter, {}).values()
    return [one.choice if one.choice not in "ab" else "AB"[one.choice != one.first] for one in mine]


def records(folder: Path) -> int:
    return sum(isinstance(one, CastVote) for one in read_records(folder / "votes"))


def patient(chromium: Any, server: Serves, **options: Any) -> Reader:
    """A reader whose pages' clock moves only when a test says so."""
    reader = Reader(chromium, server, **options)
    reader.context.clock.install(time=0)
    reader.context.clock.pause_at(1_000)
    return reader


def pass_guard(page: Any) -> None:
    page.clock.fast_forward(GUARD)


def enter(reader: Reader, name: str = "Ada") -> Any:
    reader.go("/")
    reader.page.fill("#name", name)
    reader.page.keyboard.press("Enter")
    reader.page.wait_for_url("**/pair/*")
    return reader.page


def press(page: Any, key: str) -> None:
    before = page.url
    pass_guard(page)
    page.keyboard.press(key)
    until(page, "url => location.href !== url", before)
    page.wait_for_load_state("load")


def test_by_key_and_by_click(chromium: Any, server: ThreadServer, folder: Path):
    reader = patient(chromium, server)
    page = enter(reader)
    # The digits are the buttons from left to right.
    buttons = page.locator(".choice").all()
    assert [one.inner_text().split() for one in buttons] == [
        ["1", "A", "is", "better"], ["2", "Equally", "good"], ["3", "B", "is", "better"],
    ]  # fmt: skip
    assert [one.bounding_box()["x"] for one in buttons] == sorted(one.bounding_box()["x"] for one in buttons)
    press(page, "1")
    press(page, "3")
    assert choices(folder) == ["A", "B"]
    pass_guard(page)
    page.click("text=Equally good")
    page.wait_for_selector(".so-far:has-text('3 of 5')")
    assert choices(folder) == ["A", "B", "draw"]
    # Back, by key and by the browser's own button: the vote is shown, and changing it is a new answer.
    here = page.url
    press(page, "p")
    assert page.locator("button[aria-pressed=true]").get_attribute("value") == "draw"
    press(page, "p")
    assert page.locator("button[aria-pressed=true]").get_attribute("value") == "B"
    press(page, "n")
    page.go_back()
    assert page.locator("button[aria-pressed=true]").get_attribute("value") == "B"
    press(page, "a")
    assert page.url == here, "on to where it was"
    assert choices(folder) == ["A", "A", "draw"]
    assert records(folder) == 4
    theme = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != theme
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("a")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    press(page, "s")
    press(page, "2")
    assert choices(folder) == ["A", "A", "draw", "skip", "draw"]
    assert "Ada" in page.inner_text("main")
    # The rest is behind the gate.
    page.click("main a[href^='/consent']")
    page.click("form[action='/consent'] button")
    page.wait_for_url("**/pair/*")
    assert page.locator("main .chip").inner_text() == "misalignment"
    press(page, "b")
    assert len(choices(folder)) == 6
    reader.close()


def test_a_double_click_and_a_key_held_down_are_one_vote(chromium: Any, server: ThreadServer, folder: Path):
    reader = patient(chromium, server)
    page = enter(reader)
    first = page.url
    pass_guard(page)
    page.dblclick("text=A is better", delay=20)
    until(page, "url => location.href !== url", first)
    page.wait_for_load_state("load")
    # A key that is held down is still pressed on the next page, which gets repeats of the same press.
    second = page.url
    pass_guard(page)
    page.keyboard.down("b")
    until(page, "url => location.href !== url", second)
    page.wait_for_load_state("load")
    third = page.url
    pass_guard(page)
    for _ in range(5):
        page.keyboard.down("b")
    page.keyboard.up("b")
    # Quick fingers: the key again, right after the page came.
    page.keyboard.press("e")
    until(page, "url => location.href !== url", third)
    page.wait_for_load_state("load")
    fourth = page.url
    page.keyboard.press("e")
    page.wait_for_timeout(200)
    assert page.url == fourth
    # An answer after all of these: had another one been sent, it would be among the records.
    press(page, "s")
    assert choices(folder) == ["A", "B", "draw", "skip"]
    assert records(folder) == 4
    reader.close()


def test_two_tabs(chromium: Any, server: ThreadServer, folder: Path):
    reader = patient(chromium, server)
    page = enter(reader)
    other = reader.context.new_page()
    other.goto(page.url)
    press(page, "a")
    pass_guard(other)
    other.keyboard.press("b")
    other.wait_for_selector(".note")
    assert choices(folder) == ["A"], "the other tab shows that there is already an answer"
    pass_guard(other)
    other.keyboard.press("b")
    until(other, "() => !document.querySelector('.note')")
    assert choices(folder) == ["B"]
    reader.wrong[:] = [one for one in reader.wrong if "409" not in one]
    reader.close()


def test_on_a_phone(chromium: Any, server: ThreadServer, folder: Path):
    reader = patient(chromium, server, has_touch=True, is_mobile=True)
    reader.page.set_viewport_size({"width": 390, "height": 844})
    page = enter(reader)
    fits = "document.documentElement.scrollWidth <= innerWidth"
    assert page.evaluate(fits)
    a, b = (page.locator(side).bounding_box() for side in ("#a", "#b"))
    assert b["y"] >= a["y"] + a["height"], "stacked"
    assert a["width"] > 340
    pass_guard(page)
    for button in page.locator(".ballot button").all():
        box = button.bounding_box()
        assert box["height"] >= 42, "as large as a thumb"
        assert box["width"] >= 90
        assert 844 * 0.8 < box["y"] < 844 - box["height"], "within reach of it"
    page.tap("text=to B ↓")
    page.tap("text=B is better")
    page.wait_for_selector(".so-far:has-text('1 of 5')")
    assert choices(folder) == ["B"]
    page.tap(".me summary")
    assert page.evaluate(fits)
    card = page.locator(".me .menu").bounding_box()
    assert card["x"] >= 0
    assert card["x"] + card["width"] <= 390
    reader.close()


def test_without_javascript(chromium: Any, server: ThreadServer, folder: Path):
    reader = Reader(chromium, server, java_script_enabled=False)
    page = reader.page
    reader.go("/")
    page.fill("#name", "Ada")
    page.click("text=Begin")
    for answer in ("A is better", "Equally good", "B is better"):
        before = page.url
        page.click(f"text={answer}")
        page.wait_for_url(lambda url, before=before: url != before)
    page.click("text=← Back")
    assert page.locator("button[aria-pressed=true]").count() == 1
    assert choices(folder) == ["A", "draw", "B"]
    reader.close()


def test_by_invitation(chromium: Any, folder: Path):
    invite = ("--url", "http://127.0.0.1:8099", "--invite", "Grace Hopper")
    server = ThreadServer("vote", folder, "--host", "0.0.0.0", *invite)
    line = server.printed[1]
    server.stop()
    assert line.startswith("for Grace Hopper: http://127.0.0.1:8099/join?pass=")
    server = ThreadServer("vote", folder, "--host", "0.0.0.0")
    server.url = server.url.replace(server.url.split("//")[1].split(":")[0], "127.0.0.1")
    try:
        stranger = Reader(chromium, server)
        assert stranger.go("/").status == 401
        stranger.wrong[:] = [one for one in stranger.wrong if "401" not in one]
        stranger.close()
        guest = Reader(chromium, server)
        guest.go("/" + server.link.partition("//")[2].partition("/")[2])
        guest.page.fill("#name", "grace hopper")
        guest.page.click("text=Begin")
        guest.page.wait_for_selector("#wrong")
        guest.page.fill("#name", "Eve")
        guest.page.click("text=Begin")
        guest.page.wait_for_url("**/pair/*")
        guest.wrong[:] = [one for one in guest.wrong if "400" not in one]
        guest.close()
        # The link from before the restart is as good as ever.
        invited = Reader(chromium, server)
        invited.go(line.strip().partition("8099")[2])
        assert "Grace Hopper" in invited.page.inner_text("main")
        invited.page.click("text=Begin")
        invited.page.wait_for_url("**/pair/*")
        invited.close()
    finally:
        server.stop()


@pytest.mark.parametrize("step", [20, pytest.param(2, marks=pytest.mark.thorough)])
def test_hostile_text_runs_nothing_and_loads_nothing(chromium: Any, tmp_path: Path, step: int):
    """Each payload is a solution, and some are tasks; with `step` payloads on a page, or one on each side."""
    made = []
    for n in range(0, len(PAYLOADS), step):
        left, right = ("\n\n".join(PAYLOADS[start : start + step // 2]) for start in (n, n + step // 2))
        made.append(Pair(f"{SYSTEMS[0]}-{n}", PAYLOADS[n], SYSTEMS[0], left, SYSTEMS[1], right or "x"))
    shown = "".join(one.text_a + one.text_b for one in made)
    assert all(text in shown for text in PAYLOADS)
    folder = folder_of(tmp_path / "hostile", made)
    server = ThreadServer("vote", folder)
    reader = Reader(chromium, server)
    try:
        page = enter(reader, "Ada <img src=x onerror=window.pwned=1>")
        paths: list[str] = []
        # Each page is looked at; the answers are sent past the guard against double clicks.
        while "/pair/" in page.url:
            paths.append(page.url)
            assert page.evaluate("window.pwned") is None
            assert page.locator(".side-col").count() == 2
            assert not any(name in page.content() for name in SYSTEMS)
            with page.expect_navigation():
                page.evaluate(SUBMIT)
        assert page.evaluate("window.pwned") is None
        assert len(set(paths)) == len(made)
        reader.close()
    finally:
        server.stop()
