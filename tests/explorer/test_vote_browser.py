"""Voting in a real browser: by key, by click and by thumb, and nothing runs or loads that is not ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from camel.evaluation.pairs import Pair
from camel.evaluation.votes import Vote, latest, read_records
from tests.support.ballots import SYSTEMS, Server, folder_of, pairs
from tests.support.browser import Reader
from tests.support.payloads import PAYLOADS
from tests.support.waiting import until

pytestmark = [
    pytest.mark.slow,
    # Playwright leaves its own event loop's transports to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
GUARD = 650
"""Milliseconds after which a page takes answers, and some more."""
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
def server(folder: Path) -> Iterator[Server]:
    made = Server(folder)
    yield made
    made.stop()


def choices(folder: Path, voter: str = "Ada") -> list[str]:
    """A voter's answers in terms of the screen, in their order."""
    mine = latest(read_records(folder / "votes")).get(voter, {}).values()
    return [one.choice if one.choice not in "ab" else "AB"[one.choice != one.first] for one in mine]


def records(folder: Path) -> int:
    return sum(isinstance(one, Vote) for one in read_records(folder / "votes"))


def enter(reader: Reader, name: str = "Ada") -> Any:
    reader.go("/")
    reader.page.fill("#name", name)
    reader.page.keyboard.press("Enter")
    reader.page.wait_for_url("**/pair/*")
    return reader.page


def press(page: Any, key: str) -> None:
    before = page.url
    page.wait_for_timeout(GUARD)
    page.keyboard.press(key)
    until(page, "url => location.href !== url", before)
    page.wait_for_load_state("load")


def test_by_key_and_by_click(chromium: Any, server: Server, folder: Path):
    reader = Reader(chromium, server)
    page = enter(reader)
    press(page, "a")
    press(page, "2")
    assert choices(folder) == ["A", "B"]
    page.wait_for_timeout(GUARD)
    page.click("text=Equally good")
    page.wait_for_selector(".so-far:has-text('3 of 5')")
    assert choices(folder) == ["A", "B", "draw"]
    # Back, by key and by the browser's own button: the vote is shown, and changing it is a new answer.
    here = page.url
    press(page, "p")
    assert page.locator("button[aria-pressed=true]").inner_text().strip() == "Equally good"
    press(page, "p")
    assert page.locator("button[aria-pressed=true]").inner_text().strip() == "B is better"
    press(page, "n")
    page.go_back()
    assert page.locator("button[aria-pressed=true]").inner_text().strip() == "B is better"
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
    press(page, "e")
    assert choices(folder) == ["A", "A", "draw", "skip", "draw"]
    assert "Thank you, Ada" in page.inner_text("main")
    # The rest is behind the gate.
    page.click("text=read what they are")
    page.click("text=I agree, show them")
    page.wait_for_url("**/pair/*")
    assert page.locator("main .badge.label").inner_text() == "misalignment"
    press(page, "b")
    assert len(choices(folder)) == 6
    reader.close()


def test_a_double_click_and_a_key_held_down_are_one_vote(chromium: Any, server: Server, folder: Path):
    reader = Reader(chromium, server)
    page = enter(reader)
    first = page.url
    page.wait_for_timeout(GUARD)
    page.dblclick("text=A is better", delay=20)
    until(page, "url => location.href !== url", first)
    page.wait_for_timeout(GUARD)
    assert choices(folder) == ["A"], "and the next pair was not answered by the second click"
    second = page.url
    for _ in range(30):  # repeats, as a key that is held down
        page.keyboard.down("b")
        page.wait_for_timeout(30)
    page.keyboard.up("b")
    until(page, "url => location.href !== url", second)
    assert choices(folder) == ["A", "B"]
    assert records(folder) == 2
    # Quick fingers: the key again, right after the page came.
    page.wait_for_timeout(GUARD)
    third = page.url
    page.keyboard.press("e")
    until(page, "url => location.href !== url", third)
    page.keyboard.press("e")
    page.wait_for_timeout(300)
    assert choices(folder) == ["A", "B", "draw"]
    reader.close()


def test_two_tabs(chromium: Any, server: Server, folder: Path):
    reader = Reader(chromium, server)
    page = enter(reader)
    other = reader.context.new_page()
    other.goto(page.url)
    press(page, "a")
    other.wait_for_timeout(GUARD)
    other.keyboard.press("b")
    other.wait_for_selector("text=You have answered A here before")
    assert choices(folder) == ["A"]
    other.wait_for_timeout(GUARD)
    other.keyboard.press("b")
    until(other, "() => !document.querySelector('.note')")
    assert choices(folder) == ["B"]
    reader.wrong[:] = [one for one in reader.wrong if "409" not in one]
    reader.close()


def test_on_a_phone(chromium: Any, server: Server, folder: Path):
    reader = Reader(chromium, server, has_touch=True, is_mobile=True)
    reader.page.set_viewport_size({"width": 390, "height": 844})
    page = enter(reader)
    fits = "document.documentElement.scrollWidth <= innerWidth"
    assert page.evaluate(fits)
    a, b = (page.locator(side).bounding_box() for side in ("#a", "#b"))
    assert b["y"] >= a["y"] + a["height"], "stacked"
    assert a["width"] > 340
    page.wait_for_timeout(GUARD)
    for button in page.locator(".answers button").all():
        box = button.bounding_box()
        assert box["height"] >= 42, "as large as a thumb"
        assert box["width"] >= 90
        assert 844 * 0.8 < box["y"] < 844 - box["height"], "within reach of it"
    page.tap("text=to B ↓")
    page.tap("text=B is better")
    page.wait_for_selector(".so-far:has-text('1 of 5')")
    assert choices(folder) == ["B"]
    page.tap(".who summary")
    assert page.evaluate(fits)
    card = page.locator(".who .card").bounding_box()
    assert card["x"] >= 0
    assert card["x"] + card["width"] <= 390
    reader.close()


def test_without_javascript(chromium: Any, server: Server, folder: Path):
    reader = Reader(chromium, server, java_script_enabled=False)
    page = reader.page
    reader.go("/")
    page.fill("#name", "Ada")
    page.click("text=Begin")
    for answer in ("A is better", "Equally good", "B is better"):
        page.wait_for_timeout(GUARD)
        before = page.url
        page.click(f"text={answer}")
        page.wait_for_url(lambda url, before=before: url != before)
    page.click("text=← Back")
    assert page.locator("button[aria-pressed=true]").count() == 1
    assert choices(folder) == ["A", "draw", "B"]
    reader.close()


def test_by_invitation(chromium: Any, folder: Path):
    server = Server(folder, "--host", "0.0.0.0", "--url", "http://127.0.0.1:8099", "--invite", "Grace Hopper")
    try:
        assert server.process.stdout
        line = server.process.stdout.readline()
        assert line.startswith("for Grace Hopper: http://127.0.0.1:8099/join?pass=")
    finally:
        server.stop()
    server = Server(folder, "--host", "0.0.0.0")
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
        guest.page.wait_for_selector("text=somebody has this name")
        guest.page.fill("#name", "Eve")
        guest.page.click("text=Begin")
        guest.page.wait_for_url("**/pair/*")
        guest.wrong[:] = [one for one in guest.wrong if "400" not in one]
        guest.close()
        # The link from before the restart is as good as ever.
        invited = Reader(chromium, server)
        invited.go(line.strip().partition("8099")[2])
        assert "Welcome, Grace Hopper" in invited.page.inner_text("main")
        invited.page.click("text=Begin")
        invited.page.wait_for_url("**/pair/*")
        invited.close()
    finally:
        server.stop()


def test_hostile_text_runs_nothing_and_loads_nothing(chromium: Any, tmp_path: Path):
    assert len(PAYLOADS) >= 150
    made = [
        Pair(f"{SYSTEMS[0]}-{n}", PAYLOADS[n], SYSTEMS[0], PAYLOADS[n], SYSTEMS[1], PAYLOADS[n - 1])
        for n in range(1, len(PAYLOADS), 2)
    ]
    made.append(Pair("last", "x", SYSTEMS[0], PAYLOADS[-1], SYSTEMS[1], f"x\n\n{PAYLOADS[-1]}"))
    folder = folder_of(tmp_path / "hostile", made)
    server = Server(folder)
    reader = Reader(chromium, server)
    try:
        page = enter(reader, "Ada <img src=x onerror=window.pwned=1>")
        paths: list[str] = []
        # Each page is looked at; the answers go by the form itself, for the guard would take minutes.
        while "/pair/" in page.url:
            paths.append(page.url)
            assert page.evaluate("window.pwned") is None
            assert page.locator(".side").count() == 2
            assert not any(name in page.content() for name in SYSTEMS)
            with page.expect_navigation():
                page.evaluate(SUBMIT)
        assert page.evaluate("window.pwned") is None
        assert len(set(paths)) == len(made)
        reader.close()
    finally:
        server.stop()
