"""A critic's answer is read where it can be meant in one way only, and never fails."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel.core.critic import Verdict
from camel.core.judge import read_choice, read_ruling, read_scores
from tests.support.scaling import assert_linear

OPTIONS = st.integers(1, 12)
WORDS = st.text(st.characters(categories=["L", "Zs", "Po"], exclude_characters="{}<>"), max_size=40)


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("2", 1),
        ("2. It is specific.", 1),
        ("2) because", 1),
        ("**2** It is specific.", 1),
        ("#3", 2),
        ("  \n1: fine", 0),
        ("2 because option 1 is vague", 1),
        ("Option 2", 1),
        ("Option 2: better than option 1.", 1),
        ("**Option 3**\n\nOption 1 is vague.", 2),
        ("Choice: 1", 0),
        ("I choose option 2. Option 1 and option 3 are vague.", 1),
        ("After some thought, the best option is 3, since option 1 is vague.", 2),
        ("My answer is 2.", 1),
        ("Option 2 is the best of them.", 1),
        ("I would go with option 1", 0),
        ('{"choice": 2, "reason": "it is"}', 1),
        ('```json\n{"choice": 3}\n```', 2),
        ("<think>Option 1? No, 3 is odd.</think>\n2. It is specific.", 1),
    ],
)
def test_a_choice(text: str, choice: int):
    found = read_choice(text, 3)
    assert found is not None
    assert found.choice == choice


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "4",
        "12 is it",
        "1.5",
        "2/10",
        "1 or 2",
        "1, 2",
        "1-3",
        "3 options are good, 2 is better.",
        "2 of them are good.",
        "Option 1 is worse than option 2.",
        "I choose option 1 or I choose option 2.",
        "None of them.",
        '{"choice": 0}',
        '{"choice": true}',
        '{"choice": "2"}',
        '{"choice": 2, "reason": 3}',
        '{"scores": [1, 2, 3]}',
        "<think>2</think>",
    ],
)
def test_no_choice(text: str):
    assert read_choice(text, 3) is None


@given(OPTIONS.flatmap(lambda count: st.tuples(st.just(count), st.integers(1, count))), WORDS)
def test_a_number_first_is_always_read(numbers: tuple[int, int], reason: str):
    count, number = numbers
    for form in ("{}. {}", "**{}**: {}", "Option {}: {}", "Choice: {}.\n{}"):
        assert (found := read_choice(form.format(number, f"So {reason}"), count))
        assert found.choice == number - 1
    answer = json.dumps({"choice": number, "reason": reason})
    assert read_choice(answer, count) == Verdict(number - 1, reason=reason)


def check_answers(text: str, count: int) -> None:
    """Whatever is said, it names an option or none."""
    if chosen := read_choice(text, count):
        assert 0 <= chosen.choice < count
    if scored := read_scores(text, count):
        assert len(scored.scores) == len(scored.reasons) == count
        assert all(0 <= score <= 10 for score in scored.scores)
    if ruled := read_ruling(text, count):
        assert 0 <= ruled.choice < count
        assert not ruled.feedback or ruled.feedback.strip()


@given(st.text(), OPTIONS)
def test_whatever_is_said_it_names_an_option_or_none(text: str, count: int):
    check_answers(text, count)


PIECES = st.sampled_from(["1", "2", "option", "Option ", "is", " best", "{", "}", '"choice"', ":", "/10", "\n", "ACCEPT", "REVISE", ". ", "and", ", ", "<think>", "</think>", "-", "10", "score"])  # fmt: skip


@given(st.lists(PIECES, max_size=14).map("".join), OPTIONS)
def test_the_same_for_what_looks_like_an_answer(text: str, count: int):
    check_answers(text, count)


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ("1: 6. Fine.\n2: 7. Better.\n3: 0. No.", (6, 7, 0)),
        ("3: 1\n1: 2\n2: 3", (2, 3, 1)),
        ("Option 1: 6/10\nOption 2: 7.5/10 - good\nOption 3: 10/10", (6, 7.5, 10)),
        ("1. 6\n2. 7\n3. 8", (6, 7, 8)),
        ("**1**: 6\n**2**: 7\n- **Option 3**: score 8, fine", (6, 7, 8)),
        ("Here are my scores:\n\n1) 6\n2) 7\n3) 8\n\nThat is all.", (6, 7, 8)),
        ('{"scores": [1, 2.5, 3], "reasons": ["a"]}', (1, 2.5, 3)),
    ],
)
def test_scores(text: str, scores: tuple[float, ...]):
    found = read_scores(text, 3)
    assert found is not None
    assert found.scores == scores


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1: 6\n2: 7",
        "1: 6\n2: 7\n3: 11",
        "1: 6\n2: 7\n2: 8",
        "1: 6\n2: 7\n4: 8",
        "1: -6\n2: 7\n3: 8",
        "1: 6/5\n2: 7\n3: 8",
        "1.5\n2.5\n3.5",
        '{"scores": [1, 2], "reasons": []}',
        '{"scores": [1, 2, 11]}',
        '{"scores": [1, 2, true]}',
        '{"scores": [1, 2, NaN]}',
    ],
)
def test_no_scores(text: str):
    assert read_scores(text, 3) is None


def test_reasons_come_with_scores():
    assert read_scores("1: 6. It is correct but says little.\n2: 7", 2) == Verdict(
        1, (6, 7), ("It is correct but says little", ""), ""
    )
    assert read_scores("8/10. Good.", 1) == Verdict(0, (8,), ("Good",), "Good")
    assert read_scores("I like it: 8", 1) is None


@pytest.mark.parametrize(
    ("text", "ruled"),
    [
        ("2. ACCEPT. It is specific.", Verdict(1, reason="It is specific")),
        ("2 REVISE: Name the library.", Verdict(1, reason="Name the library", feedback="Name the library")),
        (
            "Option 1: revise, name the library",
            Verdict(0, reason="name the library", feedback="name the library"),
        ),
        ("1. ACCEPT it, nothing to revise.", Verdict(0, reason="it, nothing to revise")),
        ('{"choice": 2, "verdict": "revise", "feedback": "x"}', Verdict(1, reason="x", feedback="x")),
        ('{"choice": 2, "verdict": "accept", "feedback": ""}', Verdict(1, reason="")),
        ("2. REVISE", None),
        ("2. It is fine.", None),
        ("ACCEPT", None),
        ("1. accept or revise", None),
        ('{"choice": 2, "verdict": "maybe", "feedback": "x"}', None),
    ],
)
def test_a_ruling(text: str, ruled: Verdict | None):
    assert read_ruling(text, 2) == ruled


def test_one_option_needs_no_number():
    assert read_ruling("REVISE: name the library", 1) == Verdict(
        0, reason="name the library", feedback="name the library"
    )


@pytest.mark.parametrize("piece", ["*", "option ", "1", "{", "1: ", "<think>", "- \n", "best is "])
def test_no_text_makes_it_slow(piece: str):
    for read in (read_choice, read_scores, read_ruling):
        assert_linear(lambda size, read=read: read(piece * (size // len(piece)), 3))


@pytest.mark.parametrize("object", ["{}", '{"a": 1}', '{"scores": 3}'])
def test_an_object_that_is_spoken_of_is_not_the_answer(object: str):
    assert read_choice(f"2. It returns {object} for empty input, which is right.", 3) == Verdict(
        1, reason=f"It returns {object} for empty input, which is right"
    )
    assert (
        read_scores(f"1: 8, though it returns {{}}\n2: 3, {object.replace('scores', 'x')} is odd", 2)
        is not None
    )
    ruled = read_ruling(f"1. REVISE: it should return {object}, not null", 2)
    assert ruled is not None
    assert ruled.feedback
