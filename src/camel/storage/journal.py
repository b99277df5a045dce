"""The journal: an append-only log in which a paid-for reply is durable before anybody uses it.

A file is a row of frames, each the length and CRC-32 of its payload and the payload. The one decision to know: a frame
counts only if everything before it is whole, so whatever a crash left at the end is ignored, and nothing is ever
rewritten. Appends that arrive while the disk is busy are written together (group commit) by one thread, off the event
loop; each returns once its bytes are on the disk.
"""

from __future__ import annotations

import asyncio
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from camel.core.errors import CamelError, mend_of

_FRAME = struct.Struct("<II")
_MAGIC = b"camel journal 1\n"
MAX_PAYLOAD = 64 * 2**20


class JournalBroken(CamelError):
    """The journal could not be written, e.g. because the disk is full; nothing after this point is durable."""


class Journal:
    """One file being written, made with its first record. Use on one event loop; `close()` when done."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._waiting: list[bytes] = []
        self._group: asyncio.Future[None] | None = None
        self._writer: asyncio.Task[None] | None = None
        self._broken = ""
        """Why nothing more can be written, in words."""
        self._closed = False

    async def append(self, payload: bytes) -> None:
        """Return when `payload` is durable; raises `JournalBroken` when it is not."""
        if self._broken or self._closed:
            raise JournalBroken(f"{self.path}: {self._broken or 'closed'}")
        if not 0 < len(payload) <= MAX_PAYLOAD:
            # Reading would stop at it, and lose all that follows.
            raise ValueError(f"a record must have 1 to {MAX_PAYLOAD:,} bytes, not {len(payload):,}")
        self._waiting.append(_FRAME.pack(len(payload), zlib.crc32(payload)))
        self._waiting.append(payload)
        loop = asyncio.get_running_loop()
        if self._group is None:
            self._group = loop.create_future()
        group = self._group
        if self._writer is None:
            self._writer = loop.create_task(self._write())
        # Shielded: one cancelled call must not undo the wait of the others in its group.
        await asyncio.shield(group)

    async def _write(self) -> None:
        """Write group after group until nothing waits."""
        loop = asyncio.get_running_loop()
        while (group := self._group) is not None:
            data, self._waiting, self._group = b"".join(self._waiting), [], None
            try:
                if not self._broken:
                    await loop.run_in_executor(None, self._put, data)
            except BaseException as error:
                # What was written of this group is a torn tail; a frame after it would never be read.
                self._broken = (isinstance(error, OSError) and error.strerror) or repr(error)
                if isinstance(error, OSError) and (advice := mend_of(error)):
                    self._broken += f"; {advice}"
                if not isinstance(error, Exception):  # the loop itself is going down
                    group.cancel()
                    raise
            if self._broken:
                group.set_exception(JournalBroken(f"{self.path}: {self._broken}"))
                group.exception()  # seen, even if every waiter has gone
            else:
                group.set_result(None)
        self._writer = None

    def _put(self, data: bytes) -> None:
        made = self._file is None
        if self._file is None:
            make_folder(self.path.parent)
            # Create-only: two attempts never share a file.
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
            data = _MAGIC + data
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        os.fdatasync(self._file)
        if made:  # its name must last as well
            sync_folder(self.path.parent)

    async def close(self) -> None:
        """Refuse further records, wait for what is being written and close the file."""
        self._closed = True
        if self._writer is not None:
            # Shielded: whoever waits for a record gets it, even if nobody waits for the end any more.
            await asyncio.shield(self._writer)
        if self._file is not None:
            os.close(self._file)
            self._file = None


def read(path: Path) -> Iterator[bytes]:
    """The payloads of a journal, up to the first frame that is not whole."""
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            return
        while len(head := file.read(_FRAME.size)) == _FRAME.size:
            length, checksum = _FRAME.unpack(head)
            if not 0 < length <= MAX_PAYLOAD:  # a tail of zeros, as some file systems leave it, is no frame
                return
            payload = file.read(length)
            if len(payload) < length or zlib.crc32(payload) != checksum:
                return
            yield payload


class Tail:
    """A journal that somebody else is writing, read as it grows; `close()` when done.

    It stays open, so that what was written before the journal was dropped can still be read after.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._at = 0

    def new(self) -> Iterator[bytes]:
        """The payloads that have become whole since the last time."""
        while True:
            self._file.seek(self._at)
            size = len(_MAGIC) if not self._at else _FRAME.size
            head = self._file.read(size)
            if len(head) < size:
                return
            if not self._at:
                if head != _MAGIC:
                    return
                self._at = size
                continue
            length, checksum = _FRAME.unpack(head)
            if not 0 < length <= MAX_PAYLOAD:
                return
            payload = self._file.read(length)
            if len(payload) < length or zlib.crc32(payload) != checksum:
                return
            self._at += size + length
            yield payload

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def make_folder(folder: Path) -> None:
    """Make `folder` and those above it, durably."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        sync_folder(made.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    sync(folder)


def sync(path: Path) -> None:
    """Make a file that is there, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
