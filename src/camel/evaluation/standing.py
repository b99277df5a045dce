"""Statistics of verdicts: wins, draws and losses with intervals, the biases of a judge, and ratings of systems.

All functions are pure. The one decision to know: a verdict counts only if it is the same in both orders; otherwise the pair
is a draw. The figures of each order alone are reported too, so that a reader sees the bias that this removes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from camel.core.errors import InputError, MissingExtra
from camel.evaluation.agreement import Kappa, cohen
from camel.evaluation.pairs import WINNERS, Winner
from camel.reports.intervals import Rate, paired, wilson

try:
    import numpy as np
except ImportError:
    raise MissingExtra("Evaluating agents", "evaluate") from None

RESAMPLES = 10_000
UNSEEN = 1 / 3
"""Prior weight of each of the three kinds of verdict in the Bayesian bootstrap. Without it, twenty equal verdicts would
have an interval of width zero. Intervals contain the true value in 92 to 100% of cases, and without the prior in 33 to 96%
(`benchmarks/evaluate.py coverage`)."""
_SEED = 0xCA3E1
LEAST_DECIDED = 10
"""Minimum number of verdicts other than draws for an estimate at equal length."""
_RIDGE = 0.02
"""Ridge penalty that keeps the slope finite if the longer solution always wins. A larger one would bias the score."""


class Interval(msgspec.Struct, frozen=True):
    """A figure with its 95% interval (Bayesian bootstrap over the tasks)."""

    value: float
    low: float
    high: float


class WinShares(msgspec.Struct, frozen=True):
    """How often `a` won, drew and lost."""

    of: int
    """Number of verdicts that are not undecided."""
    wins: Rate
    draws: Rate
    losses: Rate
    score: Interval
    """Share of wins plus half the share of draws. Above 0.5, `a` is the better system."""
    undecided: int


class BothOrders(NamedTuple):
    """A judge's verdicts on one pair, with `a` shown first and with `b` shown first."""

    a_first: Winner | None
    b_first: Winner | None

    @property
    def winner(self) -> Winner | None:
        """The verdict that counts. It is a draw if the two verdicts differ, and None if one of them is undecided."""
        if self.a_first is None or self.b_first is None:
            return None
        return self.a_first if self.a_first == self.b_first else "draw"


class Position(msgspec.Struct, frozen=True):
    """Position bias: whether the judge prefers the solution that it sees first, or second."""

    pairs: int
    """Number of pairs that were decided in both orders."""
    first: int
    """Number of verdicts for the solution shown first. With `second` and `equal` there are two verdicts per pair."""
    second: int
    equal: int
    effect: Interval
    """Share of verdicts for the first solution minus share for the second: 0 without bias, 1 if the first always wins."""
    flips: int
    """Number of pairs whose winner changed with the order."""
    to_first: int
    """Number of flips in which the solution shown first won both times. In a flip of neither kind, one verdict was a draw."""
    to_second: int
    p: float
    """P-value of an exact test: the probability of flips at least as one-sided as these if there is no bias."""
    a_first: WinShares
    """Shares from only those verdicts in which `a` was shown first."""
    b_first: WinShares


class Consistency(msgspec.Struct, frozen=True):
    """Whether the judge gives the same answer when it is asked again."""

    same: Rate
    kappa: Kappa


class Bin(msgspec.Struct, frozen=True):
    """Pairs with a similar ratio of lengths."""

    low: float
    """Lowest ratio of the characters of `a` to those of `b`; 0 in the first bin. `high` is None in the last bin."""
    high: float | None
    wins: int
    draws: int
    losses: int


class Length(msgspec.Struct, frozen=True):
    """Length bias: whether the longer solution wins."""

    ratio: float
    """Median of the characters of `a` divided by those of `b`."""
    longer_wins: Rate
    """Share of verdicts in which the longer solution won. Draws and solutions of equal length are excluded."""
    a_longer: WinShares
    """Results of the pairs in which `a` is longer. `a_shorter` has those in which it is shorter."""
    a_shorter: WinShares
    controlled: Interval | None
    """Estimated score of `a` at equal length (logistic regression on the logarithm of the ratio); None if too few pairs are
    decided."""
    bins: list[Bin]


_EDGES = (0.0, 0.25, 0.5, 0.8, 1.25, 2.0, 4.0)


def shares(outcomes: Iterable[Winner | None] | Mapping[Winner | None, int]) -> WinShares:
    """Return the shares of wins, draws and losses of `a`, with bootstrap intervals. `outcomes` may also be their counts."""
    counts = Counter(outcomes)
    decided = [counts["a"], counts["draw"], counts["b"]]
    of = sum(decided)
    if not of:
        none = wilson(0, 0)
        return WinShares(0, none, none, none, Interval(0.0, 0.0, 1.0), counts[None])
    drawn = np.random.default_rng(_SEED).dirichlet([count + UNSEEN for count in decided], RESAMPLES)
    wins, draws, losses = (_rate(count, of, drawn[:, place]) for place, count in enumerate(decided))
    score = (decided[0] + decided[1] / 2) / of
    return WinShares(of, wins, draws, losses, interval(score, drawn[:, 0] + drawn[:, 1] / 2), counts[None])


def _rate(count: int, of: int, drawn: Any) -> Rate:
    if count in (0, of):
        return wilson(count, of)  # the bootstrap has no spread here
    found = interval(count / of, drawn)
    return Rate(count, of, found.value, found.low, found.high)


def interval(value: float, drawn: Any) -> Interval:
    """Return a figure with the central 95% of its bootstrap values."""
    low, high = (float(one) for one in np.quantile(drawn, [0.025, 0.975]))
    return Interval(value, min(value, low), max(value, high))


def position(orders: Sequence[BothOrders]) -> Position:
    """Compute the position bias of a judge."""
    both = [one for one in orders if one.winner is not None]
    kinds = Counter(both)
    to_first = np.array([(one.a_first == "a") + (one.b_first == "b") for one in both], int)
    to_second = np.array([(one.a_first == "b") + (one.b_first == "a") for one in both], int)
    first, second = int(to_first.sum()), int(to_second.sum())
    lean = (to_first - to_second) / 2
    return Position(
        len(both),
        first,
        second,
        2 * len(both) - first - second,
        interval(float(lean.mean()), _means(lean)) if both else Interval(0.0, -1.0, 1.0),
        sum(one.a_first != one.b_first for one in both),
        kinds[BothOrders("a", "b")],
        kinds[BothOrders("b", "a")],
        # A change to or from a draw also favors one position.
        paired(int((lean < 0).sum()), int((lean > 0).sum()), len(both)).p,
        shares([one.a_first for one in orders]),
        shares([one.b_first for one in orders]),
    )


def _means(values: Any) -> Any:
    """Return bootstrap means of values between -1 and 1. Equal values are drawn as one, with their total weight."""
    kinds, counts = np.unique(np.append(values, [-1.0, 0.0, 1.0]), return_counts=True)
    weights = counts - np.isin(kinds, [-1.0, 0.0, 1.0]) * (1 - UNSEEN)
    return np.random.default_rng(_SEED).dirichlet(weights, RESAMPLES) @ kinds


def consistency(asked: Sequence[Winner | None], again: Sequence[Winner | None]) -> Consistency:
    """Return how often two answers to the same questions agree. Questions with an undecided answer are skipped."""
    both = [(one, two) for one, two in zip(asked, again, strict=True) if one and two]
    return Consistency(wilson(sum(one == two for one, two in both), len(both)), cohen(both))


def length_bias(outcomes: Sequence[Winner | None], sizes: Sequence[tuple[int, int]]) -> Length:
    """Compute the length bias. `sizes` are the lengths of `a` and `b` for each pair."""
    both: list[tuple[Winner, int, int]] = [
        (one, a, b) for one, (a, b) in zip(outcomes, sizes, strict=True) if one
    ]
    decided = [(one == "a", a, b) for one, a, b in both if one != "draw" and a != b]
    longer = wilson(sum(won == (a > b) for won, a, b in decided), len(decided))
    ratios = [max(1, a) / max(1, b) for _, a, b in both]
    bins: list[Bin] = []
    for low, high in zip(_EDGES, (*_EDGES[1:], None), strict=True):
        inside = Counter(
            one for (one, _, _), ratio in zip(both, ratios, strict=True) if low <= ratio < (high or 1e300)
        )
        bins.append(Bin(low, high, inside["a"], inside["draw"], inside["b"]))
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
        bins,
    )


def _at_equal_length(logs: Any, points: Any, resamples: int = 1_000) -> Interval:
    """Return the score at a ratio of 1 by logistic regression, with a bootstrap interval."""
    chance = np.random.default_rng(_SEED)
    weights = chance.multinomial(len(points), np.full(len(points), 1 / len(points)), resamples).astype(float)
    fitted = _fit(logs, points, np.vstack([np.ones(len(points)), weights]))
    values = 1 / (1 + np.exp(-fitted))
    return interval(float(values[0]), values[1:])


def _fit(logs: Any, points: Any, weights: Any) -> Any:
    """Return the intercepts of many weighted regressions at once, by Newton's method."""
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
    """Return the verdict of more than half of the judges that decided. Return a draw if there is none, and
    None if no judge decided."""
    said = [one for one in verdicts if one]
    for winner in WINNERS:
        if 2 * said.count(winner) > len(said):
            return winner
    return "draw" if said else None


RATING_RESAMPLES = 1_000
PRIOR = 0.5
_ROUNDS, _CLOSE = 2_000, 1e-9


class Match(NamedTuple):
    """The result of two systems on one task."""

    task: str
    one: str
    two: str
    score: float
    """Score of `one`: 1 for a win, 0.5 for a draw, 0 for a loss."""


class Rating(msgspec.Struct, frozen=True):
    """The estimated strength of a system."""

    system: str
    rating: Interval
    """Strength in Elo points. 0 is the average system. A system with 400 points more wins ten times as often as it loses."""
    rank: int
    beats: dict[str, float]
    """Probability of a win against each other system."""


def bradley_terry(meetings: Sequence[Match]) -> list[Rating]:
    """Return the Bradley–Terry ratings of all systems that occur in a match, the strongest first.

    The bootstrap for the intervals resamples tasks with all their verdicts, because verdicts on the same task are not
    independent. A draw is half a win for both systems. Each two systems that met also get half a win against each other as a
    prior, so that a system without a loss has a finite rating.
    """
    systems = sorted({name for one in meetings for name in (one.one, one.two)})
    place = {name: at for at, name in enumerate(systems)}
    tasks = {task: at for at, task in enumerate(dict.fromkeys(one.task for one in meetings))}
    wins = np.zeros((len(tasks), len(systems), len(systems)))
    for one in meetings:
        at, i, j = tasks[one.task], place[one.one], place[one.two]
        if i == j:
            raise InputError(f"{one.one} is compared with itself: a match needs two different systems")
        wins[at, i, j] += one.score
        wins[at, j, i] += 1 - one.score
    total = wins.sum(0)
    met = (total + total.T) > 0
    if not _connected(met):
        raise InputError(
            "some systems have no match with the others, not even through a third system, so there is no common scale: "
            "add matches between them"
        )
    flat = wins.reshape(len(tasks), -1)
    drawn = np.random.default_rng(0xCA3E1).multinomial(
        len(tasks), np.full(len(tasks), 1 / len(tasks)), RATING_RESAMPLES
    )
    samples = (drawn @ flat).reshape(-1, len(systems), len(systems))
    fitted = _strengths(np.concatenate([total[None], samples]) + PRIOR * met)
    points = 400 * np.log10(fitted)
    points -= points.mean(1, keepdims=True)
    chances = fitted[0][:, None] / (fitted[0][:, None] + fitted[0])
    order = sorted(range(len(systems)), key=lambda at: (-points[0, at], systems[at]))
    return [
        Rating(
            systems[at],
            interval(float(points[0, at]), points[1:, at]),
            rank,
            {name: float(chances[at, other]) for name, other in place.items() if other != at},
        )
        for rank, at in enumerate(order, 1)
    ]


def _strengths(wins: Any) -> Any:
    """Return the maximum-likelihood strengths for many tables at once (Newman's iteration).

    It updates one system at a time, because updating all of them at once may oscillate forever.
    """
    count = len(wins[0])
    strength: Any = np.ones((len(wins), count))
    for _ in range(_ROUNDS):
        before = strength.copy()
        for i in range(count):
            both = strength[:, i : i + 1] + strength
            won = (wins[:, i, :] * strength / both).sum(1)
            lost = (wins[:, :, i] / both).sum(1)
            strength[:, i] = won / lost
        strength /= np.exp(np.log(strength).mean(1, keepdims=True))
        if np.abs(np.log(strength / before)).max() < _CLOSE:
            break
    return strength


def _connected(met: Any) -> bool:
    reached = {0}
    while more := {j for i in reached for j in np.flatnonzero(met[i]).tolist()} - reached:
        reached |= more
    return len(reached) == len(met)
