"""What is wrong with a run is found and named; what is garbage goes, and nothing else does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("pyarrow")


from camel.core.errors import InputError
from camel.library.run import Run
from camel.record.arrow import write_shard
from camel.runs.compact import compact
from camel.runs.garbage import IDLE, OLD, Garbage, collect_garbage
from camel.runs.layout import Layout, Segment
from camel.runs.markers import Marker
from camel.runs.run import DRIVER, RunFolder
from camel.runs.settings import Settings
from camel.runs.verify import missing_files, verify
from tests.support import in_process
from tests.support.in_process import Done
from tests.support.records import STAGE, a_run, commit, transcript

Place = Callable[[str], RunFolder]
PLAN = {STAGE: Layout([Segment(12, 3)])}


def replace(folder: RunFolder, name: str, data: bytes) -> None:
    folder.store.remove([name])
    assert folder.store.create(name, data)


def test_a_sound_run_is_sound(place: Place):
    folder = a_run(place("run"), 4)
    told: list[tuple[int, int]] = []
    report = verify(folder, PLAN, progress=lambda done, of: told.append((done, of)))
    assert report.sound
    assert report.complete
    assert (report.files, report.rows) == (4, 12)
    assert report.bytes == sum(entry.size for entry in folder.store.entries("data"))
    assert told[-1] == (4, 4)


def test_what_is_missing_is_counted(place: Place):
    folder = place("run")
    folder.create(Settings("f", {}, "0"))
    for shard in (0, 2):
        commit(folder, shard)
    assert verify(folder, PLAN).missing == {STAGE: 2}
    assert verify(folder).missing == {STAGE: 1}
    report = verify(folder, {**PLAN, "tasks": Layout([Segment(1, 256)])})
    assert report.missing == {STAGE: 2, "tasks": 1}
    assert report.sound
    assert not report.complete


def lose(folder: RunFolder) -> None:
    folder.store.remove([folder.marker(STAGE, 1).file])


def flip(folder: RunFolder) -> None:
    file = folder.marker(STAGE, 1).file
    data = bytearray(folder.read(file))
    data[len(data) // 2] ^= 1
    replace(folder, file, bytes(data))


def cut(folder: RunFolder) -> None:
    file = folder.marker(STAGE, 1).file
    replace(folder, file, folder.read(file)[:-10])


def swap(folder: RunFolder) -> None:
    replace(folder, folder.marker(STAGE, 1).file, folder.read(folder.marker(STAGE, 2).file))


def remark(**changes: object) -> Callable[[RunFolder], None]:
    def change(folder: RunFolder) -> None:
        marker = msgspec.structs.replace(folder.marker(STAGE, 1), **changes)
        replace(folder, f"committed/{STAGE}/000001.json", msgspec.json.encode(marker))

    return change


def rot(folder: RunFolder) -> None:
    replace(folder, f"committed/{STAGE}/000001.json", b'{"stage": ')


def beyond(folder: RunFolder) -> None:
    commit(folder, 4)


def repeat(folder: RunFolder) -> None:
    """A file that is in itself as it should be."""
    path = folder.data_path(STAGE, 1, "again", ".parquet")
    written = write_shard(path, map(transcript, [0, 3, 3]))
    file, size = folder.persist(path)
    remark(file=file, size=size, sha256=written.sha256)(folder)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lose, "does not exist"),
        (flip, "SHA-256"),
        (cut, "bytes"),
        (swap, "SHA-256"),
        (rot, "damaged"),
        (beyond, "beyond the 4"),
        (repeat, "id of another"),
        (repeat, "are also in"),
        (remark(rows=2), "3 rows"),
        (remark(rows=2), "planned 3"),
        (remark(sha256="0" * 64), "SHA-256"),
        (remark(fingerprint="g"), "fingerprint"),
        (remark(shard=3), "shard 3"),
        (remark(stage="other"), "of other"),
    ],
)
def test_damage_is_found(place: Place, damage: Callable[[RunFolder], None], words: str):
    folder = a_run(place("run"), 4)
    damage(folder)
    report = verify(folder, PLAN)
    assert any(words in problem.what for problem in report.problems), report.problems
    if damage not in (swap, beyond):
        assert all("000001" in problem.file for problem in report.problems)
    assert all("\n" not in problem.what for problem in report.problems)


def test_an_edited_list_is_a_note(tmp_path: Path):
    folder = a_run(RunFolder(tmp_path / "run"), 1)
    path = folder.data_path("task", 0, "a", ".txt")
    path.write_text("1. A task")
    folder.commit(Marker("task", 0, folder.persist(path)[0], 1, "0" * 64, "f"))
    report = verify(folder)
    assert report.sound
    assert "was edited" in report.notes[0]


async def clutter(folder: RunFolder) -> None:
    """Losers of shards 1 and 9, journals of shards 0 and 9, a compaction that was never finished."""
    for shard, name in ((1, "loser"), (9, "open")):
        path = folder.data_path(STAGE, shard, name, ".parquet")
        path.write_bytes(b"x")
        folder.persist(path)
    path = folder.data_path(STAGE, 0, "x", ".parquet").with_name("c000000-000003-x.parquet")
    path.write_bytes(b"x")
    folder.persist(path)
    for shard in (0, 9):
        log = folder.open_journal(STAGE, shard, "j")
        await log.append(b"said")
        await log.close()


async def test_damage_in_an_open_journal_is_named_with_what_it_costs(tmp_path: Path):
    folder = a_run(RunFolder(tmp_path / "run"), 3)
    log = folder.open_journal(STAGE, 3, "j")
    for reply in (b"first", b"second", b"third"):
        await log.append(reply)
    await log.close()
    assert verify(folder, PLAN).sound
    data = log.path.read_bytes()
    log.path.write_bytes(data.replace(b"second", b"secood"))
    [problem] = verify(folder, PLAN).problems
    assert (problem.stage, problem.file, problem.marker) == (STAGE, f"journal/{STAGE}/000003-j", "")
    assert "1 record lost" in problem.what
    log.path.write_bytes(bytes(1) + data[1:200] + bytes(len(data)))
    assert verify(folder, PLAN).problems


async def test_a_journal_that_goes_while_it_is_looked_at_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = a_run(RunFolder(tmp_path / "run"), 3)
    log = folder.open_journal(STAGE, 3, "j")
    await log.append(b"said")
    await log.close()
    listed = folder.journaled

    def committed_meanwhile(stage: str) -> set[int]:
        shards = listed(stage)
        if shards:
            commit(folder, 3)
            paths = folder.journals_of(stage, 3)
            monkeypatch.setattr(folder, "journals_of", lambda *_: paths)
            log.path.unlink()
        return shards

    monkeypatch.setattr(folder, "journaled", committed_meanwhile)
    assert verify(folder, PLAN).sound


async def test_garbage_goes_and_nothing_else(place: Place):
    folder = a_run(place("run"), 4)
    before = [one.id for one in Run(folder.address)]
    await clutter(folder)
    would = collect_garbage(folder, dry_run=True)
    assert len(list(folder.store.entries("data"))) == 7
    shown: list[Garbage] = []
    refused = collect_garbage(folder, confirm=lambda found: bool(shown.append(found)))
    assert not refused.removed
    assert len(list(folder.store.entries("data"))) == 7
    done = collect_garbage(folder, confirm=lambda found: not shown.append(found))
    assert done.removed
    for found in (would, *shown):
        found.removed = True
        assert msgspec.to_builtins(done) == msgspec.to_builtins(found)
    assert done.journals == [f"journal/{STAGE}/000000-j"]
    young = [f"data/{STAGE}/000009-open.parquet", f"data/{STAGE}/c000000-000003-x.parquet"]
    # A process without the lock, or on another machine, may be about to commit what is young.
    assert done.losers == [f"data/{STAGE}/000001-loser.parquet"]
    assert (done.kept, done.age) == (2, IDLE if folder.on_disk else OLD)
    assert [one.id for one in Run(folder.address)] == before
    assert list(folder.replay(STAGE, 9)) == [b"said"]
    assert sorted(collect_garbage(folder, older=0).losers) == young
    assert collect_garbage(folder).files == 0
    assert verify(folder, PLAN).sound


async def test_during_a_run_only_old_files_are_removed(tmp_path: Path):
    folder = a_run(RunFolder(tmp_path / "run"), 4)
    await clutter(folder)
    old = folder.root / "data" / STAGE / "000009-open.parquet"
    code = (
        "import sys; from camel.runs.run import open_folder\n"
        "with open_folder(sys.argv[1]).locked():\n    print('in', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, folder.address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:  # noqa: ASYNC220
        assert worker.stdout is not None
        worker.stdout.readline()
        found = collect_garbage(folder)
        assert found.working
        assert found.kept == 2
        assert old.exists()
        hours_ago = time.time() - 2 * 3600
        os.utime(old, (hours_ago, hours_ago))
        assert collect_garbage(folder).losers == [f"data/{STAGE}/000009-open.parquet"]
        for use in (lambda: compact(folder, STAGE), lambda: collect_garbage(folder, compacted=True)):
            with pytest.raises(InputError, match="working"):
                use()
        assert worker.stdin is not None
        worker.stdin.close()
    compact(folder, STAGE)
    assert collect_garbage(folder, compacted=True).compacted


async def test_what_workers_of_a_dead_driver_may_commit_stays(tmp_path: Path):
    folder = a_run(RunFolder(tmp_path / "run"), 4)
    await clutter(folder)
    (folder.root / DRIVER).write_text("1000.0")
    before = time.time() - IDLE - 60
    for path in (folder.root / "data" / STAGE).iterdir():
        os.utime(path, (before, before))
    found = collect_garbage(folder)
    assert (found.working, found.kept) == (False, 2)
    assert (folder.root / "data" / STAGE / "000009-open.parquet").exists()
    (folder.root / DRIVER).unlink()
    assert collect_garbage(folder).kept == 0


@pytest.mark.slow
def test_the_commands(place: Place, tmp_path: Path, snapshot: Callable[..., None]):
    def camel(*args: str) -> Done:
        return in_process.camel(*args, folder=tmp_path, environment={"COLUMNS": "200"})

    folder = a_run(place("run"), 4)
    assert camel("export", folder.address, "chat", str(tmp_path / "a.jsonl")).status == 0
    sound = camel("run", "verify", folder.address)
    assert (sound.status, "4 files" in sound.stdout) == (0, True)
    done = camel("run", "compact", folder.address)
    assert done.status == 0, done.stderr
    if folder.on_disk:
        snapshot("status", done.stdout.splitlines()[-1], "compact")
    assert "4 files" in camel("run", "gc", folder.address, "--compacted", "--dry-run").stdout
    files = len(list(folder.store.entries("data")))
    for more in ((), ("--json",)):
        refused = camel("run", "gc", folder.address, "--compacted", *more)
        assert refused.status == 2
        assert "--yes" in refused.stderr
        assert len(list(folder.store.entries("data"))) == files
    done = msgspec.json.decode(camel("run", "gc", folder.address, "--compacted", "--yes", "--json").stdout)
    assert (done["removed"], len(done["compacted"])) == (True, 4)
    assert camel("run", "gc", folder.address).status == 0, (
        "where there is nothing to remove there is no question"
    )
    assert camel("export", folder.address, "chat", str(tmp_path / "b.jsonl")).status == 0
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    report = camel("run", "verify", folder.address, "--json")
    assert report.status == 0
    assert msgspec.json.decode(report.stdout)["rows"] == 12
    for entry in list(folder.store.entries(f"data/{STAGE}")):
        replace(folder, entry.name, folder.read(entry.name)[:-1])
    wrong = camel("run", "verify", folder.address)
    assert wrong.status == 1
    assert "SHA-256" in wrong.stdout
    assert camel("run", "verify", "s3://" if not folder.on_disk else "nowhere").status == 2


def test_a_file_that_is_gone_is_seen_without_reading_any(tmp_path: Path):
    folder = a_run(RunFolder(tmp_path / "run"), 8)
    assert missing_files(folder, STAGE) == []
    compact(folder, STAGE, target=1)
    compact(folder, STAGE)
    collect_garbage(folder, compacted=True)
    assert missing_files(folder, STAGE) == []
    large = next((folder.root / "data" / STAGE).glob("c*"))
    large.unlink()
    assert len(missing_files(folder, STAGE)) == 8


def test_one_damaged_file_is_one_line_that_leads_out(tmp_path: Path):
    folder = a_run(RunFolder(tmp_path / "run"), 2)
    cut(folder)
    done = in_process.invoke(["run", "verify", folder.address])
    assert done.exit_code == 1
    file = folder.marker(STAGE, 1).file
    lines = [line for line in done.stdout.splitlines() if file in line]
    assert len(lines) == 1
    assert f"committed/{STAGE}/000001.json" in lines[0]
    # The advice works: without both files the shard is one that is still to be made, and the rest is sound.
    (folder.root / file).unlink()
    (folder.root / f"committed/{STAGE}/000001.json").unlink()
    report = verify(folder, {STAGE: Layout([Segment(6, 3)])})
    assert report.sound
    assert report.missing == {STAGE: 1}
    commit(folder, 1)
    assert verify(folder, {STAGE: Layout([Segment(6, 3)])}).complete
