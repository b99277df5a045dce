"""What a notebook shows: escaped, light, and the explorer in a frame that only this machine's pages may hold."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from starlette.testclient import TestClient

from camel import Run
from camel.core.action_text import RAISED
from camel.core.errors import CamelError, InputError
from camel.core.message import Action
from camel.explorer.access import HEADERS, headers_for
from camel.explorer.app import FRAMES, create_app, view
from camel.query.catalogue import Catalogue
from camel.reports.notebook import MOST_ACTIONS, MOST_CHARS, MOST_MESSAGES
from tests.support.explorer_client import BASE
from tests.support.payloads import CONTROL, PAYLOADS, acts, hostile
from tests.support.societies import SECRET, society
from tests.support.waiting import wait_for
from tests.support.web_page import Page


class Cell(Page):
    """A notebook's cell: styles at its elements are its own way."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        super().handle_starttag(tag, [one for one in attrs if one[0] != "style"])


def read(url: str | urllib.request.Request) -> bytes:
    with urllib.request.urlopen(url) as answer:
        return answer.read()


def shown(thing: Any) -> str:
    return thing._repr_html_()


def test_hostile_text_stays_text():
    for number, text in enumerate([*CONTROL, *PAYLOADS]):
        cell = Cell(shown(hostile(number, text)))
        assert cell.wrong == []
        assert cell.links == []
        assert text.encode("utf-8", "replace").decode()[:60] in cell.said


def test_calls_are_folded():
    one = hostile(0, "x")
    one.messages[2] = replace(one.messages[2], content="said last", actions=acts("tea") * 100)
    html = shown(one)
    assert html.count("<details") == MOST_ACTIONS + len(one.unspoken)
    assert "<details open" not in html
    assert html.index("Called <code>tea(tea)</code>") < html.index("said last") < html.index("was never said")
    assert html.count("Failed <code>") == MOST_ACTIONS // 4 + 1
    one.unspoken = [Action("python", error=f'{RAISED}  File "a", line 1\nNameError: <b>\x1b')]
    assert re.search(r"<summary>[^\n]*NameError: &lt;b&gt;</summary>", shown(one))


def test_long_conversations_are_cut():
    one = hostile(0, "x" * (3 * MOST_CHARS))
    assert len(shown(one)) < 60 * MOST_CHARS  # with 8 calls of 4 texts
    one.messages = one.messages[:1] * (MOST_MESSAGES + 7)
    html = shown(one)
    assert "7 more messages" in html
    assert "more characters" in html
    assert len(html) < 3 * MOST_CHARS * MOST_MESSAGES


def test_a_run_and_its_conversations(tmp_path: Path):
    made = society(tmp_path / "caravan", rows=20, restricted=[3])
    html = Cell(shown(Run(tmp_path / "caravan")))
    assert html.wrong == []
    assert "20 in 3 shards" in html.said
    assert SECRET not in html.said
    assert "misalignment" in Cell(shown(made[3])).said, "the label is always there"


def signed_in(url: str, path: str) -> urllib.request.Request:
    """A request of a browser that has opened the link, and stores its token."""
    with urllib.request.urlopen(url) as answer:
        cookie = answer.headers["set-cookie"].partition(";")[0]
    return urllib.request.Request(url.partition("?")[0] + path, headers={"cookie": cookie})


def test_view_serves_until_it_is_stopped(tmp_path: Path):
    society(tmp_path / "caravan", rows=20, restricted=[3])
    run = Run(tmp_path / "caravan")
    one = run.view()
    try:
        assert run.view() is one, "the same run is not served twice"
        assert one.url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(signed_in(one.url, "list")) as answer:
            assert b"19 conversations" in answer.read()
            policy = answer.headers["content-security-policy"]
        assert f"frame-ancestors {' '.join(FRAMES)}" in policy
        assert f'<iframe src="{one.url}"' in shown(one)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(one.url.partition("?")[0])
    finally:
        one.stop()
    assert not one.running
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(one.url)
    again = run.view()
    assert again is not one
    again.stop()


def test_view_looks_runs_through(tmp_path: Path):
    society(tmp_path / "caravan", rows=20)
    one = Run(tmp_path / "caravan").view()
    try:
        wait_for(lambda: b"/statistics/finding." in read(signed_in(one.url, "statistics")), every=0.1)
    finally:
        one.stop()


@pytest.mark.slow
def test_it_goes_with_its_process(tmp_path: Path):
    society(tmp_path / "caravan", rows=5)
    script = f"from camel import Run; print(Run({str(tmp_path / 'caravan')!r}).view())"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "explorer at http://127.0.0.1:" in done.stdout
    assert done.stderr == ""


def test_frames_are_refused_unless_named(tmp_path: Path):
    society(tmp_path / "caravan", rows=5)
    with Catalogue([tmp_path / "caravan"]) as catalogue:
        plain = TestClient(create_app(catalogue), base_url=BASE).get("/")
        framed = TestClient(create_app(catalogue, frames=["https://example.org"]), base_url=BASE).get("/")
    assert "frame-ancestors 'none'" in plain.headers["content-security-policy"]
    assert plain.headers["x-frame-options"] == "DENY"
    assert "frame-ancestors https://example.org" in framed.headers["content-security-policy"]
    assert headers_for(()) == HEADERS
    for wrong in ("*", "https:", "https://a b", "javascript:x", "https://x; script-src *", "https://x/y"):
        with pytest.raises(InputError, match="origin"):
            headers_for([wrong])
    with pytest.raises(CamelError):
        view()


@pytest.mark.slow
def test_in_a_frame_of_this_machine(chromium: Any, tmp_path: Path):
    """A page of this machine holds it in a frame, as a notebook does; it reads and turns pages there."""
    import http.server
    import threading

    society(tmp_path / "caravan", rows=60, restricted=range(50, 60))
    one = Run(tmp_path / "caravan").view()
    body = f"<!doctype html><title>notebook</title>{shown(one)}".encode()

    class Notebook(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Notebook) as notebook:
        threading.Thread(target=notebook.serve_forever, daemon=True).start()
        page = chromium.new_page()
        page.goto(f"http://localhost:{notebook.server_port}/")
        frame = page.frame_locator("iframe")
        frame.locator("text=Conversations").first.click()
        frame.locator(".row").first.wait_for()
        assert frame.locator(".row").count() == 40
        # Consent is remembered there too, in a frame of another site.
        frame.locator("main a[href^='/consent']").first.click()
        frame.locator("form[action='/consent'] button").click()
        frame.locator("text=misalignment shown").wait_for()
        frame.locator("#summary:text-is('60 conversations')").wait_for()
        page.close()
        notebook.shutdown()
    one.stop()
