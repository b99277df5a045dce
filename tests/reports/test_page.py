"""The page: everything that a model wrote is text, nothing is fetched, and a browser has no complaint."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel.evaluation.comparison import Outcomes, compare
from camel.evaluation.comparison import page as comparison_page
from camel.evaluation.findings import Findings, Looker
from camel.evaluation.study import Study, study_of
from camel.evaluation.study_page import marked, page
from camel.evaluation.study_plots import plots
from camel.reports.html import interval, percent, text
from camel.reports.intervals import wilson
from camel.reports.plots import png, svg
from tests.support.closed_pages import browse, check
from tests.support.jobs import run
from tests.support.sheds import EVIL, a_run


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("study")
    records = a_run(folder / "run")
    assert run(Findings(str(folder / "kept"), str(folder / "run"))).status == "complete"
    tables = Looker(records, folder / "kept").tables()
    made, _ = study_of(tables, run=f"runs/{EVIL}", scenario=EVIL, fingerprint="f")
    return made


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
def test_a_browser_has_nothing_to_complain_about(study: Study, tmp_path: Path):
    file = tmp_path / "study.html"
    file.write_text(page(study, [(plot, svg(plot)) for plot in plots(study)]), "utf-8")

    def look(tab: Any, scheme: str) -> None:
        assert tab.locator("mark").first.is_visible()
        color = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        assert color == ("rgb(246, 247, 249)" if scheme == "light" else "rgb(16, 19, 24)")

    browse(file, look)
