"""What pages look like: colors by seat and ending, plots of few and many values, aligned comparisons, linked reports."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from starlette.testclient import TestClient

from camel.core.message import Action, Deliberation, Message, Proposal, Usage
from camel.core.model import ToolSchema
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.explorer.access import HEADERS
from camel.explorer.charts import count_ticks
from camel.explorer.colors import ENDINGS, GRAY, PALETTE, ending, ending_order, seats
from camel.explorer.list_pages import align, mark_changes
from camel.explorer.reading import pulse, score, shown_messages
from camel.explorer.routing import LOOK
from camel.explorer.statistics import chart, charts
from camel.explorer.views import PageState
from camel.query.catalogue import Catalogue
from camel.query.where import Query
from camel.reports.html import POLICY
from camel.runs.run import open_folder
from camel.runs.settings import Settings
from tests.support.explorer_client import client
from tests.support.payloads import CONTROL, acts
from tests.support.societies import commit, society
from tests.support.web_page import Page


def conversation(number: int = 0, messages: int = 4, stop: str = "done", said: str = "one two") -> Transcript:
    names = ("user", "Trader"), ("assistant", "Guide")
    return Transcript(
        f"000_{number:03d}",
        Task("find tea"),
        [Speaker("assistant", "Guide", system="Be a guide"), Speaker("user", "Trader")],
        [
            Message(
                n, *names[n % 2], f"{said} {n}", model="gpt-4o-mini", usage=Usage(900, 20, 0, 1), latency=1.5
            )
            for n in range(messages)
        ],
        Stop(stop, "so it ended"),
        "ai_society",
    )


def run_of(where: Path, *transcripts: Transcript) -> Path:
    folder = open_folder(where)
    folder.create(Settings("f", {"scenario": "ai_society"}, "0"))
    commit(folder, 0, transcripts)
    return where


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[TestClient, Path]]:
    where = run_of(tmp_path / "tea", conversation(0), conversation(1, 6, "max_messages"))
    with Catalogue([where]) as catalogue:
        yield client(catalogue), where


# --- colors --------------------------------------------------------------------------------------------------------


def test_a_seat_has_one_color_whatever_its_role_is_called(served: tuple[TestClient, Path]):
    page, listing = served[0].get("/conversation/tea?id=000_000").text, served[0].get("/list").text
    for text in (page, listing):
        assert re.search(r'class="who s-user">.{0,200}?<span>Trader</span>', text)
        assert re.search(r'class="who s-assistant">.{0,200}?<span>Guide</span>', text)
    assert re.findall(r'<li class="message (\S+)" id="m\d"', page) == ["s-user", "s-assistant"] * 2
    # The user comes first, though the record has the assistant first.
    assert page.index("s-user") < page.index("s-assistant")


def test_members_of_a_society_take_free_colors_in_order():
    assert [mark.css for mark in seats(["user", "assistant", "critic"]).values()] == [
        "s-user",
        "s-assistant",
        "s-critic",
    ]
    members = seats([f"member {n}" for n in range(10)])
    assert [mark.css for mark in members.values()] == [*(f"c-{n}" for n in range(1, 9)), "c-0", "c-0"]
    assert members["member 9"].color == GRAY
    mixed = seats(["planner", "user", "assistant"])
    assert len({mark.color for mark in mixed.values()}) == 3


def test_endings_of_a_kind_share_a_color_and_no_other_kind_has_it():
    by_class: dict[str, set[str]] = {}
    for mark in ENDINGS.values():
        by_class.setdefault(mark.css, set()).add(mark.color)
    assert all(len(colors) == 1 for colors in by_class.values())
    assert len(set.union(*by_class.values())) == len(by_class)
    assert ending("a_rule_of_mine")[:2] == ("a rule of mine", "c-0")
    assert sorted(ENDINGS, key=ending_order)[0] == "done"


def test_colors_of_plots_are_those_of_the_style_sheet():
    tokens = (LOOK / "tokens.css").read_text()
    assert re.findall(r"--c[1-8]: light-dark\((#\w+)", tokens) == PALETTE


def test_an_ending_is_shown_by_word_and_sign(served: tuple[TestClient, Path]):
    listing = served[0].get("/list").text
    assert 'class="end-of e-done" title="done"' in listing
    assert 'class="end-of e-limit loud" title="message limit"' in listing


# --- a conversation ------------------------------------------------------------------------------------------------


def test_the_score_is_a_list_of_links_as_wide_as_the_words():
    messages = shown_messages(conversation(said="a b c d e f"), {})
    segments = score(messages)
    assert sum(one.width for one in segments) + 3 * 3 == pytest.approx(1248)
    assert [one.y for one in segments] == [0, 10, 0, 10]
    assert score([]) == []
    long = score(shown_messages(conversation(messages=300), {}))
    assert max(one.x + one.width for one in long) == pytest.approx(1248)


def test_what_is_to_be_noticed_has_a_tick():
    talk = conversation()
    made = Message(
        1,
        "assistant",
        "Guide",
        "x",
        reasoning="hm",
        actions=[Action("python")],
        deliberation=Deliberation("c", (), 0),
    )
    talk.messages[1] = made
    assert [css for css, _ in score(shown_messages(talk, {}))[1].ticks] == ["tick", "tick", "s-critic"]


def test_a_pulse_has_a_column_per_message_upwards_for_the_user():
    assert [(css, up) for css, up, _ in pulse(conversation(messages=3))] == [
        ("s-user", True),
        ("s-assistant", False),
        ("s-user", True),
    ]
    heights = [height for *_, height in pulse(conversation(messages=1, said="word " * 900))]
    assert heights == [11]


def test_tokens_below_a_message_are_those_it_wrote(served: tuple[TestClient, Path]):
    said = Page(served[0].get("/conversation/tea?id=000_000").text).said
    assert "3 words · 1.5 s" in said
    assert "Written20 tokens" in said.replace("\n", "")


def test_thoughts_actions_and_choices_are_folded_unless_they_failed(
    served: tuple[TestClient, Path], monkeypatch: pytest.MonkeyPatch
):
    actions = [Action("web_search", '{"q": "tea"}', "<b>found</b>"), Action("python", error="it broke")]
    proposals = Proposal("good", score=8), Proposal("bad", score=0.4, reason="too short")
    message = Message(
        0,
        "user",
        "Trader",
        "good",
        reasoning="hm",
        actions=actions,
        deliberation=Deliberation("Judge", proposals, 0),
    )
    talk = Transcript("000_000", Task("t"), [], [message])
    monkeypatch.setattr(Catalogue, "conversation", lambda *_: talk)
    text = served[0].get("/conversation/tea?id=000_000").text
    folds = re.findall(r'<details class="fold (\w+)" ?(open)?', text)
    assert [one for one in folds if one[0] != "annotation"] == [
        ("thought", ""),
        ("action", ""),
        ("action", "open"),
        ("critic", ""),
    ]
    assert "&lt;b&gt;found" in text
    assert "8 of 10" in text
    assert "0.4 of 10" in text


def test_the_details_of_calls(served: tuple[TestClient, Path], monkeypatch: pytest.MonkeyPatch):
    talk = conversation(0)
    talk.speakers[1] = Speaker(
        "user", "Trader", tools=[ToolSchema("search", "Find <i>things</i>.", {"type": "object"})]
    )
    acts = [
        Action(
            "search", '{"q": "tea"}', "found", seconds=1.26, said="Let me see.", change='{"basket": ["tea"]}'
        ),
        Action("search", '{"code": "a = 1\\nb"}', error="it broke"),
    ]
    talk.messages[0] = Message(0, "user", "Trader", "good", actions=acts)
    talk.unspoken = acts[1:]
    monkeypatch.setattr(Catalogue, "conversation", lambda *_: talk)
    text = served[0].get("/conversation/tea?id=000_000").text
    first, second, unspoken = re.findall(r'<details class="fold action".*?</div></details>', text, re.DOTALL)[
        -3:
    ]
    said = Page(first).said.replace("\n", "")
    assert said == (
        'Calledsearch(q="tea")1.3 sSaidLet me see.Arguments{"q": "tea"}Resultfound'
        'Changed the shared state{"basket": ["tea"]}'
    )
    assert first.count("<details") == 2  # the change is folded inside
    assert Page(second).said.startswith("Failed")
    assert "code:\na = 1\nb" in Page(second).said
    assert unspoken == second
    assert text.index("was never said") > text.rindex('<li class="message')
    assert "Tool calls3, 2 failed" in Page(text).said.replace("\n", "")
    prompts = text[text.index('id="prompts"') : text.index('<ol class="messages">')]
    assert "<code>search</code>" in prompts
    assert "Find &lt;i&gt;things" in prompts


def test_long_calls_are_cut_with_their_size(served: tuple[TestClient, Path], monkeypatch: pytest.MonkeyPatch):
    talk = conversation(0)
    talk.messages[0] = Message(
        0, "user", "Trader", "x", actions=[one for text in CONTROL for one in acts(text)]
    )
    monkeypatch.setattr(Catalogue, "conversation", lambda *_: talk)
    answer = served[0].get("/conversation/tea?id=000_000")
    page = Page(answer.text)
    assert page.wrong == []
    assert "… (992,000 more characters)" in page.said
    assert len(answer.content) < 2e6
    assert not [link for link in page.links if "evil" in link]


def test_conversations_are_found_by_their_tools(tmp_path: Path):
    talks = [conversation(number) for number in range(4)]
    for number, names in enumerate((["python"], ["python", "search", "python"], [])):
        talks[number].messages[1] = replace(
            talks[number].messages[1], actions=[Action(name) for name in names]
        )
    with Catalogue([run_of(tmp_path / "tea", *talks)]) as catalogue:
        visitor = client(catalogue)
        listed = Page(visitor.get("/list").text).said
        assert re.search(r"Tool\s*python2\s*search1\s", listed)
        for query in ("tool=search", "where=tool+%3D+%22search%22", "where=actions+%3E+2"):
            links = [one for one in Page(visitor.get(f"/list?{query}").text).links if one.startswith("/conv")]
            assert len(links) == 1, query
            assert "id=000_001" in links[0]


# --- comparing -----------------------------------------------------------------------------------------------------


def test_turns_are_aligned_and_changed_words_marked(tmp_path: Path):
    where = run_of(
        tmp_path / "tea",
        conversation(0, 3, said="go to the well and drink"),
        conversation(1, 4, said="go to the market and drink"),
    )
    with Catalogue([where]) as catalogue:
        text = client(catalogue).get("/compare?left=tea/000_000&right=tea/000_001").text
    rows = text.split('<li class="turn-row"')[1:]
    assert [(f'id="a{n}"' in row, f'id="b{n}"' in row) for n, row in enumerate(rows, 1)] == [
        (True, True)
    ] * 3 + [(False, True)]
    assert re.findall(r'<span class="changed">(.*?)</span>', rows[0]) == ["well", "market"]
    assert not Page(text).wrong


def test_changes_are_marked_in_text_and_never_in_tags():
    left, right = mark_changes(
        '<p class="a">one two <b>three</b></p>', '<p class="b">one two <b>four</b> five</p>'
    )
    assert left == '<p class="a">one two <b><span class="changed">three</span></b></p>'
    assert (
        right
        == '<p class="b">one two <b><span class="changed">four</span></b> <span class="changed">five</span></p>'
    )
    unlike = "a b c d", "e f g h"
    assert mark_changes(*unlike) == unlike
    assert mark_changes("same text", "same text") == ("same text", "same text")
    assert align([], [], lambda shown: left) == []


def test_comparing_long_texts_does_not_take_long():
    began = time.process_time()
    words = "a b " * 1_000
    mark_changes(words, "b a " * 1_000)
    mark_changes("x y z " * 330, "z x y " * 330)
    assert time.process_time() - began < 20


# --- plots ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("most", "ticks"), [(0, [0, 1]), (1, [0, 1]), (3, [0, 1, 2, 3]), (7, [0, 2, 4, 6, 8])]
)
def test_counts_have_whole_ticks_that_reach_the_largest(most: int, ticks: list[int]):
    assert count_ticks(most) == ticks
    for number in range(1, 3_000, 17):
        steps = count_ticks(number)
        assert steps[-1] >= number
        assert len(steps) <= 6


def test_few_values_are_sentences_without_shares(tmp_path: Path):
    where = run_of(tmp_path / "tea", *(conversation(n) for n in range(3)))
    with Catalogue([where]) as catalogue:
        made = {one.name: one for one in charts(catalogue, PageState(Query()))}
        assert {one.kind for one in made.values()} == {"text"}
        assert "3" in made["messages"].drawn["text"]
        assert "4" in made["messages"].drawn["text"]
        page = Page(client(catalogue).get("/statistics").text)
        assert "%" not in page.said
        assert "3 of 3" in page.said
        assert client(catalogue).get("/statistics/messages.svg").status_code == 404
        assert client(catalogue).get("/statistics/messages.csv").text.splitlines()[1:] == ["4,3"]


def test_a_range_of_one_value_reaches_no_plot(tmp_path: Path):
    with Catalogue([run_of(tmp_path / "tea", *(conversation(n) for n in range(12)))]) as catalogue:
        for name in ("messages", "tokens", "cost"):
            made = chart(catalogue, PageState(Query()), name)
            assert made is not None
            assert (made.kind, made.spec) == ("text", None), name
        assert made.drawn["text"].endswith("in total.")
        assert made.rows[0]["conversations"] == 12


def test_a_filtered_field_has_no_plot_and_all_others_obey_the_filter(tmp_path: Path):
    rows = [conversation(n, 3 + n % 9, ("done", "error")[n % 2]) for n in range(24)]
    with Catalogue([run_of(tmp_path / "one", *rows), run_of(tmp_path / "two", *rows)]) as catalogue:
        state = PageState(Query(runs=("one",), facets={"stop": ("done",)}, ranges={"messages": (4, 11)}))
        made = {one.name: one for one in charts(catalogue, state)}
        assert not {"run", "stop", "messages", "length-by-stop"} & made.keys()
        counted = catalogue.count(state.query)
        assert sum(row["conversations"] for row in made["tokens"].rows) == counted < 24
        everything = {one.name for one in charts(catalogue, PageState(Query()))}
        assert {"run", "stop", "messages", "length-by-stop"} <= everything


def test_a_plot_is_readable_without_a_picture(tmp_path: Path):
    rows = [conversation(n, 3 + n, ("done", "error", "max_messages")[n % 3]) for n in range(30)]
    with Catalogue([run_of(tmp_path / "tea", *rows)]) as catalogue:
        text = client(catalogue).get("/statistics").text
    assert not Page(text).wrong
    assert text.count("<figure") == text.count("<figcaption")
    assert (
        re.search(r'class="stacked".{0,80}aria-label="done 10, message limit 10, failed 10"', text)
        or "each" in text
    )


# --- runs ----------------------------------------------------------------------------------------------------------


def test_the_newest_run_is_first_with_its_model(tmp_path: Path):
    for name, age in (("old", 86_400 * 9), ("new", 0)):
        where = run_of(tmp_path / name, conversation())
        then = time.time() - age
        import os

        os.utime(where / "run.json", (then, then))
    with Catalogue([tmp_path / "old", tmp_path / "new"]) as catalogue:
        text = client(catalogue).get("/").text
    rows = re.findall(r'data-open href="/run/(\w+)"', text)
    assert rows == ["new", "old"]
    assert text.count('<td class="m-hide model">gpt-4o-mini</td>') == 2


def test_a_run_links_to_everything_measured_about_it(served: tuple[TestClient, Path]):
    app, where = served
    assert "camel study" in Page(app.get("/run/tea").text).said
    for name in ("study", "evaluation"):
        (where / name).mkdir()
        (where / name / f"{name}.html").write_text("<title>x</title><script>alert(1)</script>")
        (where / name / f"{name}.md").write_text(f"# What the {name} \\*found\\*\n\nA sentence.\n")
    (where / "private.html").write_text("secret")
    for path in ("/run/tea", "/reports"):
        page = Page(app.get(path).text)
        assert {"/reports/tea/study/study.html", "/reports/tea/evaluation/evaluation.html"} <= set(page.links)
        assert "What the study found" in page.said
    answer = app.get("/reports/tea/study/study.html")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith(POLICY)
    assert policy.endswith("frame-ancestors 'none'")
    assert "script-src 'unsafe" not in policy
    assert {name: answer.headers[name] for name in HEADERS if name != "content-security-policy"} == {
        name: value for name, value in HEADERS.items() if name != "content-security-policy"
    }
    assert app.get("/reports/tea/study/study.md").headers["content-type"].startswith("text/plain")
    for path in (
        "study/private.html",
        "study/evaluation.html",
        "..%2F/private.html",
        "study/study.py",
        "x/study.html",
    ):
        assert app.get(f"/reports/tea/{path}").status_code == 404, path


def test_reports_behind_symbolic_links_are_not_served(served: tuple[TestClient, Path], tmp_path: Path):
    app, where = served
    (tmp_path / "secret.html").write_text("secret")
    (where / "study").mkdir()
    (where / "study" / "study.html").symlink_to(tmp_path / "secret.html")
    (where / "study" / "study.md").write_text("# Study\n")
    assert "secret" not in app.get("/reports/tea/study/study.html").text
    assert app.get("/run/tea").status_code == 200


def test_pages_load_the_shared_look_from_this_server(served: tuple[TestClient, Path]):
    app = served[0]
    page = app.get("/").text
    for name in ("tokens.css", "components.css"):
        assert f'<link rel="stylesheet" href="/static/look/{name}">' in page
        answer = app.get(f"/static/look/{name}")
        assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, "text/css")
    assert app.get("/static/look/fonts/plex-sans.woff2").status_code == 200
    assert "style=" not in page


def test_a_pulse_is_loaded_after_the_list(served: tuple[TestClient, Path]):
    app = served[0]
    listing = app.get("/list").text
    link = re.search(r'data-pulses="([^"]+)"', listing)
    assert link
    drawn = app.get(link[1].replace("&amp;", "&")).text
    assert [len(re.findall("<rect", one)) for one in drawn.split('<div id="p')[1:]] == [4, 6]
    assert not Page(drawn).wrong
    assert app.get("/pulses?of=tea/nobody&of=nowhere/x&of=").status_code == 200


def test_histograms_are_facets_that_lead_to_their_range(tmp_path: Path):
    society(tmp_path / "caravan", rows=60)
    with Catalogue([tmp_path / "caravan"]) as catalogue:
        app = client(catalogue)
        page = Page(app.get("/list").text)
        ranged = [link for link in page.links if re.match(r"/list\?messages-range=\d+\.\.\d+", link)]
        assert ranged
        text = app.get(ranged[0]).text
        assert 'class="in"' in text
        assert "/list" in Page(text).links  # which clears it
