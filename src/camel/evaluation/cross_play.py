"""Whether an outcome depends on the model of the user, of the assistant, or on the pair.

The one decision to know: tasks are the independent units. If all pairs of models have the same tasks, they are compared task
by task, otherwise as independent samples. With few tasks, conversations are the units, and the result holds for these tasks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain, combinations, product
from statistics import fmean
from typing import Any, NamedTuple

from msgspec.structs import replace

from camel.core.checks import shown
from camel.core.errors import InputError, MissingExtra
from camel.evaluation.cross_play_report import CrossPlayCell, CrossPlayOutcome, SeatContrast, SeatEffect
from camel.evaluation.effects import quantile
from camel.reports.intervals import Z, holm, wilson

try:
    import numpy as np
except ImportError:
    raise MissingExtra("Cross-play", "study") from None

FEW_TASKS = 5
"""With fewer tasks per pair, conversations are the units."""
Pair = tuple[str, str]
"""The models of user and assistant."""


def analyze(name: str, values: Mapping[Pair, Mapping[str, Sequence[float]]], half_width: float) -> CrossPlayOutcome:  # fmt: skip
    """Compute the figures of an outcome from its values by pair and task. Every pair needs two conversations."""
    users, assistants = (sorted({pair[side] for pair in values}) for side in (0, 1))
    pairs = list(product(users, assistants))
    given = [values.get(pair, {}) for pair in pairs]
    if len(pairs) < 2:
        raise InputError(
            f"all conversations have the same models ({' and '.join(pairs[0])}): add other models"
        )
    if few := [pair for pair, one in zip(pairs, given, strict=True) if sum(map(len, one.values())) < 2]:
        missing = "; ".join(f"{user} with {assistant}" for user, assistant in few[:5])
        raise InputError(f"every pair of models needs two conversations with the outcome {shown(name)}. Generate more of: {missing}")  # fmt: skip
    means = [{task: fmean(found) for task, found in one.items()} for one in given]
    wins = _wins(pairs, means)
    by_task = min(map(len, given)) >= FEW_TASKS
    common = [task for task in given[0] if all(task in one for one in given)]
    # Hotelling's test needs more tasks than cells. To lose most conversations would be worse than no pairing.
    paired = by_task and len(common) > max(FEW_TASKS, len(pairs)) and 2 * len(common) >= max(map(len, given))
    if paired:
        given = [{task: one[task] for task in common} for one in given]
        means = [{task: one[task] for task in common} for one in means]
    # A unit is a task or a conversation.
    units = [list(one.values()) if by_task else list(chain(*found.values())) for one, found in zip(means, given, strict=True)]  # fmt: skip
    counts = [sum(map(len, one.values())) for one in given]
    repeats = sum(counts) / sum(map(len, units))
    share = all(value in (0, 1) for one in given for found in one.values() for value in found)
    sample = _sample(units, paired, 2 / len(pairs) / repeats if share else 0.0)
    cells = list[CrossPlayCell]()
    for pair, count, own, single in zip(pairs, counts, units, np.eye(len(pairs)), strict=True):
        middle, low, high = sample.interval(single)
        if share:
            rate = wilson(round(middle * count), count, len(own))
            low, high = rate.low, rate.high
        cells.append(CrossPlayCell(*pair, count, middle, low, high, *wins[pair]))
    effects = list[SeatEffect]()
    for of, (tested, listed, names) in _contrasts(users, assistants).items():
        found = [SeatContrast(*one) for one in zip(names, *zip(*map(sample.interval, listed), strict=True), strict=True)]  # fmt: skip
        scaled = listed * np.sqrt(sample.free + 1)  # for the variance with one unit per cell
        needed = Z**2 * (scaled @ sample.covariance @ scaled.T).diagonal().max() / half_width**2
        # The added units make up for Student's quantile.
        needed = math.ceil((needed + (Z**2 + 1) / 2) * repeats)
        effects.append(SeatEffect(of, found, sample.p_value(tested), needed))
    design = "paired" if paired else "tasks" if by_task else "conversations"
    return CrossPlayOutcome(name, share, cells, effects, design, min(map(len, units)))


def adjust(outcomes: Sequence[CrossPlayOutcome]) -> list[CrossPlayOutcome]:
    """Correct all p-values together with Holm's method. The most certain outcome comes first."""
    values = iter(holm([effect.p for one in outcomes for effect in one.effects]))
    made = [replace(one, effects=[replace(effect, adjusted=next(values)) for effect in one.effects]) for one in outcomes]  # fmt: skip
    return sorted(made, key=lambda one: (min(effect.p for effect in one.effects), one.name))


class _Sample(NamedTuple):
    """The means of the cells. The shrunk ones and their covariance are for intervals and tests."""

    raw: Any
    shrunk: Any
    covariance: Any
    free: Any
    """Degrees of freedom of each cell."""
    paired: bool
    share: bool

    def interval(self, weights: Any) -> tuple[float, float, float]:
        """Return a contrast of the means with its 95% interval: Student's if paired, otherwise Welch's."""
        parts, variance = (
            weights**2 * self.covariance.diagonal(),
            max(0.0, weights @ self.covariance @ weights),
        )
        free = (
            self.free[0] if self.paired or not variance else 1 / ((parts / variance) ** 2 / self.free).sum()
        )
        half, middle = quantile(float(free)) * math.sqrt(variance), weights @ self.shrunk
        most = np.abs(weights).sum() / 2 if self.share and not weights.sum().round(9) else math.inf
        return float(weights @ self.raw), float(max(-most, middle - half)), float(min(most, middle + half))

    def p_value(self, tested: Any) -> float:
        """Test that all contrasts, the rows of a matrix, are zero. For one contrast, it is the test of its interval."""
        count, parts = len(tested), self.covariance.diagonal()
        sizes, axes = np.linalg.eigh(tested @ self.covariance @ tested.T)
        means, varies = axes.T @ tested @ self.shrunk, sizes > 1e-10 * parts.max()
        if np.abs(means[~varies]).max(initial=0.0) > 1e-9 * np.abs(self.shrunk).max():
            return 0.0  # a difference without any variance
        statistic = float((means[varies] ** 2 / sizes[varies]).sum())
        if self.paired:  # Hotelling
            rest = float(self.free[0]) - count + 1
            return _tail(statistic * rest / (count * float(self.free[0])), count, rest)
        # Johansen
        parts = parts * ((axes.T @ tested)[varies] ** 2 / sizes[varies, None]).sum(0)
        lack = max(1e-9, float((parts**2 / self.free).sum()))
        return _tail(statistic / (count + 2 * lack - 6 * lack / (count + 2)), count, count * (count + 2) / (3 * lack))  # fmt: skip


def _sample(units: Sequence[Sequence[float]], paired: bool, extra: float) -> _Sample:
    """Compute the means of the cells. Shares have an `extra` number of successes and failures per cell (Price and Bonett), or,
    if paired, of tasks in which only this cell succeeds (Bonett and Price), so that equal outcomes have an interval."""
    middles, covariances = list[Any](), list[Any]()
    for some in [units] if paired else [[one] for one in units]:
        added = np.eye(len(units)) if paired else np.array([[0.0], [1.0]])
        rows = np.concatenate([np.array(some).T, added])
        weights = np.concatenate([np.ones(len(some[0])), np.full(len(added), extra)])
        total = weights.sum()
        middles.append(middle := weights @ rows / total)
        covariances.append(((rows - middle).T * weights) @ (rows - middle) / (total - 1) / total)
    covariance = covariances[0] if paired else np.diag(np.ravel(covariances))
    free = np.array([len(one) - 1.0 for one in units])
    return _Sample(
        np.array([fmean(one) for one in units]), np.concatenate(middles), covariance, free, paired, extra > 0
    )


def _contrasts(users: Sequence[str], assistants: Sequence[str]) -> dict[Any, tuple[Any, Any, list[str]]]:
    """Return for each effect the contrasts to test, those to show, and the names of the latter."""
    steps, middles, means, sides = list[Any](), list[Any](), list[Any](), list[tuple[Any, list[str]]]()
    for models in (users, assistants):
        eye, count = np.eye(len(models)), len(models)
        steps.append(eye[1:] - eye[0])
        middles.append(eye - 1 / count)
        means.append(np.full((1, count), 1 / count))
        sides.append((steps[-1], [" − ".join(models[::-1])]) if count == 2 else (middles[-1], list(models)))
    pair: Any = np.kron(*middles), [" with ".join(one) for one in product(users, assistants)]
    if len(users) == len(assistants) == 2:
        pair = np.kron(*steps), ["difference of differences"]
    found: dict[str, Any] = {
        "user": (np.kron(steps[0], means[1]), np.kron(sides[0][0], means[1]), sides[0][1]),
        "assistant": (np.kron(means[0], steps[1]), np.kron(means[0], sides[1][0]), sides[1][1]),
        "pair": (np.kron(*steps), *pair),
    }
    return {of: one for of, one in found.items() if len(one[0])}


def _wins(pairs: Sequence[Pair], means: Sequence[Mapping[str, float]]) -> dict[Pair, list[int]]:
    """Count for each pair how often its outcome was higher than, equal to and lower than that of another pair on a task."""
    wins = {pair: [0, 0, 0] for pair in pairs}
    for (one, first), (other, second) in combinations(zip(pairs, means, strict=True), 2):
        for task in first.keys() & second.keys():
            place = 1 + (first[task] < second[task]) - (first[task] > second[task])
            wins[one][place] += 1
            wins[other][2 - place] += 1
    return wins


def _tail(value: float, first: int, second: float) -> float:
    """Return the chance that a variable with Fisher's distribution is larger than `value`."""
    # With value = second / first * tan(angle)², the density is sin^(first - 1) * cos^(second - 1).
    second = min(second, 1_000.0)

    def mass(start: float) -> float:
        angles = np.linspace(start, math.pi / 2, 2_001)
        return float(np.trapezoid(np.sin(angles) ** (first - 1) * np.cos(angles) ** (second - 1), angles))

    return min(1.0, mass(math.atan(math.sqrt(max(0.0, value) * first / second))) / mass(0.0))
