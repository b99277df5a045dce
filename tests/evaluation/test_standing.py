"""Statistics of verdicts: exact counts, coverage of intervals, and detection of planted biases."""

from __future__ import annotations

import math
import random
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel import InputError
from camel.evaluation.pairs import WINNERS
from camel.evaluation.standing import (
    BothOrders,
    Match,
    bradley_terry,
    consistency,
    length_bias,
    majority,
    position,
    shares,
)

WINNER = st.sampled_from([*WINNERS, None])


@given(st.lists(WINNER, max_size=80))
def test_shares_equal_counts(outcomes: list[Any]):
    found = shares(outcomes)
    assert found.of + found.undecided == len(outcomes)
    assert (found.wins.count, found.draws.count, found.losses.count) == tuple(
        outcomes.count(one) for one in ("a", "draw", "b")
    )
    for rate in (found.wins, found.draws, found.losses):
        assert 0 <= rate.low <= rate.rate <= rate.high <= 1
    assert found.score.low <= found.score.value <= found.score.high
    assert shares(outcomes) == found


def test_bootstrap_intervals_contain_the_true_value():
    chance, held = random.Random(1), 0
    for _ in range(300):
        outcomes: list[Any] = chance.choices(["a", "draw", "b"], [0.6, 0.1, 0.3], k=100)
        found = shares(outcomes).wins
        held += found.low <= 0.6 <= found.high
    assert 0.91 <= held / 300 <= 0.985


def test_zero_of_a_hundred_has_an_interval_above_zero():
    found = shares(["a"] * 100)
    assert (found.losses.count, found.losses.low) == (0, 0)
    assert 0.03 < found.losses.high < 0.05


def test_a_verdict_needs_both_orders():
    for one, two in product([*WINNERS, None], repeat=2):
        expected = None if None in (one, two) else one if one == two else "draw"
        assert BothOrders(one, two).winner == expected


def planted(a: int, b: int, equal: int, first: int, second: int) -> list[BothOrders]:
    return [
        *[BothOrders("a", "a")] * a,
        *[BothOrders("b", "b")] * b,
        *[BothOrders("draw", "draw")] * equal,
        *[BothOrders("a", "b")] * first,
        *[BothOrders("b", "a")] * second,
    ]


def test_a_planted_position_bias_is_found_and_no_other():
    found = position(planted(40, 20, 5, 30, 5))
    assert (found.flips, found.to_first, found.to_second) == (35, 30, 5)
    assert (found.first, found.second, found.equal) == (60 + 60, 60 + 10, 10)
    assert found.effect.value == pytest.approx(0.25)
    assert 0 < found.effect.low < found.effect.high
    assert found.p < 0.001
    assert found.a_first.wins.count == 70
    assert found.b_first.wins.count == 45
    fair = position(planted(40, 20, 5, 18, 17))
    assert fair.p > 0.5
    assert fair.effect.low < 0 < fair.effect.high
    assert position([]).pairs == 0


@given(st.lists(st.tuples(WINNER, WINNER), max_size=40))
def test_swapping_the_systems_does_not_change_the_bias(orders: list[Any]):
    other = {"a": "b", "b": "a", "draw": "draw", None: None}
    found = position([BothOrders(*one) for one in orders])
    turned: Any = [BothOrders(other[two], other[one]) for one, two in orders]  # pyright: ignore
    again = position(turned)
    assert (found.first, found.second, found.equal) == (again.first, again.second, again.equal)
    assert (found.flips, found.to_first, found.p) == (again.flips, again.to_first, again.p)
    assert found.effect.value == pytest.approx(again.effect.value)
    assert found.first + found.second + found.equal == 2 * found.pairs


@given(st.lists(WINNER, max_size=7))
def test_a_majority_is_more_than_half(verdicts: list[Any]):
    said = [one for one in verdicts if one]
    found = majority(verdicts)
    if not said:
        assert found is None
    elif found != "draw":
        assert said.count(found) * 2 > len(said)
    else:
        assert all(said.count(one) * 2 <= len(said) for one in ("a", "b"))


def test_consistency():
    found = consistency(["a", "b", "draw", None, "a"], ["a", "b", "a", "a", None])
    assert (found.same.count, found.same.of) == (2, 3)


def test_a_planted_length_bias_is_found():
    chance = random.Random(5)
    sizes = [(chance.randint(100, 3000), chance.randint(100, 1000)) for _ in range(400)]
    only: list[Any] = ["a" if a > b else "b" for a, b in sizes]
    found = length_bias(only, sizes)
    assert found.longer_wins.rate == 1
    assert found.ratio > 1.5
    assert shares(only).score.value > 0.7
    assert found.controlled is not None
    # At equal length the difference disappears.
    assert found.controlled.low < 0.5 < found.controlled.high
    fair: list[Any] = [chance.choices(["a", "b"], [0.7, 0.3])[0] for _ in sizes]
    other = length_bias(fair, sizes)
    assert other.controlled is not None
    assert other.controlled.low < 0.7 < other.controlled.high
    assert other.longer_wins.low < 0.75
    assert sum(bin.wins + bin.draws + bin.losses for bin in other.bins) == 400
    assert length_bias(["a"] * 3, [(1, 2)] * 3).controlled is None
    assert length_bias([], []).ratio == 1


# ---------------------------------------------------------------- Bradley–Terry


def meetings(strengths: dict[str, float], tasks: int, seed: int = 3) -> list[Match]:
    chance = random.Random(seed)
    names = sorted(strengths)
    return [
        Match(
            str(task), one, two, float(chance.random() < strengths[one] / (strengths[one] + strengths[two]))
        )
        for task in range(tasks)
        for place, one in enumerate(names)
        for two in names[place + 1 :]
    ]


def test_ratings_find_planted_strengths():
    strengths = {"weak": 1.0, "middle": 2.0, "strong": 6.0}
    found = bradley_terry(meetings(strengths, 600))
    assert [one.system for one in found] == ["strong", "middle", "weak"]
    assert [one.rank for one in found] == [1, 2, 3]
    mean = sum(400 * math.log10(value) for value in strengths.values()) / 3
    for one in found:
        assert one.rating.low < 400 * math.log10(strengths[one.system]) - mean < one.rating.high
    assert found[0].beats["weak"] == pytest.approx(6 / 7, abs=0.03)
    assert sum(one.rating.value for one in found) == pytest.approx(0, abs=1e-6)


def test_ratings_maximize_the_likelihood():
    """Compares with a grid search."""
    met = meetings({"x": 1.0, "y": 2.5}, 40)
    wins = sum(one.score for one in met) + 0.5
    losses = len(met) - wins + 1

    def likelihood(p: float) -> float:
        return wins * math.log(p) + losses * math.log(1 - p)

    best = max((p / 10_000 for p in range(1, 10_000)), key=likelihood)
    found = {one.system: one for one in bradley_terry(met)}
    assert found["x"].beats["y"] == pytest.approx(best, abs=2e-4)


def test_a_system_without_losses_has_a_rating_and_unconnected_systems_have_none():
    found = bradley_terry([Match(str(n), "x", "y", 1.0) for n in range(10)])
    assert 0 < found[0].rating.value < 1_000
    with pytest.raises(InputError, match="common scale"):
        bradley_terry([Match("1", "x", "y", 1.0), Match("1", "u", "v", 1.0)])


def test_at_the_maximum_observed_wins_equal_expected_wins():
    met = meetings({"x": 1.0, "y": 2.0, "z": 5.0, "w": 0.7}, 50, seed=8)
    found = {one.system: one for one in bradley_terry(met)}
    for name, one in found.items():
        mine = [m for m in met if name in (m.one, m.two)]
        won = sum(m.score if m.one == name else 1 - m.score for m in mine) + 3 * 0.5
        expected = sum((50 + 1) * chance for chance in one.beats.values())
        assert won == pytest.approx(expected, abs=1e-4)
