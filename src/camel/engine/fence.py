"""The fence: a new driver waits until no worker of a dead one can be running.

A driver with workers on other machines writes a file in the run's folder and renews it while it lives. The workers' leases
depend on the driver (see `coordinator`), so once the file is older than a lease, they have all stopped. Ages are measured
by the clock of the folder's file system.

If journals are copied to an object store, a driver on another machine may continue the run. It sees neither this file nor
the run's lock, so each driver also has a claim in the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import threading
from pathlib import Path

import msgspec
from msgspec.structs import replace

from camel.core.errors import CamelError, InputError
from camel.engine.halt import Halt, Tell
from camel.runs.run import DRIVER, RunFolder

MARGIN = 1.0
"""Seconds added to the lease, for a renewal that was in flight."""

DRIVER_CLAIM = "driver.json"
RENEW_EVERY = 5.0
STALE = 215.0
"""Seconds after which a claim that is not renewed has ended: a driver stops if the store fails for three minutes, and its
workers stop with their leases."""


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


class _Claimed(msgspec.Struct, frozen=True):
    token: str
    where: str
    renewed: int = 0
    ended: bool = False


class Claim:
    """The claim of this process on a run whose journals are copied: `driver.json` in the store, which it renews."""

    def __init__(self, folder: RunFolder, halt: Halt) -> None:
        self._folder, self._halt, holder = folder, halt, folder.own_holder()
        self._mine = _Claimed(holder.token, str(holder))
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="camel-claim", daemon=True)

    async def acquire(self, tell: Tell) -> None:
        """Claim the run. Wait for a driver on another machine that may be dead, and raise an `InputError` if it is not."""
        other, waited = await asyncio.to_thread(self._last), 0.0
        if other and not other.ended and other.token != self._mine.token:
            text = f"waiting {STALE:.0f} s: the process that works with {other.where} has not ended, or was killed"
            tell("waiting", text, seconds=STALE)
            while waited < STALE and not self._halt.reason:
                await asyncio.sleep(RENEW_EVERY)
                waited += RENEW_EVERY
                if await asyncio.to_thread(self._last) != other:
                    raise InputError(
                        f"another process is working on '{self._folder.address}' with {other.where}: wait for it, or stop it "
                        f"with `camel run stop {shlex.quote(self._folder.address)}`"
                    )
        await asyncio.to_thread(self._put)
        self._thread.start()

    def release(self, *, ended: bool) -> None:
        """Stop renewing the claim. `ended`: no worker of this process is running any more."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
            if ended and not self._halt.is_revoked:
                with contextlib.suppress(CamelError):
                    self._put(ended=True)

    def _last(self) -> _Claimed | None:
        with contextlib.suppress(FileNotFoundError):
            return self._folder.decoded(DRIVER_CLAIM, _Claimed)
        return None

    def _put(self, *, ended: bool = False) -> None:
        self._mine = replace(self._mine, renewed=self._mine.renewed + 1, ended=ended)
        self._folder.store.put(DRIVER_CLAIM, msgspec.json.encode(self._mine))

    def _renew(self) -> None:
        try:
            while not self._closing.wait(RENEW_EVERY):
                # Not the same process: a driver that was suspended must not continue after another has taken over.
                if self._last() != self._mine:
                    self._halt.revoke("another process has taken over this run")
                    return
                self._put()
        except CamelError as error:
            self._halt.revoke(str(error))
