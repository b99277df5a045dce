"""The fence: a new driver waits until no worker of a dead one can be at work.

A driver that runs workers elsewhere leaves its word in the run's folder, and renews it while it lives. Their leases hang
on it (see `coordinator`), so once the word is older than a lease, they have all stopped. Ages are compared by the clock of
the folder's own file system.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from camel.runs.run import DRIVER, RunFolder

MARGIN = 1.0
"""Seconds beyond the lease, for the last word that was on its way."""


class Fence:
    """The word of the driver on one run."""

    def __init__(self, folder: RunFolder, ttl: float = 0.0) -> None:
        self._path, self._ttl = Path(folder.root) / DRIVER, ttl

    def left(self) -> float:
        """Seconds until whoever left a word and did not take it back is out."""
        try:
            ttl = float(self._path.read_text() or 0)
            last = self._path.stat().st_mtime
        except (FileNotFoundError, ValueError):
            return 0.0
        probe = self._path.with_name(f"{DRIVER}.now")
        probe.write_text("")
        age = probe.stat().st_mtime - last
        probe.unlink()
        return min(max(0.0, ttl + MARGIN - age), ttl + MARGIN)

    def renew(self) -> None:
        """Say that the driver is alive; before its workers are told so."""
        # Renamed into its place: whoever is killed while writing, or has no disk left, must not leave an empty word.
        writing = self._path.with_name(f"{DRIVER}.new")
        writing.write_text(str(self._ttl))
        writing.replace(self._path)

    def lift(self) -> None:
        """Take the word back: all workers are known to have ended."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
