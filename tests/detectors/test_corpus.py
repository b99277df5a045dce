"""The labeled corpus is valid, and on the part that may be looked at the rules are as good as they were."""

from __future__ import annotations

import hashlib
from collections import Counter

from benchmarks.detectors import GOAL_PRECISION, GOAL_RECALL, NAMES, corpus, milliseconds, rows, scores

EXAMPLES = corpus()
MARGIN = 0.03
MANY_EXAMPLES, MANY_POSITIVES, MANY_HELD_OUT = 400, 25, 8


def test_the_corpus_is_large_enough():
    assert len(EXAMPLES) >= MANY_EXAMPLES
    assert {example.source for example in EXAMPLES} == {"real", "written", "mutation"}
    for name in NAMES:
        positives = Counter(example.split for example in EXAMPLES if example.labels[name])
        assert positives.total() >= MANY_POSITIVES, name
        assert positives["held-out"] >= MANY_HELD_OUT, name


def test_every_example_is_labeled_for_every_detector_within_its_messages():
    assert len({example.id for example in EXAMPLES}) == len(EXAMPLES)
    for example in EXAMPLES:
        assert example.labels.keys() == {*NAMES}, example.id
        assert example.unclear.keys() <= {*NAMES}, example.id
        for indices in (*example.labels.values(), *example.unclear.values()):
            assert all(0 <= index < len(example.messages) for index in indices), example.id
        for name, indices in example.unclear.items():
            assert not set(indices) & set(example.labels[name]), example.id


def test_a_family_is_on_one_side():
    for example in EXAMPLES:
        number = int.from_bytes(hashlib.sha256(example.family.encode()).digest()[:4], "big")
        assert example.split == ("held-out" if number % 3 == 0 else "tune"), example.id


def test_the_rules_are_as_good_as_they_were_on_the_tune_part():
    table = scores(corpus("tune"))
    for name, score in table.items():
        assert score.precision >= GOAL_PRECISION - MARGIN, (name, score.false)
        assert score.recall >= GOAL_RECALL - MARGIN, (name, score.lost)
    assert len(list(rows(table))) == 2 + len(NAMES)


def test_a_conversation_of_forty_messages_takes_milliseconds():
    """About 4 ms of CPU on a quiet machine and 12 on an overloaded one; backtracking would take far more."""
    assert min(milliseconds(corpus("tune")[:200]) for _ in range(2)) < 40
