"""Copies of journals in a run's object store, for workers that share no disk.

    copies/<stage>/<shard>/<attempt>-<start>   the bytes of a journal from the offset `start`, up to the next copy
    copies/<stage>/<shard>/<attempt>-end       all of this journal is copied, and nothing will follow

The one decision to know: a copy has the name of its attempt and its offset, and is created, never replaced. So a worker
that lost its lease can only add to its own journal, and copies without a gap always are the beginning of a journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from camel.storage.inside import FileEntry
from camel.storage.journal import Journal, is_finished
from camel.storage.store import AT_ONCE, BucketStore, StoreFailed, ahead

FOLDER = "copies"
END = "end"
RESCUE = 15.0
"""Seconds for which a reader waits for the rest of a dead worker's journal: another worker on its node copies it."""
_LOOK_EVERY = 0.5
_PIECE = 8 << 20
_THREADS = ThreadPoolExecutor(8, "camel-copy")
"""Separate threads, so that a slow store does not block the threads that write journals."""
Committed = Callable[[str, int], bool]
"""Returns whether a shard of a stage is committed."""


class CopyLimits(NamedTuple):
    """What the permanent loss of a node may cost, in addition to the calls in flight."""

    seconds: float = 2.0
    bytes: int = 1_000_000


DEFAULT_LIMITS = CopyLimits()


def puts_per_second(
    workers: float, open_shards: float, bytes_per_second: float, limits: CopyLimits = DEFAULT_LIMITS
) -> float:
    """Return the put requests of `workers` that each have `open_shards` and journal `bytes_per_second`."""
    return workers * max(2 * open_shards / limits.seconds, 2 * bytes_per_second / limits.bytes)


class CopiedAttempt:
    """The copies of one attempt's journal, as listed."""

    def __init__(self, entries: Iterable[FileEntry] = ()) -> None:
        by_start = {one.name.rpartition("-")[2]: one for one in entries}
        self.ended = END in by_start
        self.modified = max((one.modified for one in by_start.values()), default=0.0)
        self.names, self.size = list[str](), 0
        """The copies without a gap, in order, and the bytes in them."""
        while (piece := by_start.get(f"{self.size:012d}")) is not None and piece.size:
            self.names.append(piece.name)
            self.size += piece.size


def _folder(stage: str, shard: int) -> str:
    return f"{FOLDER}/{stage}/{shard:06d}"


class _Followed:
    """A journal that this process writes."""

    def __init__(self, journal: Journal) -> None:
        self.journal, self.copied = journal, 0
        self.since: float | None = None
        """When the first bytes that are not copied became durable. None: all are copied."""
        self.next: float | None = None
        """The same for bytes that became durable during the current upload."""
        self.uploading = self.closed = self.dropped = False
        self.full = asyncio.Event()
        """Whether not to wait for the interval."""
        self.task: asyncio.Task[None] | None = None


class Copier:
    """Copies the journals of this process while it writes them, and those that dead processes left in the folder. Reads and
    removes copies.

    A call never waits for an upload, unless more is uncopied than the limits allow.
    """

    def __init__(self, store: BucketStore, root: Path) -> None:
        self.store, self.root, self.limits = store, root, DEFAULT_LIMITS
        self.active = False
        """Whether journals are copied. Otherwise all nodes share them."""
        self._born = time.time()
        self._open: dict[Path, _Followed] = {}
        self._done = asyncio.Event()
        """Set when an upload has ended."""
        self._error: Exception | None = None
        self._rescued: set[Path] = set()

    def listed(self, stage: str, shard: int) -> dict[str, CopiedAttempt]:
        """Return the copies of a shard's journals, by attempt."""
        entries = sorted(self.store.entries(_folder(stage, shard)), key=attrgetter("name"))
        by_attempt = groupby(entries, lambda one: one.name.rpartition("/")[2].rpartition("-")[0])
        return {attempt: CopiedAttempt(its) for attempt, its in by_attempt}

    def shards(self, stage: str) -> dict[int, list[FileEntry]]:
        """Return all copies of a stage, by shard."""
        entries = sorted(self.store.entries(f"{FOLDER}/{stage}"), key=attrgetter("name"))
        by_shard = groupby(entries, lambda one: one.name.split("/")[-2])
        return {int(shard): list(its) for shard, its in by_shard if shard.isdecimal()}

    def contents(self, stage: str, shard: int, local: Sequence[Path], *, waits: bool) -> dict[str, bytes]:
        """Return the copied bytes of each attempt.

        If `waits` is true, wait for attempts that another node has and that are not copied to their end.
        """
        there = {path.name.partition("-")[2] for path in local}
        latest = time.time() + RESCUE if waits else 0.0
        while True:
            found = self.listed(stage, shard)
            rest = [one for attempt, one in found.items() if not one.ended and attempt not in there]
            until = min(latest, max((max(one.modified, self._born) + RESCUE for one in rest), default=0.0))
            if time.time() >= until:
                break
            time.sleep(min(_LOOK_EVERY, max(0.0, until - time.time())))
        pieces = ahead(self.store.get, [name for one in found.values() for name in one.names], AT_ONCE)
        return {
            attempt: b"".join(islice(pieces, len(one.names))) for attempt, one in found.items() if one.names
        }

    def remove(self, stage: str, shard: int) -> None:
        """Remove the copies of a shard that is committed, or is to be made again."""
        self.store.remove([entry.name for entry in self.store.entries(_folder(stage, shard))])

    def publish(self, path: Path, start: int | None, end: int) -> int:
        """Copy a journal from `start` to `end`, and return the offset up to which it is copied.

        Another process may copy the same journal at the same time. None for `start`: from where the copies end.
        """
        stage, (shard, _, attempt) = path.parent.name, path.name.partition("-")
        with path.open("rb") as file:
            while True:
                if start is None:
                    start = self.listed(stage, int(shard)).get(attempt, CopiedAttempt()).size
                if start >= end:
                    return start
                file.seek(start)
                data = file.read(min(end - start, _PIECE))
                if not data:
                    raise StoreFailed(f"{path} is shorter than it was: its copy cannot be continued")
                made = self.store.create(f"{_folder(stage, int(shard))}/{attempt}-{start:012d}", data)
                start = start + len(data) if made else None

    def end(self, path: Path) -> None:
        """Record that a journal is completely copied."""
        shard, _, attempt = path.name.partition("-")
        self.store.create(f"{_folder(path.parent.name, int(shard))}/{attempt}-{END}", b"end")

    def activate(self) -> None:
        """Copy from now on, also what the open journals contain."""
        self.active = True
        for one in self._open.values():
            if one.journal.size:
                self._grown(one)

    def follow(self, journal: Journal) -> None:
        """Copy a new journal of this process."""
        one = self._open[journal.path] = _Followed(journal)
        journal.grown = partial(self._grown, one)

    @property
    def behind(self) -> bool:
        """Whether no new call may begin, because more is uncopied than the limits allow."""
        if not self._open:
            return False
        now = asyncio.get_running_loop().time()
        return any(
            one.since is not None
            and (now - one.since > self.limits.seconds or one.journal.size - one.copied > self.limits.bytes)
            for one in self._open.values()
        )

    async def progress(self) -> None:
        """Wait a moment for an upload to end. Raise its error if the store fails."""
        if self._error:
            raise self._error
        self._done.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_EVERY):
                await self._done.wait()

    async def close(self, journal: Journal, *, finish: bool) -> None:
        """Stop following a closed journal. If `finish` is true, copy all of it first."""
        if (one := self._open.get(journal.path)) is None:
            return
        one.closed, one.dropped = True, not finish
        one.full.set()
        if one.task is not None:
            await asyncio.shield(one.task)
        self._open.pop(journal.path, None)
        if finish and self.active and journal.size and one.since is None:
            with contextlib.suppress(StoreFailed):  # the journal itself is durable
                await asyncio.get_running_loop().run_in_executor(_THREADS, self.end, journal.path)

    async def rescue(self, committed: Committed) -> None:
        """Copy what dead processes leave in this folder, until cancelled. The journals of committed shards are removed."""
        while True:
            if self.active:
                with contextlib.suppress(StoreFailed, OSError):
                    await asyncio.get_running_loop().run_in_executor(_THREADS, self.copy_left, committed)
            await asyncio.sleep(self.limits.seconds)

    def copy_left(self, committed: Committed) -> None:
        """Copy the finished journals in this folder to their end."""
        for path in sorted((self.root / "journal").glob("*/[0-9]*-*")):
            with contextlib.suppress(FileNotFoundError):  # removed after its shard was committed
                if path in self._rescued or path in self._open or not is_finished(path):
                    continue
                if committed(path.parent.name, int(path.name.partition("-")[0])):
                    path.unlink()
                    continue
                self.publish(path, None, path.stat().st_size)
                self.end(path)
                self._rescued.add(path)

    def _grown(self, one: _Followed) -> None:
        if not self.active:
            return
        now = asyncio.get_running_loop().time()
        if one.since is None:
            one.since = now
        elif one.uploading and one.next is None:
            one.next = now
        if one.journal.size - one.copied >= self.limits.bytes / 2:
            one.full.set()
        if one.task is None:
            one.task = asyncio.create_task(self._copy(one))

    async def _copy(self, one: _Followed) -> None:
        """Copy a journal until nothing is uncopied."""
        loop = asyncio.get_running_loop()
        while one.since is not None and not one.dropped:
            # At half of the limits, so that the upload can end before they are reached. The first copy is made at once:
            # another node then knows that there is a journal whose rest it must wait for.
            if one.copied and not one.closed:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(one.since + self.limits.seconds / 2):
                        await one.full.wait()
            one.full.clear()
            if one.dropped:
                break
            one.uploading, one.next = True, None
            try:
                one.copied = await loop.run_in_executor(
                    _THREADS, self.publish, one.journal.path, one.copied, one.journal.size
                )
            except Exception as error:
                self._error = error
                break
            finally:
                one.uploading = False
                self._done.set()
            self._error = None
            one.since = one.next
        one.task = None
