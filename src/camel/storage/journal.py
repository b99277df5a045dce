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

_FRAME = struct.Struct("<II")
_MAGIC = b"camel journal 1\n"
MAX_PAYLOAD = 64 * 2**20


class JournalBroken(Exception):
    """The journal could not be written, e.g. because the disk is full; nothing after this point is durable."""


class Journal:
    """One file being written. Use on one event loop; `close()` when done."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Create-only: two attempts never share a file.
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        self._waiting: list[bytes] = [_MAGIC]
        self._group: asyncio.Future[None] | None = None
        self._writer: asyncio.Task[None] | None = None
        self._broken: OSError | None = None
        self._named = False
        """Whether the file's entry in its folder is durable too."""
        self.path = path

    async def append(self, payload: bytes) -> None:
        """Return when `payload` is durable; raises `JournalBroken` when it is not."""
        if self._broken:
            raise JournalBroken(f"{self.path}: {self._broken.strerror}")
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
                if self._broken:
                    raise self._broken
                await loop.run_in_executor(None, self._put, data)
            except OSError as error:
                # What was written of this group is a torn tail; a frame after it would never be read.
                self._broken = error
                group.set_exception(JournalBroken(f"{self.path}: {error.strerror}"))
                group.exception()  # seen, even if every waiter has gone
            else:
                group.set_result(None)
        self._writer = None

    def _put(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        os.fdatasync(self._file)
        if not self._named:
            sync_folder(self.path.parent)
            self._named = True

    async def close(self) -> None:
        """Wait for what is being written and close the file."""
        if self._writer is not None:
            await self._writer
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


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


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
