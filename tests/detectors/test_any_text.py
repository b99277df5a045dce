"""Whatever is said, in whatever order: no rule fails, points outside, or quotes what is not there."""

from __future__ import annotations

import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camel.core.message import Action, Message
from camel.core.model import ToolSchema
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.detectors import Finding, detect
from camel.detectors.finding import MAX_EVIDENCE
from tests.support.scaling import assert_linear

# Pieces that the rules look for, so that random texts come near them.
PIECES = st.sampled_from(
    [
        "Instruction:",
        "Input: None",
        "Solution:",
        "Next request.",
        "<CAMEL_TASK_DONE>",
        "```python\n",
        "```",
        "~~~",
        "\n",
        " ",
        '"',
        "“",
        "’",
        "(",
        "{",
        "[",
        "]",
        "def f(x):",
        "pass",
        "...",
        "# TODO: implement",
        "I will",
        "I'll get back to you",
        "I can't help with that",
        "As an AI",
        "thank you",
        "You are brilliant",
        "Here is the code:",
        "[insert here]",
        "la casa es de los niños que no están",
        "这是一个很长的中文句子。",
        "How can I help you?",
        "I ran the code and",
        "it has been sent",
        "Your order was cancelled.",
        "Please write",
        "\r\n",
        "\x00",
        "ß",
        "İ",
        "> ",
    ]
)
TEXTS = st.one_of(
    st.text(max_size=200),
    st.lists(PIECES, max_size=20).map(" ".join),
    st.lists(PIECES, max_size=20).map("".join),
)
MESSAGES = st.lists(
    st.builds(
        Message,
        index=st.just(0),
        speaker=st.sampled_from(["user", "assistant", "critic", ""]),
        role=st.one_of(st.just("Trader"), st.text(max_size=10)),
        content=TEXTS,
        finish=st.sampled_from(["stop", "length", "content_filter", "refusal", "other"]),
        actions=st.lists(
            st.builds(Action, st.sampled_from(["python", "get_x", ""]), TEXTS, TEXTS, TEXTS), max_size=3
        ),
    ),
    max_size=12,
)
SPEAKERS = st.lists(
    st.builds(
        Speaker,
        name=st.sampled_from(["user", "assistant"]),
        role=TEXTS,
        system=TEXTS,
        tools=st.sampled_from([[], [ToolSchema("python", "Run, send, search, book and write files.")]]),
    ),
    max_size=2,
)


@settings(max_examples=60)
@given(MESSAGES, SPEAKERS, TEXTS)
def test_any_conversation(messages: list[Message], speakers: list[Speaker], task: str):
    transcript = Transcript("t", Task(task), speakers, messages)
    findings = detect(transcript)
    for finding in findings:
        assert 0 <= finding.index < len(messages)
        assert len(finding.evidence) <= MAX_EVIDENCE
        assert finding.evidence in messages[finding.index].content
        assert finding.evidence or not messages[finding.index].content
        assert finding.reason
        assert "\n" not in finding.reason
        assert finding.confirmed is None
    assert len({(f.detector, f.index) for f in findings}) == len(findings), "a message is counted once"
    assert detect(transcript) == findings, "a pure function"
    assert msgspec.json.decode(msgspec.json.encode(findings), type=list[Finding]) == findings


def test_nothing_is_found_where_nothing_was_said():
    assert detect(Transcript("t", Task(""))) == []


def busy(text: str) -> Transcript:
    return Transcript(
        "t",
        Task("Develop a trading bot"),
        [
            Speaker(name, name, tools=[ToolSchema("x", "Run, send, search, book, write files.")])
            for name in ("user", "assistant")
        ],
        messages=[
            Message(
                0, "user", "Trader", "Instruction: Write the function that loads the prices.\nInput: None"
            ),
            Message(1, "assistant", "Programmer", text, actions=[Action("x", text, error=text)]),
            Message(2, "user", "Trader", text),
            Message(3, "assistant", "Programmer", f"Solution: {text}\nNext request."),
        ],
    )


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "(",
        '"',
        "'",
        "[",
        "\n",
        "# ",
        "/*",
        ") {",
        "I will ",
        "```python\n",
        "the ",
        "I'm sorry ",
        "def f(",
        "> ",
        "def f():\n    # x\n",
        "I have ",
        "I ran ",
        "I just really ",
        "the order ",
        "I checked",
        "no one ",
        "here: ",
        "Sure, ",
        "`",
        "“",
        "thank you ",
        "- x\n",
        "1. ",
        "Solution: ",
    ],
)
def test_no_text_makes_a_rule_slow(piece: str):
    assert_linear(lambda size: detect(busy(piece * (size // len(piece)))), 20_000)


@pytest.mark.parametrize(
    "text",
    [
        "Thank you! " * 40 + "Tha",
        "You are great! " * 40 + "Write a poem.",
        "```js\nf() {\n" + "/" * 80 + "\nx;\n}\n```",
        "```js\nf() {\n" + "/**/" * 40 + "\nx;\n}\n```",
        "```\n" + "\n" * 20_000 + "x\n```",
        "x" + "\n" * 20_000 + "x",
        "```python\n#" + " " * 20_000 + "x\n```",
        "```python\ndef f(a):" + " " * 20_000 + "x\n```",
        "```js\n" + "){/*" * 1_250 + "\n```",
        "As an AI " * 2_000,
    ],
    ids=lambda text: repr(text[:12]),
)
def test_no_trap_makes_a_rule_slow(text: str):
    """A pattern that backtracks would take minutes; these take some tenths of a second."""
    transcript = busy(text)
    begin = time.process_time()
    detect(transcript)
    assert time.process_time() - begin < 10
