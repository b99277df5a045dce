"""What a journal says when it cannot be written, what it makes durable, and what it leaves open."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from pathlib import Path

import pytest

from camel.storage import journal
from camel.storage.files import make_folder, sync
from camel.storage.journal import Journal, JournalBroken, read


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_a_reply_of_a_megabyte_is_kept(tmp_path: Path):
    log = Journal(tmp_path / "log")
    payload = os.urandom(2**20)
    await log.append(payload)
    await log.close()
    assert list(read(log.path)) == [payload]


def test_a_damaged_length_cannot_ask_for_much_memory():
    assert journal.MAX_PAYLOAD <= 2**28


async def test_the_largest_record_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(journal, "MAX_PAYLOAD", 999)
    log = Journal(tmp_path / "log")
    await log.append(b"x" * 999)
    with pytest.raises(ValueError, match="1,000"):
        await log.append(b"x" * 1000)
    await log.close()
    assert list(read(log.path)) == [b"x" * 999]


async def test_a_full_disk_is_named_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(descriptor: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    log = Journal(tmp_path / "log")
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(JournalBroken) as caught:
        await log.append(b"a")
    monkeypatch.undo()
    with pytest.raises(JournalBroken) as again:
        await log.append(b"b")
    await log.close()
    for error in (caught.value, again.value):
        said = str(error)
        assert str(log.path) in said
        assert "No space left on device" in said
        assert "free some space" in said, "what to do about it"


async def test_another_failure_is_named_without_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", broken)
    log = Journal(tmp_path / "log")
    with pytest.raises(JournalBroken) as caught:
        await log.append(b"a")
    await log.close()
    assert str(caught.value) == f"{log.path}: Input/output error"


async def test_a_failure_that_is_not_of_the_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def broken(descriptor: int) -> None:
        raise MemoryError("too much")

    monkeypatch.setattr(os, "fdatasync", broken)
    log = Journal(tmp_path / "log")
    with pytest.raises(JournalBroken) as caught:
        await log.append(b"a")
    await log.close()
    assert "MemoryError" in str(caught.value)


async def test_a_closed_journal_says_so_and_holds_no_file(tmp_path: Path):
    before = open_files()
    log = Journal(tmp_path / "log")
    await log.append(b"a")
    assert open_files() == before + 1
    await log.close()
    assert open_files() == before
    with pytest.raises(JournalBroken) as caught:
        await log.append(b"b")
    assert str(caught.value) == f"{log.path}: closed"


async def test_a_failure_that_nobody_waits_for_is_not_reported_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The event loop reports an exception of a future that nobody has looked at."""
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", broken)
    log = Journal(tmp_path / "log")
    waiting = asyncio.create_task(log.append(b"a"))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await log.close()
    del waiting, log
    await asyncio.sleep(0)
    assert reported == []


def test_a_loop_that_goes_down_ends_the_waits_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class Down(BaseException):
        pass

    def down(descriptor: int) -> None:
        raise Down

    monkeypatch.setattr(os, "fdatasync", down)
    ended: list[BaseException] = []

    async def wait() -> None:
        log = Journal(tmp_path / "log")
        try:
            await log.append(b"a")
        except BaseException as error:
            ended.append(error)
            raise

    with pytest.raises((Down, asyncio.CancelledError)):
        asyncio.run(wait())
    assert [type(error) for error in ended] == [asyncio.CancelledError]


@pytest.mark.parametrize(("folder", "file"), [(0o755, 0o644), (0o750, 0o640), (0o700, 0o600)])
async def test_others_may_read_a_journal_if_they_may_its_folder(tmp_path: Path, folder: int, file: int):
    os.chmod(tmp_path, folder)  # noqa: PTH101
    before = os.umask(0o022)
    try:
        log = Journal(tmp_path / "log")
        await log.append(b"a")
        await log.close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(log.path.stat().st_mode) == file


async def test_each_group_is_synced_and_the_name_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synced: list[str]
):
    data: list[str] = []
    fdatasync = os.fdatasync

    def noted(descriptor: int) -> None:
        data.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fdatasync(descriptor)

    monkeypatch.setattr(os, "fdatasync", noted)
    log = Journal(tmp_path / "log")
    await log.append(b"a")
    assert (data, synced) == (["log"], [tmp_path.name])
    await log.append(b"b")
    assert (data, synced) == (["log", "log"], [tmp_path.name])
    await log.close()


def test_only_new_folders_are_synced(tmp_path: Path, synced: list[str]):
    make_folder(tmp_path / "a" / "b")
    assert set(synced) == {tmp_path.name, "a"}
    synced.clear()
    make_folder(tmp_path / "a" / "b")
    assert synced == []


def test_a_sync_leaves_nothing_open_even_if_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    before = open_files()
    sync(tmp_path)
    assert open_files() == before

    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="Input"):
        sync(tmp_path)
    assert open_files() == before
