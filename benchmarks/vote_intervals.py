"""How often do the intervals of votes hold the truth? Two ways, over pairs on which voters are more or less of one mind.

    python -m benchmarks.vote_intervals

Each trial draws, for every pair, what its voters tend to say, then their votes, and looks whether the 95% interval of
each share (wins, draws, losses) holds the share they were drawn from, and that of the score (wins and half of the draws)
its own. `clusters` and `score` are what `camel vote --results` uses.
"""

from __future__ import annotations

import argparse

import numpy as np

from camel.evaluation.vote_results import clustered

CASES = ((10, 2, 1.0), (30, 3, 1.0), (30, 3, 100.0), (30, 10, 0.5), (100, 1, 5.0), (100, 4.5, 2.0))
"""Pairs, votes for each, and how little voters agree: the smaller, the more are they of one mind about a pair."""
MEANS = ((0.763, 0.133, 0.104), (0.5, 0.1, 0.4))


def drawn_again(table: np.ndarray, chance: np.random.Generator, resamples: int = 1_000) -> np.ndarray:
    """Percentile intervals of the shares from pairs drawn again."""
    sums = chance.multinomial(len(table), np.full(len(table), 1 / len(table)), resamples) @ table
    return np.quantile(sums / sums.sum(1, keepdims=True), [0.025, 0.975], axis=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    trials = parser.parse_args().trials
    chance = np.random.default_rng(1)
    ways = "   ".join(f"{name:>16}" for name in ("clusters", "drawn again", "score"))
    print(f"{'pairs':>5} {'votes':>5} {'wins':>5}   {ways}   (held, mean width)")
    for pairs, votes, spread in CASES:
        for mean in MEANS:
            held, width = np.zeros(3), np.zeros(3)
            for _ in range(trials):
                tend = chance.dirichlet(np.array(mean) * spread, pairs)
                sizes = np.maximum(1, chance.poisson(votes, pairs)) if votes > 1 else np.ones(pairs, int)
                table = np.array([chance.multinomial(n, p) for n, p in zip(sizes, tend, strict=True)])
                rates, score = clustered([tuple(map(int, row)) for row in table])
                mine = np.array([[rate.low for rate in rates], [rate.high for rate in rates]])
                for way, bounds in enumerate((mine, drawn_again(table, chance))):
                    held[way] += ((bounds[0] <= mean) & (mean <= bounds[1])).mean()
                    width[way] += (bounds[1] - bounds[0]).mean()
                held[2] += score.low <= mean[0] + mean[1] / 2 <= score.high
                width[2] += score.high - score.low
            shown = "   ".join(
                f"{h / trials:8.1%} {w / trials:7.3f}" for h, w in zip(held, width, strict=True)
            )
            print(f"{pairs:>5} {votes:>5} {mean[0]:>5.0%}   {shown}")


if __name__ == "__main__":
    main()
