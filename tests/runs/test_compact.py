"""Compaction: fewer files, the same records in the same order, whatever happens in between and with several processes at once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import nullcontext
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

from camel.core.errors import InputError
from camel.formats import exporters
from camel.library.run import Run
from camel.runs import compact as module
from camel.runs.compact import all_compactions, compact, compactions, is_range, ranges
from camel.runs.garbage import Garbage, collect_garbage
from camel.runs.run import RunFolder
from camel.runs.verify import verify
from tests.support.records import STAGE, a_run, commit, transcript

Place = Callable[[str], RunFolder]


def export(folder: RunFolder, path: Path) -> str:
    path.unlink(missing_ok=True)
    exporters.chat(Run(folder.address), path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


sizes = st.dictionaries(st.integers(0, 70), st.integers(0, 100), max_size=70)


@given(sizes, st.integers(1, 1_000))
def test_ranges_are_full_small_enough_and_apart(sizes: dict[int, int], target: int):
    found = list(ranges(sizes, target))
    for first, last in found:
        assert is_range(first, last)
        assert all(shard in sizes for shard in range(first, last + 1))
        assert sum(sizes[shard] for shard in range(first, last + 1)) <= target
    taken = [shard for first, last in found for shard in range(first, last + 1)]
    assert len(taken) == len(set(taken))
    # Nothing is left that could still be joined.
    for (a, b), (c, d) in combinations(sorted(found), 2):
        if b + 1 == c and is_range(a, d) and b - a == d - c:
            assert sum(sizes[shard] for shard in range(a, d + 1)) > target
    assert list(ranges(sizes, target, found)) == []


@given(st.lists(st.tuples(sizes, st.integers(1, 1_000)), max_size=6))
def test_ranges_of_any_number_of_compactors_never_overlap_by_half(given: list[tuple[dict[int, int], int]]):
    made = {one for sizes, target in given for one in ranges(sizes, target)}
    for (a, b), (c, d) in combinations(made, 2):
        assert b < c or d < a or (a <= c and d <= b) or (c <= a and b <= d)


def test_fewer_files_and_the_same_export(place: Place, tmp_path: Path):
    folder = a_run(place("run"), 7)
    before = export(folder, tmp_path / "a.jsonl")
    done = compact(folder, STAGE)
    assert done == (2, 7, 3, 1)
    assert [(one.first, one.last) for one in compactions(folder, STAGE)] == [(0, 3), (4, 5)]
    run = Run(folder.address)
    assert len(run.parts) == done.files
    assert len(run) == 21
    assert export(folder, tmp_path / "b.jsonl") == before
    assert compact(folder, STAGE).made == 0
    assert verify(folder).problems == []


def test_what_comes_later_is_taken_in(place: Place, tmp_path: Path):
    folder = a_run(place("run"), 3)
    compact(folder, STAGE)
    for shard in range(3, 5):
        commit(folder, shard)
    before = export(folder, tmp_path / "a.jsonl")
    compact(folder, STAGE)
    assert [(one.first, one.last) for one in compactions(folder, STAGE)] == [(0, 3)]
    assert len(all_compactions(folder, STAGE)) == 2
    assert export(folder, tmp_path / "b.jsonl") == before
    found = collect_garbage(folder, compacted=True)
    assert len(found.compacted) == 5
    assert len(all_compactions(folder, STAGE)) == 1
    assert export(folder, tmp_path / "c.jsonl") == before
    assert len(list(folder.store.entries("data"))) == 2
    report = verify(folder)
    assert report.problems == []
    assert report.rows == 15
    for shard in range(5, 8):
        commit(folder, shard)
    before = export(folder, tmp_path / "a.jsonl")
    compact(folder, STAGE)
    assert [(one.first, one.last) for one in compactions(folder, STAGE)] == [(0, 7)]
    assert export(folder, tmp_path / "d.jsonl") == before


def test_a_shard_can_still_be_read_by_itself(place: Place):
    folder = a_run(place("run"), 3)
    plain = [Run(folder.address).shard(number) for number in range(3)]
    compact(folder, STAGE)
    collect_garbage(folder, compacted=True)
    run = Run(folder.address)
    assert [run.shard(number) for number in range(3)] == plain
    assert plain[2] == [transcript(number) for number in range(6, 9)]


def test_tables_and_queries_read_compactions(place: Place):
    folder = a_run(place("run"), 5)
    compact(folder, STAGE)
    collect_garbage(folder, compacted=True)
    run = Run(folder.address)
    assert run.to_arrow(["id"]).column("id").to_pylist() == [f"{n:06d}" for n in range(15)]
    pytest.importorskip("duckdb")
    assert Run(folder.address).sql("select count(*), count(distinct id) from run").fetchall() == [(15, 15)]


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("moment", ["write_batches", "persist", "create", "after"])
def test_a_kill_at_any_moment_leaves_a_readable_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
):
    folder = a_run(RunFolder(tmp_path / "run"), 4)
    before = export(folder, tmp_path / "a.jsonl")

    def dies(*args: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        match moment:
            case "write_batches":
                patch.setattr(module, "write_batches", dies)
            case "persist":
                patch.setattr(folder, "persist", dies)
            case "create":
                patch.setattr(folder.store, "create", dies)
            case _:
                create = folder.store.create
                patch.setattr(folder.store, "create", lambda *args: create(*args) and dies())
        with pytest.raises(Killed):
            compact(folder, STAGE)
    assert export(folder, tmp_path / "b.jsonl") == before
    assert bool(collect_garbage(folder, older=0).losers) == (moment in ("persist", "create"))
    assert len(list(folder.store.entries("data"))) == (5 if moment == "after" else 4)
    compact(folder, STAGE)
    assert export(folder, tmp_path / "c.jsonl") == before
    assert verify(folder).problems == []


@pytest.mark.parametrize("moment", ["persist", "create"])
@pytest.mark.parametrize("locks", [True, False])
def test_garbage_collected_in_the_middle_of_a_compaction_leaves_no_dangling_marker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, locks: bool
):
    """Between the large file and its marker, nothing names the file. The lock keeps it, without the lock its age does."""
    folder = a_run(RunFolder(tmp_path / "run"), 4)
    before = export(folder, tmp_path / "a.jsonl")
    found: list[Garbage] = []
    owner = folder if moment == "persist" else folder.store
    go_on = getattr(owner, moment)

    def interrupted(*args: object) -> object:
        found.append(collect_garbage(RunFolder(folder.root)))
        return go_on(*args)

    with monkeypatch.context() as patch:
        patch.setattr(owner, moment, interrupted)
        if not locks:
            patch.setattr(folder, "locked", nullcontext)
        compact(folder, STAGE)
    assert [(one.working, one.kept, one.losers) for one in found] == [(locks, 1, [])]
    assert verify(folder).problems == []
    assert export(folder, tmp_path / "b.jsonl") == before


def test_a_compaction_waits_for_nobody(tmp_path: Path):
    folder = a_run(RunFolder(tmp_path / "run"), 4)
    with folder.locked(), pytest.raises(InputError, match="another process"):
        compact(RunFolder(folder.root), STAGE)
    assert compactions(folder, STAGE) == []


def test_of_two_who_compact_the_same_one_file_stays(place: Place):
    folder = a_run(place("run"), 4)
    markers = list(folder.markers(STAGE, range(4)))
    parts = module.parts_of(folder, STAGE, markers)
    mine = module._compact_range(folder, STAGE, "f", parts)
    theirs = module._compact_range(folder, STAGE, "f", parts)
    assert mine == theirs
    assert len(list(folder.store.entries("data"))) == 5


def test_small_files_stay_when_the_large_one_is_damaged(tmp_path: Path):
    folder = a_run(RunFolder(tmp_path / "run"), 4)
    compact(folder, STAGE)
    path = folder.root / compactions(folder, STAGE)[0].file
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=path.name):
        collect_garbage(folder, compacted=True)
    assert len(list(folder.store.entries("data"))) == 5
    assert [problem.file for problem in verify(folder).problems] == [str(path.relative_to(folder.root))] * 2


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{}", b"[" * 10),
        b'{"stage":"conversations","first":0,"last":2,"file":"x","rows":[1,1,1],"sha256":"","fingerprint":"f","size":1}',
        b'{"stage":"conversations","first":0,"last":1,"file":"../x","rows":[1,1],"sha256":"","fingerprint":"f","size":1}',
        b'{"stage":"conversations","first":2,"last":3,"file":"x","rows":[1,1],"sha256":"","fingerprint":"f","size":1}',
    ],
)
def test_a_damaged_marker_of_a_compaction_is_one_line(tmp_path: Path, data: bytes):
    folder = a_run(RunFolder(tmp_path / "run"), 2)
    folder.store.create(f"compacted/{STAGE}/000000-000001.json", data)
    with pytest.raises(InputError, match=r"000000-000001\.json") as caught:
        list(Run(folder.address))
    assert "\n" not in str(caught.value)
    assert len(verify(folder).problems) == 1
