"""The report: what models wrote is text in it, nothing is fetched, and the three forms say the same."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_page import CHROMIUM, check, tags

from camel import Run, ScriptedModel
from camel.core.model import Request
from camel.evaluation.agents import AGENTS, SINGLE_SHOT, AgentsConfig, Contest, Group, Named
from camel.evaluation.markdown import fenced, md
from camel.evaluation.plots import png, svg
from camel.evaluation.report import markdown, page, plots, points, share, table, write_report
from camel.evaluation.results import Evaluation, evaluate
from tests.support.contests import EVIL, answer
from tests.support.contests import a_run as planted_run

HOSTILE = "![x](http://evil.invalid/x.png) <img src=x onerror=alert(1)> [a](javascript:alert(1)) ```` | **b** `c` <script>"


def said(request: Request) -> str:
    asked = request.history.entries[0].content
    return f"{answer(asked)}\n```\n# {HOSTILE}\n" if not asked.startswith("You are") else answer(asked)


def a_contest(folder: Path, judges: tuple[str, ...], writers: tuple[str, ...]) -> Contest:
    model = ScriptedModel(said)
    run = Run(folder / "run") if (folder / "run").exists() else planted_run(folder / "run")
    made = Contest(
        folder / "kept",
        [Group("ai_society", {AGENTS: run}), Group(HOSTILE, {AGENTS: run})],
        AgentsConfig(tasks=30, repeats=3),
        summariser=Named(HOSTILE, model),
        writers={name: Named(f"{name} {HOSTILE}", model) for name in writers},
        judges=[Named(name, model) for name in judges],
    )
    assert asyncio.run(made.run())
    return made


@pytest.fixture(scope="module")
def contest(tmp_path_factory: pytest.TempPathFactory) -> Contest:
    return a_contest(tmp_path_factory.mktemp("one"), (f"judge {EVIL}",), (SINGLE_SHOT,))


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Contest:
    judges = ("x", f"y {EVIL}", "z")
    return a_contest(tmp_path_factory.mktemp("many"), judges, (SINGLE_SHOT, f"single-shot={HOSTILE}"))


@pytest.mark.slow
@pytest.mark.parametrize("which", ["contest", "many"])
def test_the_page_is_closed_and_escaped(which: str, request: pytest.FixtureRequest):
    made, _, _ = evaluate(request.getfixturevalue(which))
    html = page(made, [(plot, svg(plot)) for plot in plots(made)])
    check(html)
    assert EVIL not in html
    assert "<img" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    for plot in plots(made):
        assert "NaN" not in svg(plot)
        assert png(plot).startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize("which", ["contest", "many"])
def test_the_markdown_shows_hostile_text_as_text(which: str, request: pytest.FixtureRequest):
    markdown_it = pytest.importorskip("markdown_it")
    made, _, _ = evaluate(request.getfixturevalue(which))
    rendered = markdown_it.MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown(made))
    allowed = {
        "h1", "h2", "h3", "p", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "pre", "code", "strong",
    }  # fmt: skip
    found = tags(rendered)
    assert {tag for tag, _ in found} <= allowed
    assert sum(tag == "h1" for tag, _ in found) == 1
    assert all(set(attributes) <= {"class"} for _, attributes in found)


@given(st.text(max_size=200), st.text(max_size=60))
def test_no_text_leaves_its_fence_or_its_line(block: str, line: str):
    markdown_it = pytest.importorskip("markdown_it")
    text = "\n".join([*fenced(block), "", f"| {md(line)} |", "|---|", "", "end"])
    tokens = markdown_it.MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    kinds = [token.type for token in tokens if token.level == 0 and not token.type.endswith("_close")]
    assert kinds[0] == "fence"
    assert set(kinds[1:]) <= {"paragraph_open", "table_open"}
    inside = [child.type for token in tokens for child in token.children or ()]
    assert set(inside) <= {"text", "text_special", "softbreak", "hardbreak"}


@pytest.mark.slow
def test_all_forms_say_the_same(contest: Contest, tmp_path: Path):
    made, pairs, verdicts = evaluate(contest)
    write_report(contest, made, pairs, verdicts, tmp_path)
    assert msgspec.json.decode((tmp_path / "evaluation.json").read_bytes(), type=Evaluation) == made
    html, text = (tmp_path / "evaluation.html").read_text(), (tmp_path / "evaluation.md").read_text()
    for row in table(made):
        for value in (row.wins, row.draws, row.losses):
            figure = share(value).partition(" ")[0]
            assert figure in html
            assert figure in text
    ours = [row for row in table(made) if row.ours]
    assert [row.of for row in ours] == [30, 30]
    paper = [row for row in table(made) if not row.ours]
    assert [(row.draws, row.losses, row.wins) for row in paper] == [
        (0.133, 0.104, 0.763),
        (0.04, 0.23, 0.73),
    ]
    assert "AI Society" in html
    assert re.search(r"76\.3%", text)
    assert points(made)
    # No place of this machine is told.
    assert str(tmp_path) not in html + text
    assert str(contest.folder.root.parent) not in html + text + (tmp_path / "evaluation.json").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_has_nothing_to_complain_about(many: Contest, tmp_path: Path, scheme: str):
    playwright = pytest.importorskip("playwright.sync_api")
    if not Path(CHROMIUM).exists():
        pytest.skip("there is no chromium: .ci/system installs it")
    made, _, _ = evaluate(many)
    file = tmp_path / "evaluation.html"
    file.write_text(page(made, [(plot, svg(plot)) for plot in plots(made)]), "utf-8")
    seen: list[str] = []
    complaints: list[str] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for width in (1180, 390):
            tab = browser.new_context(
                color_scheme=scheme, viewport={"width": width, "height": 900}
            ).new_page()
            tab.on("request", lambda request: seen.append(request.url))
            tab.on("console", lambda message: complaints.append(message.text))
            tab.on("pageerror", lambda error: complaints.append(str(error)))
            tab.goto(file.as_uri())
            while (closed := tab.locator("details:not([open]) > summary")).count():
                closed.first.click()
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
        browser.close()
    assert seen == [file.as_uri()] * 2
    assert complaints == []
