"""Numbers as people read them."""

from __future__ import annotations

import pytest

from camel.reports.intervals import wilson
from camel.reports.numbers import (
    bounds,
    cost,
    counted,
    duration,
    interval,
    money,
    percent,
    points,
    probability,
    share,
    share_with_interval,
    short,
)


@pytest.mark.parametrize(
    ("count", "of", "words"),
    [
        (0, 36, "0% 0 to 10%"),
        (1, 25_000, "0.004% 0.00 to 0.02%"),
        (5, 36, "14% 6 to 29%"),
        (23_497, 25_000, "94% 93.7 to 94.3%"),
        (199, 200, "99.5% 97 to 100%"),
        (36, 36, "100% 90 to 100%"),
    ],
)
def test_shares_in_words(count: int, of: int, words: str):
    rate = wilson(count, of)
    assert f"{percent(rate.rate)} {interval(rate)}" == words


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "0"),
        (0.4, "0.4"),
        (7.96, "8"),
        (950, "950"),
        (9_500, "9.50k"),
        (12_345, "12.3k"),
        (4.56e6, "4.56M"),
        (2e12, "2.00T"),
    ],
)
def test_large_numbers_in_few_characters(number: float, words: str):
    assert short(number) == words


@pytest.mark.parametrize(
    ("dollars", "words", "exact"),
    [
        (None, "", "price unknown"),
        (0.0, "$0.00", "$0.0000"),
        (0.00002, "less than $0.0001", "$0.0000"),
        (0.0019, "$0.0019", "$0.0019"),
        (0.0114, "$0.01", "$0.0114"),
        (12.345, "$12.35", "$12.35"),
        (1234.5, "$1,234", "$1,234.50"),
    ],
)
def test_money(dollars: float | None, words: str, exact: str):
    assert (money(dollars), cost(dollars)) == (words, exact)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.9, "0.9 s"),
        (45, "45 s"),
        (72, "1 min 12 s"),
        (720, "12 min"),
        (12_000, "3 h 20 min"),
        (353_000, "4 d 2 h"),
    ],
)
def test_durations(seconds: float, words: str):
    assert duration(seconds) == words


def test_differences_have_a_sign_of_their_own():
    assert [points(value) for value in (0.123, -0.05, 0.001, -0.001)] == ["+12", "−5", "0", "0"]
    assert bounds(-0.25, 0.24) == "−25 to 24%"
    assert bounds(0.1234, 0.5) == "12 to 50%"


def test_few_items_have_no_percentage():
    assert (share(wilson(1, 3)), share_with_interval(wilson(1, 3))) == ("1 of 3", "1 of 3")
    assert (share(wilson(5, 10)), share_with_interval(wilson(5, 10))) == ("50%", "50% (24 to 76%)")


def test_counts_and_probabilities():
    assert (counted(1, "vote"), counted(2_000, "vote")) == ("1 vote", "2,000 votes")
    assert (probability(0.5), probability(0.0004)) == ("0.500", "<0.001")
