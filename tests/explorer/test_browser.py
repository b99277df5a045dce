"""The explorer in a real browser: every page, every key, and nothing runs or loads that is not ours.

Debian's chromium, driven by Playwright; `.ci/run` installs it where it is missing.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import camel.scenarios
from camel import Run
from camel.core.message import Usage
from camel.core.model import Choice, Reply
from camel.models.simulator import SimulatorSettings, spawn
from camel.runs.control import read_wish, wish
from camel.runs.run import open_folder
from camel.runs.settings import Settings
from tests.support import in_process
from tests.support.browser import Reader, Server
from tests.support.payloads import CONTROL, PAYLOADS, acts, hostile, hostile_crowd
from tests.support.societies import SECRET, commit, society, transcript
from tests.support.thread_server import ThreadServer
from tests.support.waiting import until

pytestmark = pytest.mark.slow

CROWD = 15
"""Payloads that are shown on one page; in `make thorough` each has a page of its own, too."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    root = tmp_path_factory.mktemp("browser")
    society(root / "caravan", rows=120, shard=30, restricted=range(100, 120))
    bad = open_folder(root / "hostile")
    bad.create(Settings("f", {"scenario": "x"}, "0"))
    commit(bad, 0, [hostile(n, text) for n, text in enumerate(PAYLOADS)])
    crowds = [PAYLOADS[start : start + CROWD] for start in range(0, len(PAYLOADS), CROWD)]
    calls = hostile(2000, "calls")
    calls.messages[0] = msgspec.structs.replace(
        calls.messages[0], actions=[one for text in CONTROL for one in acts(text)]
    )
    commit(bad, 1, [*(hostile_crowd(1000 + n, texts) for n, texts in enumerate(crowds)), calls])
    live = open_folder(root / "live")
    counts = {"assistant_role": 2, "user_role": 2, "task": 2}
    live.create(Settings("f", {"scenario": "ai_society", "counts": counts, "shard_size": 4}, "0"))
    return root / "caravan", root / "hostile", root / "live"


@pytest.fixture(scope="module")
def server(runs: tuple[Path, Path, Path]) -> Iterator[ThreadServer]:
    made = ThreadServer("explore", *runs)
    yield made
    made.stop()


@pytest.fixture
def reader(chromium: Any, server: ThreadServer) -> Iterator[Reader]:
    made = Reader(chromium, server, permissions=["clipboard-read", "clipboard-write"])
    yield made
    made.close()


def test_every_page_opens_cleanly(reader: Reader):
    for path in (
        "/",
        "/list",
        "/list?q=oasis",
        "/list?sample=20&seed=2",
        "/statistics",
        "/consent",
        "/watch/live",
        "/run/caravan",
        "/run/caravan/configuration",
        "/reports",
    ):
        assert reader.go(path).status == 200, path
    reader.go("/list")
    reader.page.click(".row >> nth=0 >> [data-open]")
    assert "/conversation/caravan" in reader.page.url
    talk = reader.page.url
    reader.go("/list?run=caravan&sort=messages&order=desc")
    links = reader.page.eval_on_selector_all("[data-open]", "all => all.map(a => a.getAttribute('href'))")
    ids = [link.partition("id=")[2].partition("&")[0] for link in links]
    compared = f"/compare?left=caravan/{ids[0]}&right=caravan/{ids[1]}"
    pages = (
        "/",
        "/list",
        "/statistics",
        "/run/caravan",
        "/watch/live",
        "/consent",
        "/reports",
        talk,
        compared,
    )
    for width in (360, 1280):
        reader.page.set_viewport_size({"width": width, "height": 800})
        for path in pages:
            reader.go(path)
            assert reader.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (path, width)


SMALL = """() => [...document.querySelectorAll('.btn, .icon, .top nav a, .tabs a, .facet a, summary, select, input:not([type=checkbox])')]
    .filter((one) => one.checkVisibility() && one.offsetHeight && one.offsetHeight < 28)
    .map((one) => one.outerHTML.slice(0, 80))"""


def test_on_a_phone_filters_are_a_sheet_and_targets_are_large(reader: Reader):
    page = reader.page
    page.set_viewport_size({"width": 360, "height": 740})
    reader.go("/list?run=caravan")
    assert not page.locator(".facets").is_visible()
    page.click("label.filter-button")
    assert page.locator(".facets").is_visible()
    for selector in (".facet a", ".sheet-end .btn"):
        assert page.locator(selector).first.bounding_box()["height"] >= 44
    page.click(".sheet-end .btn")
    assert not page.locator(".facets").is_visible()
    for selector in (".top nav a", ".tabs a", ".crumbs .btn", "#theme"):
        assert page.locator(selector).first.bounding_box()["height"] >= 43.5, selector
    assert page.evaluate(SMALL) == []


def test_pulses_are_drawn_after_the_list_and_after_a_filter(reader: Reader):
    page = reader.page
    reader.go("/list?run=caravan")
    page.wait_for_selector(".row .pulse rect")
    page.click(".facets a:has-text('done')")
    page.wait_for_url("**stop=done*")
    page.wait_for_selector(".row .pulse rect")


def test_a_run_is_paused_and_resumed_from_its_page(reader: Reader, runs: tuple[Path, Path, Path]):
    live = open_folder(runs[2])
    with live.locked():  # as the process of the run does
        reader.go("/watch/live")
        page = reader.page
        page.click("#control >> text=Pause")
        page.wait_for_selector("#state:has-text('paused')")
        assert read_wish(live) == "pause"
        page.wait_for_selector("#control >> text=Pause", state="hidden")
        page.click("#control >> text=Resume")
        page.wait_for_selector("#state:has-text('working')")
        assert read_wish(live) == "go"
        page.click("button[value=stop]")
        page.wait_for_load_state()
        assert read_wish(live) == "stop"
        wish(live, "go")


def test_plots_are_taken_away(reader: Reader):
    reader.go("/statistics?run=caravan")
    page = reader.page
    assert page.locator("figure.plot").count() >= 6
    page.click("#plot-stop .files summary")
    for kind in ("SVG", "PNG", "CSV"):
        with page.expect_download() as taken:
            page.locator(f"#plot-stop .files a:text-is('{kind}')").click()
        assert taken.value.suggested_filename == f"stop.{kind.lower()}"
        assert Path(taken.value.path()).stat().st_size > 50
    page.locator(".plot a").first.click()
    assert "/list?" in page.url


def test_every_key(reader: Reader):
    page = reader.page
    reader.go("/list?run=caravan")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert page.locator(".row.current").count() == 1
    assert page.locator(".row").first.evaluate("row => row.classList.contains('current')")
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#help").is_visible()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "find"
    page.keyboard.type("jjj")
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    page.wait_for_url("**after=*")
    assert page.locator(".row .at > span").first.inner_text() == "41"
    page.keyboard.press("p")
    page.wait_for_url("**before=*")
    assert page.locator(".row .at > span").first.inner_text() == "1"
    theme = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != theme
    page.keyboard.press("j")
    page.keyboard.press("c")
    page.wait_for_url("**pin=*")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("c")
    page.wait_for_url("**/compare?*")
    assert page.locator(".side-head").count() == 2
    page.keyboard.press("u")
    page.wait_for_url("**/list*")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/conversation/*")
    first = page.url
    page.keyboard.press("n")
    until(page, "url => location.href.split('#')[0] !== url.split('#')[0]", first)
    page.wait_for_load_state("load")
    page.keyboard.press("p")
    until(page, "url => location.href.split('#')[0] === url.split('#')[0]", first)
    page.wait_for_load_state("load")
    page.keyboard.press("y")
    page.wait_for_selector(".toast.on")
    assert page.evaluate("navigator.clipboard.readText()").startswith("# ")
    page.keyboard.press("r")
    page.wait_for_load_state("load")
    assert "/conversation/" in page.url


def test_the_back_button_and_links_without_a_reload(reader: Reader):
    page = reader.page
    reader.go("/list?run=caravan")
    page.evaluate("window.same = true")
    page.click(".facets a:has-text('done')")
    page.wait_for_url("**stop=done*")
    assert page.evaluate("window.same") is True, "only what is in the page was replaced"
    page.go_back()
    page.wait_for_url(lambda url: "stop=done" not in url)
    until(page, "!document.querySelector('.chip')?.textContent.includes('done')")


def test_without_javascript(chromium: Any, server: ThreadServer):
    reader = Reader(chromium, server, java_script_enabled=False)
    reader.go("/list?run=caravan")
    reader.page.click("text=Next →")
    assert reader.page.locator(".row .at > span").first.inner_text() == "41"
    reader.page.fill("#find", "oasis")
    reader.page.press("#find", "Enter")
    assert reader.page.locator("mark").count() > 0
    reader.page.click(".row >> nth=0 >> [data-open]")
    assert reader.page.locator(".message mark").count() > 0
    reader.close()


def test_the_gate_in_the_browser(reader: Reader):
    page = reader.page
    reader.go(f"/list?q={SECRET}")
    assert "0 conversations" in page.inner_text("#summary")
    page.click("main a[href^='/consent']")
    page.click("form[action='/consent'] button")
    page.wait_for_url("**/list**")
    reader.go(f"/list?q={SECRET}")
    assert "20 conversations" in page.inner_text("#summary")
    page.click(".shown-label")
    page.click("form[action='/consent'] button")
    reader.go(f"/list?q={SECRET}")
    assert "0 conversations" in page.inner_text("#summary")


@pytest.mark.parametrize("step", [3 * CROWD, pytest.param(1, marks=pytest.mark.thorough)])
def test_hostile_text_runs_nothing_and_loads_nothing(reader: Reader, step: int):
    page = reader.page
    for path in ("/", "/list?run=hostile", "/list?run=hostile&q=script", "/statistics?run=hostile"):
        reader.go(path)
        assert page.evaluate("window.pwned") is None, path
    reader.go("/list?run=hostile")
    links = page.eval_on_selector_all("[data-open]", "all => all.map(a => a.getAttribute('href'))")
    while page.locator("a[rel=next]").count():
        page.goto(page.locator("a[rel=next]").get_attribute("href"))
        links += page.eval_on_selector_all("[data-open]", "all => all.map(a => a.getAttribute('href'))")
    crowds = len(links) - len(PAYLOADS)
    assert crowds * CROWD >= len(PAYLOADS)
    for link in [*links[: len(PAYLOADS) : step], *links[-crowds:]]:
        assert reader.go(link).status == 200
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        page.keyboard.press("j")
        assert page.evaluate("window.pwned") is None, link


def test_the_live_view(chromium: Any, runs: tuple[Path, Path, Path]):
    """What is said is seen, and after a restart of the server nothing is missing."""
    live = open_folder(runs[2])

    def say(item: int, text: str) -> None:
        async def write() -> None:
            journal = live.open_journal("conversations", 0, f"a{time.monotonic_ns()}")
            reply = msgspec.msgpack.encode(Reply((Choice(text),), Usage(10, 5, 0, 1), "m"))
            await journal.append(msgspec.msgpack.encode((item, 0, b"check", reply)))
            await journal.close()

        asyncio.run_coroutine_threadsafe(write(), loop).result(30)

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    server = ThreadServer("explore", runs[2], port=port)
    reader = Reader(chromium, server)
    try:
        reader.go("/watch/live")
        say(0, "Instruction: Greet <b>the</b> caravan\nInput: None")
        reader.page.wait_for_selector(".lane:has-text('Greet <b>the</b> caravan')")
        server.stop()
        say(1, "Instruction: Said while nobody listened")
        server = ThreadServer("explore", runs[2], port=port)
        reader.page.wait_for_selector(".lane:has-text('while nobody listened')")
        say(2, "Instruction: And after")
        reader.page.wait_for_selector(".lane:has-text('And after')")
        assert reader.page.locator(".lane").count() == 3
        commit(live, 0, [transcript(n) for n in range(4)])
        live.drop_journals("conversations", 0)
        reader.page.wait_for_selector("#quiet:visible")
        # A connection that was refused while the server was away is the browser's to report, and no fault.
        reader.wrong[:] = [
            one for one in reader.wrong if "ERR_CONNECTION" not in one and "ERR_INCOMPLETE" not in one
        ]
        reader.close()
    finally:
        server.stop()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(
    params=["simulated", pytest.param("real", marks=[pytest.mark.real_model, pytest.mark.thorough])]
)
def generated(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run from `camel generate`, with the simulated endpoint or with the real small model."""
    short = tmp_path / "short"
    shutil.copytree(Path(camel.scenarios.__file__).parent / "ai_society", short)
    declared = (short / "scenario.toml").read_text()
    (short / "scenario.toml").write_text(declared.replace("[role_play]", "[role_play]\nmax_messages = 4"))
    config = tmp_path / "run.toml"
    config.write_text(
        f'scenario = "{short}"\nout = "{tmp_path / "run"}"\n'
        "[counts]\nassistant_role = 1\nuser_role = 2\ntask = 1\n[model]\nname = 'simulated'\n"
    )
    command = ["generate", str(config)]
    with spawn(SimulatorSettings()) as endpoint:
        if request.param == "simulated":
            monkeypatch.setenv("OPENAI_BASE_URL", endpoint.base_url)
            monkeypatch.setenv("OPENAI_API_KEY", "none")
        else:
            command.append("--local")
        done = in_process.invoke(command)
        assert done.exit_code == 0, done.output
    [run] = [path.parent for path in tmp_path.glob("*/run.json")]
    return run


def test_the_printed_link_lets_its_browser_in(chromium: Any, runs: tuple[Path, Path, Path]):
    server = ThreadServer("explore", runs[0], token=True)
    friend, context = Reader(chromium, server), chromium.new_context()
    stranger = context.new_page()
    try:
        assert stranger.goto(server.url).status == 401
        assert friend.page.goto(server.link).status == 200
        friend.page.wait_for_selector(".facts, .gallery, h1")
        assert friend.page.goto(f"{server.url}/list").status == 200
        assert stranger.goto(f"{server.url}/list").status == 401
    finally:
        context.close()
        friend.close()
        server.stop()


def test_what_was_generated_can_be_explored(generated: Path, chromium: Any):
    run = generated
    server = ThreadServer("explore", run)
    reader = Reader(chromium, server)
    try:
        for path in ("/", "/list", "/list?q=the", "/list?sample=2", "/statistics", f"/watch/{run.name}"):
            assert reader.go(path).status == 200
        reader.go("/list")
        assert reader.page.locator(".row").count() == 2
        reader.page.keyboard.press("j")
        reader.page.keyboard.press("c")
        reader.page.wait_for_url("**pin=*")
        reader.page.keyboard.press("j")
        reader.page.keyboard.press("j")
        reader.page.keyboard.press("c")
        reader.page.wait_for_url("**/compare?*")
        reader.page.click(".side-head h2 a >> nth=0")
        reader.page.wait_for_url("**/conversation/*")
        said = [message.content for message in next(iter(Run(run))).messages]
        assert reader.page.locator(".message").count() == len(said)
        reader.page.click("text=As written")
        reader.page.wait_for_url("**view=raw*")
        assert [text.strip() for text in reader.page.locator(".raw").all_text_contents()] == [
            one.strip() for one in said
        ]
        reader.close()
    finally:
        server.stop()


def test_elsewhere_a_token_is_needed(chromium: Any, runs: tuple[Path, Path, Path]):
    server = Server(runs[0], options=("--host", "0.0.0.0"))
    try:
        assert "?token=" in server.link
        reader = Reader(chromium, server)
        assert reader.go("/list").status == 401
        reader.page.goto(server.link)
        reader.page.wait_for_selector("text=Runs")
        assert "token" not in reader.page.url
        assert reader.go("/list").status == 200
        reader.wrong[:] = [one for one in reader.wrong if "401" not in one]
        reader.close()
    finally:
        server.stop()
