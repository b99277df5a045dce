"""Bradley–Terry ratings: the strength of each of several systems, from their wins against each other.

The one decision to know: the bootstrap for the intervals resamples tasks with all their verdicts, because verdicts on the
same task are not independent. A draw is half a win for both systems. Each two systems that met also get half a win against
each other as a prior, so that a system without a loss has a finite rating.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from camel.core.errors import InputError
from camel.evaluation.standing import Interval, interval, np

RESAMPLES = 1_000
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
    """Return the ratings of all systems that occur in a match, the strongest first."""
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
        len(tasks), np.full(len(tasks), 1 / len(tasks)), RESAMPLES
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
