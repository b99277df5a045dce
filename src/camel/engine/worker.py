"""The worker: one event loop that keeps a window of items in flight, across shards, and commits each shard when its
last item ends.

The same worker runs in this process or as a Ray actor; only the source of its leases differs. The one decision to know:
there is no barrier. The next shard is leased as soon as the window has room, while slow items of the previous one are
still in progress.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec.structs import replace

from camel.core.errors import CamelError
from camel.engine.halt import Halt, Halted, Unfinished
from camel.engine.stage import NOTHING, JournaledStep, Workload, current_step, read_step, write_step
from camel.runs.again import named
from camel.runs.markers import Marker, new_attempt
from camel.runs.run import RunFolder
from camel.storage.journal import JournalBroken

YOUNG = 50_000
"""Number of new objects that triggers a collection; Python's default is 700."""

_lock = threading.Lock()
_users: list[tuple[int, int, int]] = []
"""The thresholds that each active caller found; the first entry is the one to restore."""


@contextlib.contextmanager
def relaxed_collection() -> Generator[None]:
    """Run Python's garbage collector less often inside the block. Several callers may overlap in any order.

    A call creates some hundred short-lived objects without cycles, so the collector used 20 % of its CPU and found nothing.
    """
    with _lock:
        found = gc.get_threshold()
        _users.append(_users[0] if _users else found)
        if 0 < found[0] < YOUNG:
            gc.set_threshold(YOUNG, *found[1:])
    try:
        yield
    finally:
        with _lock:
            first = _users.pop()
            if not _users:
                gc.set_threshold(*first)


Lease = Callable[[], Awaitable[tuple[Workload, int] | None]]
"""Returns the next shard to work on, or None if there is none."""
Notice = Callable[[Workload, int], None]
"""Called with a workload and the index of one of its shards."""


class ReplayMismatch(CamelError):
    """A step's request differs from the journaled one: the item's function is not deterministic."""


class CommitFailed(CamelError):
    """A finished shard could not be written, for example because the disk is full. Its journal still has the replies."""


class Window:
    """Limits the number of items in flight. It can be resized at any time."""

    def __init__(self, size: int) -> None:
        self.size, self.taken = size, 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def acquire(self) -> None:
        """Wait until another item may start, and count it."""
        while self.taken >= self.size:
            place = asyncio.get_running_loop().create_future()
            self._waiting.append(place)
            try:
                await place
            except asyncio.CancelledError:
                self._wake()  # a waiter that was woken and then cancelled passes its place on
                raise
        self.taken += 1

    def release(self) -> None:
        """Count the end of an item, so that another one may start."""
        self.taken -= 1
        self._wake()

    def resize(self, size: int) -> None:
        """Change the maximum number of items in flight. Items that are already in flight continue."""
        self.size = size
        self._wake()

    def _wake(self) -> None:
        for _ in range(self.size - self.taken):
            while self._waiting and self._waiting[0].done():
                self._waiting.popleft()
            if not self._waiting:
                return
            self._waiting.popleft().set_result(None)


_COMMITS = ThreadPoolExecutor(4, "camel-commit")
"""Separate threads, so that slow uploads do not block the threads that write journals."""


class _Shard:
    """A shard in progress: its journal, the journals of earlier attempts, and the records so far."""

    def __init__(self, stage: Workload, number: int, folder: RunFolder, halt: Halt) -> None:
        self.stage, self.number, self.folder, self.halt = stage, number, folder, halt
        self.attempt = new_attempt()
        self.kept: dict[tuple[int, int], list[JournaledStep]] = {}
        """Journaled results by item and step; those of the attempt that got furthest come first."""
        self.last_steps: dict[int, int] = {}
        """The last journaled step of each item."""
        try:
            self._read_journals()
        except (FileNotFoundError, JournalBroken):
            if not folder.is_committed(stage.name, number):
                raise
        self.committed = folder.is_committed(stage.name, number)
        """Whether another worker has committed it. Checked after the journals were read: they are removed only after the
        marker exists, so without a marker they were complete."""
        if self.committed:
            folder.cache_marker(folder.marker(stage.name, number))
        self.journal = folder.open_journal(stage.name, number, self.attempt)
        self.records: dict[int, Any] = {}
        self.left = len(stage.indices(number))
        """Number of items that have not ended."""

    def _read_journals(self) -> None:
        reach: dict[tuple[int, int], int] = {}
        """The number of journaled steps of each item, by attempt."""
        found: dict[tuple[int, int], list[tuple[int, JournaledStep]]] = {}
        for attempt, journal in enumerate(self.folder.attempts(self.stage.name, self.number)):
            for entry in map(read_step, journal):
                reach[entry.item, attempt] = max(entry.step, reach.get((entry.item, attempt), 0))
                found.setdefault((entry.item, entry.step), []).append((attempt, entry))
        for place, entries in found.items():
            self.last_steps[place[0]] = max(place[1], self.last_steps.get(place[0], 0))
            if len(entries) > 1:
                entries.sort(key=lambda one: -reach[one[1].item, one[0]])
            self.kept[place] = [entry for _, entry in entries]

    @property
    def complete(self) -> bool:
        return len(self.records) == len(self.stage.indices(self.number))

    async def commit(self) -> None:
        """Write the records, then the marker, and only then remove the journals."""
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(_COMMITS, self._commit)
        except OSError as error:
            raise CommitFailed(
                f"shard {self.number} of stage '{self.stage.name}' cannot be written: {error}"
            ) from error
        await self.folder.close_journal(self.journal, finish=False)
        await loop.run_in_executor(_COMMITS, self.folder.drop_journals, self.stage.name, self.number)

    def _commit(self) -> None:
        records = [self.records[index] for index in sorted(self.records)]
        name = named(self.stage.name)
        path = self.folder.data_path(name.stage, self.number, self.attempt, self.stage.suffix)
        try:
            written = self.stage.write(path, records)
        except OSError as error:
            path.unlink(missing_ok=True)  # on a full disk, an incomplete file takes space
            error.filename = error.filename or str(path)
            raise
        file, size = self.folder.persist(path)
        marker = Marker(
            name.stage,
            self.number,
            file,
            written.rows,
            written.sha256,
            self.stage.fingerprint,
            written.totals,
            size,
            name.retry,
        )
        if not self.folder.commit(marker):
            self.folder.discard(path)
            marker = self.folder.marker(self.stage.name, self.number)
        self.folder.cache_marker(marker)


class _Steps:
    """The steps of one item."""

    __slots__ = ("_forked", "_index", "_next", "_shard")

    def __init__(self, shard: _Shard, index: int) -> None:
        self._shard, self._index, self._next = shard, index, 0
        self._forked = False
        """Whether journaled steps may be inconsistent: two attempts continued this item at once, or a step is damaged."""

    async def once(self, check: bytes, make: Callable[[], Awaitable[bytes]]) -> bytes:
        step, kept = self._kept()
        for entry in kept:
            if entry.check == check:
                self._forked = self._forked or len(kept) > 1 or entry.repaid
                return entry.result
        repaid = self._check_new(step, kept)
        copier = self._shard.folder.copier
        if self._shard.halt.paused or self._shard.halt.reason or (copier and copier.behind):
            await self._unpaused()
        current_step.set((self._shard.stage.name, self._index, step))
        result = await make()
        await self._shard.journal.append(write_step(JournaledStep(self._index, step, check, result, repaid)))
        return result

    async def act(self, check: bytes, make: Any, *, repeatable: bool = False, begin: Any = int) -> bytes:
        step, found = self._kept()
        kept, begun = [one for one in found if not one.begun], [one for one in found if one.begun]
        for entry in kept:
            if entry.check == check:
                self._forked = self._forked or len(kept) > 1 or entry.repaid
                return entry.result
        interrupted = any(one.check == check for one in begun)
        repaid = not interrupted and self._check_new(step, found)
        # Not after the entry below: then the next process could not tell that nothing was done.
        await self._unpaused()
        if not interrupted:
            begin()
        journal = self._shard.journal
        entry = JournaledStep(self._index, step, check, NOTHING, repaid)
        if not interrupted and not repeatable:
            await journal.append(write_step(replace(entry, begun=True)))
        result = await make(interrupted)
        await journal.append(write_step(replace(entry, result=result)))
        return result

    def _kept(self) -> tuple[int, Sequence[JournaledStep]]:
        """Return the number of the next step, and its entries in the journals."""
        step, self._next = self._next, self._next + 1
        return step, self._shard.kept.pop((self._index, step), ())

    def _check_new(self, step: int, kept: Sequence[JournaledStep]) -> bool:
        """Return whether a step without a journaled result had one that is damaged. Raise `ReplayMismatch` if the journal has
        the result of another request."""
        # The journal has later steps, so this one is damaged, unless they were in flight together. Its new result may
        # lead to other steps.
        repaid = not kept and step < self._shard.last_steps.get(self._index, -1)
        self._forked = self._forked or repaid
        if kept and not self._forked:
            raise ReplayMismatch(
                f"step {step} of item {self._index} of stage '{self._shard.stage.name}' differs from the journal: a prompt, "
                "a list or the code has changed since. Undo the change, or start a new run with `--reuse-lists FOLDER`"
            )
        return repaid

    async def _unpaused(self) -> None:
        """Wait while the run is paused or too much is uncopied. Raise `Halted` if the run is stopping."""
        halt, copier = self._shard.halt, self._shard.folder.copier
        while copier and copier.behind and not halt.reason:
            await copier.progress()
        if halt.paused:
            await halt.unpaused()
        if halt.reason:
            raise Halted(halt.reason)


async def run_worker(
    folder: RunFolder,
    lease: Lease,
    *,
    concurrency: int | Window,
    halt: Halt,
    committed: Notice = lambda stage, shard: None,
    left: Notice = lambda stage, shard: None,
    failed: Callable[[Exception], None] = lambda error: None,
) -> None:
    """Work on leased shards until there are no more or the run is halted.

    Calls `committed` for each finished shard, and `left` for each that still has unfinished items. An exception of an item
    halts the run: the steps in flight end and are journaled, then the first exception is raised. `failed` gets it at once.
    """
    await asyncio.to_thread(folder.check_room)
    window = concurrency if isinstance(concurrency, Window) else Window(concurrency)
    opened: list[_Shard] = []
    errors: list[Exception] = []

    def fail(error: Exception) -> None:
        errors.append(error)
        failed(error)
        halt.set(f"{type(error).__name__}: {error}")

    async def item(shard: _Shard, index: int) -> None:
        try:
            with contextlib.suppress(Unfinished):
                shard.records[index] = await shard.stage.work(index, _Steps(shard, index))
            shard.left -= 1
            if not shard.left:
                await end(shard)
        except Exception as error:
            fail(error)
        finally:
            # Released after the commit, so that a slow disk slows the work down instead of filling the memory.
            window.release()

    async def end(shard: _Shard) -> None:
        if shard.complete:
            await shard.commit()
            committed(shard.stage, shard.number)
        else:
            await folder.close_journal(shard.journal)
            left(shard.stage, shard.number)
        opened.remove(shard)

    async def begin(group: asyncio.TaskGroup) -> None:
        while not halt.reason and (leased := await lease()) is not None:
            stage, number = leased
            shard = await asyncio.to_thread(_Shard, stage, number, folder, halt)
            if shard.committed:
                committed(stage, number)
                continue
            opened.append(shard)
            if not shard.left:  # all its items are inactive, or only lose their records
                await end(shard)
                continue
            for index in stage.indices(number):
                await window.acquire()
                await halt.unpaused()
                if halt.reason:
                    window.release()
                    break
                group.create_task(item(shard, index))

    rescue = asyncio.ensure_future(folder.copier.rescue(folder.is_committed)) if folder.copier else None
    try:
        with relaxed_collection():
            async with asyncio.TaskGroup() as group:
                try:
                    await begin(group)
                except Exception as error:
                    fail(error)  # do not raise: the task group would cancel steps in flight
    finally:
        if rescue:
            rescue.cancel()
        await asyncio.gather(*(folder.close_journal(shard.journal) for shard in opened))
    if errors:
        # The first error stopped the rest; later ones usually have the same cause.
        raise errors[0]
