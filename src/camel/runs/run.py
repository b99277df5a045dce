"""A run's folder: the only truth about what has been done.

    run.json                            the configuration and its fingerprint
    journal/<stage>/<shard>-<attempt>   replies, durable before they are used; dropped once the shard is committed
    data/<stage>/<shard>-<attempt>.*    a finished shard; a file without a marker never happened
    committed/<stage>/<shard>.json      the marker, written last and only once
    compacted/<stage>/<range>.json      the marker of a file that holds many shards (`camel.runs.compact`)
    index/<stage>/*, text/<stage>/*     derived from the data (`camel.index`); may be missing
    again/<number>.json                 items that are done again (`camel.runs.again`)
    stages/<stage>.json                 what a stage was begun with that is not of the run's configuration
    batches/*.json                      what was submitted to a batch API (`camel.jobs.batched`)
    holders/<stage>.json                in an object store: which folder has the journals of a stage

The one decision to know: a marker is created, never replaced. A second process, such as a paused worker
or another machine, finds that it exists, and its own file is garbage.

A run lives in a folder, or in an object store (`open_folder("s3://bucket/prefix")`). The journal needs a disk either
way: a run in an object store also has a local folder, `root`, for its journals, lock and log, and for shards on their
way to the store. A run on a disk is its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import shutil
import tempfile
from collections.abc import Generator, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from camel.core.checks import closest
from camel.core.errors import Damaged, InputError
from camel.runs import again
from camel.runs.local_files import LocalFiles, settle
from camel.runs.markers import Marker, marker_name
from camel.runs.settings import SCHEMA, Holder, Settings
from camel.storage import inside
from camel.storage.files import make_folder, sync
from camel.storage.inside import check_name
from camel.storage.store import AT_ONCE, BucketStore, DiskStore, Store, ahead, is_remote

JOURNALS, USUAL_JOURNALS = "CAMEL_JOURNALS", "runs/.journals"
"""Environment: the folder below which runs in object stores keep their journals, and what it is unless set."""
HOLDER = "holder.json"
"""The file in such a folder that tells it from others."""
_AT_HAND = 256
"""Markers kept in memory at most."""
_FETCHES = 4
"""Files being fetched while others are read."""
DRIVER = ".driver"
"""The file in a run's folder while workers elsewhere may be at work for a driver, alive or just dead (`engine.fence`)."""
T = TypeVar("T")


class Kept(NamedTuple):
    """A data file where it lasts, for its marker."""

    file: str
    size: int


class RunFolder(LocalFiles):
    """A run: on a disk at `root`, or in `store` with its journals at `root`."""

    def __init__(self, root: Path, store: Store | None = None) -> None:
        super().__init__(root)
        self.store: Store = store or DiskStore(root)
        self._known: dict[str, set[int]] = {}
        """Shards seen committed; a marker never goes away."""
        self._recent: dict[tuple[str, int], Marker] = {}
        """Markers that are cached."""
        self._newest: dict[str, dict[int, int]] = {}
        """By stage and shard the last retry that has written it anew, when last listed."""

    @property
    def address(self) -> str:
        """Where the run is, as people write it."""
        return self.store.address

    @property
    def exists(self) -> bool:
        """Whether a run has been made here."""
        return self.store.exists("run.json")

    def create(self, settings: Settings) -> None:
        """Make a new run; an existing one is never overwritten."""
        data = msgspec.json.format(msgspec.json.encode(settings), indent=2)
        try:
            made = self.store.create("run.json", data)
            if isinstance(self.store, DiskStore):
                with contextlib.suppress(PermissionError):  # a folder in which one may write and not list
                    sync(self.root.parent)
        except OSError as error:
            raise InputError(f"cannot make a run in {self.address}: {error.strerror}") from None
        if not made:
            raise InputError(f"{self.address} holds a run already")

    def make_anew(self, settings: Settings) -> bool:
        """Give a run in which nothing was paid for yet other settings; False where something was."""
        with self.locked():
            if (
                self.stages()
                or self.store.folders("holders")
                or any(map(self._has_replies, self.journal_stages()))
            ):
                return False
            was = self.settings()
            self.store.remove(["run.json", *(f"accepted/{name}" for name in self.store.names("accepted"))])
            self.create(msgspec.structs.replace(settings, forked_from=was.forked_from))
        return True

    def settings(self) -> Settings:
        """What the run was made with."""
        self.check_links()
        try:
            settings = self._decoded("run.json", Settings)
        except FileNotFoundError:
            raise InputError(
                f"{self.address} is not a run: it has no run.json{self._meant()}; camel run list shows the runs in a folder"
            ) from None
        if settings.schema > SCHEMA:
            raise InputError(
                f"{self.address}/run.json has schema {settings.schema}, and this version of camel reads up to {SCHEMA}: upgrade it"
            )
        return settings

    def _meant(self) -> str:
        """A suggestion where there is no run here, and one with a similar name in the same folder on a disk."""
        if not self.on_disk:
            return ""
        try:
            beside = [
                path.parent.name
                for path in self.root.parent.glob("*/run.json")
                if path.parent.name.isprintable()
            ]
        except OSError:
            return ""
        close = closest(self.root.name, beside)
        return f" (did you mean {self.root.with_name(close)}?)" if close else ""

    def accepted(self) -> dict[str, Any]:
        """Changes of what the run was made with that a person has accepted since, the newest of each name."""
        found: dict[str, Any] = {}
        for name in sorted(self.store.names("accepted")):
            found |= self._decoded(f"accepted/{name}", dict[str, Any])
        return found

    def accept(self, changes: dict[str, Any]) -> None:
        """Keep changes that a person has accepted: what is committed stays, what is open continues with them."""
        number = len(self.store.names("accepted"))
        while not self.store.create(f"accepted/{number:06d}.json", msgspec.json.encode(changes)):
            number += 1

    def begun(self, stage: str, settings: dict[str, Any]) -> dict[str, Any]:
        """What a stage that is not of the run's configuration was begun with: `settings`, if nothing was done yet. The caller
        has `locked` the run."""
        name = f"stages/{stage}.json"
        done = self.committed(stage) or self._has_replies(stage)
        if not done and not self.held_elsewhere(stage):
            self.store.remove([name])
        self.store.create(name, msgspec.json.encode(settings))
        return self._decoded(name, dict[str, Any])

    def begun_with(self, stage: str) -> dict[str, Any]:
        """What a stage was begun with; empty where it has nothing of its own, or is not begun."""
        try:
            return self._decoded(f"stages/{stage}.json", dict[str, Any])
        except FileNotFoundError:
            return {}

    def _has_replies(self, stage: str) -> bool:
        """Whether something that was paid for is in the journals of a stage."""
        return any(True for shard in self.by_shard("journal", stage) for _ in self.replay(stage, shard))

    def has_own_settings(self, stage: str) -> bool:
        """Whether a stage was begun with something that is not of the run's configuration."""
        return self.store.exists(f"stages/{stage}.json")

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        """Keep a second process from working on the same run, and paying for it twice.

        What is locked is `root`: of a run in an object store that is the folder of its journals, for the store has no
        locks. A process that uses another such folder is kept out by `hold_journals`.
        """
        if isinstance(self.store, BucketStore):
            self._claim_journals()
        self.check_links()
        with inside.open_file(self.root, ".lock", inside.APPEND) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"another process is working on {self.address}: wait for it or stop it"
                ) from None
            yield

    def check_links(self) -> None:
        """Raise where something right in the run's folder is a link: a start writes to many files there."""
        with contextlib.suppress(OSError):
            inside.names(self.root)

    def _claim_journals(self) -> None:
        """Journals of another run, once at the same address, would answer what they were not asked."""
        data = self.store.get("run.json") if self.exists else b""
        beside = DiskStore(self.root)
        if data and not beside.create("claim.json", data) and beside.get("claim.json") != data:
            raise InputError(
                f"{self.root} has the journals of another run that was at {self.address}: remove that folder"
            )
        make_folder(self.root)

    def hold_journals(self, stage: str) -> None:
        """Have the journals of a stage here and nowhere else; of a run on a disk they are.

        A process with another folder, by mistake or at the same time, would pay for what is answered there. The folder
        holds them, not the process: every further start from it continues, wherever it has been moved.
        """
        if self.on_disk:
            return
        beside = DiskStore(self.root)
        # Here first: a process that is killed in between must find its own holder in the store, or none.
        beside.create(HOLDER, msgspec.json.encode(Holder(platform.node(), str(self.root.absolute()))))
        while not self.store.create(f"holders/{stage}.json", beside.get(HOLDER)):
            if other := self.held_elsewhere(stage):
                raise InputError(
                    f"the journals of {self.address} are in {other}, and what is answered there would be paid for again "
                    f"from {self.root}: start it there, or set {JOURNALS} so that they are found. If they are lost, remove "
                    f"{self.address}/holders/{stage}.json, and what is not committed is asked again"
                )

    def held_elsewhere(self, stage: str) -> Holder | None:
        """Which other folder has the journals of a stage."""
        if self.on_disk:
            return None
        try:
            holder = self._decoded(f"holders/{stage}.json", Holder)
        except FileNotFoundError:
            return None
        with contextlib.suppress(FileNotFoundError):
            if msgspec.json.decode(inside.read(self.root, HOLDER), type=Holder) == holder:
                return None
        return holder

    def stages(self) -> list[str]:
        """The stages of which something is committed; what a retry has committed is its stage's."""
        return [name for name in self.store.folders("committed") if not again.named(name).retry]

    def committed(self, stage: str) -> set[int]:
        """The shards of a stage that are finished, by the names of their markers alone."""
        self._look_for_retries(stage)
        known = self._known.setdefault(stage, set())
        # Markers only come: where all shards up to one are known, a store is asked for those after it. Not beyond
        # five digits: "1000000" sorts before "999999", and after "099999".
        first = next((shard for shard in range(100_000) if shard not in known), 100_000)
        after = f"{first - 1:06d}.json" if first else ""
        names = self.store.names(f"committed/{stage}", after=after)
        found = {int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdecimal()}
        if isinstance(self.store, DiskStore):
            return found
        known |= found
        return set(known)

    def is_committed(self, stage: str, shard: int) -> bool:
        """Whether a shard is finished."""
        return self.store.exists(marker_name(stage, shard))

    def marker(self, stage: str, shard: int) -> Marker:
        """Read a marker, the newest where a retry has written the shard anew."""
        if recent := self._recent.get((stage, shard)):
            return recent
        return self._decoded(marker_name(stage, shard, self.written_anew(stage).get(shard, 0)), Marker)

    def written_anew(self, stage: str) -> dict[int, int]:
        """By shard, the last retry that has written it anew, as far as is known since the stage was last listed."""
        if stage not in self._newest:
            self._look_for_retries(stage)
        return self._newest[stage]

    def _look_for_retries(self, stage: str) -> None:
        found = {} if again.named(stage).retry else again.newest(self.store, stage)
        if found != self._newest.get(stage, {}):
            self._recent = {}
        self._newest[stage] = found

    def have_at_hand(self, marker: Marker) -> None:
        """Cache a marker: it is committed on a thread and read on an event loop, which must not wait for a store."""
        if len(self._recent) >= _AT_HAND:
            self._recent = {}
        self._recent[str(again.StageName(marker.stage, marker.retry)), marker.shard] = marker

    def markers(self, stage: str, shards: Iterable[int]) -> Iterator[Marker]:
        """Read many markers, of an object store several at once."""
        one = partial(self.marker, stage)
        return map(one, shards) if self.on_disk else ahead(one, shards, AT_ONCE)

    def commit(self, marker: Marker) -> bool:
        """Commit a shard; False where another process has."""
        return self.store.create(
            marker_name(marker.stage, marker.shard, marker.retry), msgspec.json.encode(marker)
        )

    def data_path(self, stage: str, shard: int, attempt: str, suffix: str) -> Path:
        """Where an attempt at a shard writes its file."""
        folder = self.path(f"data/{stage}")
        make_folder(folder)
        return folder / f"{shard:06d}-{attempt}{suffix}"

    def keep(self, path: Path) -> Kept:
        """Make a finished file at a `data_path` durable, before its marker is made."""
        kept = Kept(path.relative_to(self.root).as_posix(), path.stat().st_size)
        if isinstance(self.store, BucketStore):
            self.store.upload(path, kept.file)
            path.unlink()
        return kept

    def discard(self, path: Path) -> None:
        """Remove a file whose shard another process has committed."""
        path.unlink(missing_ok=True)
        if not self.on_disk:
            self.store.remove([path.relative_to(self.root).as_posix()])

    @property
    def on_disk(self) -> bool:
        """Whether the run's files can be opened where they are."""
        return isinstance(self.store, DiskStore)

    def read(self, file: str) -> bytes:
        """A small file of the run."""
        check_name(file)
        return self.store.get(file)

    @contextlib.contextmanager
    def opened(self, files: Iterable[str]) -> Generator[Iterator[Path]]:
        """Files of the run as local ones, one after the other; of an object store a few are fetched ahead.

        Each is there until the next is asked for.
        """
        if not isinstance(self.store, BucketStore):
            yield (self.path(file) for file in files)
            return
        store = self.store
        with tempfile.TemporaryDirectory(prefix="camel-") as scratch:

            def fetch(numbered: tuple[int, str]) -> Path:
                number, file = numbered
                path = Path(scratch) / f"{number}-{Path(file).name}"
                store.fetch(check_name(file), path)
                return path

            fetched = ahead(fetch, enumerate(files), _FETCHES)

            def each() -> Generator[Path]:
                for path in fetched:
                    yield path
                    path.unlink(missing_ok=True)

            with contextlib.closing(fetched):
                yield each()

    def fetch_all(self, files: Iterable[str], into: Path) -> list[Path]:
        """Copy files of a run in an object store to a local folder."""
        made: list[Path] = []
        with self.opened(files) as paths:
            for path in paths:
                made.append(into / path.name)
                shutil.move(path, made[-1])
        return made

    def save_beside(self, name: str) -> None:
        """Copy a file that lies with the journals, such as the log, to the object store."""
        if isinstance(self.store, BucketStore) and inside.exists(self.root, name):
            self.store.put(name, inside.read(self.root, name))

    def read_beside(self, name: str) -> bytes:
        """A file that lies with the journals, or the copy of it in the object store; empty when there is neither."""
        with contextlib.suppress(FileNotFoundError):
            return inside.read(self.root, name)
        with contextlib.suppress(FileNotFoundError):
            return self.store.get(name)
        return b""

    def journaled(self, stage: str) -> set[int]:
        """The shards that are being worked on, or were when the run stopped: those that have journals and no marker."""
        shards = set(self.by_shard("journal", stage))
        return shards - self.committed(stage) if shards else shards

    def drop_journals(self, stage: str, shard: int) -> None:
        """Remove the journals of a committed shard."""
        if not self.is_committed(stage, shard):
            raise AssertionError(f"shard {shard} of {stage} is not committed: its journals are still needed")
        _remove(self.journals_of(stage, shard))

    def sweep(self, stage: str) -> None:
        """Remove what a crash left behind of committed shards: their journals, and files that no marker names.

        Objects that no marker names are left to `camel run gc`: to find them a large run would have to be listed.
        """
        if self.on_disk:
            # The process that made the last names here may have been killed before they were durable.
            settle(self.root)
        for part in ("journal", "data", "committed"):
            for made in (self.path(part), self.path(f"{part}/{stage}")):
                if made.exists():
                    settle(made)
        for shard, paths in self.by_shard("journal", stage).items():
            if self.is_committed(stage, shard):
                _remove(paths)
        for shard, paths in self.by_shard("data", stage).items():
            if not self.on_disk:  # a copy on its way to the store
                if self.is_committed(stage, shard):
                    _remove(paths)
            # The rule is one file for each shard: resuming a large run does not read every marker.
            elif len(paths) > 1 and self.is_committed(stage, shard):
                named = self.root / self.marker(stage, shard).file
                _remove([path for path in paths if path != named])

    def _decoded(self, name: str, kind: type[T]) -> T:
        where = f"{self.address}/{name}"
        try:
            return msgspec.json.decode(self.store.get(name), type=kind)
        except FileNotFoundError:
            raise
        except NotADirectoryError:
            raise InputError(f"{self.address} is a file, and not the folder of a run") from None
        except OSError as error:
            raise InputError(f"cannot read {where}: {error.strerror}") from None
        except (msgspec.MsgspecError, RecursionError) as error:
            mend = "restore it from a copy"
            if name.startswith("committed/"):
                mend += f"; camel run verify {self.address} finds all that is damaged"
            raise Damaged(f"{where} is damaged: {error}: {mend}") from None


def open_folder(where: str | Path, journal: Path | None = None) -> RunFolder:
    """The run at a folder or an address such as `s3://bucket/prefix`, there or about to be made.

    `journal` is the folder, on a disk, of an object store's run for its journals. The one it had before must be used
    to continue what was in progress; what is committed needs none.
    """
    if not is_remote(where):
        return RunFolder(Path(where))
    store = BucketStore(str(where))
    return RunFolder(journal or journals() / store.address.replace("://", "/"), store)


def journals() -> Path:
    """Where the journals of runs in object stores are, each run's in a folder of its own."""
    return Path(os.environ.get(JOURNALS) or USUAL_JOURNALS)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
