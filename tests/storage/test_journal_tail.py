"""A reader of a journal that grows: whole frames once each, in order, and nothing that is not whole."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from camel.storage import journal
from camel.storage.journal import Journal, Tail

MAGIC = b"camel journal 1\n"


def frame(payload: bytes, checksum: int | None = None) -> bytes:
    return struct.pack("<II", len(payload), zlib.crc32(payload) if checksum is None else checksum) + payload


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


async def test_records_come_once_as_they_are_written(tmp_path: Path):
    log = Journal(tmp_path / "log")
    await log.append(b"one")
    tail = Tail(log.path)
    assert list(tail.new()) == [b"one"]
    assert list(tail.new()) == []
    await log.append(b"two")
    await log.append(b"three")
    assert list(tail.new()) == [b"two", b"three"]
    await log.close()
    tail.close()


@pytest.mark.parametrize("payload", [b"x", b"some payload", b"\0" * 40])
def test_a_frame_comes_when_its_last_byte_is_there(tmp_path: Path, payload: bytes):
    path = tmp_path / "log"
    data = MAGIC + frame(b"first") + frame(payload)
    path.write_bytes(b"")
    tail = Tail(path)
    seen: list[bytes] = []
    for place in range(len(data)):
        append(path, data[place : place + 1])
        seen += tail.new()
        first = place + 1 >= len(MAGIC + frame(b"first"))
        assert seen == ([b"first"] if first else []) + ([payload] if place + 1 == len(data) else [])
    tail.close()


def test_what_was_written_before_the_journal_was_dropped_is_still_read(tmp_path: Path):
    path = tmp_path / "log"
    path.write_bytes(MAGIC + frame(b"one"))
    tail = Tail(path)
    assert list(tail.new()) == [b"one"]
    append(path, frame(b"two"))
    path.unlink()
    assert list(tail.new()) == [b"two"]
    tail.close()


@pytest.mark.parametrize(
    "tail_bytes",
    [
        pytest.param(frame(b"damaged", checksum=1), id="wrong checksum"),
        pytest.param(struct.pack("<II", 0, 0), id="zeros"),
        pytest.param(struct.pack("<II", 0xFFFFFFFF, 0) + b"y", id="length that lies"),
    ],
)
def test_nothing_is_read_past_a_damaged_frame(tmp_path: Path, tail_bytes: bytes):
    path = tmp_path / "log"
    path.write_bytes(MAGIC + frame(b"one") + tail_bytes + frame(b"two"))
    tail = Tail(path)
    assert list(tail.new()) == [b"one"]
    assert list(tail.new()) == []
    tail.close()


def test_another_file_is_no_journal(tmp_path: Path):
    path = tmp_path / "log"
    path.write_bytes(b"another format..\n" + frame(b"one"))
    tail = Tail(path)
    assert list(tail.new()) == []
    assert list(tail.new()) == []
    tail.close()


def test_the_largest_record_is_read_and_a_larger_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(journal, "MAX_PAYLOAD", 999)
    path = tmp_path / "log"
    path.write_bytes(MAGIC + frame(b"x" * 999) + frame(b"x" * 1000))
    tail = Tail(path)
    assert [len(payload) for payload in tail.new()] == [999]
    assert [len(payload) for payload in journal.read(path)] == [999]
    tail.close()


def test_a_closed_tail_lets_go_of_its_file(tmp_path: Path):
    path = tmp_path / "log"
    path.write_bytes(MAGIC + frame(b"one"))
    tail = Tail(path)
    tail.close()
    with pytest.raises(ValueError, match="closed"):
        list(tail.new())
