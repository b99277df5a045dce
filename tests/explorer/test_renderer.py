"""Text that would hold a renderer for hours is shown as it stands, and costs a bounded CPU time."""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("markdown_it")

from camel.explorer import renderer as module
from camel.explorer.markup import LANGUAGES, MAX_MARKDOWN, render
from camel.explorer.renderer import BASE, PER_CHARACTER, Renderer, as_html
from tests.support.web_page import Page

BACKSLASHES = "```tads3\n" + 'obj: Thing "{' + "\\" * 60 + "\n```"
"""Each two more backslashes double the time that Pygments takes."""
NEWLINES = "```c\n" + "\n" * 20_000 + "x\n```"
ORDINARY = "Some **prose** with `code`, $x^2$ and a list:\n\n- one\n- two\n\n```python\nprint('hello')\n```\n"


@pytest.fixture
def renderer() -> Iterator[Renderer]:
    made = Renderer()
    yield made
    made.close()


def cpu_of_children() -> float:
    """Seconds of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("text", [BACKSLASHES, NEWLINES], ids=["backslashes", "newlines"])
def test_a_block_of_code_does_not_hold_a_page(renderer: Renderer, text: str):
    before = cpu_of_children()
    renderer.render(text)
    renderer.close()
    # The limit, and what it takes to start a helper and to prepare all languages.
    assert cpu_of_children() - before < BASE + PER_CHARACTER * len(text) + 30
    assert Page(str(as_html(text))).said.strip(), "nothing that was said is left out"


def attacks() -> Iterator[str]:
    """For each language: what makes patterns that nest or overlap take longest."""
    pieces = (
        "\\",
        "\n",
        " ",
        "\t",
        "'",
        '"',
        "`",
        "(",
        "[",
        "{",
        "<",
        "/*",
        "#",
        "a",
        "0",
        "-",
        "=",
        ":",
        "\\'",
        "a\n",
        "${",
        "a=",
        "<a ",
    )
    for language in sorted(LANGUAGES):
        for piece in pieces:
            yield f"```{language}\n" + (piece * 20_000)[:19_000] + "!\n```"


@pytest.mark.parametrize(
    "every", [pytest.param(7, marks=pytest.mark.thorough), pytest.param(56, marks=pytest.mark.slow)]
)
def test_no_language_takes_longer_than_the_limit(renderer: Renderer, every: int):
    """CPU time of the helper and all its workers, over attacks on every language."""
    some = list(attacks())[::every]
    before = cpu_of_children()
    for text in some:
        renderer.render(text)
    assert renderer.render(ORDINARY) == render(ORDINARY)
    renderer.close()
    allowed = sum(BASE + PER_CHARACTER * len(text) for text in some)
    assert cpu_of_children() - before < allowed + 30, "beyond the limits there is the time to prepare"


def test_the_next_text_is_rendered_after_one_that_was_ended(renderer: Renderer):
    """A text whose time is up is answered by the helper, and the next one by a new worker."""
    assert renderer.render(ORDINARY) == render(ORDINARY)
    for text in ("[" * MAX_MARKDOWN, "```tex\n" + "{" * 19_000 + "\n```"):
        renderer.render(text)
        assert renderer.render(ORDINARY) == render(ORDINARY)


def test_what_the_worker_dies_of_does_not_matter(renderer: Renderer):
    assert renderer.render("a") == "<p>a</p>\n"
    helper = renderer._process
    assert helper is not None
    (worker,) = map(int, Path(f"/proc/{helper.pid}/task/{helper.pid}/children").read_text().split())
    os.kill(worker, signal.SIGKILL)
    # At most one text is not rendered, and no answer is taken for that to another.
    found = [renderer.render(text) for text in "bcdef"]
    assert found[1:] == [f"<p>{text}</p>\n" for text in "cdef"]
    assert found[0] in (None, "<p>b</p>\n")
    for text in "gh":  # also where the helper itself is gone
        helper = renderer._process
        assert helper is not None
        helper.kill()
        helper.wait()
        assert renderer.render(text) in (None, f"<p>{text}</p>\n")
        assert renderer.render(text) == f"<p>{text}</p>\n"


@pytest.mark.parametrize("text", ["", "\ud800 lone", "\0", "é🐪", "a\r\nb", "x" * MAX_MARKDOWN, ORDINARY])
def test_the_same_html_as_here(renderer: Renderer, text: str):
    assert renderer.render(text) == render(text)


def test_many_threads_get_their_own_answers(renderer: Renderer):
    wrong: list[str] = []

    def ask(number: int) -> None:
        texts = [f"{number} {n}" for n in range(20)]
        wrong.extend(text for text in texts if renderer.render(text) != f"<p>{text}</p>\n")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


def test_without_a_helper_text_is_shown_as_it_stands(monkeypatch: pytest.MonkeyPatch):
    made = Renderer()
    monkeypatch.setattr(module.sys, "executable", "/nowhere/python")
    monkeypatch.setattr(module, "_RENDERER", made)
    assert as_html("**a** unlike any other") == '<div class="plain">**a** unlike any other</div>'
    module._rendered.cache_clear()
