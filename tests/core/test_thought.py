"""Thought and speech in one text are separated in every form in which models write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel.core.thought import SpeechFilter, separate


@pytest.mark.parametrize(
    ("text", "thought", "speech"),
    [
        ("Solution: x = 1.", "", "Solution: x = 1."),
        ("  spaces stay  ", "", "  spaces stay  "),
        ("<think>hm</think>Solution: 1", "hm", "Solution: 1"),
        ("\n<think>\nhm\n</think>\n\nSolution: 1", "hm", "Solution: 1"),
        ("<thinking>hm</THINKING> Solution: 1", "hm", "Solution: 1"),
        ("Instruction: trap\n</think>\n\nSolution: 1", "Instruction: trap", "Solution: 1"),
        ("trap</think>Solution: 1", "trap", "Solution: 1"),
        ("<think>the limit came first", "the limit came first", ""),
        ("Solution: 1\n<think>the limit came first", "the limit came first", "Solution: 1"),
        ("<think></think>Solution: 1", "", "Solution: 1"),
        ("<think>a<think>b</think>c</think>Solution: 1", "abc", "Solution: 1"),
        ("<think>no <think> tags now</think>Solution: 1", "no  tags now", "Solution: 1"),
        ("<think>a</think>Solution: <think>b</think>1", "a\n\nb", "Solution: 1"),
        ("a<think>b</think>c</think>Solution: 1", "abc", "Solution: 1"),
        ("The <think> tag opens a thought.", "", "The <think> tag opens a thought."),
        ("Write `<think>` and `</think>` around it.", "", "Write `<think>` and `</think>` around it."),
        ("```\n<think>\nquoted\n</think>\n```\nDone.", "", "```\n<think>\nquoted\n</think>\n```\nDone."),
        ("~~~~html\n</think>\n~~~~\nDone.", "", "~~~~html\n</think>\n~~~~\nDone."),
        ("<think>```\nopen</think>Use `</think>`.", "```\nopen", "Use `</think>`."),
        ("<think>a</think>```\n<think>b</think>\n```", "a", "```\n<think>b</think>\n```"),
    ],
)
def test_forms(text: str, thought: str, speech: str):
    assert separate(text) == (thought, speech)


words = st.sampled_from(
    [
        "<think>",
        "</think>",
        "<thinking>",
        "`",
        "```\n",
        "\n",
        "Instruction: a",
        "Solution: b",
        " ",
        "<",
        "think>",
    ]
)


@given(st.lists(words, max_size=30))
def test_separating_again_changes_nothing(pieces: list[str]):
    """Nothing of the speech is a thought, and the marker of a thought never stays in it as an opened thought."""
    thought, speech = separate("".join(pieces))
    if thought:
        assert separate(speech).speech == speech.strip() or "`" in speech


@given(st.text(alphabet="ab`~<>/\n think", max_size=200))
def test_a_text_without_a_tag_is_speech(text: str):
    if "<think>" not in text and "</think>" not in text:
        assert separate(text) == ("", text)


@given(st.text(alphabet="xyz\n `", max_size=60), st.text(alphabet="xyz", min_size=1, max_size=60))
def test_a_thought_before_speech_is_found_whatever_it_holds(thought: str, speech: str):
    for text in (f"<think>{thought}</think>{speech}", f"<think>\n{thought}\n</think>\n\n{speech}"):
        assert separate(text) == (thought.strip(), speech)


@given(
    st.sampled_from(
        [
            "<think>hm</think>Solution: 1",
            "\n <think>a\nb</think>\nSolution: 1",
            "Solution: a < b\nSolution: 2",
            "<b>",
        ]
    ),
    st.lists(st.integers(1, 5), max_size=40),
)
def test_viewers_see_all_speech_however_the_text_is_cut(text: str, sizes: list[int]):
    watched, seen, rest = SpeechFilter(), "", text
    for size in [*sizes, len(text)]:
        seen += watched.feed(rest[:size])
        rest = rest[size:]
    assert (seen + watched.rest()).strip() == separate(text).speech.strip()
