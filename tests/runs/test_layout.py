"""The layout of a stage: items and shards are dense, and segments never move."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from camel.runs.layout import Layout, Segment

pytestmark = pytest.mark.hypothesis
SEGMENTS = st.lists(st.builds(Segment, st.integers(0, 50), st.integers(1, 9)), max_size=6)


@given(SEGMENTS)
def test_each_item_is_in_exactly_one_shard(segments: list[Segment]) -> None:
    layout = Layout(segments)
    items = [item for shard in range(layout.shards) for item in layout.items(shard)]
    assert items == list(range(layout.count)) == list(range(sum(one.items for one in segments)))
    assert all(item in layout.items(layout.shard_of(item)) for item in items)


@given(SEGMENTS, SEGMENTS)
def test_further_segments_move_no_item(before: list[Segment], more: list[Segment]) -> None:
    old, new = Layout(before), Layout([*before, *more])
    assert [new.items(shard) for shard in range(old.shards)] == [
        old.items(shard) for shard in range(old.shards)
    ]


def test_a_shard_that_is_not_planned_has_no_items() -> None:
    layout = Layout([Segment(5, 2)])
    assert [len(layout.items(shard)) for shard in (-1, 2, 3)] == [0, 1, 0]
