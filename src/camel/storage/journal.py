"""The journal: an append-only log in which a paid-for reply is durable before it is used.

A file is a header and a sequence of frames, one per record. The header gives the file a random tag, with which every
frame begins, so that no text inside a record can pass for a frame. A frame contains its number, the number of the first
frame of its group, the checksum of the previous frame, the kind, length and checksum of its payload, and a checksum of
all this.

The one decision to know: a crash can only leave unfinished frames in the last group; everything before it was durable.
A bad frame in the last group is therefore a torn tail, which is ignored. A bad frame with a later group after it is
damage, which is reported. In both cases the frames after it are found by their tag and used.

Appends that arrive while the disk is busy are written together (group commit) by one thread, off the event loop. Each
returns once its bytes are on the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from camel.core.errors import CamelError, advice_for
from camel.storage.files import make_folder, open_private, sync_folder
from camel.storage.system import fcntl, sync_data

_MAGIC = b"camel-journal:2\n"
_HEADER = struct.Struct("<16s8sI")
"""Header: magic, tag, checksum of both."""
_FRAME = struct.Struct("<8sIIIBIII")
"""Frame: tag, number, first number of the group, checksum of the previous frame, kind, length and checksum of the
payload, and the checksum of all these."""
_OLD_MAGIC = b"camel journal 1\n"
_OLD_FRAME = struct.Struct("<II")
"""Frame of the first format, which is only read: length and checksum of the payload."""
MAX_PAYLOAD = 64 * 2**20
REPLY = 1
"""The kind of a record that holds a reply."""


class JournalBroken(CamelError):
    """Raised if the journal cannot be written, for example because the disk is full. Later records are not durable."""


class Journal:
    """Writes a journal file, which the first record creates. Use it on one event loop, and call `close()` when done."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        """Number of durable bytes."""
        self.grown: Callable[[], object] = int
        """Called after records have become durable."""
        self._file: int | None = None
        self._waiting: list[bytes] = []
        self._waiters: list[asyncio.Future[None]] = []
        """One for each record that waits: a cancelled caller must not cancel the others in its group."""
        self._writer: asyncio.Task[None] | None = None
        self._broken = ""
        """The reason why nothing more can be written. Empty if there is none."""
        self._cause: OSError | None = None
        self._closed = False
        self._tag = secrets.token_bytes(8)
        self._number = self._first = self._previous = 0

    async def append(self, payload: bytes) -> None:
        """Append `payload` and return when it is durable. Raise `JournalBroken` if that fails."""
        if self._broken or self._closed:
            raise JournalBroken(f"{self.path}: {self._broken or 'closed'}") from self._cause
        if not 0 < len(payload) <= MAX_PAYLOAD:
            # A reader would stop at it and lose everything after it.
            raise ValueError(f"a record must have 1 to {MAX_PAYLOAD:,} bytes, not {len(payload):,}")
        loop = asyncio.get_running_loop()
        if not self._waiters:
            self._first = self._number
        head = _packed(self._tag, self._number, self._first, self._previous, REPLY, payload)
        self._waiting += (head, payload)
        self._number, self._previous = self._number + 1, int.from_bytes(head[-4:], "little")
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.append(waiter)
        if self._writer is None:
            self._writer = loop.create_task(self._write())
        await waiter

    async def _write(self) -> None:
        """Write waiting records in groups until none are waiting."""
        loop = asyncio.get_running_loop()
        while waiters := self._waiters:
            data, self._waiting, self._waiters = b"".join(self._waiting), [], []
            try:
                if not self._broken:
                    self.size += await loop.run_in_executor(None, self._put, data)
                    self.grown()
            except BaseException as error:
                # The written part of this group is a torn tail; a frame after it would never be read.
                self._broken = (isinstance(error, OSError) and error.strerror) or repr(error)
                if isinstance(error, OSError):
                    error.filename, self._cause = error.filename or str(self.path), error
                    self._broken += f"; {advice}" if (advice := advice_for(error)) else ""
                if not isinstance(error, Exception):  # the event loop is shutting down
                    for waiter in waiters:
                        waiter.cancel()
                    raise
            for waiter in waiters:
                if waiter.cancelled():
                    continue
                if self._broken:
                    broken = JournalBroken(f"{self.path}: {self._broken}")
                    broken.__cause__ = self._cause
                    waiter.set_exception(broken)
                else:
                    waiter.set_result(None)
        self._writer = None

    def _put(self, data: bytes) -> int:
        """Write bytes durably, and return their number with the header's."""
        made = self._file is None
        if self._file is None:
            make_folder(self.path.parent)
            # Create-only: two attempts never share a file.
            self._file = open_private(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(self._file, fcntl.LOCK_EX)  # before the first byte, for `is_finished`
            data = _header(self._tag) + data
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        sync_data(self._file)
        if made:  # its name must be durable, too
            sync_folder(self.path.parent)
        return len(data)

    async def close(self) -> None:
        """Reject further records, wait for pending writes and close the file."""
        self._closed = True
        if self._writer is not None:
            # Shielded: a waiting append gets its result even if the caller of `close` is cancelled.
            await asyncio.shield(self._writer)
        if self._file is not None:
            os.close(self._file)
            self._file = None


def is_finished(path: Path) -> bool:
    """Return whether no process writes a journal any more. On a file system without locks, return False."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
        return os.fstat(file.fileno()).st_size > 0


def _header(tag: bytes) -> bytes:
    return _HEADER.pack(_MAGIC, tag, zlib.crc32(_MAGIC + tag))


def _packed(tag: bytes, number: int, first: int, previous: int, kind: int, payload: bytes) -> bytes:
    fields = (tag, number, first, previous, kind, len(payload), zlib.crc32(payload))
    head = _FRAME.pack(*fields, 0)[:-4]
    return head + zlib.crc32(head).to_bytes(4, "little")


class Frame(NamedTuple):
    """A frame (one record in the file) whose head is intact."""

    number: int
    first: int
    """The number of the first frame in the same group."""
    previous: int
    kind: int
    checksum: int
    """Checksum of the frame's head, which includes the checksum of the payload."""
    payload: bytes | None
    """The payload; None if it is damaged."""
    end: int
    """Offset in the file at which the next frame begins."""


class Damage(NamedTuple):
    """A part of a journal that is damaged although it was durable before."""

    path: Path
    start: int
    end: int
    """Offset of the end of the damaged bytes."""
    records: int | None
    """Number of lost records. None if the whole file is lost, so that the number is unknown."""

    @property
    def where(self) -> str:
        """A description of the damage."""
        count = "all" if self.records is None else f"{self.records:,}"
        return f"bytes {self.start:,} to {self.end:,} are damaged, {count} record{'s'[: count != '1']} lost"

    def __str__(self) -> str:
        return f"{self.path}: {self.where}"


def _frame(data: bytes, at: int, tag: bytes) -> Frame | None:
    """Return the frame that begins at offset `at`. Return None if there is none or it is incomplete."""
    head = data[at : at + _FRAME.size]
    if len(head) < _FRAME.size:
        return None
    found, number, first, previous, kind, length, checksum, check = _FRAME.unpack(head)
    if found != tag or zlib.crc32(head[:-4]) != check or not 0 < length <= MAX_PAYLOAD:
        return None
    end = at + _FRAME.size + length
    if end > len(data):
        return None
    payload = data[end - length : end]
    whole = payload if zlib.crc32(payload) == checksum else None
    return Frame(number, first, previous, kind, check, whole, end)


def _tag_of(data: bytes) -> bytes:
    """Return the tag in a file's header or, if that is damaged, in its first frame. It is empty if there is none."""
    magic, tag, check = _HEADER.unpack_from(data)
    if magic == _MAGIC and zlib.crc32(magic + tag) == check:
        return tag
    tag = data[_HEADER.size : _HEADER.size + 8]
    return tag if _frame(data, _HEADER.size, tag) else b""


def scan(path: Path, data: bytes | None = None) -> Iterator[bytes | Damage]:
    """Yield all intact payloads of a journal in order, and then the damage. `data` replaces the content of the file."""
    data = path.read_bytes() if data is None else data
    if data.startswith(_OLD_MAGIC):
        yield from _first_format(data)
        return
    if len(data) < _HEADER.size:  # cut off before anything was durable
        return
    tag = _tag_of(data)
    if not tag:
        if data.strip(b"\0"):
            yield Damage(path, 0, len(data), None)
        return
    holes = [] if data.startswith(_header(tag)) else [(-1, Damage(path, 0, _HEADER.size, 0))]
    at, wanted, bad, last = _HEADER.size, 0, _HEADER.size, None
    while at >= 0:
        frame = _frame(data, at, tag)
        if frame is None or frame.number < wanted:
            at = data.find(tag, at + 1)
            continue
        if frame.number > wanted or at > bad:
            holes.append((wanted, Damage(path, bad, at, frame.number - wanted)))
        elif last is not None and frame.previous != last.checksum:
            # The checksum of the next frame shows that another frame was written here.
            holes.append((last.number, Damage(path, at, at, 0)))
        if frame.payload is None:
            holes.append((frame.number, Damage(path, at, frame.end, 1)))
        elif frame.kind != REPLY:
            raise JournalBroken(f"{path} was written by a newer version of camel: upgrade camel")
        else:
            yield frame.payload
        last, wanted = frame, frame.number + 1
        at = bad = frame.end
        if at >= len(data):
            break
    # Bad frames in or after the last group may never have been durable.
    yield from (damage for number, damage in holes if last is not None and number < last.first)


def read(path: Path, data: bytes | None = None) -> Iterator[bytes]:
    """Yield the intact payloads of a journal."""
    return (one for one in scan(path, data) if not isinstance(one, Damage))


def _first_format(data: bytes) -> Iterator[bytes]:
    """Yield the payloads of a journal in the first format. In this format, damage cannot be distinguished from the end."""
    at = len(_OLD_MAGIC)
    while at + _OLD_FRAME.size <= len(data):
        length, checksum = _OLD_FRAME.unpack_from(data, at)
        payload = data[at + _OLD_FRAME.size : at + _OLD_FRAME.size + length]
        if not length or len(payload) < length or zlib.crc32(payload) != checksum:
            return
        yield payload
        at += _OLD_FRAME.size + length


class Tail:
    """Follows a journal that another process writes. Call `close()` when done.

    The file stays open, so that the rest can be read even after the journal was deleted.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._at, self._tag = 0, b""

    def new(self) -> Iterator[bytes]:
        """Yield the payloads that were completed since the last call. Stop at a damaged one."""
        self._file.seek(self._at)
        data, at = self._file.read(), 0
        if not self._at:
            if len(data) < _HEADER.size or not (tag := _tag_of(data)):
                return
            self._tag, at, self._at = tag, _HEADER.size, _HEADER.size
        while (frame := _frame(data, at, self._tag)) and frame.payload is not None:
            self._at += frame.end - at
            at = frame.end
            yield frame.payload

    def close(self) -> None:
        """Close the file."""
        self._file.close()
