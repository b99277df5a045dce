"""Listing markers: by ranges in an object store, compared with a plain list of names."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from camel.runs.bits import BitSet
from camel.runs.listing import list_shards, shard_file, shards_in
from camel.storage.store import PAGE, BucketStore, DiskStore

pytestmark = pytest.mark.hypothesis


def dense(end: int, holes: set[int]) -> set[int]:
    return set(range(end)) - holes


SHARDS = st.one_of(
    st.sets(st.integers(0, 3_000)),
    st.sets(st.integers(0, 10_000_000), max_size=20),
    st.builds(dense, st.integers(0, 5_000), st.sets(st.integers(0, 5_000))),
)

# Numbers of up to six digits, and those after them, whose names are not in order.
OLD = st.one_of(st.sets(st.integers(0, 3_000)), st.sets(st.integers(990_000, 1_100_000), max_size=20))


class Listed(BucketStore):
    """A store that has names and pages of them."""

    def __init__(self, names: set[str]) -> None:
        super().__init__("s3://bucket/run")
        self._sorted, self.pages = sorted(names), 0

    def names_between(self, folder: str, after: str = "", until: str = "") -> tuple[list[str], bool]:
        found: list[str] = []
        while True:
            page = self._sorted[(start := bisect_right(self._sorted, after)) : start + PAGE]
            self.pages += 1
            found += page
            if len(page) < PAGE and not (until and page and page[-1] >= until):
                return found, False
            if until and page[-1] >= until:
                return found, True
            after = page[-1]


def names_of(shards: set[int]) -> set[str]:
    return set(map(shard_file, shards))


@given(st.sets(st.integers(0, 10**9)))
def test_names_sort_by_number(shards: set[int]):
    assert sorted(map(shard_file, shards)) == list(map(shard_file, sorted(shards)))
    assert shards_in(sorted(names_of({shard % 10**7 for shard in shards}))) == {one % 10**7 for one in shards}


@given(SHARDS, SHARDS)
def test_every_marker_is_found_whatever_was_known_before(before: set[int], more: set[int]):
    known = list_shards(Listed(names_of(before)), "m", BitSet())
    assert known == before
    assert list_shards(Listed(names_of(before | more)), "m", known) == before | more


@given(OLD)
def test_markers_with_names_of_earlier_versions_are_found(shards: set[int]):
    old = {f"{shard:06d}.json" for shard in shards}
    assert list_shards(Listed(old), "m", BitSet()) == shards


def test_a_small_stage_is_one_request_and_a_large_one_is_not_listed_again():
    few = Listed(names_of(set(range(300))))
    assert len(list_shards(few, "m", BitSet())) == 300
    assert few.pages == 1
    many = Listed(names_of(set(range(250_000)) - {17, 120_500}))
    known = list_shards(many, "m", BitSet())
    assert many.pages < 250_000 / PAGE * 1.2
    many.pages = 0
    assert list_shards(many, "m", known) == known
    assert many.pages <= 3 + 2, "the pages with holes, and what may have come at the end"


def test_a_number_that_no_run_has_takes_no_memory():
    assert shards_in(["000001.json", "z" * 10 + "9" * 16 + ".json", "9" * 16 + ".json"]) == {1}


def test_on_a_disk_the_folder_is_scanned_once(tmp_path: Path):
    for shard in (0, 7, 1_000_000):
        path = tmp_path / "m" / shard_file(shard)
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert list_shards(DiskStore(tmp_path), "m", BitSet()) == {0, 7, 1_000_000}
