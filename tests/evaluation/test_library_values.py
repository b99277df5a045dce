"""Our statistics against values that well-kept packages gave for the same data: statsmodels 0.15, choix 0.4.1 and SciPy 1.17.

They are written down here, because none of these packages is installed with an extra (docs/decisions/0024).
"""

from __future__ import annotations

import pytest

from camel.evaluation.agreement import cohen, fleiss
from camel.evaluation.standing import Match, bradley_terry, length_bias
from camel.reports.intervals import holm, paired, wilson


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [
        (0, 20, 0.0, 0.1611251580528194),
        (3, 20, 0.052368745896216595, 0.36041886474075696),
        (17, 164, 0.06573150818853768, 0.1597280361134476),
        (20, 20, 0.8388748419471804, 1.0),
    ],
)
def test_wilson_equals_statsmodels_proportion_confint(count: int, of: int, low: float, high: float):
    found = wilson(count, of)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


@pytest.mark.parametrize(
    ("one", "other", "p"),
    [(3, 11, 0.057373046875), (0, 6, 0.03125), (8, 9, 1.0), (40, 70, 0.005447429511444476)],
)
def test_paired_equals_statsmodels_exact_mcnemar(one: int, other: int, p: float):
    assert paired(one, other, 200).p == pytest.approx(p)


def test_holm_equals_statsmodels_multipletests():
    assert holm([0.01, 0.04, 0.03, 0.005, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.025, 0.5])


def test_kappas_equal_those_of_statsmodels():
    table = [[9, 1, 4], [3, 9, 1], [2, 0, 11]]
    both = [(one, two) for one in range(3) for two in range(3) for _ in range(table[one][two])]
    found = cohen(both)
    assert found.kappa == pytest.approx(0.5872420262664165)
    # Its interval is the large-sample one. Our jackknife interval is close, and slightly wider.
    assert (found.low, found.high) == (pytest.approx(0.3802, abs=0.01), pytest.approx(0.7943, abs=0.01))
    counts = [
        (0, 0, 0, 0, 14), (0, 2, 6, 4, 2), (0, 0, 3, 5, 6), (0, 3, 9, 2, 0), (2, 2, 8, 1, 1),
        (7, 7, 0, 0, 0), (3, 2, 6, 3, 0), (2, 5, 3, 2, 2), (6, 5, 2, 1, 0), (0, 2, 2, 3, 7),
    ]  # fmt: skip
    rated = ([kind for kind, count in enumerate(row) for _ in range(count)] for row in counts)
    assert fleiss(rated).kappa == pytest.approx(0.20993070442195522)


def test_ratings_equal_those_of_choix():
    wins = [[0, 7, 9, 8], [3, 0, 6, 7.5], [1, 4, 0, 5], [2, 2.5, 5, 0]]
    meetings: list[Match] = []
    for one in range(4):
        for two in range(one + 1, 4):
            scores = (
                [1.0] * int(wins[one][two]) + [0.0] * int(wins[two][one]) + [0.5] * (wins[one][two] % 1 > 0)
            )
            meetings += [
                Match(f"task {at}", "abcd"[one], "abcd"[two], score) for at, score in enumerate(scores)
            ]
    found = {one.system: one.rating.value for one in bradley_terry(meetings)}
    # ilsr_pairwise_dense of the same table, plus half a win for each pair, in Elo points.
    expected = {"a": 163.047447, "b": 24.108844, "c": -89.063727, "d": -98.092564}
    assert found == pytest.approx(expected, abs=1e-4)


def test_the_score_at_equal_length_equals_scipys_optimum():
    ratios = [0.5, 0.8, 1.1, 2.0, 3.0, 0.7, 1.5, 0.9, 1.2, 2.5, 0.4, 1.8]
    outcomes = ["b", "a", "draw", "a", "a", "b", "a", "b", "draw", "a", "b", "b"]
    found = length_bias(outcomes, [(round(100 * ratio), 100) for ratio in ratios])  # type: ignore[arg-type]
    assert found.controlled is not None
    # The minimum that scipy.optimize.minimize finds for the same likelihood with the same ridge.
    assert found.controlled.value == pytest.approx(0.4017958253867826, abs=1e-6)
    assert found.controlled.low < found.controlled.value < found.controlled.high
