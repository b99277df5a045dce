"""The page: everything that a model wrote is text, nothing is fetched, and a browser has no complaint."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel.evaluation.branch_report import BranchFigures, outcomes_of
from camel.evaluation.branch_report import report as branch_report
from camel.evaluation.effects import effect_of
from camel.evaluation.findings import Findings, Looker
from camel.evaluation.study import Gatherer, Study
from camel.evaluation.study_report import marked, plots, report
from camel.reports.html import line_of, render_html, text
from camel.reports.markdown import render_markdown
from camel.reports.plots import LOOK, as_csv, drawn, png
from tests.support.closed_pages import browse, check
from tests.support.jobs import run
from tests.support.sheds import EVIL, a_run

TOKENS = (LOOK / "tokens.css").read_text()
COLORS = set(re.findall(r"light-dark\((#\w{6})", TOKENS))
"""What a plot may be drawn in: the page maps these to its theme."""
PAPER = {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 22, 24)"}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("study")
    records = a_run(folder / "run")
    assert run(Findings(str(folder / "kept"), str(folder / "run"))).status == "complete"
    tables = Looker(records, folder / "kept").tables()
    return Gatherer(tables).study(run=f"runs/{EVIL}", scenario=EVIL, fingerprint="f")


def page(study: Study) -> str:
    made = report(study)
    return render_html(made, {plot.name: drawn(plot) for plot in made.plots})


def test_the_page_is_closed_and_escaped(study: Study):
    html = page(study)
    check(html)
    assert EVIL not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "<mark>" in html


def comparison() -> str:
    """The page of an ablation with one effect."""
    effect = effect_of([([0.0], [1.0])] * 20)
    none = effect_of([([0.0], [0.0])] * 20)
    assert effect is not None
    assert none is not None
    outcomes = outcomes_of({"user-01": {"refusal": effect}, "user-02": {"refusal": none}})
    assert [one.adjusted < 0.05 for one in outcomes] == [True, False]
    changes = {"user-01": f"without “{EVIL}”", "user-02": "without “Hi.”"}
    blocks = branch_report(BranchFigures(1, changes, [EVIL], 20, 60, 0, outcomes, []))
    assert blocks.headline == "1 of 2 changes has an effect"
    return render_html(blocks, {plot.name: drawn(plot) for plot in blocks.plots})


def test_a_comparison_s_page_is_closed_and_escaped():
    html = comparison()
    check(html)
    assert EVIL not in html


def test_labeled_conversations_have_their_warning_and_canary_in_both_forms(study: Study):
    labeled = msgspec.structs.replace(study, labels=["misalignment"], canary="canary-1")
    for made in (page(labeled), render_markdown(report(labeled))):
        assert "Contains conversations labeled misalignment." in made
        assert "canary-1" in made
    assert "Contains conversations" not in page(study)


def test_every_plot_is_drawn(study: Study):
    made = plots(study)
    assert {plot.name for plot in made} == {"stops", "behaviors", "by-turn", "by-seat", "length", "tokens"}
    for plot in made:
        for picture in drawn(plot):
            assert "<script" not in picture
            assert not re.search("Infinity|NaN|undefined", picture)
            assert set(re.findall(r'(?:fill|stroke)="(#\w+)"', picture)) <= COLORS
        assert png(plot).startswith(b"\x89PNG")
        assert as_csv(plot.spec["data"]["values"]).count("\n") == len(plot.spec["data"]["values"]) + 1


@given(st.text(), st.text(max_size=5))
def test_marking_changes_no_word(message: str, evidence: str):
    assert re.sub(r"</?mark>", "", line_of(marked(message, evidence))) == text(message)


@pytest.mark.slow
def test_a_browser_has_nothing_to_complain_about_in_a_comparison(tmp_path: Path):
    file = tmp_path / "branches.html"
    file.write_text(comparison(), "utf-8")
    browse(file)


@pytest.mark.slow
def test_a_browser_has_nothing_to_complain_about(study: Study, tmp_path: Path):
    file = tmp_path / "study.html"
    file.write_text(page(study), "utf-8")

    def look(tab: Any, scheme: str) -> None:
        assert tab.locator("mark").first.is_visible()
        paper = "getComputedStyle(document.body).backgroundColor"
        assert tab.evaluate(paper) == PAPER[scheme]
        tab.click("#theme")
        assert tab.evaluate(paper) != PAPER[scheme]
        tab.keyboard.press("t")
        assert tab.evaluate(paper) == PAPER[scheme]
        assert tab.evaluate(
            "document.fonts.check('16px \"Plex Sans\"') && document.fonts.check('16px \"Source Serif\"')"
        )

    browse(file, look)
