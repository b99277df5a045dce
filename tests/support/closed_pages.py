"""Pages that are files: everything is in them, nothing that a model wrote is markup, and a browser has no complaint."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from camel.reports.html import POLICY, SCRIPT
from tests.support.browser import chromium
from tests.support.looking import LOOK

WIDTHS = (1180, 360)
SCHEMES = ("light", "dark")


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def tags(html: str) -> list[tuple[str, dict[str, str | None]]]:
    """The start tags of a page with their attributes."""
    parser = _Tags()
    parser.feed(html)
    return parser.tags


def check(html: str) -> None:
    """Fail unless a page is closed: our own script and fonts, nothing fetched, every link leads to a place in it."""
    found = tags(html)
    assert not {tag for tag, _ in found} & {"iframe", "object", "embed", "img", "base", "form"}
    assert [attributes for tag, attributes in found if tag == "script"] == [{}]
    assert (html.count(f"<script>{SCRIPT}</script>"), html.count("<script")) == (1, 1)
    assert not [attributes for _, attributes in found if "style" in attributes]
    for _, attributes in found:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("href", "src", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:,"))
    assert ("meta", {"http-equiv": "Content-Security-Policy", "content": POLICY}) in found
    assert "unsafe" not in POLICY
    assert not re.search(r"@import|url\((?!#|\"data:font/woff2;base64,)", html)
    ids = [attributes["id"] for _, attributes in found if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {str(attributes["href"])[1:] for tag, attributes in found if tag == "a" and "href" in attributes}
    assert links <= set(ids)


def browse(file: Path, look: Callable[[Any, str], None] = lambda tab, scheme: None) -> None:
    """Open a page in a browser, in both color schemes and at both widths, with all its details unfolded.

    Fails if it requests anything but itself, writes to the console, or has one of the faults that `LOOK` finds. `look` gets
    each tab and its color scheme.
    """
    playwright = pytest.importorskip("playwright.sync_api")
    if (path := chromium()) is None:
        pytest.skip("there is no chromium: .ci/system installs it")
    requested: list[str] = []
    complaints: list[str] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for scheme in SCHEMES:
            for width in WIDTHS:
                context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
                context.set_default_timeout(120_000)  # milliseconds
                tab = context.new_page()
                tab.on("request", lambda request: requested.append(request.url))
                tab.on("console", lambda message: complaints.append(message.text))
                tab.on("pageerror", lambda error: complaints.append(str(error)))
                tab.goto(file.as_uri())
                # A fold may have another one in it.
                while tab.locator("details:not([open])").count():
                    tab.eval_on_selector_all(
                        "details:not([open])", "all => all.forEach(one => one.open = true)"
                    )
                look(tab, scheme)
                assert tab.evaluate(LOOK) == []
                context.close()
        browser.close()
    assert requested == [file.as_uri()] * len(SCHEMES) * len(WIDTHS)
    assert complaints == []
