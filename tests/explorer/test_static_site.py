"""The site export: pages are safe and complete, and restricted rows need an explicit acknowledgment."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel import Transcript
from camel.core.errors import InputError
from camel.explorer.site import _names, chosen, write_site
from camel.query.answers import NeedsConsent, Row
from camel.query.catalogue import Catalogue
from camel.query.where import Query
from camel.record.release import Release
from camel.runs.run import open_folder
from camel.runs.settings import Settings
from tests.support import in_process
from tests.support.payloads import PAYLOADS, hostile, hostile_crowd
from tests.support.societies import SECRET, commit, society
from tests.support.web_page import Page

CANARY = "canary-guid-of-a-test"
RESTRICTED = {3, 10, 11}
OWN = re.compile(
    r"<style>|<meta http-equiv>|<script> without a file|<\w+ (?:src|href)=data:image/svg\+xml;base64,"
)


def pages(site: Path) -> dict[Path, str]:
    return {path: path.read_text() for path in site.rglob("*.html")}


def check(site: Path) -> dict[Path, str]:
    """Every page is whole: nothing in it is not ours, every link leads to a file of the site."""
    found = pages(site)
    for path, html in found.items():
        page = Page(html)
        wrong = [one for one in page.wrong if not OWN.match(one)]
        for link in [one for one in wrong if " href=" in one]:
            target = link.partition("href=")[2].rstrip(">").partition("#")[0]
            assert (path.parent / target).is_file(), link
            wrong.remove(link)
        assert wrong == [], path
        policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)
        assert policy
        allowed = policy[1].replace("&#39;", "'")
        assert "default-src 'none'" in allowed
        parts = re.findall(r"<(?:script|style)>(.*?)</(?:script|style)>", html, re.DOTALL)
        assert len(parts) == 3
        for part in parts:
            assert base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() in allowed
        assert page.wrong.count("<meta http-equiv>") == 1
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("runs") / "caravan"
    society(where, rows=30, restricted=RESTRICTED)
    return where


def test_the_first_of_a_run(run: Path, tmp_path: Path):
    with Catalogue([run]) as catalogue:
        rows = chosen(catalogue, first=12)
        written = write_site(catalogue, rows, tmp_path / "site", title="A <b>title</b>")
        said = {row.id: catalogue.conversation(row.run, row.id) for row in rows}
    found = check(tmp_path / "site")
    assert written.conversations == len(rows) == 12
    assert len(found) == 13
    index = Page(found[tmp_path / "site" / "index.html"])
    assert "A <b>title</b>" in index.said
    assert "12 of 27 conversations" in index.said, "three may not be seen"
    for id, transcript in said.items():
        assert f"conversations/{id}.html" in [link.partition("#")[0] for link in index.links]
        page = Page(found[tmp_path / "site" / "conversations" / f"{id}.html"])
        for message in transcript.messages:
            assert (message.move.instruction or message.move.solution or "?") in page.said
        taken = (tmp_path / "site" / "conversations" / f"{id}.json").read_bytes()
        assert Transcript.from_json(taken) == transcript
    assert SECRET not in "".join(found.values())


def test_every_page_names_model_and_license_and_no_cost(run: Path, tmp_path: Path):
    with Catalogue([run]) as catalogue:
        rows = [msgspec.structs.replace(row, cost=1.25) for row in chosen(catalogue, first=3)]
        models = ", ".join(dict.fromkeys(row.model for row in rows))
        write_site(catalogue, rows, tmp_path / "stated", license="cc-by-<4>.0")
        write_site(catalogue, rows, tmp_path / "silent")
    for site, license in (("stated", "cc-by-<4>.0"), ("silent", "none stated")):
        for html in check(tmp_path / site).values():
            said = Page(html).said
            assert f"written by {models}," in said
            assert f"License: {license}" in said
            assert "$1.25" not in said


def test_choosing(run: Path):
    with Catalogue([run]) as catalogue:
        done = Query(facets={"stop": ("done",)})
        assert {row.stop for row in chosen(catalogue, done)} == {"done"}
        assert [row.id for row in chosen(catalogue, ids=["000_002", "000_001", "000_002"])] == [
            "000_002",
            "000_001",
        ]
        once, again = (chosen(catalogue, sample=5, seed=4) for _ in range(2))
        assert once == again
        assert len(once) == 5
        with pytest.raises(NeedsConsent):
            chosen(catalogue, ids=["000_003"])
        with pytest.raises(InputError, match="no conversation"):
            chosen(catalogue, ids=["nobody"])
        with pytest.raises(InputError, match=r"\b0\b"):
            chosen(catalogue, first=0)
        with pytest.raises(InputError, match="no conversation"):
            write_site(catalogue, [], Path("nowhere"))


def test_restricted_rows_carry_their_label_and_canary(run: Path, tmp_path: Path):
    with Catalogue([run], ["misalignment"]) as catalogue:
        rows = chosen(catalogue, first=12)
        with pytest.raises(InputError, match="acknowledge"):
            write_site(catalogue, rows, tmp_path / "refused")
        assert not (tmp_path / "refused").exists()
        write_site(catalogue, rows, tmp_path / "site", release=Release(True, CANARY))
    for path, html in check(tmp_path / "site").items():
        is_restricted = path.stem in {f"000_{n:03d}" for n in RESTRICTED}
        assert (SECRET in html) == (is_restricted or path.name == "index.html")
        assert (CANARY in html) == ("misalignment" in html) == (is_restricted or path.name == "index.html")
    taken = json.loads((tmp_path / "site/conversations/000_003.json").read_bytes())
    assert (taken["labels"], taken["canary"]) == (["misalignment"], CANARY)
    assert CANARY in (tmp_path / "site/conversations/000_003.md").read_text()


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.thorough)])
def test_hostile_text_stays_text(tmp_path: Path, step: int):
    """Every payload as a message on a page with others, and every fifth one, or all, in every place of its own page."""
    folder = open_folder(tmp_path / "hostile")
    folder.create(Settings("f", {"scenario": "x"}, "0"))
    made = [hostile(n, text) for n, text in enumerate(PAYLOADS[::step])]
    made += [hostile_crowd(1000 + n, PAYLOADS[n : n + 15]) for n in range(0, len(PAYLOADS), 15)]
    commit(folder, 0, made)
    with Catalogue([tmp_path / "hostile"]) as catalogue:
        rows = chosen(catalogue, first=1000)
        write_site(catalogue, rows, tmp_path / "site", title=PAYLOADS[0])
    assert len(check(tmp_path / "site")) == len(made) + 1


@given(st.lists(st.text(max_size=150), unique=True, max_size=20))
def test_names_are_safe_on_any_disk(ids: list[str]):
    rows: list[Any] = [
        Row("run", id, "", "", "", (), "", "", "", (), (), 0, 0, 0, 0, None, 0, n) for n, id in enumerate(ids)
    ]
    names = _names(rows)
    assert len(set(names)) == len(ids)
    assert all(re.fullmatch(r"[0-9c][a-z0-9_-]{0,99}", name) for name in names)


def test_the_command(run: Path, tmp_path: Path):
    def export(*options: str) -> Any:
        return in_process.invoke(["export", str(run), *options])

    done = export("site", str(tmp_path / "site"), "--where", 'stop = "done"')
    assert done.exit_code == 0, done.output
    assert "--acknowledge misalignment" in done.output
    found = check(tmp_path / "site")
    assert SECRET not in "".join(found.values())
    again = export("site", str(tmp_path / "site"))
    assert isinstance(again.exception, InputError)
    refused = export("site", str(tmp_path / "other"), "--id", "000_003")
    assert "--acknowledge misalignment" in str(refused.exception)
    wrong = export("chat", str(tmp_path / "chat.jsonl"), "--first", "3")
    assert "'site'" in str(wrong.exception)
    unknown = export("site", str(tmp_path / "x"), "--acknowledge", "misalignment")
    assert "canary" in str(unknown.exception), "a release of such rows carries one"


@pytest.mark.slow
def test_in_a_browser_from_a_disk(chromium: Any, run: Path, tmp_path: Path):
    with Catalogue([run]) as catalogue:
        write_site(catalogue, chosen(catalogue, first=12), tmp_path / "site")
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda m: wrong.append(m.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda r: None if r.url.startswith("file://") else wrong.append(r.url))
    page.goto((tmp_path / "site" / "index.html").as_uri())
    assert page.locator(".row:visible").count() == 12
    page.keyboard.press("/")
    page.keyboard.type("dromedary")
    assert 0 < page.locator(".row:visible").count() < 12
    page.fill("#find", "")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/conversations/*.html")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != ground
    page.keyboard.press("n")
    page.wait_for_url("**/000_001.html")
    page.keyboard.press("u")
    page.wait_for_url("**/index.html")
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    context.close()
    assert wrong == []
