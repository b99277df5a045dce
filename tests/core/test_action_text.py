"""Tool calls as text: short lines without control codes, texts with a limit, whatever models and tools wrote."""

from __future__ import annotations

import json
import time

import pytest

from camel.core.action_text import (
    MOST_CHARS,
    RAISED,
    action_texts,
    call_line,
    failure_line,
    laid_out,
    one_line,
)
from camel.core.message import Action, Message
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from tests.support.payloads import CONTROL, PAYLOADS, acts


def test_a_call_is_one_line():
    assert call_line("search", '{"query": "cats", "limit": 5}') == 'search(query="cats", limit=5)'
    assert call_line("python", '{"code": "a\\nb"}') == 'python(code="a\\nb")'
    assert call_line("note", '{"text": "é"}') == 'note(text="é")'
    assert call_line("", "not JSON") == "(no name)(not JSON)"
    assert call_line("pick", "[1]") == "pick([1])"
    assert len(call_line("t" * 900, json.dumps({"a": "x" * 900}), 80)) <= 80


def test_json_is_indented_and_texts_in_it_keep_their_lines():
    assert laid_out('{"b": [1, 2]}') == '{"b": [1, 2]}'
    long = {"name": "x" * 100, "list": [1]}
    assert json.loads(laid_out(json.dumps(long))) == long
    assert "\n" in laid_out(json.dumps(long))
    assert laid_out('{"code": "a = 1\\nprint(a)", "limit": 2}') == "code:\na = 1\nprint(a)\nlimit: 2"
    assert laid_out("3\n4") == "3\n4"
    assert laid_out('"text"') == '"text"'
    assert laid_out({"type": "object"}) == '{"type": "object"}'


def test_what_is_known_about_a_call():
    done = Action("a", "{}", "4", said="hm", change='{"n": 1}')
    assert action_texts(done) == [
        ("Said", "hm"),
        ("Arguments", "{}"),
        ("Result", "4"),
        ("Changed state", '{"n": 1}'),
    ]
    assert action_texts(Action("a", error="it broke"))[-1] == ("Error", "it broke")
    assert action_texts(Action("a"))[-1] == ("Result", "(empty)")


FRAME = '  File "<call 1>", line 1, in <module>\n    1 / 0\n    ~~^~~\n'


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("no network\nmore", "no network"),
        ("", ""),
        (
            f"{RAISED}Traceback (most recent call last):\n{FRAME}ZeroDivisionError: division",
            "ZeroDivisionError: division",
        ),
        (f"{RAISED}printed\n{FRAME}{FRAME}ValueError: a\nb", "ValueError: a"),
        (
            f'{RAISED}  File "<call 1>", line 1\n    a b\n    ^^^\nSyntaxError: invalid',
            "SyntaxError: invalid",
        ),
        (f"{RAISED}the end of a long text\nof an exception", "of an exception"),
        (f"{RAISED}{FRAME}", "~~^~~"),
        (f"failed:\n{FRAME}KeyError: 'a'", "KeyError: 'a'"),
    ],
)
def test_the_cause_of_an_error_is_the_exception_of_a_traceback(error: str, cause: str):
    assert failure_line(error) == cause


@pytest.mark.parametrize("text", ["x" * 10**6, "[" * 10**6, '{"a":' * 400 + "1" + "}" * 400, "\n" * 10**6])
def test_long_and_deep_texts_are_cut_and_cost_little(text: str):
    begin = time.process_time()
    shown = laid_out(text)
    assert len(shown) <= MOST_CHARS + 40
    assert len(shown) < MOST_CHARS or "more characters" in shown
    assert len(call_line(text, text)) <= 170
    assert len(failure_line(RAISED + text)) <= 100
    assert len(failure_line(FRAME * 10**4 + text)) <= 100
    assert time.process_time() - begin < 1


def talk(text: str) -> Transcript:
    message = Message(0, "assistant", "Guide", "here", actions=acts(text))
    return Transcript("t", Task("x"), [Speaker("assistant", "Guide")], [message], unspoken=acts(text))


@pytest.mark.parametrize("text", [*CONTROL, *PAYLOADS[::5]])
def test_lines_have_no_control_codes(text: str):
    for one in acts(text):
        for line in (
            call_line(one.tool, one.arguments),
            one_line(one.result),
            failure_line(f"{RAISED}{FRAME}{text}"),
            *str(talk(text)).splitlines(),
        ):
            assert line.isprintable()
    assert len(str(talk(text))) < 2_000


@pytest.mark.parametrize("text", [*CONTROL, *PAYLOADS[::5], "\n# Heading\n---\n```\n> x"])
def test_markdown_quotes_every_line_of_a_call(text: str):
    own = {"# Guide", "### 1. Guide (assistant)", "### Calls before a message that was never said"}
    lines = talk(text).to_markdown().splitlines()
    assert {line for line in lines if line.startswith("#")} == own
    calls = lines[lines.index("### 1. Guide (assistant)") + 1 : -1]
    assert all(not line or line in own or line.startswith(">") for line in calls)
    assert sum(map(len, lines)) < 40 * MOST_CHARS


def test_a_mark_counts_the_calls_of_a_message():
    one = talk("a")
    assert "Guide [4 tool calls: a]: here" in str(one)
    assert "never said [4 tool calls: a]" in str(one)
    plain = Transcript(
        "t", Task("x"), [Speaker("assistant", "Guide")], [Message(0, "assistant", "Guide", "here")]
    )
    assert "call" not in str(plain).replace("0 calls", "")
