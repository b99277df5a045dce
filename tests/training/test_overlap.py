"""Words, n-grams, duplicates and test questions, compared with a simple implementation."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camel.evaluation.overlap import (
    BANDS,
    ExamQuestion,
    ExamQuestions,
    bands,
    digests,
    grams,
    outline,
    signatures,
    words,
    words_in,
)

pa = pytest.importorskip("pyarrow")
np = pytest.importorskip("numpy")


def table(*texts: str) -> Any:
    return pa.table({"messages": [[{"role": "user", "content": text}] for text in texts]})


def plain(text: str) -> list[bytes]:
    """Return the words of a text as bytes; bytes above 127 count as letters."""
    return [found.lower() for found in re.findall(rb"[a-zA-Z0-9_\x80-\xff]+", text.encode())]


texts = st.lists(st.text("aAbB é_1 .,\n", max_size=60), min_size=1, max_size=5)


@settings(max_examples=200, deadline=None)
@given(texts)
def test_words_have_equal_hashes_if_and_only_if_they_are_equal(contents: list[str]):
    found = list(words_in(table(*contents)))
    hashes = [int(value) for _, _, part in found for value in part.hashes]
    of = [int(value) + first for first, _, part in found for value in part.of]
    wanted = [(number, word) for number, text in enumerate(contents) for word in plain(text)]
    assert of == [number for number, _ in wanted]
    by_word: dict[bytes, int] = {}
    for (_, word), value in zip(wanted, hashes, strict=True):
        assert by_word.setdefault(word, value) == value
    assert len(set(by_word.values())) == len(by_word)


@settings(max_examples=100, deadline=None)
@given(texts, st.integers(1, 4))
def test_ngrams_do_not_cross_the_end_of_a_text(contents: list[str], size: int):
    for _, _, said in words_in(table(*contents)):
        found = grams(said, size)
        wanted = [
            (number, tuple(listed[at : at + size]))
            for number, text in enumerate(contents)
            for listed in [plain(text)]
            for at in range(len(listed) - size + 1)
        ]
        assert [int(value) for value in found.of] == [number for number, _ in wanted]
        assert len(set(found.hashes.tolist())) == len({gram for _, gram in wanted})


def test_a_word_ends_with_its_message():
    row = [{"role": "user", "content": "one two"}, {"role": "assistant", "content": "three"}]
    ((_, _, together),) = words_in(pa.table({"messages": [row]}))
    apart = words(np.frombuffer(b"one two three", np.uint8), np.array([13]))
    assert together.hashes.tolist() == apart.hashes.tolist()


def test_an_outline_ignores_the_names_of_variables():
    first, second, third = (
        outline(words(np.frombuffer(text.encode(), np.uint8), np.array([len(text)]))).hashes.tolist()
        for text in (
            "for number in numbers: total += number",
            "for my_x in values_2: result += my_x",
            "while number in numbers: total += number",
        )
    )
    assert first == second != third


def test_only_equal_texts_have_equal_digests():
    found = digests(table("one", "two", "one", "One")).to_pylist()
    assert found[0] == found[2]
    assert len(set(found)) == 3


def test_signatures_estimate_the_similarity_of_two_rows():
    chance = np.random.default_rng(0)
    vocabulary = [f"word{n}" for n in range(5000)]
    base = [vocabulary[n] for n in chance.integers(0, 5000, 600)]
    changed = {share: list(base) for share in (0.0, 0.01, 0.05, 0.5)}
    for share, text in changed.items():
        for at in chance.choice(600, int(600 * share), replace=False):
            text[at] = "other"
    rows = table(" ".join(base), *(" ".join(text) for text in changed.values()), "short", "short")
    signed = signatures(rows)
    for number, text in enumerate(changed.values(), 1):
        shingles = [{tuple(one[at : at + 5]) for at in range(596)} for one in (base, text)]
        true = len(shingles[0] & shingles[1]) / len(shingles[0] | shingles[1])
        assert (signed[0] == signed[number]).mean() == pytest.approx(true, abs=0.15)
    assert (signed[5] == signed[6]).all()
    keys = bands(signed)
    assert keys.shape == (7, BANDS)
    assert (keys[0] == keys[2]).any()
    assert not (keys[0] == keys[4]).any()


def test_a_row_without_words_does_not_change_other_signatures():
    short = ["one two three four five six", "seven eight nine ten eleven twelve"]
    alone, together = signatures(table(*short)), signatures(table(*short, "?! ..."))
    assert (together[:2] == alone).all()
    assert (together[0] == together[1]).mean() < 0.1


LEAK = ExamQuestion(
    "sum",
    ("Write a function that adds up the even numbers of a list and returns the result as an integer.",),
    (
        "total = 0\nfor number in numbers:\n    if number % 2 == 0 and number not in seen:\n        total += number\n    else:\n        continue\nreturn total if total > 0 else None",
    ),
)


@pytest.mark.parametrize(
    ("text", "contained"),
    [
        (LEAK.texts[0], True),
        ("Please " + LEAK.texts[0].upper().replace(" ", "\n"), True),
        (LEAK.texts[0].replace("even", "odd"), True),
        (LEAK.code[0].replace("number", "x_1").replace("total", "acc"), True),
        ("Write a function that reads a file.", False),
        ("the of and to in is that for it with as was on are be this by you not or have from " * 20, False),
    ],
)
def test_a_question_is_found_inside_other_text(text: str, contained: bool):
    around = "Here is what I would do next for the customer. " * 30
    found = ExamQuestions([LEAK]).found_in(table("nothing", around + text + around))
    assert found == ({1: 0} if contained else {})


def test_a_very_short_question_is_not_searched_for():
    assert ExamQuestions([ExamQuestion("short", ("Say yes.",))]).found_in(table("Say yes.")) == {}


@pytest.mark.parametrize(
    "asked",
    [
        "小明有十二个苹果，他把其中三分之一给了小红，又买了五个。请问小明现在一共有多少个苹果？",
        "太郎は本を百二十頁読みました。残りは全体の四割です。この本は全部で何頁ありますか。",
        "สมชายมีส้มสิบสองผล แบ่งให้น้องหนึ่งในสามส่วน แล้วซื้อเพิ่มอีกห้าผล ตอนนี้เขามีส้มกี่ผล",
    ],
)
def test_a_question_in_a_script_without_spaces_is_found(asked: str):
    questions = ExamQuestions([ExamQuestion("q", (asked,))])
    other = "昨天下午我们去公园散步，看见许多孩子在湖边放风筝，大家都很高兴。"
    assert questions.found_in(table("nothing", f"Solve this: {asked} Thanks.", other)) == {1: 0}
