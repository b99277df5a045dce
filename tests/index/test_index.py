"""Indexes of runs on a disk and in an object store: made with the data, put together, and never in the way."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from camel.core.errors import InputError
from camel.core.message import Usage
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.detectors import detect
from camel.detectors.marks import Mark
from camel.index import build as index
from camel.index import files
from camel.index.cube import read_cubes, write_cubes
from camel.index.facets import FACETS, VERSION, bucket, bucket_names, elements, joined
from camel.index.files import files_of, read_footer, schema
from camel.index.merge import Looking, merge, unused
from camel.index.text import make_text_index
from camel.query.catalogue import Catalogue
from camel.query.where import Query
from camel.record.arrow import read_shard, to_table
from camel.runs.garbage import collect_garbage
from camel.runs.markers import Marker
from camel.runs.run import RunFolder, open_folder
from camel.runs.settings import Settings
from camel.runs.verify import verify
from tests.support.in_process import camel
from tests.support.records import STAGE, a_run, commit, transcript
from tests.support.societies import age_index, society
from tests.support.societies import commit as commit_rows
from tests.support.societies import transcript as record


def price(model: str, usage: Usage) -> float | None:
    return usage.total / 1e6


def test_an_index_is_the_same_from_a_file_and_from_a_part_of_a_larger_one(tmp_path: Path):
    folder = a_run(open_folder(tmp_path / "run"), 2)
    data = tmp_path / "run" / folder.marker(STAGE, 1).file
    whole = index.table_of(to_table(map(transcript, range(6))).slice(3, 3), 1, price)
    index.build(tmp_path / "i.parquet", data, Marker(STAGE, 1, "x/000001-a.parquet", 3, "", "f"), price)
    assert read_shard(tmp_path / "i.parquet").to_pylist() == whole.to_pylist()
    header = read_footer(tmp_path / "i.parquet")[0]
    assert (header.rows, header.shards[0].file) == (3, "000001-a")


def test_an_empty_shard_has_an_index(tmp_path: Path):
    folder = open_folder(tmp_path / "run")
    folder.create(Settings("f", {}, "0"))
    commit(folder, 0, 0)
    assert merge(folder, STAGE).built == 1
    with Catalogue([tmp_path / "run"]) as catalogue:
        assert catalogue.count() == 0
        assert catalogue.page().rows == []
        assert catalogue.facets()["stop"] == []


def test_sets_and_buckets():
    assert elements(joined(["b", "a", "b", ""])) == ["a", "b"]
    assert elements(joined(["a\x1fmisalignment"])) == ["a misalignment"]
    assert joined([]) == ""
    for facet in FACETS.values():
        if facet.edges:
            names = list(bucket_names(facet))
            assert len(set(names)) == len(names) == len(facet.edges)
            assert [bucket(facet, edge) for edge in facet.edges] == names
            assert bucket(facet, None) == "unknown"


@pytest.mark.slow
def test_indexes_are_put_together_counted_and_cleared_away_wherever_a_run_is(place):
    folder: RunFolder = a_run(place("run"), 11)
    assert merge(folder, STAGE, cost=price, target=12) == (11, 3, 4, 33)  # 4 + 4 + 2 shards, and one alone
    assert merge(folder, STAGE, cost=price, target=12) == (0, 0, 4, 33)
    for shard in range(11, 16):
        commit(folder, shard)
    # Smaller ones become part of larger ones.
    assert merge(folder, STAGE, cost=price, target=24) == (5, 2, 2, 48)
    found = files_of(folder, STAGE)
    assert (len(found.merged), len(found.cubes), len(found.single)) == (5, 2, 16)
    with Catalogue([folder.address]) as catalogue:
        assert [row.id for row in catalogue.page(limit=100).rows] == [f"{n:06d}" for n in range(48)]
        assert dict(catalogue.facets(Query(facets={"stop": ("done",)}))["length"]) == {
            "0-1": 24,
            "2": 12,
            "3-10": 12,
        }
        assert catalogue.runs[0].counted is not None
        assert catalogue.conversation("run", "000031") == transcript(31)
    gone = collect_garbage(folder, derived=unused)
    assert len(gone.indexes) == 4  # three small ones, and the cube of those
    assert len(collect_garbage(folder, compacted=True, derived=unused).indexes) == 16
    assert not verify(folder).problems
    with Catalogue([folder.address]) as catalogue:
        assert catalogue.notes() == ()
        assert catalogue.count() == 48
    assert merge(folder, STAGE, cost=price, target=24) == (0, 0, 2, 48)


def test_text_is_indexed_wherever_a_run_is_and_taken_further(place):
    pytest.importorskip("tantivy")
    folder: RunFolder = a_run(place("run"), 5)
    assert make_text_index(folder, STAGE) == (2, 2, 15)
    assert make_text_index(folder, STAGE) == (0, 2, 15)
    commit(folder, 5)
    with Catalogue([folder.address]) as catalogue:
        found = catalogue.search(
            Query(text="said 16")
        )  # in the shard that is not indexed yet: message 0 and 1 of 16? none
        assert found.total == 0
        assert catalogue.search(Query(text='"said 7"')).rows[0].id == "000007"
        assert catalogue.search(Query(text='"said 17"')).rows[0].id == "000017"
    assert make_text_index(folder, STAGE).made == 1
    with Catalogue([folder.address]) as catalogue:
        assert catalogue.search(Query(text='"said 17"')).rows[0].id == "000017"


def test_a_text_index_of_another_version_is_ignored_and_replaced(tmp_path: Path):
    pytest.importorskip("tantivy")
    folder = a_run(open_folder(tmp_path / "run"), 5)
    make_text_index(folder, STAGE)
    for path in (tmp_path / "run" / "text" / STAGE).glob("*/camel.json"):
        path.write_bytes(path.read_bytes().replace(b'"version":2', b'"version":1'))
    with Catalogue([folder.address]) as catalogue:
        assert catalogue.search(Query(text='"said 7"')).rows[0].id == "000007"
    assert make_text_index(folder, STAGE) == (2, 2, 15)


def test_both_indexes_tell_the_same_of_a_conversation(tmp_path: Path):
    pytest.importorskip("tantivy")
    odd = transcript(3)
    odd.scenario, odd.stop = "code", None
    odd.speakers = [Speaker("assistant", "Guide"), Speaker("user", "Poet"), Speaker("assistant", "Thief")]
    odd.messages = [replace(one, model=model) for one, model in zip(odd.messages, "bab", strict=True)]
    folder = open_folder(tmp_path / "run")
    folder.create(Settings("f", {}, "0"))
    path = folder.data_path(STAGE, 0, "a", ".parquet")
    written = index.write_indexed(folder, STAGE, path, [odd, Transcript("bare", Task("said"))], "f")
    file, size = folder.persist(path)
    assert folder.commit(Marker(STAGE, 0, file, written.rows, written.sha256, "f", {}, size))
    assert make_text_index(folder, STAGE).rows == 2
    with Catalogue([folder.address]) as catalogue:
        first, bare = catalogue.page().rows
        told = {name: getattr(first, name) for name in ("assistant", "user", "stop", "model")}
        assert told == {"assistant": "Guide", "user": "Poet", "stop": "unfinished", "model": "b + a"}
        assert (bare.assistant, bare.user, bare.stop, bare.model) == ("", "", "unfinished", "")
        for name, value in told.items():
            found = catalogue.search(Query(text="said", facets={name: (value,)}))
            assert first.id in [row.id for row in found.rows], name


def test_an_index_that_cannot_be_written_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = open_folder(tmp_path / "run")
    path = folder.data_path(STAGE, 0, "a", ".parquet")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(index, "write", full)
    assert index.write_indexed(folder, STAGE, path, map(transcript, range(3)), "f").rows == 3
    assert path.exists()
    assert not list((tmp_path / "run").rglob("index/*/*"))


def test_what_is_indexed_while_it_is_written_is_what_would_be_made_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("camel.record.arrow.ROW_GROUP", 4)
    folder = open_folder(tmp_path / "run")
    path = folder.data_path(STAGE, 3, "a", ".parquet")
    index.write_indexed(folder, STAGE, path, map(transcript, range(10)), "f", price)
    made = tmp_path / "run" / "index" / STAGE / f"{path.stem}.parquet"
    header = index.build(tmp_path / "i.parquet", path, Marker(STAGE, 3, path.name, 10, "", "f"), price)
    assert read_footer(made)[0] == header
    assert read_shard(made).to_pylist() == read_shard(tmp_path / "i.parquet").to_pylist()


def test_a_cube_with_too_many_cells_is_left_out(tmp_path: Path):
    folder = a_run(open_folder(tmp_path / "run"), 4)
    merge(folder, STAGE)
    [(_, _, name)] = files_of(folder, STAGE).merged
    few = write_cubes(tmp_path / "c.parquet", [tmp_path / "run" / name], "d", most=2)
    assert few == read_cubes(tmp_path / "c.parquet")
    assert all(cube.cells <= 2 for cube in few.cubes)
    assert few.best({"stop"}) is not None
    assert few.best(set(FACETS)) is None


def test_the_command(tmp_path: Path, snapshot: Callable[..., None]):
    a_run(open_folder(tmp_path / "run"), 3)
    done = camel("run", "index", "run", "--text", folder=tmp_path)
    assert done.status == 0, done.stderr
    snapshot("status", done.stdout)
    again = camel("run", "index", "run", "--text", "--json", folder=tmp_path)
    assert json.loads(again.stdout) == {
        "built": 0,
        "made": 0,
        "files": 2,
        "rows": 9,
        "text": {"made": 0, "indexes": 2, "rows": 9},
    }


def test_what_a_killed_writer_left_goes_when_it_is_old(tmp_path: Path):
    folder = a_run(open_folder(tmp_path / "run"), 1)
    merge(folder, STAGE)
    left = [tmp_path / "run" / "index" / STAGE / name for name in (".young", ".old")]
    for path in left:
        path.write_bytes(b"half")
    os.utime(left[1], (0, 0))
    assert collect_garbage(folder, derived=unused).indexes == [f"index/{STAGE}/.old"]
    assert left[0].exists()


def test_an_index_without_tools_is_read_and_merged(tmp_path: Path):
    """Files of releases before the facet `tool` stay in use: their conversations count as without tools."""
    made = society(tmp_path / "run", rows=28)
    folder, place = open_folder(tmp_path / "run"), tmp_path / "run" / "index" / STAGE

    def tools(catalogue: Catalogue) -> dict[str, int]:
        assert catalogue.notes() == ()
        assert catalogue.count() == len(catalogue.page(limit=100).rows) >= 28
        assert len(
            catalogue.page(Query(facets={"tool": ("",)}, sort="tokens"), limit=100).rows
        ) == catalogue.count(Query(facets={"tool": ("",)}))
        return dict(catalogue.facets(Query())["tool"])

    def counted(some: list[Transcript]) -> dict[str, int]:
        called = (
            {act.tool for said in (*(m.actions for m in t.messages), t.unspoken) for act in said}
            for t in some
        )
        return dict(Counter(name for names in called for name in names))

    for number, file in enumerate(sorted(place.iterdir())):
        if number != 1:
            age_index(file)
    with Catalogue([tmp_path / "run"]) as catalogue:
        assert tools(catalogue) == counted(made[7:14])
    assert merge(folder, STAGE, cost=price, target=14).built == 0
    for some, expected in (
        ([], made[7:14]),
        (place.glob("cube*"), made[7:14]),
        (place.glob("m000000*"), []),
    ):
        for file in some:
            age_index(file) if file.name.startswith("m") else file.unlink()
        with Catalogue([tmp_path / "run"]) as catalogue:
            assert tools(catalogue) == counted(expected)
    more = [record(number) for number in range(100, 114)]
    for shard in (4, 5):
        commit_rows(folder, shard, more[7 * shard - 28 :][:7])
    assert merge(folder, STAGE, cost=price, target=14).built == 0
    with Catalogue([tmp_path / "run"]) as catalogue:
        assert catalogue.runs[0].counted is not None
        assert tools(catalogue) == counted(more)
        both = catalogue.facets(Query(facets={"stop": ("done",)}))["tool"]
        assert dict(both) == counted([one for one in more if one.stop and one.stop.reason == "done"])


def test_a_newer_index_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = a_run(open_folder(tmp_path / "run"), 1)
    merge(folder, STAGE)
    name = next(iter(files_of(folder, STAGE).single.values()))
    monkeypatch.setattr(files, "VERSION", 99)
    with pytest.raises(InputError, match="version"):
        read_footer(tmp_path / "run" / name)[0]


def looked(folder: RunFolder, by: str) -> Looking:
    """Every third conversation promises too much in its first message."""

    def found(shard: int) -> list[list[Mark]]:
        rows = range(3 * shard, 3 * shard + folder.marker(STAGE, shard).rows)
        return [[Mark("empty_promise", 0, "assistant")] if n % 3 == 0 else [] for n in rows]

    return Looking(by, found)


@pytest.mark.slow
def test_what_was_found_is_put_into_indexes_that_are_there_already(place):
    folder: RunFolder = a_run(place("run"), 11)
    merge(folder, STAGE, cost=price, target=12)
    merge(folder, STAGE, cost=price, target=12, looking=looked(folder, "v1"))
    commit(folder, 11)
    with Catalogue([folder.address]) as catalogue:
        assert catalogue.facets()["finding"] == [("empty_promise", 11)]
        assert catalogue.count(Query(facets={"finding": ("empty_promise",)})) == 11
        rows = catalogue.page(Query(facets={"finding": ("empty_promise",)}), limit=100).rows
        assert [row.id for row in rows] == [f"{n:06d}" for n in range(0, 33, 3)]
        # Of the shard that came later nothing is known; by another version's detectors nothing at all.
        assert sum(part.unknown for part in catalogue.runs[0].parts) == 36
    believed = {name for _, _, name in files_of(folder, STAGE).merged}
    merge(folder, STAGE, cost=price, target=12, looking=looked(folder, "v2"))
    collect_garbage(folder, derived=unused)  # of those that are part of a larger one now
    after = {name for _, _, name in files_of(folder, STAGE).merged}
    assert not believed & after, "each was written again"
    shards = [one for name in after for one in read_header_of(folder, name).shards]
    assert {one.looked for one in shards} == {"v2"}
    assert sorted(one.shard for one in shards) == list(range(12))
    merge(folder, STAGE, cost=price, target=12, looking=looked(folder, "v2"))
    assert {name for _, _, name in files_of(folder, STAGE).merged} == after
    assert collect_garbage(folder, derived=unused).indexes == []
    assert not verify(folder).problems


def read_header_of(folder: RunFolder, name: str) -> index.Header:
    with folder.opened([name]) as files:
        return read_footer(next(files))[0]


@pytest.mark.slow
def test_large_indexes_have_sorted_copies_that_go_with_them(place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("camel.index.sorted.FROM", 5)
    monkeypatch.setattr("camel.index.sorted._GROUP", 2)
    monkeypatch.setattr("camel.query.sorted_copies.TIED", 4)
    folder: RunFolder = a_run(place("run"), 8)
    merge(folder, STAGE, cost=price, target=12)
    names = files_of(folder, STAGE)
    assert len(names.ordered) == 4 * len(names.merged) == 8
    with Catalogue([folder.address]) as catalogue:
        for number in ("messages", "tokens", "calls", "cost"):
            for order in ("asc", "desc"):
                query = Query(sort=number, order=order)
                rows = catalogue.page(query, limit=100).rows
                values = [-1 if getattr(row, number) is None else getattr(row, number) for row in rows]
                assert values == sorted(values, reverse=order == "desc")
                assert len(rows) == 24
                assert [row.id for row in catalogue.jump(query, 13, 5).rows] == [
                    row.id for row in rows[13:18]
                ]
        asked = [
            (Query(runs=("run",), facets=facets), number, bins)
            for facets in (
                {},
                {"stop": ("done",), "label": ("",)},
                {"stop": ("nothing",)},
            )
            for number in ("messages", "cost")
            for bins in (1, 30)
        ]
        with_copies = [catalogue.histogram(*one[:2], "", one[2]) for one in asked]
        for part in catalogue.runs[0].parts:
            part.forget_copies()
        with Catalogue([folder.address]) as other:
            for part in other.runs[0].parts:
                part.forget_copies()
            without = [other.histogram(*one[:2], "", one[2]) for one in asked]
        for one, two in zip(with_copies, without, strict=True):
            assert (one.edges, one.series, one.unknown) == (two.edges, two.series, two.unknown)
            assert (one.summary is None) == (two.summary is None)
            if one.summary is not None:
                assert one.summary == pytest.approx(two.summary, rel=1e-3, abs=1e-6)
        # One that cannot be read is gone without.
        if folder.on_disk:
            for name in names.ordered:
                (folder.root / name).write_bytes(b"PAR1 and nothing else")
            with Catalogue([folder.address]) as other:
                assert len(other.page(Query(sort="tokens"), limit=100).rows) == 24
    for shard in range(8, 16):
        commit(folder, shard)
    merge(folder, STAGE, cost=price, target=24)
    gone = collect_garbage(folder, derived=unused).indexes
    assert set(names.ordered) <= set(gone)
    left = files_of(folder, STAGE)
    assert len(left.ordered) == 4 * len(left.merged)


@pytest.mark.slow
def test_findings_by_the_command_are_those_of_a_study(tmp_path: Path):
    pytest.importorskip("vl_convert")
    folder = a_run(open_folder(tmp_path / "run"), 3)
    done = camel("run", "index", "run", "--findings", "--json", folder=tmp_path)
    assert json.loads(done.stdout)["rows"] == 9
    with Catalogue([folder.address]) as catalogue:
        counted = dict(catalogue.facets()["finding"])
        assert not sum(part.unknown for part in catalogue.runs[0].parts)
    made = Counter(name for n in range(9) for name in {one.detector for one in detect(transcript(n))})
    assert counted == made
    study = camel("study", "run", "--json", folder=tmp_path)
    behaviors = json.loads(study.stdout.splitlines()[-1])["result"]["behaviors"]
    assert {
        one["name"]: one["conversations"]["count"] for one in behaviors if one["conversations"]["count"]
    } == made
    assert len(list((tmp_path / "run" / "study" / "kept" / "data").rglob("*.parquet"))) == 3, (
        "looked through twice"
    )


def test_the_version_of_the_layout_changes_with_its_columns():
    """Files of another version are rebuilt, so a new column needs a new version."""
    columns = hashlib.sha256(" ".join(schema().names).encode()).hexdigest()[:8]
    assert (VERSION, columns) == (3, "53e4081d")
