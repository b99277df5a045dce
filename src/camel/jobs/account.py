"""A worker's account: what it has spent, in a file that survives its process.

A worker of a run with a budget writes its account before each call. Once the worker is dead, the
coordinator reads the account and gives what the worker has not spent to the others.

The one decision to know: the file is not synced, because that would cost more than the call. A killed process leaves what it
wrote. A power failure may leave an older account, which its number shows.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

from camel.core.message import Usage

ACCOUNTS = ".accounts"
"""The subfolder of a run with its accounts, one file per worker."""
_RECORD = struct.Struct("<7QdI")
"""Fields: times written, prompt, completion and cached tokens, calls, calls without a count, calls in flight, dollars, checksum."""


class Account:
    """The file in which the worker of this process records its usage. Call `close()` when done."""

    def __init__(self, root: Path, worker: str) -> None:
        folder = root / ACCOUNTS
        folder.mkdir(exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        self._file = os.open(folder / worker, flags, 0o644)
        self.number = 0
        """Number of times the account was written."""
        self.write(Usage(), 0)

    def write(self, usage: Usage, in_flight: int) -> None:
        """Replace the account by the usage so far and the number of calls in flight."""
        self.number += 1
        fields = (self.number, usage.prompt, usage.completion, usage.cached, usage.calls, usage.unknown)
        data = _RECORD.pack(*fields, in_flight, usage.usd, 0)[:-4]
        # If the disk is full, the account is outdated, and the coordinator counts the whole grant as spent.
        with contextlib.suppress(OSError):
            os.pwrite(self._file, data + zlib.crc32(data).to_bytes(4, "little"), 0)

    def close(self) -> None:
        """Close the file and keep it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class Spent(NamedTuple):
    """The contents of an account."""

    number: int
    usage: Usage
    """The usage, with calls in flight as calls without a token count."""


def read_account(root: Path, worker: str) -> Spent | None:
    """Read the account of a worker, or return None if there is no readable one."""
    try:
        file = os.open(root / ACCOUNTS / worker, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    with os.fdopen(file, "rb") as opened:
        data = opened.read(_RECORD.size + 1)
    if len(data) != _RECORD.size or zlib.crc32(data[:-4]) != int.from_bytes(data[-4:], "little"):
        return None
    number, prompt, completion, cached, calls, unknown, in_flight, usd, _ = _RECORD.unpack(data)
    usage = Usage(prompt, completion, cached, calls + in_flight, unknown + in_flight, usd=usd)
    return Spent(number, usage)
