"""Damage by a disk: each reader of a run reports which file is damaged and what to do, and passes nothing on."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from camel.cli import main
from camel.core.errors import InputError
from camel.evaluation.findings import Findings, Looker
from camel.formats.original import chat
from camel.library.run import Run
from camel.runs.compact import compact
from camel.runs.run import RunFolder, open_folder
from camel.training.recipe import Recipe, Source
from camel.training.rows import RowsJob
from camel.training.stored_rows import Rows
from tests.support import in_process, jobs
from tests.support.records import STAGE, a_run


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def turned(path: Path) -> None:
    """One bit, which Parquet itself may not notice."""
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)


def read_on_disk(folder: RunFolder, out: Path) -> None:
    chat(Run(folder.root), out / "conversations.jsonl")


def shaped(folder: RunFolder, out: Path) -> None:
    jobs.run(RowsJob(Recipe((Source(str(folder.root)),), str(out / "rows"))))


def compacted(folder: RunFolder, out: Path) -> None:
    compact(folder, STAGE)


def one_shard(folder: RunFolder, out: Path) -> None:
    Run(folder.root).shard(1)


@pytest.mark.parametrize("damage", [cut, empty, turned, Path.unlink])
@pytest.mark.parametrize("read", [read_on_disk, shaped, compacted, one_shard])
def test_a_damaged_shard_is_named_by_every_reader(
    tmp_path: Path, damage: Callable[[Path], None], read: Callable[[RunFolder, Path], None]
):
    folder = a_run(RunFolder(tmp_path / "run"), 4)
    file = folder.marker(STAGE, 1).file
    damage(folder.root / file)
    with pytest.raises(InputError) as raised:
        read(folder, tmp_path)
    assert file in str(raised.value)
    assert f"camel run verify {folder.address}" in str(raised.value)
    assert not (tmp_path / "conversations.jsonl").exists()
    assert not list((folder.root / "data" / STAGE).glob("c*"))


def test_a_compacted_file_is_compared_too_and_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import camel.runs.compact as module

    folder = a_run(RunFolder(tmp_path / "run"), 4)
    compact(folder, STAGE)
    run, hashed = Run(folder.root), 0
    real = module.hashlib.file_digest

    def counted(*given: object) -> object:
        nonlocal hashed
        hashed += 1
        return real(*given)  # pyright: ignore

    monkeypatch.setattr(module.hashlib, "file_digest", counted)
    for number in range(4):
        run.shard(number)
    assert (len(list(run)), hashed) == (12, 1)
    turned(run.files[0])
    with pytest.raises(InputError, match="SHA-256"):
        list(Run(folder.root))


def test_a_damaged_shard_of_an_object_store(bucket: Callable[[str], str]):
    folder = a_run(open_folder(bucket("run")), 2)
    marker = folder.marker(STAGE, 1)
    data = folder.read(marker.file)
    folder.store.remove([marker.file])
    with pytest.raises(InputError, match="is missing"):
        list(Run(folder.address))
    folder.store.create(marker.file, data[:-1] + b"x")
    with pytest.raises(InputError, match="SHA-256"):
        list(Run(folder.address))


def test_a_lost_object_is_said_where_a_run_is_explored(bucket: Callable[[str], str]):
    pytest.importorskip("duckdb")
    from camel.query.catalogue import Catalogue
    from camel.query.where import Query

    folder = a_run(open_folder(bucket("run")), 2)
    with Catalogue([folder.address]) as catalogue:
        [name] = {row.run for row in catalogue.page(Query()).rows}
        folder.store.remove([folder.marker(STAGE, 1).file])
        assert catalogue.conversation(name, "000000").id == "000000"
        with pytest.raises(InputError, match="is missing"):
            catalogue.conversation(name, "000004")
    with Catalogue([folder.address]) as catalogue:
        assert catalogue.count(Query()) == 3
        assert any("3 conversations" in note for note in catalogue.notes())
        assert not any("2 shards" in note for note in catalogue.notes())


def test_who_has_a_run_in_a_store_open_finds_what_is_compacted_meanwhile(bucket: Callable[[str], str]):
    pytest.importorskip("duckdb")
    from camel.query.sources import CatalogueRun as Opened

    folder = a_run(open_folder(bucket("run")), 2)
    opened = Opened("run", folder, STAGE, [])
    assert opened.read(1, 0).id == "000003"
    small = folder.marker(STAGE, 1).file
    compact(folder, STAGE)
    folder.store.remove([small])
    assert opened.read(1, 0).id == "000003"


@pytest.mark.parametrize("damage", [cut, empty, Path.unlink])
@pytest.mark.parametrize("what", ["data/*/000001-*", "committed/*/000001.json"])
def test_what_a_study_keeps_is_made_again_where_it_is_damaged(
    tmp_path: Path, damage: Callable[[Path], None], what: str
):
    pytest.importorskip("numpy")
    folder = a_run(RunFolder(tmp_path / "run"), 2)
    run, kept = Run(folder.root), tmp_path / "kept"
    job, looker = Findings(str(kept), folder.address), Looker(run, kept)
    assert jobs.run(job).status == "complete"
    whole = [one.table for one in looker.tables()]
    damage(next(kept.glob(what)))
    assert jobs.run(job).status == "complete"
    if what.startswith("data") and damage is not Path.unlink:  # seen where it is read, all else at the start
        with pytest.raises(InputError, match=r"shard 1\b.*kept"):
            list(looker.tables())
        assert jobs.run(job).status == "complete"
    assert [one.table for one in looker.tables()] == whole


@pytest.mark.parametrize("damage", [cut, turned, Path.unlink])
@pytest.mark.parametrize("stage", ["rows", "mixed"])
def test_damaged_rows_are_to_be_made_again(tmp_path: Path, damage: Callable[[Path], None], stage: str):
    folder = a_run(RunFolder(tmp_path / "run"), 2)
    recipe = Recipe((Source(str(folder.root)),), str(tmp_path / "rows"))
    assert jobs.run(RowsJob(recipe)).status == "complete"
    Rows(tmp_path / "rows").check()
    damage(next((tmp_path / "rows" / "data" / stage).glob("000001-*")))
    if stage == "mixed":
        with pytest.raises(InputError, match="camel rows --force"):
            Rows(tmp_path / "rows").check()
    elif damage is not turned:  # one bit is seen where they are learnt from
        shutil.rmtree(tmp_path / "rows" / "committed" / "mixed")
        with pytest.raises(InputError, match="camel rows --force"):
            jobs.run(RowsJob(recipe))
    assert jobs.run(RowsJob(recipe, replace=True)).status == "complete"
    Rows(tmp_path / "rows").check()


@pytest.mark.parametrize("damage", [cut, empty])
def test_a_damaged_marker_of_a_compaction_says_what_to_do(tmp_path: Path, damage: Callable[[Path], None]):
    folder = a_run(RunFolder(tmp_path / "run"), 2)
    compact(folder, STAGE)
    damage(next(folder.root.glob("compacted/*/*.json")))
    with pytest.raises(InputError, match="camel run verify"):
        list(Run(folder.root))


@pytest.mark.parametrize("damage", [cut, empty])
@pytest.mark.parametrize(
    "verb", ["export", "study", "run index", "rows", "run compact", "run status", "site", "show"]
)
def test_a_damaged_marker_ends_in_one_line_that_says_what_to_do(
    tmp_path: Path, damage: Callable[[Path], None], verb: str
):
    folder = a_run(RunFolder(tmp_path / "run"), 2)
    damage(folder.root / "committed" / STAGE / "000001.json")
    more = {
        "export": ["chat", f"{tmp_path}/x.jsonl"],
        "site": ["site", f"{tmp_path}/site"],
        "rows": ["--out", f"{tmp_path}/rows"],
    }
    words = ["export"] if verb == "site" else verb.split()
    command = [*words, folder.address, *more.get(verb, [])]
    done = in_process.invoke(command, standalone_mode=False)
    assert isinstance(done.exception, InputError)
    assert "000001.json" in str(done.exception)
    assert "camel run verify" in str(done.exception)


def test_damage_is_a_failure_and_not_wrong_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    folder = a_run(RunFolder(tmp_path / "run"), 2)
    cut(folder.root / folder.marker(STAGE, 1).file)
    for given, code in ((folder.address, 1), (str(tmp_path / "nowhere"), 2)):
        monkeypatch.setattr(sys, "argv", ["camel", "export", given, "chat", str(tmp_path / "x.jsonl")])
        with pytest.raises(SystemExit) as left:
            main()
        assert left.value.code == code, capsys.readouterr()
