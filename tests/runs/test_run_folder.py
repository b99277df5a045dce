"""Markers are made once, whichever process wins; what has none never happened; damage is one line, not a traceback."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from camel.core.errors import CamelError, InputError
from camel.runs.markers import Marker
from camel.runs.run import RunFolder, open_folder
from camel.runs.settings import Settings
from camel.storage.journal import read


def marker(shard: int = 0, file: str = "data/conversations/0") -> Marker:
    return Marker("conversations", shard, file, 1, "0" * 64, "f")


@pytest.fixture
def folder(place: Callable[[str], RunFolder]) -> RunFolder:
    run = place("run")
    run.create(Settings("f", {"seed": 1}, "0"))
    return run


@pytest.fixture
def on_disk(tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path / "run")
    run.create(Settings("f", {"seed": 1}, "0"))
    return run


def test_a_folder_that_is_no_run_names_the_run_next_to_it(tmp_path: Path, snapshot: Callable[..., None]):
    RunFolder(tmp_path / "trial-local").create(Settings("f", {}, "0"))
    for name in ("trial", "trail-local"):
        with pytest.raises(InputError, match=str(tmp_path / name)) as refused:
            RunFolder(tmp_path / name).settings()
        assert f" {tmp_path / 'trial-local'}" in str(refused.value)
        assert "camel run list" in str(refused.value)
    for name in ("other", "tr"):
        with pytest.raises(InputError, match="camel run list") as refused:
            RunFolder(tmp_path / name).settings()
        assert "trial-local" not in str(refused.value)
    snapshot("errors", refused.value)


def test_a_run_is_never_made_over_another(folder: RunFolder):
    with pytest.raises(InputError, match="contains"):
        folder.create(Settings("other", {}, "0"))
    assert folder.settings() == Settings("f", {"seed": 1}, "0")


def test_of_racing_threads_exactly_one_commits(folder: RunFolder):
    for shard in range(5):
        together = Barrier(8)

        def commit(number: int, shard: int = shard, together: Barrier = together) -> bool:
            together.wait()
            return folder.commit(marker(shard, f"data/conversations/{number}"))

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(commit, range(8)))
        assert sum(won) == 1
        assert folder.marker("conversations", shard).file == f"data/conversations/{won.index(True)}"
    assert folder.committed("conversations") == set(range(5))


RACER = """
import sys
from camel.runs.markers import Marker
from camel.runs.run import open_folder
folder, me = open_folder(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
print(*[shard for shard in range(12) if folder.commit(Marker("conversations", shard, me, 1, "", "f"))])
"""


@pytest.mark.slow
def test_of_racing_processes_exactly_one_commits(folder: RunFolder):
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, folder.address, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    for racer in racers:
        assert racer.stdout is not None
        racer.stdout.readline()
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = [set(map(int, racer.communicate()[0].split())) for racer in racers]
    assert sorted(shard for shards in won for shard in shards) == list(range(12))
    for number, shards in enumerate(won):
        assert all(folder.marker("conversations", shard).file == str(number) for shard in shards)


def test_what_is_not_a_marker_is_not_seen_as_one(folder: RunFolder):
    folder.commit(marker(3))
    for name in (".000001.json.abcdef", "._000003.json", ".DS_Store", "notes.json", "000001.json~"):
        folder.store.create(f"committed/conversations/{name}", b"{}")
    assert folder.committed("conversations") == {3}
    assert folder.committed("no such stage") == set()


def test_a_marker_that_cannot_be_written_leaves_nothing(on_disk: RunFolder, monkeypatch: pytest.MonkeyPatch):
    folder = on_disk

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space"):
            folder.commit(marker())
    assert list((folder.root / "committed" / "conversations").iterdir()) == []
    assert folder.commit(marker())


async def test_journals_are_kept_until_the_marker_exists(folder: RunFolder):
    for attempt in ("a", "b"):
        log = folder.open_journal("conversations", 0, attempt)
        await log.append(attempt.encode())
        await log.close()
    other = folder.open_journal("conversations", 1, "a")
    await other.append(b"other")
    await other.close()
    with pytest.raises(AssertionError, match="not committed"):
        folder.drop_journals("conversations", 0)
    assert list(folder.replay("conversations", 0)) == [b"a", b"b"]
    folder.commit(marker())
    folder.drop_journals("conversations", 0)
    folder.drop_journals("conversations", 0)
    assert list(folder.replay("conversations", 0)) == []
    assert list(read(other.path)) == [b"other"]


async def test_a_sweep_removes_what_committed_shards_left_and_nothing_else(on_disk: RunFolder):
    """As after a crash between the marker and the end of the commit."""
    folder = on_disk
    kept = []
    for shard in (0, 1):
        for attempt in ("a", "b"):
            log = folder.open_journal("conversations", shard, attempt)
            await log.append(b"x")
            await log.close()
            data = folder.data_path("conversations", shard, attempt, ".parquet")
            data.write_bytes(b"x")
            kept += [log.path, data] if shard == 1 else []
    winner = folder.data_path("conversations", 0, "a", ".parquet")
    folder.commit(marker(0, str(winner.relative_to(folder.root))))
    folder.sweep("conversations")
    left = {path for part in ("journal", "data") for path in (folder.root / part / "conversations").iterdir()}
    assert left == {*kept, winner}
    folder.sweep("no such stage")


def test_shards_beyond_a_million_keep_their_names_apart(folder: RunFolder):
    folder.commit(marker(1_000_001))
    assert folder.committed("conversations") == {1_000_001}
    assert (
        folder.open_journal("conversations", 1, "a").path
        != folder.open_journal("conversations", 1_000_001, "a").path
    )


def test_a_second_process_is_kept_out(folder: RunFolder):
    code = (
        "import sys\n"
        "from camel.core.errors import InputError\n"
        "from camel.runs.run import open_folder\n"
        "def enter():\n"
        "    with open_folder(sys.argv[1]).locked(): print('in', flush=True)\n"
        "try: enter()\n"
        "except InputError as error: print(error, flush=True)\n"
        "sys.stdin.readline()\n"
        "enter()\n"
    )
    command = [sys.executable, "-c", code, folder.address]
    with folder.locked():
        second = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert second.stdout is not None
        refused = second.stdout.readline()
    assert folder.address in refused
    assert second.communicate("now\n")[0] == "in\n"


GOOD = b'{"fingerprint":"f","config":{},"version":"0"}'


@pytest.mark.parametrize(
    "data",
    [
        *(
            b"",
            b"{",
            GOOD[:20],
            b"\xff\xfe",
            b"[]",
            b"null",
            bytes(40),
            b'{"fingerprint": 1}',
            b"[" * 100_000,
        ),
        *(GOOD.replace(b"{}", b"[" * 100_000), GOOD[:-1] + b',"schema":99}'),
    ],
    ids=range(11),
)
def test_damaged_settings_are_one_line(tmp_path: Path, data: bytes):
    (tmp_path / "run.json").write_bytes(data)
    with pytest.raises(InputError) as caught:
        RunFolder(tmp_path).settings()
    assert "run.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_settings_that_are_not_a_file_are_one_line(tmp_path: Path):
    with pytest.raises(InputError, match="not a run"):
        RunFolder(tmp_path).settings()
    (tmp_path / "run.json").mkdir()
    with pytest.raises(InputError, match=r"run\.json"):
        RunFolder(tmp_path).settings()


OUTSIDE = b'{"stage":"conversations","shard":0,"file":"../../secret","rows":1,"sha256":"","fingerprint":"f"}'


@pytest.mark.parametrize("data", [b"", b"{", b'{"stage": 1}', OUTSIDE, OUTSIDE.replace(b"../../", b"/")])
def test_a_damaged_marker_is_one_line(folder: RunFolder, data: bytes):
    folder.store.create("committed/conversations/000000.json", data)
    with pytest.raises(CamelError, match=r"000000\.json"):
        folder.marker("conversations", 0)


async def test_of_a_run_in_a_store_the_sweep_removes_what_is_local(s3: object, bucket: Callable[[str], str]):
    folder = open_folder(bucket("run"))
    folder.create(Settings("f", {}, "0"))
    for shard in (0, 1):
        log = folder.open_journal("conversations", shard, "a")
        await log.append(b"x")
        await log.close()
        folder.data_path("conversations", shard, "b", ".parquet").write_bytes(b"a copy that was on its way")
    folder.commit(marker(0))
    folder.sweep("conversations")
    left = [path.name for path in sorted(folder.root.rglob("*-*")) if path.is_file()]
    assert left == ["000001-b.parquet", "000001-a"]


def test_journals_of_another_run_at_the_same_address_are_refused(s3: object, bucket: Callable[[str], str]):
    folder = open_folder(bucket("run"))
    folder.create(Settings("f", {}, "0"))
    with folder.locked():
        pass
    folder.store.remove(["run.json"])
    folder.create(Settings("g", {}, "0"))
    with pytest.raises(InputError, match="another run"), folder.locked():
        pass


def test_what_is_known_to_be_committed_is_not_listed_again(folder: RunFolder):
    for shard in (0, 1, 2, 5):
        folder.commit(marker(shard))
    assert folder.committed("conversations") == {0, 1, 2, 5}
    for shard in (3, 100_000, 999_999, 1_000_000, 4_000_000):
        folder.commit(marker(shard))
    assert folder.committed("conversations") == {0, 1, 2, 3, 5, 100_000, 999_999, 1_000_000, 4_000_000}


def test_a_file_is_kept_before_it_is_named_and_read_again(folder: RunFolder):
    path = folder.data_path("conversations", 0, "a", ".txt")
    path.write_bytes(b"said")
    file, size = folder.persist(path)
    assert size == 4
    assert folder.commit(Marker("conversations", 0, file, 1, "", "f", {}, size))
    assert folder.read(folder.marker("conversations", 0).file) == b"said"
    with folder.opened([file, file]) as files:
        assert [one.read_bytes() for one in files] == [b"said", b"said"]
    loser = folder.data_path("conversations", 0, "b", ".txt")
    loser.write_bytes(b"said again")
    folder.persist(loser)
    assert len(list(folder.store.entries("data"))) == 2
    folder.discard(loser)
    assert [entry.name for entry in folder.store.entries("data")] == [file]
    assert folder.stages() == ["conversations"]
