"""Worker, journal and commit on a simulated machine that loses its process, its power or its disk at any moment.

Everything runs on one thread under a virtual clock, threads included, so a seed is a whole history and replays. A
moment is any step of the event loop and any write, sync, link, removal or new folder. What a killed process leaves is
what it wrote; what a power cut leaves is what was synced and a chance part of the rest: files end early or in zeros,
and names vanish from folders that were not synced. Nothing of the program's memory survives either.

    python -m benchmarks.crash --simulate 10000        python -m benchmarks.crash --simulate 1 --seed 4711
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import json
import os
import random
import secrets
import selectors
import shutil
import stat
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from camel.engine.halt import Halt, Unfinished
from camel.engine.stage import Steps, Workload, Written
from camel.engine.supervisor import StepPass, run_here
from camel.engine.worker import CommitFailed
from camel.runs.run import RunFolder
from camel.runs.settings import Settings
from camel.storage import journal
from camel.storage.files import sync_folder
from camel.storage.journal import JournalBroken

KINDS = ("kill", "power", "power", "full", "halt", "ill", "rivals")
"""What may end a start: SIGKILL, a power cut, a full disk, a polite stop, an endpoint that fails, two workers at once."""
MOST_STARTS = 8


class Violation(AssertionError):
    """An invariant does not hold."""


class Outcome(NamedTuple):
    """What one seed came to."""

    ends: Counter[str]
    """How its starts ended."""
    steps: int
    repeats: int
    allowed: int
    """Steps that were in flight when a start ended."""


@dataclass
class Disk:
    """What would outlast a power cut."""

    synced: dict[int, int] = field(default_factory=dict)
    """Bytes of each file, by inode."""
    named: dict[int, dict[str, int]] = field(default_factory=dict)
    """Entries of each folder."""

    @staticmethod
    def settled(root: Path) -> Disk:
        """A disk on which everything is where it seems to be."""
        disk = Disk()
        for path in (root, *root.rglob("*")):
            if path.is_dir():
                disk.note_names(path)
            else:
                disk.synced[path.stat().st_ino] = path.stat().st_size
        return disk

    def note_names(self, folder: Path) -> None:
        self.named[folder.stat().st_ino] = {entry.name: entry.inode() for entry in os.scandir(folder)}


class Machine:
    """A clock, and a disk that remembers what was synced."""

    def __init__(
        self, chance: random.Random, root: Path, disk: Disk | None, *, kind: str, at: int, halt: Halt
    ) -> None:
        self.chance, self.root, self.kind, self.at, self.halt = chance, root, kind, at, halt
        self.now = 0.0
        self.moment = 0
        self.struck = False
        self.left: Path | None = None
        """What a crash left of the disk."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self.disk = disk or Disk.settled(root)

    def pass_moment(self) -> None:
        """Something happens; perhaps it is the last thing that does."""
        self.moment += 1
        if self.moment != self.at or self.struck:
            return
        self.struck = True
        if self.kind == "halt":
            self.halt.set("halted")
        elif self.kind in ("kill", "power") and self.loop is not None:
            self.left = self.root.with_name(f"{self.root.name}+")
            survives = Disk()
            self._survive(self.root, self.left, survives)
            # A killed process leaves what it wrote in the system's memory, synced or not; a power cut leaves the disk.
            self.disk = survives if self.kind == "kill" else Disk.settled(self.left)
            self.loop.stop()

    @property
    def dead(self) -> bool:
        """Whether what happens now happens only in the harness, which has to end its tasks."""
        return self.left is not None

    def _survive(self, source: Path, target: Path, disk: Disk) -> None:
        """Copy what outlives the crash, and what is known of it."""
        target.mkdir()
        durable = self.disk.named.get(source.stat().st_ino, {})
        named = disk.named[target.stat().st_ino] = {}
        for path in sorted(source.iterdir()):
            inode = path.stat().st_ino
            is_named = durable.get(path.name) == inode
            if self.kind == "power" and not is_named and self.chance.random() < 0.5:
                continue
            copy = target / path.name
            if path.is_dir():
                self._survive(path, copy, disk)
            else:
                data, synced = path.read_bytes(), self.disk.synced.get(inode, 0)
                if self.kind == "power":
                    end = self.chance.randint(min(synced, len(data)), len(data))
                    data = data[:end] + bytes(len(data) - end if self.chance.random() < 0.3 else 0)
                copy.write_bytes(data)
                disk.synced[copy.stat().st_ino] = synced
            if is_named:
                named[path.name] = copy.stat().st_ino

    @contextlib.contextmanager
    def mounted(self) -> Generator[None]:
        """Have every write go through this machine."""
        real = {
            name: getattr(os, name) for name in ("write", "fsync", "fdatasync", "link", "unlink", "mkdir")
        }
        token = secrets.token_hex

        def refuse() -> None:
            self.pass_moment()
            # Another program frees space and fills it again.
            if self.kind == "full" and self.struck and self.chance.random() < 0.6:
                raise OSError(errno.ENOSPC, "No space left on device")

        def write(descriptor: int, data: bytes | memoryview) -> int:
            short = memoryview(data)[: self.chance.randint(1, len(data))]
            size = real["write"](descriptor, short)
            refuse()
            return size

        def sync(descriptor: int) -> None:
            refuse()
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                self.disk.note_names(Path(f"/proc/self/fd/{descriptor}"))
            else:
                self.disk.synced[status.st_ino] = status.st_size
            self.pass_moment()

        def unlink(path: Any, **kwargs: Any) -> None:
            self.pass_moment()
            status = os.stat(path, dir_fd=kwargs.get("dir_fd"))
            if status.st_nlink == 1:
                self.disk.synced.pop(status.st_ino, None)
            real["unlink"](path, **kwargs)

        def plain(name: str) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                refuse()
                result = real[name](*args, **kwargs)
                self.pass_moment()
                return result

            return call

        shims = {"write": write, "fsync": sync, "fdatasync": sync, "unlink": unlink}
        try:
            for name in real:
                setattr(os, name, shims.get(name) or plain(name))
            secrets.token_hex = lambda nbytes=6: f"{self.chance.getrandbits(8 * nbytes):0{2 * nbytes}x}"
            yield
        finally:
            for name, function in real.items():
                setattr(os, name, function)
            secrets.token_hex = token


class _Selector(selectors.SelectSelector):
    """Waits by moving the clock."""

    machine: Machine

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Violation("everybody waits and nothing will happen")
        self.machine.now += max(0.0, timeout)
        self.machine.pass_moment()
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on a machine's clock, whose threads are moments of the same one."""

    def __init__(self, machine: Machine) -> None:
        selector = _Selector()
        selector.machine = machine
        self.machine = machine
        super().__init__(selector)
        machine.loop = self

    def time(self) -> float:
        return self.machine.now

    def call_soon(self, *args: Any, **kwargs: Any) -> asyncio.Handle:
        self.machine.pass_moment()
        return super().call_soon(*args, **kwargs)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future: asyncio.Future[Any] = self.create_future()
        begun = self.machine.chance.random() < 0.7

        def run() -> None:
            if future.cancelled() and not begun:
                return
            try:
                result = func(*args)
            except Exception as error:
                if not future.cancelled():
                    future.set_exception(error)
            else:
                if not future.cancelled():
                    future.set_result(result)

        self.call_later(self.machine.chance.expovariate(50), run)
        return future


Key = tuple[int, int]


class Simulation:
    """One seed: a stage, and starts of it until it is complete."""

    def __init__(self, seed: int, root: Path) -> None:
        self.chance = random.Random(seed)
        self.root = root / "0"
        self.shard_size = self.chance.randint(1, 6)
        self.lengths = [self.chance.randint(1, 4) for _ in range(self.chance.randint(1, 18))]
        self.concurrency = self.chance.randint(1, 7)
        self.taken: Counter[Key] = Counter()
        self.used: set[Key] = set()
        """Steps whose result an item has seen."""
        self.lost: set[Key] = set()
        """Steps that were in flight when a start ended."""
        self.allowed = 0
        self.ends: Counter[str] = Counter()
        self.disk: Disk | None = None

    def run(self) -> Outcome:
        """Start until the stage is complete, and look at what is there."""
        RunFolder(self.root).create(Settings("f", {}, "0"))
        for start in range(MOST_STARTS + 1):
            kind = self.chance.choice(KINDS) if start < MOST_STARTS else "none"
            if _Start(self, kind).run():
                break
        else:
            raise Violation("not complete after an undisturbed start")
        self._look()
        repeats = sum(max(0, times - 1) for times in self.taken.values())
        if repeats > self.allowed:
            raise Violation(f"{repeats} steps were repeated, and {self.allowed} were in flight")
        return Outcome(self.ends, sum(self.lengths), repeats, self.allowed)

    def record(self, index: int) -> list[Any]:
        """What an undisturbed run makes of an item."""
        told = b""
        for step in range(self.lengths[index]):
            told = answer(index, step, told)
        return [index, told.hex()]

    def _look(self) -> None:
        folder = RunFolder(self.root)
        rows: list[Any] = []
        for shard in sorted(folder.committed("conversations")):
            marker = folder.marker("conversations", shard)
            data = (self.root / marker.file).read_bytes()
            if hashlib.sha256(data).hexdigest() != marker.sha256:
                raise Violation(f"the file of shard {shard} is not the one that was committed")
            rows += json.loads(data)
        if rows != [self.record(index) for index in range(len(self.lengths))]:
            raise Violation("the data differ from an undisturbed run's")
        if left := [path.name for path in (self.root / "journal").rglob("*") if path.is_file()]:
            raise Violation(f"journals are left: {left}")
        data = [path for path in (self.root / "data").rglob("*") if path.is_file()]
        if len(data) != len(folder.committed("conversations")):
            raise Violation(f"files without a marker are left: {len(data)}")


def answer(index: int, step: int, told: bytes) -> bytes:
    """What is said: it depends on all that was said before."""
    return hashlib.sha256(b"%d %d %s" % (index, step, told)).digest()[: 1 + (index + step) % 32]


def write(path: Path, records: Sequence[Any]) -> Written:
    """A shard as JSON, written piece by piece."""
    data = json.dumps(list(records)).encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_folder(path.parent)
    return Written(len(records), hashlib.sha256(data).hexdigest(), {})


class _Start:
    """One process's life."""

    def __init__(self, simulation: Simulation, kind: str) -> None:
        self.all, self.kind, self.chance = simulation, kind, simulation.chance
        self.halt = Halt()
        self.machine = Machine(
            self.chance, simulation.root, simulation.disk, kind=kind, at=self._moment(), halt=self.halt
        )
        self.folder = RunFolder(simulation.root)
        self.in_flight: set[Key] = set()
        self.open = 0
        self.durable = self._journaled()
        self.done = self.folder.committed("conversations")
        self.workload = Workload(
            name="conversations",
            count=len(simulation.lengths),
            work=self.work,
            write=write,
            fingerprint="f",
            shard_size=simulation.shard_size,
        )

    def _moment(self) -> int:
        # Runs differ in length by a lot: equally often among the first 10 moments, 100, 1,000.
        return self.chance.randint(1, self.chance.choice((10, 100, 1000, 3000)))

    def _journaled(self) -> set[Key]:
        """What can be read before the start, by the file format alone."""
        found: set[Key] = set()
        for path in (self.folder.root / "journal").rglob("*"):
            if path.is_file():
                entries: list[Any] = [msgspec.msgpack.decode(payload) for payload in journal.read(path)]
                found |= {(entry[0], entry[1]) for entry in entries}
        return found

    def run(self) -> bool:
        """Live until the end, whatever it is; True when the stage is complete."""
        loop = VirtualLoop(self.machine)
        complete = False
        with self.machine.mounted():
            try:
                complete = loop.run_until_complete(self._main())
                end = self.kind if self.machine.struck else "complete" if complete else self.kind
            except RuntimeError:
                if not self.machine.dead:
                    raise
                end = self.kind
            except (JournalBroken, CommitFailed, OSError):
                if self.kind != "full" or not self.machine.struck:
                    raise
                end = "full"
            finally:
                self._handle_end(loop)
        self.all.ends[end] += 1
        self._account()
        self.all.disk = self.machine.disk
        if self.machine.left is not None:
            shutil.rmtree(self.all.root)
            self.all.root = self.machine.left
            return False
        if not complete and self.kind == "none":
            raise Violation("an undisturbed start did not complete the stage")
        return complete

    async def _main(self) -> bool:
        workers = [self._work_here() for _ in range(2 if self.kind == "rivals" else 1)]
        return all(await asyncio.gather(*workers))

    async def _work_here(self) -> bool:
        work = StepPass(
            workloads=[self.workload],
            folder=self.folder,
            concurrency=self.all.concurrency,
            halt=self.halt,
        )
        return await run_here(work)

    def _handle_end(self, loop: VirtualLoop) -> None:
        """End what is left of the tasks, so that nothing warns about them."""
        while tasks := asyncio.all_tasks(loop):
            for task in tasks:
                task.cancel()
            with contextlib.suppress(RuntimeError):
                loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.close()

    def _account(self) -> None:
        if self.in_flight and (
            self.kind in ("halt", "none") or (not self.machine.struck and self.kind != "ill")
        ):
            raise Violation(f"ended by itself and left {sorted(self.in_flight)} in flight")
        self.all.allowed += len(self.in_flight)
        self.all.lost |= self.in_flight

    async def work(self, index: int, steps: Steps) -> list[Any]:
        if index // self.all.shard_size in self.done:
            raise Violation(f"item {index} is committed and was begun again")
        self.open += 1
        if self.open > self.all.concurrency * (2 if self.kind == "rivals" else 1):
            raise Violation("more items in flight than the window has room for")
        try:
            told = b""
            for step in range(self.all.lengths[index]):
                told = await self._step(index, step, told, steps)
            return [index, told.hex()]
        finally:
            self.open -= 1

    async def _step(self, index: int, step: int, told: bytes, steps: Steps) -> bytes:
        key = index, step

        async def make() -> bytes:
            self._take(key)
            await asyncio.sleep(self.chance.expovariate(10))
            if self.kind == "ill" and self.chance.random() < 0.1:
                self.in_flight.discard(key)
                self._forgive(key)
                raise Unfinished("the endpoint is ill")
            return answer(index, step, told)

        said = await steps.once(told or b"-", make)
        if said != answer(index, step, told):
            raise Violation(f"{key} was given an answer to something else")
        if not self.machine.dead:
            self.in_flight.discard(key)
            self.all.used.add(key)
        return said

    def _take(self, key: Key) -> None:
        if self.machine.dead:
            return
        if self.halt.reason:
            raise Violation(f"{key} was taken after the halt")
        if self.kind != "rivals":
            if key in self.durable:
                raise Violation(f"{key} was in the journal and was taken again")
            if key in self.all.used:
                raise Violation(f"{key} was used, so it was durable, and was taken again")
            if self.all.taken[key] and key not in self.all.lost:
                raise Violation(f"{key} was taken again and had not been in flight")
            self.all.taken[key] += 1
        self.in_flight.add(key)

    def _forgive(self, key: Key) -> None:
        """A call that failed is not paid."""
        if not self.machine.dead:
            self.all.taken[key] -= 1


def simulate(seed: int) -> Outcome:
    """Run one seed; raises `Violation` or whatever else went wrong."""
    base = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=base) as root:
        return Simulation(seed, Path(root)).run()
