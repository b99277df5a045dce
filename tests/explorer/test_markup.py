"""What a model wrote, as HTML: always safe, and nothing left out."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camel.explorer.markup import MAX_MARKDOWN, as_math, as_plain, marked, render
from camel.explorer.reading import count_words, parts_of, terms_of
from camel.explorer.renderer import as_html
from tests.support.payloads import PAYLOADS
from tests.support.web_page import Page

PIECES = st.sampled_from(
    ["<", ">", "&", '"', "'", "`", "```", "$", "$$", "\\(", "\\)", "[", "](", ")", "![", "*", "_", "#", "|", "-", "\n",
     "\n\n", " ", "    ", "\\frac{", "}", "script", "http://x.y", "javascript:x", "Instruction:", "Input: None",
     "Solution:", "Next request.", "<CAMEL_TASK_DONE>", "word", "1", "é", "🐪", "&lt;", "&#60;"]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=200)


@given(TEXTS, st.lists(st.sampled_from(["a", "script", "lt", "<", "amp", "word", "$", "("]), max_size=3))
@settings(max_examples=150, deadline=None)
def test_any_text_becomes_safe_html(text: str, terms: list[str]):
    assert Page(str(as_html(text, terms))).wrong == []
    assert Page(str(as_plain(text, terms))).wrong == []
    assert Page(str(as_plain(text, terms))).said == text


@pytest.mark.parametrize("payload", PAYLOADS)
def test_payloads_are_text(payload: str):
    for text in (payload, f"Instruction: {payload}\nInput: {payload}", f"`{payload}`", f"$${payload}$$"):
        assert Page(str(as_html(text, ["script", "x"]))).wrong == []
        for part in parts_of(text):
            assert Page(str(as_html(part.text))).wrong == []


WORD = re.compile(r"[a-zA-Zé]{3,}")


@given(TEXTS)
@settings(max_examples=150, deadline=None)
def test_no_word_is_left_out_of_the_parts(text: str):
    shown = (
        " ".join(part.text for part in parts_of(text)).lower()
        + " next request instruction input solution none"
    )
    for word in WORD.findall(text.lower()):
        assert word in shown


@pytest.mark.parametrize(
    "words",
    ["a plain one", "# a heading", "- a list\n- of two", "> quoted", "| a | b |\n|---|---|\n| c | d |"],
)
def test_markdown_keeps_its_words(words: str):
    assert WORD.findall(words) == WORD.findall(Page(str(as_html(words))).said)


def test_maths_is_drawn_by_the_browser_itself():
    assert "<mfrac>" in as_html(r"so $\frac{a}{b}$ it is")
    assert 'display="block"' in as_html("\\[ x^2 \\]")
    two = as_html("$$a$$ is less than $$b$$.")
    assert two.count("<math") == 2
    assert "is less than" in two
    assert as_html("$$\n- a\n- b\n$$.").count("<math") == 1
    assert "<math" not in as_html("it costs $5, or $6 with tax")
    assert "\\newcommand" in as_math("\\newcommand{\\a}{b}")
    assert as_math("\\frac{") == '<code class="formula">\\frac{</code>'


def test_code_has_its_colors_and_its_language():
    html = as_html("```python\nprint('<b>')\n```")
    assert "<header><span>python</span>" in html
    assert "&lt;b&gt;" in html
    assert "<span" in html


def test_links_lead_to_the_web_only_and_pictures_are_words():
    assert 'rel="noopener noreferrer nofollow"' in as_html("[a](https://x.y)")
    assert "<a" not in as_html("[a](javascript:x) [b](file:///x) [c](/list) [d](//x.y)")
    assert "<img" not in as_html("![a](https://x.y/z.png)")


def rendering_time(text: str) -> float:
    """Seconds of CPU."""
    began = time.process_time()
    for part in parts_of(text):
        render(part.text)
    return time.process_time() - began


HOSTILE: dict[str, Callable[[int], str]] = {
    "brackets": lambda n: "[" * n,
    "pictures": lambda n: "![" * (n // 2),
    "stars": lambda n: "*a" * (n // 2),
    "dollars": lambda n: "$a" * (n // 2),
    "underscores": lambda n: "_" * n,
    "backticks": lambda n: "`a" * (n // 2),
    "spaces": lambda n: " " * n + "x",
    "table": lambda n: "|a" * (n // 2) + "\n" + "|-" * (n // 2),
    "braces": lambda n: "$" + "{" * (n // 100) + "}" * (n // 100) + "$",
    "input": lambda n: "Instruction: " + " " * n + "x",
    "math": lambda n: "\\(" * (n // 2),
    "lists": lambda n: "- " * (n // 2) + "x",
    "quotes": lambda n: ">" * n,
    "ampersands": lambda n: "&" * n,
}


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.slow] * (kind in ("brackets", "pictures"))) for kind in HOSTILE],
)
def test_no_text_takes_long(kind: str):
    rendering_time("$x$ `y`")  # what is imported and compiled once
    # Four times the text takes about four times as long, however fast the machine is; quadratic would be sixteen.
    assert rendering_time(HOSTILE[kind](40_000)) < 8 * rendering_time(HOSTILE[kind](10_000)) + 1


def test_long_and_deep_texts_are_shown_as_they_stand():
    long = "**word** " * MAX_MARKDOWN
    assert Page(str(as_html(long))).said == long
    assert "secret" in as_html(">" * 40 + "secret")


@pytest.mark.parametrize(
    "text", ["I don't know", "`don't`", "```\ndon't\n```", '```python\nprint("don\'t")\n```']
)
def test_a_word_with_an_apostrophe_is_marked_wherever_it_stands(text: str):
    for html in (as_html(text, ["don't"]), as_plain(text, ["don't"])):
        assert re.search("<mark>don(?:'|&#39;|&#x27;)t</mark>", html)
    assert "<mark>don&#39;t</mark>" in marked("<b>don&#39;t</b>", ["don't"]), "as older Pygments write it"


def test_terms_of_a_search():
    assert terms_of('tea "two words" AND -not (x)') == ["two words", "tea"]


def test_parts_of_a_message():
    def kinds(text: str) -> list[tuple[str, str]]:
        return [(part.kind, part.text) for part in parts_of(text)]

    assert kinds("Instruction: Do it\nInput: None") == [("instruction", "Do it")]
    assert kinds("Sure!\n\n**Instruction:** a b\n**Input:** 1") == [
        ("prose", "Sure!"),
        ("instruction", "a b"),
        ("input", "1"),
    ]
    assert kinds("Solution: yes\n\nNext request.") == [("solution", "yes")]
    assert kinds("Hello") == [("prose", "Hello")]
    assert kinds("Input: None") == [("prose", "Input: None")], "nothing but markers is shown as it is"
    assert kinds("Well done.\n<CAMEL_TASK_DONE>") == [("prose", "Well done.\n`<CAMEL_TASK_DONE>`")]


@pytest.mark.parametrize(
    ("text", "words"), [("", 0), ("two words", 2), ("你好世界", 4), ("say 你好", 3), ("a-b c's\n", 2)]
)
def test_words_are_counted_in_every_script(text: str, words: int):
    assert count_words(text) == words
