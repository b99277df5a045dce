"""What verdicts come to: wins, draws and losses with their intervals, and how far the judge can be trusted.

Pure functions of verdicts. The one decision to know: a verdict counts only if it is the same in both orders; all else
is a draw. What one order alone would have said is kept beside it, so that the bias which that removes can be seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from camel.core.errors import MissingExtra
from camel.evaluation.agreement import Kappa, cohen
from camel.evaluation.pairs import WINNERS, Winner
from camel.reports.intervals import Rate, paired, wilson

try:
    import numpy as np
except ImportError:
    raise MissingExtra("Evaluating agents", "evaluate") from None

RESAMPLES = 10_000
UNSEEN = 1 / 3
"""Of each of three kinds of verdict, beyond those there are, when they are drawn again. Without it twenty verdicts that are
all alike would say that nothing else is possible; with it, intervals hold the truth in 92 to 100 of 100 cases where without
it they do in 33 to 96 (`benchmarks/evaluate.py coverage`)."""
_SEED = 0xCA3E1
LEAST_DECIDED = 10
"""Verdicts that are no draws, below which nothing is said about the bias to length."""
_RIDGE = 0.02
"""Keeps the length's slope finite where the longer one always wins. More of it would leave a part of that to the score."""


class Interval(msgspec.Struct, frozen=True):
    """A figure with its 95% interval (Bayesian bootstrap over the tasks)."""

    value: float
    low: float
    high: float


class WinShares(msgspec.Struct, frozen=True):
    """How often `a` won, drew and lost."""

    of: int
    """Verdicts that were decided."""
    wins: Rate
    draws: Rate
    losses: Rate
    score: Interval
    """Wins and half of the draws, of all: above a half, `a` is the better system."""
    undecided: int


class BothOrders(NamedTuple):
    """What a judge found of one pair when `a` was shown first, and when `b` was."""

    a_first: Winner | None
    b_first: Winner | None

    @property
    def winner(self) -> Winner | None:
        """What counts: the same in both orders, or else a draw; nothing where one of them was not decided."""
        if self.a_first is None or self.b_first is None:
            return None
        return self.a_first if self.a_first == self.b_first else "draw"


class Position(msgspec.Struct, frozen=True):
    """Does the judge prefer what it is shown first, or second?"""

    pairs: int
    """Judged in both orders."""
    first: int
    """Verdicts for what was shown first; `second` and `equal` are the others, two for each pair."""
    second: int
    equal: int
    effect: Interval
    """Verdicts for the first less those for the second, of all: 0 without bias, 1 where the first always wins."""
    flips: int
    """Pairs whose winner changed with the order."""
    to_first: int
    """Of these, pairs in which each won when it was shown first; in the others the second won, or one verdict was a draw."""
    to_second: int
    p: float
    """How likely so uneven flips are without bias (exact)."""
    a_first: WinShares
    """What would have been reported from one order alone."""
    b_first: WinShares


class Consistency(msgspec.Struct, frozen=True):
    """Does the judge say the same when it is asked the same again?"""

    same: Rate
    kappa: Kappa


class Bin(msgspec.Struct, frozen=True):
    """Pairs whose solutions differ in length about as much."""

    low: float
    """Of the characters of `a` over those of `b`; the first bin has no lower end (0), the last no upper (infinite: None)."""
    high: float | None
    wins: int
    draws: int
    losses: int


class Length(msgspec.Struct, frozen=True):
    """Does the longer solution win?"""

    ratio: float
    """Characters of `a` over those of `b`, the median."""
    longer_wins: Rate
    """Of the verdicts that are no draws, between solutions that differ in length."""
    a_longer: WinShares
    """Where `a` is the longer one, and where it is the shorter."""
    a_shorter: WinShares
    controlled: Interval | None
    """The score that `a` would have if both were of the same length (logistic regression on the log of the ratio);
    None where too little was decided."""
    bins: list[Bin]


_EDGES = (0.0, 0.25, 0.5, 0.8, 1.25, 2.0, 4.0)


def shares(outcomes: Sequence[Winner | None]) -> WinShares:
    """Wins, draws and losses of `a`, with bootstrap intervals."""
    counts = Counter(outcomes)
    decided = [counts["a"], counts["draw"], counts["b"]]
    of = sum(decided)
    if not of:
        none = wilson(0, 0)
        return WinShares(0, none, none, none, Interval(0.0, 0.0, 1.0), counts[None])
    drawn = np.random.default_rng(_SEED).dirichlet([count + UNSEEN for count in decided], RESAMPLES)
    wins, draws, losses = (_rate(count, of, drawn[:, place]) for place, count in enumerate(decided))
    score = (decided[0] + decided[1] / 2) / of
    return WinShares(of, wins, draws, losses, quantiles(score, drawn[:, 0] + drawn[:, 1] / 2), counts[None])


def _rate(count: int, of: int, drawn: Any) -> Rate:
    if count in (0, of):
        return wilson(count, of)  # which is made for that
    found = quantiles(count / of, drawn)
    return Rate(count, of, found.value, found.low, found.high)


def quantiles(value: float, drawn: Any) -> Interval:
    """A figure with the interval of what was drawn again, which always holds the figure itself."""
    low, high = (float(one) for one in np.quantile(drawn, [0.025, 0.975]))
    return Interval(value, min(value, low), max(value, high))


def position(orders: Sequence[BothOrders]) -> Position:
    """What the order does to a judge's verdicts."""
    both = [one for one in orders if one.winner is not None]
    kinds = Counter(both)
    first = sum(count * ((one.a_first == "a") + (one.b_first == "b")) for one, count in kinds.items())
    second = sum(count * ((one.a_first == "b") + (one.b_first == "a")) for one, count in kinds.items())
    to_first, to_second = kinds[BothOrders("a", "b")], kinds[BothOrders("b", "a")]
    flips = sum(count for one, count in kinds.items() if one.a_first != one.b_first)
    # A half flip, to or from a draw, leans to one side as well.
    leans = [
        (one.a_first == "a") - (one.a_first == "b") + (one.b_first == "b") - (one.b_first == "a")
        for one in both
    ]
    effect = Interval(0.0, -1.0, 1.0)
    if both:
        each = np.array(leans) / 2
        effect = quantiles(float(each.mean()), _means(each))
    lean_first, lean_second = sum(one > 0 for one in leans), sum(one < 0 for one in leans)
    return Position(
        len(both),
        first,
        second,
        2 * len(both) - first - second,
        effect,
        flips,
        to_first,
        to_second,
        paired(lean_second, lean_first, len(both)).p,
        shares([one.a_first for one in orders]),
        shares([one.b_first for one in orders]),
    )


def _means(values: Any) -> Any:
    """The mean of each of many samples drawn again from some values between -1 and 1; those that are alike as one."""
    kinds, counts = np.unique(np.append(values, [-1.0, 0.0, 1.0]), return_counts=True)
    weights = counts - np.isin(kinds, [-1.0, 0.0, 1.0]) * (1 - UNSEEN)
    return np.random.default_rng(_SEED).dirichlet(weights, RESAMPLES) @ kinds


def consistency(asked: Sequence[Winner | None], again: Sequence[Winner | None]) -> Consistency:
    """How far two answers to the same questions agree; those that one time were not decided are left out."""
    both = [(one, two) for one, two in zip(asked, again, strict=True) if one and two]
    return Consistency(
        wilson(sum(one == two for one, two in both), len(both)),
        cohen([one for one, _ in both], [two for _, two in both]),
    )


def length_bias(outcomes: Sequence[Winner | None], sizes: Sequence[tuple[int, int]]) -> Length:
    """What the lengths of the solutions, (of `a`, of `b`), have to do with who wins."""
    both: list[tuple[Winner, int, int]] = [
        (one, a, b) for one, (a, b) in zip(outcomes, sizes, strict=True) if one
    ]
    decided = [(one == "a", a, b) for one, a, b in both if one != "draw" and a != b]
    longer = wilson(sum(won == (a > b) for won, a, b in decided), len(decided))
    ratios = [max(1, a) / max(1, b) for _, a, b in both]
    controlled = None
    if len(decided) >= LEAST_DECIDED:
        points = np.array([{"a": 1.0, "draw": 0.5, "b": 0.0}[one] for one, _, _ in both])
        controlled = _at_equal_length(np.log(ratios), points)
    return Length(
        float(np.median(ratios)) if ratios else 1.0,
        longer,
        shares([one for one, a, b in both if a > b]),
        shares([one for one, a, b in both if a < b]),
        controlled,
        [
            Bin(low, high, *(sum(one == kind for one in inside) for kind in ("a", "draw", "b")))
            for low, high in zip(_EDGES, (*_EDGES[1:], None), strict=True)
            for inside in [
                [
                    one
                    for (one, _, _), ratio in zip(both, ratios, strict=True)
                    if low <= ratio < (high or 1e300)
                ]
            ]
        ],
    )


def _at_equal_length(logs: Any, points: Any, resamples: int = 1_000) -> Interval:
    """The chance at a ratio of one, from a logistic regression; its interval by fitting it to the tasks drawn again."""
    chance = np.random.default_rng(_SEED)
    weights = chance.multinomial(len(points), np.full(len(points), 1 / len(points)), resamples).astype(float)
    fitted = _fit(logs, points, np.vstack([np.ones(len(points)), weights]))
    values = 1 / (1 + np.exp(-fitted))
    return quantiles(float(values[0]), values[1:])


def _fit(logs: Any, points: Any, weights: Any) -> Any:
    """The intercepts of many weighted regressions at once, by Newton's method."""
    at = np.zeros((len(weights), 2))
    for _ in range(25):
        chance = 1 / (1 + np.exp(-np.clip(at[:, :1] + at[:, 1:] * logs, -30, 30)))
        off, spread = weights * (points - chance), weights * chance * (1 - chance)
        slope = np.stack([off.sum(1), (off * logs).sum(1)], 1) - _RIDGE * at
        one, two, three = spread.sum(1) + _RIDGE, (spread * logs).sum(1), (spread * logs**2).sum(1) + _RIDGE
        size = one * three - two**2
        step = np.stack([three * slope[:, 0] - two * slope[:, 1], one * slope[:, 1] - two * slope[:, 0]], 1)
        at = np.clip(at + step / size[:, None], -15, 15)
    return at[:, 0]


def majority(verdicts: Sequence[Winner | None]) -> Winner | None:
    """What most judges say, of those that decide; a draw where no winner has more than half of them."""
    said = [one for one in verdicts if one]
    for winner in WINNERS:
        if 2 * said.count(winner) > len(said):
            return winner
    return "draw" if said else None
