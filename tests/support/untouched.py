"""A witness of everything that happens below a folder, whichever library or process does it (inotify)."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path
from typing import Self

_OPEN, _MODIFY, _ATTRIB, _MOVED, _CREATE, _DELETE = 0x20, 0x2, 0x4, 0xC0, 0x100, 0x200
_HEAD = struct.Struct("iIII")


class Witness:
    """Notes each opening, change, new name and removal in a folder and its folders."""

    def __init__(self, folder: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._queue: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._queue >= 0, os.strerror(ctypes.get_errno())
        mask = _OPEN | _MODIFY | _ATTRIB | _MOVED | _CREATE | _DELETE
        for path in (folder, *(one for one in folder.rglob("*") if one.is_dir())):
            assert libc.inotify_add_watch(self._queue, bytes(path), mask) >= 0
        self.events()

    def events(self) -> list[str]:
        """What happened since it was asked last: names, and `.` for a folder itself."""
        found: list[str] = []
        while True:
            try:
                data = os.read(self._queue, 2**16)
            except BlockingIOError:
                return found
            while data:
                _, mask, _, length = _HEAD.unpack_from(data)
                name = data[_HEAD.size : _HEAD.size + length].rstrip(b"\0").decode() or "."
                found.append(f"{name} {mask:#x}")
                data = data[_HEAD.size + length :]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._queue)
