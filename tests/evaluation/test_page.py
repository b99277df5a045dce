"""The page: everything that a model said is text, nothing is fetched, and a browser has nothing to complain about."""

from __future__ import annotations

import asyncio
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel.evaluation.comparison import Outcomes, compare
from camel.evaluation.comparison import page as comparison_page
from camel.evaluation.findings import Looker
from camel.evaluation.intervals import wilson
from camel.evaluation.page import POLICY, interval, percent, text
from camel.evaluation.plots import png, svg
from camel.evaluation.study import Study, study_of
from camel.evaluation.study_page import marked, page
from camel.evaluation.study_plots import plots
from tests.support.sheds import EVIL, a_run

CHROMIUM = "/usr/bin/chromium"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("study")
    looker = Looker(a_run(folder / "run"), folder / "kept")
    assert asyncio.run(looker.look())
    made, _ = study_of(looker.tables(), run=f"runs/{EVIL}", scenario=EVIL, fingerprint="f")
    return made


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def tags(html: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Tags()
    parser.feed(html)
    return parser.tags


def check(html: str) -> None:
    found = tags(html)
    assert not {tag for tag, _ in found} & {"script", "iframe", "object", "embed", "img", "base", "form"}
    for _, attributes in found:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("href", "src", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:,"))
    assert ("meta", {"http-equiv": "Content-Security-Policy", "content": POLICY}) in found
    assert not re.search(r"@import|url\(\s*[\"']?(?!#)", html)
    ids = [attributes["id"] for _, attributes in found if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {str(attributes["href"])[1:] for tag, attributes in found if tag == "a"}
    assert links <= set(ids)


@pytest.mark.slow
def test_the_page_is_closed_and_escaped(study: Study):
    html = page(study, [(plot, svg(plot)) for plot in plots(study)])
    check(html)
    assert EVIL not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "<mark>" in html


def test_a_comparison_s_page_is_too():
    whole = Outcomes({str(n): frozenset[str]() for n in range(20)})
    other = Outcomes({str(n): frozenset({"refusal"}) for n in range(20)})
    made = compare(whole, {"user-01": other}, {"user-01": ("user", EVIL)}, scenario=EVIL, model=EVIL)
    assert [effect.measure for _, effect in made.sure()] == ["refusal"]
    html = comparison_page(made)
    check(html)
    assert EVIL not in html


@pytest.mark.slow
def test_every_plot_is_drawn(study: Study):
    drawn = plots(study)
    assert {plot.name for plot in drawn} == {
        "stops", "behaviours", "by-turn", "by-stop", "by-seat", "length", "tokens",
    }  # fmt: skip
    for plot in drawn:
        picture = svg(plot)
        assert "<script" not in picture
        assert "Infinity" not in picture
        assert "NaN" not in picture
        assert png(plot).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("count", "of", "words"),
    [
        (0, 36, "0% 0 – 9.6%"),
        (1, 25_000, "0.004% 0.0007 – 0.02%"),
        (5, 36, "14% 6.1 – 29%"),
        (23_497, 25_000, "94% 93.7 – 94.3%"),
        (199, 200, "99.5% 97 – 99.9%"),
        (36, 36, "100% 90 – 100%"),
    ],
)
def test_shares_in_words(count: int, of: int, words: str):
    rate = wilson(count, of)
    assert f"{percent(rate.rate)} {interval(rate)}" == words


@given(st.text(), st.text(max_size=5))
def test_marking_changes_no_word(message: str, evidence: str):
    html = marked(message, evidence)
    assert re.sub(r"</?mark>", "", html) == (text(message) or '<span class="muted">(empty)</span>')


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_has_nothing_to_complain_about(study: Study, tmp_path: Path, scheme: str):
    """No request but for the page itself, no error on the console, nothing wider than the window."""
    playwright = pytest.importorskip("playwright.sync_api")
    if not Path(CHROMIUM).exists():
        pytest.skip("there is no chromium: .ci/system installs it")
    file = tmp_path / "study.html"
    file.write_text(page(study, [(plot, svg(plot)) for plot in plots(study)]), "utf-8")
    seen: list[str] = []
    said: list[str] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for width in (1180, 390):
            tab = browser.new_context(
                color_scheme=scheme, viewport={"width": width, "height": 900}
            ).new_page()
            tab.on("request", lambda request: seen.append(request.url))
            tab.on("console", lambda message: said.append(message.text))
            tab.on("pageerror", lambda error: said.append(str(error)))
            tab.goto(file.as_uri())
            while (closed := tab.locator("details:not([open]) > summary")).count():
                closed.first.click()
            assert tab.locator("mark").first.is_visible()
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
            colour = tab.evaluate("getComputedStyle(document.body).backgroundColor")
            assert colour == ("rgb(246, 247, 249)" if scheme == "light" else "rgb(16, 19, 24)")
        browser.close()
    assert seen == [file.as_uri()] * 2
    assert said == []
