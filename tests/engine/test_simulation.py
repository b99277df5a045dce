"""Seeds of the simulation; `python -m benchmarks.crash --simulate 10000` runs more of them."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.simulation import simulate


def run_seeds(seeds: range) -> Counter[str]:
    ends: Counter[str] = Counter()
    for seed in seeds:
        try:
            ends += simulate(seed).ends
        except BaseException as error:
            error.add_note(f"replay it: python -m benchmarks.crash --simulate 1 --seed {seed}")
            raise
    return ends


def test_some_seeds():
    ends = run_seeds(range(60))
    assert min(ends[kind] for kind in ("kill", "power", "full", "halt")) > 5, ends


def test_a_seed_is_a_whole_history():
    assert [simulate(seed) for seed in range(3)] == [simulate(seed) for seed in range(3)]


@pytest.mark.thorough
def test_five_hundred_seeds():
    ends = run_seeds(range(500))
    assert min(ends[kind] for kind in ("kill", "power", "full", "halt")) > 50, ends
