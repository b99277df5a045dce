"""The choice of access paths for lists and counts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from camel.index.merge import merge
from camel.query.catalogue import Catalogue, CatalogueView, choose_list
from camel.query.counting import choose_counts
from camel.query.database import IndexSegment
from camel.query.where import Query
from camel.runs.run import open_folder
from tests.support.societies import STAGE, commit, society, transcript


@pytest.fixture(scope="module")
def now(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogueView]:
    """A run whose first shards have merged index files with copies and cubes; the last shard has its own index file."""
    folder = tmp_path_factory.mktemp("paths")
    society(folder / "run", rows=56, shard=7, seed=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("camel.index.sorted.FROM", 10)
        merge(open_folder(folder / "run"), STAGE, target=20)
    commit(open_folder(folder / "run"), 8, [transcript(n, seed=9) for n in range(100, 105)])
    with Catalogue([folder / "run"]) as catalogue:
        yield catalogue._now()  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("query", "path"),
    [
        (Query(), "RunOrder"),
        (Query(sort="order", order="desc"), "RunOrder"),
        (Query(sort="relevance"), "RunOrder"),
        (Query(text=" "), "RunOrder"),
        (Query(text="caravan"), "Found"),
        (Query(text="caravan", sort="tokens"), "Found"),
        (Query(sort="tokens"), "SortedCopies"),
        (Query(sort="cost", facets={"stop": ("done",), "label": ("",)}), "SortedCopies"),
        (Query(sort="tokens", facets={"user": ("Guide",)}), "NumberScan"),
        (Query(sort="tokens", ranges={"tokens": (1, None)}), "NumberScan"),
    ],
)
def test_a_list_uses_the_cheapest_path_that_can_answer(now: CatalogueView, query: Query, path: str) -> None:
    assert type(choose_list(now, query)).__name__ == path


@pytest.mark.parametrize(
    ("query", "facet", "paths"),
    [
        (Query(), "", ["Footers"]),
        (Query(), "finding", ["Footers"]),
        (Query(facets={"stop": ("done",)}), "", ["Footers"]),
        (Query(ranges={"messages": (2, 9)}), "", ["Footers"]),
        # Values of a set overlap, so their counts cannot be added up.
        (Query(facets={"label": ("misalignment", "other")}), "", ["Cube", "Scan"]),
        (Query(facets={"stop": ("done",)}), "model", ["Cube", "Scan"]),
        (Query(facets={"stop": ("done",), "user": ("Guide",)}), "", ["Cube", "Scan"]),
        (Query(ranges={"tokens": (2, 9)}), "", ["Scan"]),
        (Query(text="caravan"), "", ["Scan"]),
    ],
)
def test_each_file_is_counted_by_the_cheapest_path_that_can(
    now: CatalogueView, query: Query, facet: str, paths: list[str]
) -> None:
    (run,) = now.state.sources
    files = IndexSegment(run, run.parts)
    chosen = list(choose_counts(now, files, query, facet))
    assert [type(path).__name__ for path in chosen] == paths
    counted = [part for path in chosen for part in path.parts]
    assert len(counted) == len(set(counted)) == len(run.parts), "each file once"
