"""Sets with one bit per number, compared with plain sets."""

from __future__ import annotations

import pickle

import hypothesis.strategies as st
import pytest
from hypothesis import given

from camel.runs.bits import BitSet
from camel.runs.layout import Layout, Segment

pytestmark = pytest.mark.hypothesis
NUMBERS = st.sets(st.integers(0, 300))


@given(NUMBERS, NUMBERS)
def test_it_is_the_set_of_its_numbers(ours: set[int], others: set[int]) -> None:
    one, other = BitSet(ours), BitSet(others)
    assert list(one) == sorted(ours)
    assert (len(one), bool(one)) == (len(ours), bool(ours))
    assert (one | other, one & other, one - other) == (ours | others, ours & others, ours - others)
    assert (one | others, one & others, one - others) == (ours | others, ours & others, ours - others)
    assert (ours - other, others & one, ours | other) == (ours - others, ours & others, ours | others)
    assert ((one <= other), (one == other), (one < other)) == (ours <= others, ours == others, ours < others)
    assert (one <= others, dict.fromkeys(ours).keys() <= other) == (ours <= others, ours <= others)
    assert [number in one for number in range(-20, 320)] == [number in ours for number in range(-20, 320)]


@given(NUMBERS, st.integers(0, 320), st.integers(0, 320))
def test_ranges_and_shifts(numbers: set[int], start: int, stop: int) -> None:
    assert BitSet.of_range(start, stop) == set(range(start, stop))
    assert BitSet(numbers).shifted(start) == {number + start for number in numbers}
    assert list(BitSet(numbers).without(range(start, stop))) == [
        number for number in range(start, stop) if number not in numbers
    ]


@given(NUMBERS, NUMBERS)
def test_copies_are_independent_and_survive_storage(before: set[int], more: set[int]) -> None:
    one = BitSet(before)
    copy = BitSet(one)
    for number in more:
        copy.add(number)
    assert (one, copy) == (before, before | more)
    assert pickle.loads(pickle.dumps(copy)) == BitSet.from_bytes(copy.to_bytes()) == copy


@given(st.sets(st.integers(0, 200)), st.sampled_from([8, 16, 40]))
def test_gaps_have_every_missing_number(numbers: set[int], size: int) -> None:
    *gaps, (tail, end) = BitSet(numbers).gaps(size)
    assert end == -1
    missing = {number for start, stop in gaps for number in range(start, stop)} | set(range(tail, 400))
    assert missing >= set(range(400)) - numbers
    for start in range(0, 400, size):
        block = set(range(start, start + size))
        assert block <= missing or (block <= numbers and not block & missing)


@given(st.lists(st.builds(Segment, st.integers(0, 50), st.integers(1, 9)), max_size=6), NUMBERS, NUMBERS)
def test_items_are_counted_without_listing_them(
    segments: list[Segment], shards: set[int], inactive: set[int]
) -> None:
    for layout in (Layout(segments), Layout(segments, BitSet(inactive))):
        listed = sum(len(layout.items(shard)) for shard in shards)
        assert layout.count_items(BitSet(shards)) == listed
