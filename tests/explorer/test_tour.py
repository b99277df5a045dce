"""A tour of every page with a real browser: nothing scrolls sideways on a phone, all text can be read in both themes, the
console is quiet, and every picture has a text alternative.

`PAGES` has all of them by their addresses; a new page is one more line there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from camel.evaluation.findings import Findings, Looker, study_folder
from camel.evaluation.study import Gatherer
from camel.evaluation.study_report import report
from camel.explorer.site import chosen, write_site
from camel.jobs.runner import Runner
from camel.query.catalogue import Catalogue
from camel.reports.html import write_report
from camel.runs.reader import RunReader
from tests.support.ballots import folder_of, pairs
from tests.support.looking import LOOK
from tests.support.mapped import mapped
from tests.support.societies import society
from tests.support.thread_server import ThreadServer

pytestmark = pytest.mark.slow

ID, OTHER = "000_005", "000_011"
AREA = "-2,-2;2,-2;2,2;-2,2"
PAGES = {
    "explorer": (
        "/",
        "/list",
        "/list?q=oasis",
        "/list?q=xylophone",
        "/list?run=caravan&stop=done&sort=tokens",
        f"/conversation/caravan?id={ID}",
        f"/conversation/caravan?id={ID}&view=raw",
        f"/compare?left=caravan/{ID}&right=caravan/{OTHER}",
        "/statistics",
        "/statistics?run=few",
        "/run/caravan",
        "/run/few",
        "/run/caravan/configuration",
        "/reports",
        "/reports/caravan/study/study.html",
        "/map?run=caravan",
        f"/map?run=caravan&color=length&area={AREA}",
        "/watch/caravan",
        "/consent",
        "/conversation/caravan?id=nobody",
        "/no-such-page",
    ),
    "one": ("/", "/list", "/statistics", "/map", "/reports"),
    "agents": ("/play",),
    "vote": ("/", "/consent", "/no-such-page"),
    "files": ("site/index.html", f"site/conversations/{ID}.html", "caravan/study/study.html"),
}
"""By what serves them. `one` has a single conversation and no report; `files` are opened from the disk."""
LOOKS = [("light", 360), ("light", 1440), ("dark", 360), ("dark", 1440)]
REFUSED = {"/conversation/caravan?id=nobody": 404, "/no-such-page": 404}


def run_apart(job: Any) -> None:
    """Run a job in a thread: Playwright keeps a loop running in this one."""
    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(lambda: asyncio.run(Runner(job).run())).result()
    assert ended.status == "complete"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of 60, 4 and 1 conversations; the first has a map, a study and an exported site."""
    root = tmp_path_factory.mktemp("tour")
    for name, rows in (("caravan", 60), ("few", 4), ("one", 1)):
        society(root / name, rows=rows)
    society(root / "labeled", rows=6, restricted=range(3))
    mapped(root / "caravan")
    records = RunReader(root / "caravan")
    folder = Path(study_folder(records.folder))
    run_apart(Findings(str(folder / "kept"), str(root / "caravan")))
    gathered = Gatherer(Looker(records, folder / "kept").tables())
    made = gathered.study(run=str(root / "caravan"), scenario="ai_society", fingerprint="f")
    write_report(folder, report(made), made)
    with Catalogue([root / "caravan"]) as catalogue:
        write_site(catalogue, chosen(catalogue, first=20), root / "site", title="The caravan")
    folder_of(root / "vote", pairs(3))
    return root


@pytest.fixture(scope="module")
def servers(root: Path) -> Iterator[dict[str, ThreadServer]]:
    commands = {
        "explorer": ("explore", root / "caravan", root / "few", root / "labeled"),
        "one": ("explore", root / "one"),
        "agents": (
            "agents",
            "--out",
            root / "agents",
            "--base-url",
            "http://127.0.0.1:9/v1",
            "--model",
            "none",
        ),
        "vote": ("vote", root / "vote"),
    }
    with ExitStack() as stack:
        made: dict[str, ThreadServer] = {}
        for name, command in commands.items():
            made[name] = ThreadServer(*map(str, command))
            stack.callback(made[name].stop)
        yield made


class Tourist:
    """Looks at pages and takes note of everything that is wrong with them."""

    def __init__(self, browser: Any, scheme: str, width: int, base: str) -> None:
        self.context = browser.new_context(
            color_scheme=scheme, viewport={"width": width, "height": 800}, base_url=base
        )
        self.context.set_default_timeout(120_000)
        self.page = self.context.new_page()
        self.where = f"{scheme} {width}"
        self.wrong: list[str] = []
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.wrong.append(f"{self.where} {self.page.url}: {error}"))

    def _heard(self, message: Any) -> None:
        # The graphics driver's own words, and the browser's about a status that the test expects.
        if message.type in ("error", "warning") and not any(
            known in message.text for known in ("GPU stall", "status of 404", "status of 403")
        ):
            self.wrong.append(f"{self.where} {self.page.url}: {message.text}")

    def look(self, path: str) -> None:
        answer = self.page.goto(path, wait_until="load")
        assert answer is None or answer.status == REFUSED.get(path, 200), (path, answer.status)
        self.look_here()

    def look_here(self) -> None:
        if self.page.locator("#map").count():
            self.page.wait_for_selector("#map[data-drawn], #map[data-failed]")
        self.page.eval_on_selector_all("details", "all => all.forEach(one => one.open = true)")
        self.wrong += [f"{self.where} {self.page.url}: {one}" for one in self.page.evaluate(LOOK)]

    def close(self) -> list[str]:
        self.context.close()
        return self.wrong


each_look = pytest.mark.parametrize(("scheme", "width"), LOOKS)


@each_look
@pytest.mark.parametrize("server", ["explorer", "one", "agents"])
def test_the_explorer(
    drawing_chromium: Any, servers: dict[str, ThreadServer], server: str, scheme: str, width: int
):
    tourist = Tourist(drawing_chromium, scheme, width, servers[server].url)
    for path in PAGES[server]:
        tourist.look(path)
    assert "\n".join(tourist.close()) == ""


@each_look
def test_the_vote(chromium: Any, servers: dict[str, ThreadServer], scheme: str, width: int):
    tourist = Tourist(chromium, scheme, width, servers["vote"].url)
    tourist.look("/")
    tourist.page.fill("#name", f"Ada {scheme} {width}")
    tourist.page.keyboard.press("Enter")
    tourist.page.wait_for_url("**/pair/*")
    tourist.look_here()
    for path in PAGES["vote"]:
        tourist.look(path)
    assert "\n".join(tourist.close()) == ""


@each_look
def test_pages_that_are_files(chromium: Any, root: Path, scheme: str, width: int):
    tourist = Tourist(chromium, scheme, width, "http://nowhere.invalid")
    for name in PAGES["files"]:
        tourist.look((root / name).as_uri())
    assert "\n".join(tourist.close()) == ""


def test_the_tour_sees_what_is_wrong(chromium: Any, tmp_path: Path):
    """A page with every mistake: each is reported."""
    page = tmp_path / "page.html"
    page.write_text(
        "<!doctype html><body style='background:#fff'><p style='color:#999'>faint</p><p style='color:#777'>nearly</p>"
        "<p style='color:#767676'>enough</p><p style='opacity:.4'>faded</p><div style='width:2000px'>wide</div><img src='data:,'>"
        "<svg width='90' height='20'><rect width='90' height='20' fill='#333'/><text y='15' fill='#222'>dark</text></svg>"
        "<button disabled style='color:#ccc'>inactive</button><script>console.error('oh')</script>"
    )
    tourist = Tourist(chromium, "light", 360, "http://nowhere.invalid")
    tourist.look(page.as_uri())
    wrong = "\n".join(tourist.close())
    for said in ("faint", "nearly", "faded", "dark", "2008 pixels", "<img", "<svg", "oh"):
        assert said in wrong, said
    assert "enough" not in wrong
    assert "inactive" not in wrong
