"""What a person in the critic's seat may type."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel.cli.seat import Ruling, read_ruling


@pytest.mark.parametrize(
    ("typed", "ruling"),
    [
        ("2", Ruling(1)),
        (" #3 ", Ruling(2)),
        ("2.", Ruling(1)),
        ("2 shorter", Ruling(1, "shorter")),
        ("2: shorter", Ruling(1, "shorter")),
        ("1 - with\nan example", Ruling(0, "with\nan example")),
        ("shorter", Ruling(None, "shorter")),
        ("10 ideas are too many", Ruling(None, "10 ideas are too many")),
        ("2.5 is too much", Ruling(None, "2.5 is too much")),
        ("2nd is best", Ruling(None, "2nd is best")),
        ("0", None),
        ("4", None),
        ("²", Ruling(None, "²")),
    ],
)
def test_numbers_choose_and_words_ask_for_a_change(typed: str, ruling: Ruling | None):
    assert read_ruling(typed, 3) == ruling


@given(st.text(min_size=1).filter(str.strip), st.integers(1, 9))
def test_whatever_is_typed_names_an_option_or_asks_for_something(text: str, count: int):
    ruling = read_ruling(text, count)
    if ruling is not None:
        assert ruling.choice is None or 0 <= ruling.choice < count
        assert ruling.choice is not None or ruling.feedback
        assert ruling.feedback in text
