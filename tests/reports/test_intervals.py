"""Intervals: against published figures, by their coverage, and against a bootstrap that knows no formula."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel.reports.intervals import Clusters, holm, paired, wilson


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    # Newcombe 1998, table I, method 3.
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (29, 29, 0.8830, 1.0),
    ],
)
def test_wilson_is_as_published(count: int, of: int, low: float, high: float):
    rate = wilson(count, of)
    assert (rate.low, rate.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


@given(st.integers(0, 200), st.integers(0, 200))
def test_an_interval_holds_its_share(count: int, more: int):
    rate = wilson(count, count + more)
    assert 0 <= rate.low <= rate.rate <= rate.high <= 1 or not rate.of


def clusters(counts: list[int], sizes: list[int]) -> Clusters:
    y, m = np.array(counts), np.array(sizes)
    made = Clusters()
    made.add(y, m)
    return made


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=40))
def test_a_clustered_interval_holds_its_share(pairs: list[tuple[int, int]]):
    counts, sizes = [c for c, _ in pairs], [c + more for c, more in pairs]
    rate = clusters(counts, sizes).rate()
    assert 0 <= rate.low <= rate.rate + 1e-12
    assert rate.rate - 1e-12 <= rate.high <= 1
    # Never narrower than if all messages were independent.
    alone = wilson(rate.count, rate.of)
    assert rate.high - rate.low >= alone.high - alone.low - 1e-9


def test_conversations_of_one_message_are_independent_messages():
    counts = [1] * 30 + [0] * 170
    rate, alone = clusters(counts, [1] * 200).rate(), wilson(30, 200)
    assert (rate.low, rate.high) == (pytest.approx(alone.low, abs=3e-3), pytest.approx(alone.high, abs=3e-3))


def test_a_clustered_interval_is_about_the_bootstrap_s():
    chance = np.random.default_rng(7)
    sizes = chance.integers(4, 40, 400)
    counts = chance.binomial(sizes, chance.beta(0.5, 2.0, 400))
    rate = clusters(counts.tolist(), sizes.tolist()).rate()
    drawn = chance.integers(0, 400, (4000, 400))
    low, high = np.quantile(counts[drawn].sum(1) / sizes[drawn].sum(1), [0.025, 0.975])
    assert (rate.low, rate.high) == (pytest.approx(low, abs=0.01), pytest.approx(high, abs=0.01))
    alone = wilson(rate.count, rate.of)
    assert rate.high - rate.low > 1.5 * (alone.high - alone.low)


@pytest.mark.parametrize("share", [0.02, 0.2, 0.5])
def test_nineteen_of_twenty_clustered_intervals_hold_the_truth(share: float):
    chance = np.random.default_rng(1)
    held = 0
    for _ in range(400):
        sizes = chance.integers(2, 12, 120)
        counts = chance.binomial(sizes, chance.beta(share * 2, (1 - share) * 2, 120))
        rate = clusters(counts.tolist(), sizes.tolist()).rate()
        held += rate.low <= share <= rate.high
    assert held / 400 > 0.92


def test_the_difference_of_pairs():
    nothing = paired(0, 0, 50)
    assert nothing.p == 1
    assert nothing.low < 0 < nothing.high
    strong = paired(0, 20, 50)
    assert (strong.difference, strong.p) == (0.4, pytest.approx(2 * 0.5**20))
    assert 0 < strong.low < 0.4 < strong.high
    assert paired(6, 2, 20).p == pytest.approx(0.2891, abs=1e-4)  # 2 × 37 / 256


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_a_difference_is_the_same_both_ways(one: int, other: int, rest: int):
    there, back = paired(one, other, one + other + rest), paired(other, one, one + other + rest)
    assert there.p == back.p
    assert there.low == pytest.approx(-back.high)
    assert -1 <= there.low <= there.high <= 1


def test_holm():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm_lies_between_the_raw_and_bonferroni_s(values: list[float]):
    for raw, adjusted in zip(values, holm(values), strict=True):
        assert raw <= adjusted <= min(1.0, raw * len(values)) + 1e-12 or adjusted <= max(
            min(1.0, v * len(values)) for v in values
        )
