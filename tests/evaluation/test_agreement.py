"""Kappas: textbook examples, and properties for any ratings."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel.evaluation.agreement import cohen, fleiss

LABELS = st.sampled_from(["a", "b", "draw"])
PAIRED = st.lists(st.tuples(LABELS, LABELS), min_size=1, max_size=60)


def test_cohen_on_a_textbook_example():
    # Two raters, 50 proposals: both say yes to 20 and no to 15, and they differ on 5 and 10.
    first = ["y"] * 25 + ["n"] * 25
    second = ["y"] * 20 + ["n"] * 5 + ["y"] * 10 + ["n"] * 15
    found = cohen(zip(first, second, strict=True))
    assert found.kappa == pytest.approx(0.4)
    assert (found.observed, found.expected, found.items) == (pytest.approx(0.7), pytest.approx(0.5), 50)
    assert found.low is not None
    assert found.high is not None
    # The large-sample standard error of this table is 0.127.
    assert (found.high - found.low) / 2 / 1.96 == pytest.approx(0.127, rel=0.05)


def test_fleiss_on_a_textbook_example():
    # Ten subjects, fourteen raters, five categories: the usual textbook table (kappa 0.210).
    table = [
        (0, 0, 0, 0, 14), (0, 2, 6, 4, 2), (0, 0, 3, 5, 6), (0, 3, 9, 2, 0), (2, 2, 8, 1, 1),
        (7, 7, 0, 0, 0), (3, 2, 6, 3, 0), (2, 5, 3, 2, 2), (6, 5, 2, 1, 0), (0, 2, 2, 3, 7),
    ]  # fmt: skip
    items = [[kind for kind, count in enumerate(row) for _ in range(count)] for row in table]
    found = fleiss(items)
    assert found.kappa == pytest.approx(0.210, abs=5e-4)
    assert found.observed == pytest.approx(0.378, abs=5e-4)


@given(PAIRED)
def test_kappa_is_bounded_and_symmetric(both: list[tuple[str, str]]):
    found, other = cohen(both), cohen((b, a) for a, b in both)
    assert found == other or found.kappa == pytest.approx(other.kappa)
    if found.kappa is not None:
        assert -1 <= found.kappa <= 1
    if found.low is not None and found.high is not None and found.kappa is not None:
        assert -1 <= found.low <= found.kappa <= found.high <= 1
    renamed = cohen((f"x{a}", f"x{b}") for a, b in both)
    assert renamed.kappa == pytest.approx(found.kappa)


@given(st.lists(LABELS, min_size=1, max_size=50))
def test_equal_labels_agree_fully(said: list[str]):
    for found in (cohen(zip(said, said, strict=True)), fleiss(zip(said, said, said, strict=True))):
        assert found.observed == pytest.approx(1)
        assert found.kappa is None if len(set(said)) == 1 else found.kappa == pytest.approx(1)
        assert found.low is None or -1 <= found.low < 1


@given(PAIRED)
def test_fleiss_of_two_raters_is_scotts_pi(both: list[tuple[str, str]]):
    found = fleiss(both)
    every = [label for pair in both for label in pair]
    expected = sum((every.count(label) / len(every)) ** 2 for label in set(every))
    observed = sum(a == b for a, b in both) / len(both)
    assert found.expected == pytest.approx(expected)
    assert found.observed == pytest.approx(observed)
    assert found.kappa == (
        None if expected > 1 - 1e-9 else pytest.approx((observed - expected) / (1 - expected))
    )


@given(st.lists(st.lists(LABELS, max_size=6), max_size=30), st.randoms())
def test_order_does_not_matter_and_single_ratings_are_ignored(items: list[list[str]], chance):
    found = fleiss(items)
    mixed = [chance.sample(item, len(item)) for item in chance.sample(items, len(items))]
    other = fleiss([*mixed, ["a"], []])
    assert found.items == other.items == sum(len(item) > 1 for item in items)
    assert found.observed == pytest.approx(other.observed)
    assert found.kappa == pytest.approx(other.kappa)


def test_full_agreement_on_few_items_has_a_wide_interval():
    few, many = cohen(["aa", "bb"] * 5), cohen(["aa", "bb"] * 500)
    assert few.low is not None
    assert many.low is not None
    assert few.low < 0.6
    assert many.low > 0.99
    assert few.high == many.high == 1


def test_random_labels_have_a_kappa_of_zero():
    first = ["a", "b"] * 200
    second = ["a"] * 200 + ["b"] * 200
    found = cohen(zip(first, second, strict=True))
    assert found.kappa == pytest.approx(0)
    assert all(a <= b for a, b in pairwise([found.low, 0, found.high]))


def test_empty_input():
    assert cohen([]).kappa is None
    assert fleiss([]).items == 0
