"""The report of an evaluation: escaped texts, no external resources, and the same figures in all three formats."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from camel import ScriptedModel
from camel.core.model import Request
from camel.evaluation.agents import AgentsEvaluation
from camel.evaluation.contest import Contest
from camel.evaluation.contest_records import AGENTS, SINGLE_SHOT, AgentsConfig, AskedModel, Group
from camel.evaluation.pairs import Pair, PairVerdict
from camel.evaluation.report import report
from camel.evaluation.report_table import points, share, table
from camel.evaluation.results import Evaluation, evaluate
from camel.reports.html import render_html, write_report
from camel.reports.markdown import fenced, line_of, paragraph, render_markdown
from camel.reports.plots import drawn, png
from tests.support.closed_pages import browse, check, tags
from tests.support.contests import EVIL, answer
from tests.support.contests import a_run as planted_run
from tests.support.jobs import run

HOSTILE = "![x](http://evil.invalid/x.png) <img src=x onerror=alert(1)> [a](javascript:alert(1)) ```` | **b** `c` <script>"


TASKS = 6


def said(request: Request) -> str:
    asked = request.history.entries[0].content
    return f"{answer(asked)}\n```\n# {HOSTILE}\n" if not asked.startswith("You are") else answer(asked)


def a_contest(folder: Path, judges: tuple[str, ...], writers: tuple[str, ...]) -> Contest:
    planted_run(folder / "run", numbers=range(50, 70))
    runs = {AGENTS: str(folder / "run")}
    job = AgentsEvaluation(
        str(folder / "out"),
        (Group("ai_society", runs), Group(HOSTILE, runs)),
        AgentsConfig(tasks=TASKS, repeats=1),
        {"": ScriptedModel(said)},
        AskedModel(HOSTILE, ""),
        {name: AskedModel(f"{name} {HOSTILE}", "") for name in writers},
        tuple(AskedModel(name, "") for name in judges),
    )
    assert run(job).status == "complete"
    return job.contest


class Made(NamedTuple):
    contest: Contest
    figures: Evaluation
    pairs: list[Pair]
    verdicts: list[PairVerdict]


def made(contest: Contest) -> Made:
    return Made(contest, *evaluate(contest))


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """One judge compares two systems."""
    return made(a_contest(tmp_path_factory.mktemp("one"), (f"judge {EVIL}",), (SINGLE_SHOT,)))


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Three judges compare three systems."""
    judges = ("x", f"y {EVIL}", "z")
    writers = (SINGLE_SHOT, f"single-shot={HOSTILE}")
    return made(a_contest(tmp_path_factory.mktemp("many"), judges, writers))


@pytest.mark.slow
@pytest.mark.parametrize("which", ["one", "many"])
def test_the_page_is_self_contained_and_escaped(which: str, request: pytest.FixtureRequest):
    figures = request.getfixturevalue(which).figures
    made = report(figures)
    pictures = {plot.name: drawn(plot) for plot in made.plots}
    html = render_html(made, pictures)
    check(html)
    assert EVIL not in html
    assert "<img" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert pictures
    for plot in made.plots:
        assert not re.search("NaN|undefined", "".join(pictures[plot.name]).replace("Kappa undefined", ""))
        assert png(plot).startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize("which", ["one", "many"])
def test_the_markdown_shows_hostile_text_as_text(which: str, request: pytest.FixtureRequest):
    markdown_it = pytest.importorskip("markdown_it")
    text = render_markdown(report(request.getfixturevalue(which).figures))
    rendered = markdown_it.MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    allowed = {
        "h1", "h2", "h3", "p", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "pre", "code", "strong", "img",
    }  # fmt: skip
    found = tags(rendered)
    assert {tag for tag, _ in found} <= allowed
    assert sum(tag == "h1" for tag, _ in found) == 1
    pictures = [attributes.get("src") or "" for tag, attributes in found if tag == "img"]
    assert pictures
    assert all(picture.startswith("plots/") for picture in pictures)
    others = [attributes for tag, attributes in found if tag != "img"]
    assert all(set(attributes) <= {"class", "style"} for attributes in others)
    assert {attributes["style"] for attributes in others if "style" in attributes} == {"text-align:right"}


@given(st.text(max_size=200), st.text(max_size=60))
def test_text_cannot_escape_its_fence_or_line(block: str, line: str):
    markdown_it = pytest.importorskip("markdown_it")
    text = "\n".join([*fenced(block), "", paragraph(line), "", f"| {line_of(line)} |", "|---|", "", "end"])
    tokens = markdown_it.MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    kinds = [token.type for token in tokens if token.level == 0 and not token.type.endswith("_close")]
    assert kinds[0] == "fence"
    assert set(kinds[1:]) <= {"paragraph_open", "table_open"}
    inside = [child.type for token in tokens for child in token.children or ()]
    assert set(inside) <= {"text", "text_special", "softbreak", "hardbreak"}


@pytest.mark.slow
def test_all_formats_show_the_same_figures(one: Made, tmp_path: Path):
    contest, made, *_ = one
    write_report(tmp_path, report(made), made)
    assert msgspec.json.decode((tmp_path / "evaluation.json").read_bytes(), type=Evaluation) == made
    html, text = (tmp_path / "evaluation.html").read_text(), (tmp_path / "evaluation.md").read_text()
    for row in table(made):
        for value in (row.wins, row.draws, row.losses):
            figure = share(value).partition(" ")[0]
            assert figure in html
            assert figure in text
    ours = [row for row in table(made) if row.ours]
    assert [row.of for row in ours] == [TASKS, TASKS]
    paper = [row for row in table(made) if not row.ours]
    assert [(row.draws, row.losses, row.wins) for row in paper] == [
        (0.133, 0.104, 0.763),
        (0.04, 0.23, 0.73),
    ]
    assert "AI Society" in html
    assert re.search(r"76\.3%", text)
    assert points(made)
    # It contains no path of this machine.
    assert str(tmp_path) not in html + text
    assert str(contest.folder.root.parents[1]) not in html + text + (tmp_path / "evaluation.json").read_text()


def test_fixed_tasks_are_shown_with_the_papers_rows(one: Made):
    drawn = [replace(drawn, scenario="table1_ai_society") for drawn in one.figures.drawn]
    rows = table(replace(one.figures, drawn=drawn))
    assert [(row.dataset, row.wins) for row in rows if not row.ours] == [
        ("AI Society", 0.763),
        ("AI Society", 0.73),
    ]


@pytest.mark.slow
def test_a_browser_reports_no_error(many: Made, tmp_path: Path):
    file = tmp_path / "evaluation.html"
    made = report(many.figures)
    file.write_text(render_html(made, {plot.name: drawn(plot) for plot in made.plots}), "utf-8")
    browse(file)
