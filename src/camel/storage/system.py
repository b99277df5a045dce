"""Calls that differ between operating systems. A run needs file locks, which Windows does not have in this form."""

from __future__ import annotations

import os

from camel.core.errors import InputError

try:
    import fcntl
except ModuleNotFoundError:
    raise InputError(
        "CAMEL stores runs on Linux and macOS only. On Windows, install and start it in WSL"
    ) from None

__all__ = ["OPEN_FILE", "OPEN_FOLDER", "fcntl", "sync_data"]

OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
OPEN_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""Flags for opening files. They are non-blocking, because a named pipe would block a reader forever."""
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


def sync_data(file: int) -> None:
    """Make the bytes of an open file durable."""
    if _FULL_SYNC is not None:  # macOS, where `fsync` leaves them in the cache of the disk
        fcntl.fcntl(file, _FULL_SYNC)
    else:
        getattr(os, "fdatasync", os.fsync)(file)
