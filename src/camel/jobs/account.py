"""What a worker has spent, in a file that survives its process.

A worker of a run with a budget writes its account before each call that it sends. Once the worker is dead, the
coordinator reads the account and gives what the worker has not spent to the others.

The one decision to know: the file is not synced, which would cost more than the call. A killed process leaves what it
wrote. A machine that loses its power may leave an older account, which its number shows.
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
"""The folder in a run's folder, one file per worker."""
_RECORD = struct.Struct("<7QdI")
"""The number, prompt, completion and cached tokens, calls, calls without a count, calls in flight, dollars, a checksum."""


class Account:
    """The account of the worker in this process; `close()` when done."""

    def __init__(self, root: Path, worker: str) -> None:
        folder = root / ACCOUNTS
        folder.mkdir(exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        self._file = os.open(folder / worker, flags, 0o644)
        self.number = 0
        """How often it was written."""
        self.write(Usage(), 0)

    def write(self, usage: Usage, in_flight: int) -> None:
        """Replace the account by what was used and the calls whose replies are still to come."""
        self.number += 1
        fields = (self.number, usage.prompt, usage.completion, usage.cached, usage.calls, usage.unknown)
        data = _RECORD.pack(*fields, in_flight, usage.usd, 0)[:-4]
        # On a full disk the account gets old, and the coordinator takes all that was granted for spent.
        with contextlib.suppress(OSError):
            os.pwrite(self._file, data + zlib.crc32(data).to_bytes(4, "little"), 0)

    def close(self) -> None:
        """Close the file, which stays."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class Spent(NamedTuple):
    """What an account says."""

    number: int
    usage: Usage
    """With the calls that were in flight, as calls without a count of tokens."""


def read_account(root: Path, worker: str) -> Spent | None:
    """The account of a worker; None if there is none that can be read."""
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
