"""The fence: a new driver waits until no worker of a dead one can be running.

A driver with workers on other machines writes a file in the run's folder and renews it while it lives. The workers' leases
depend on the driver (see `coordinator`), so once the file is older than a lease, they have all stopped. Ages are measured
by the clock of the folder's file system.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from camel.runs.run import DRIVER, RunFolder

MARGIN = 1.0
"""Seconds added to the lease, for a renewal that was in flight."""


class Fence:
    """The file by which the driver of a run announces that its workers may be running."""

    def __init__(self, folder: RunFolder, ttl: float = 0.0) -> None:
        self._path, self._ttl = Path(folder.root) / DRIVER, ttl

    def left(self) -> float:
        """Return the seconds until the workers of a previous driver have all stopped."""
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
        """Renew the driver's file. Call this before the workers' leases are renewed."""
        # Renamed into place: a kill or a full disk must not leave an empty file.
        writing = self._path.with_name(f"{DRIVER}.new")
        writing.write_text(str(self._ttl))
        writing.replace(self._path)

    def lift(self) -> None:
        """Remove the driver's file, because all workers have ended."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
