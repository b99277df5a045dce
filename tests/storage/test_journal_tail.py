"""A reader of a journal that grows: whole frames once each, in order, and no incomplete frame."""

from __future__ import annotations

from pathlib import Path

import pytest

from camel.storage import journal
from camel.storage.journal import Journal, Tail
from tests.support.journals import frame, framed, frames


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
    data = framed([b"first", payload])
    path.write_bytes(b"")
    tail = Tail(path)
    seen: list[bytes] = []
    for place in range(len(data)):
        append(path, data[place : place + 1])
        seen += tail.new()
        first = place + 1 >= len(framed([b"first"]))
        assert seen == ([b"first"] if first else []) + ([payload] if place + 1 == len(data) else [])
    tail.close()


def test_what_was_written_before_the_journal_was_dropped_is_still_read(tmp_path: Path):
    path = tmp_path / "log"
    path.write_bytes(framed([b"one"]))
    tail = Tail(path)
    assert list(tail.new()) == [b"one"]
    append(path, frames([b"one", b"two"])[1])
    path.unlink()
    assert list(tail.new()) == [b"two"]
    tail.close()


@pytest.mark.parametrize(
    "tail_bytes",
    [
        pytest.param(frame(b"damaged", 1, checksum=1), id="wrong checksum"),
        pytest.param(bytes(40), id="zeros"),
        pytest.param(frame(b"y", 1, length=0xFFFFFFFF), id="length that lies"),
    ],
)
def test_nothing_is_read_past_a_damaged_frame(tmp_path: Path, tail_bytes: bytes):
    path = tmp_path / "log"
    path.write_bytes(framed([b"one"]) + tail_bytes + frame(b"two", 2))
    tail = Tail(path)
    assert list(tail.new()) == [b"one"]
    assert list(tail.new()) == []
    tail.close()


def test_another_file_is_no_journal(tmp_path: Path):
    path = tmp_path / "log"
    path.write_bytes(b"another format, of some length\n" + frame(b"one"))
    tail = Tail(path)
    assert list(tail.new()) == []
    assert list(tail.new()) == []
    tail.close()


def test_the_largest_record_is_read_and_a_larger_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(journal, "MAX_PAYLOAD", 999)
    path = tmp_path / "log"
    path.write_bytes(framed([b"x" * 999, b"x" * 1000]))
    tail = Tail(path)
    assert [len(payload) for payload in tail.new()] == [999]
    assert [len(payload) for payload in journal.read(path)] == [999]
    tail.close()


def test_a_closed_tail_lets_go_of_its_file(tmp_path: Path):
    path = tmp_path / "log"
    path.write_bytes(framed([b"one"]))
    tail = Tail(path)
    tail.close()
    with pytest.raises(ValueError, match="closed"):
        list(tail.new())
