"""A run's folder, which alone decides what has been done.

    run.json                            the configuration and its fingerprint
    journal/<stage>/<shard>-<attempt>   replies, durable before they are used; dropped once the shard is committed
    data/<stage>/<shard>-<attempt>.*    a finished shard; a file without a marker does not count
    committed/<stage>/<shard>.json      the marker, written last and only once
    compacted/<stage>/<range>.json      the marker of a file that holds many shards (`camel.runs.compact`)
    index/<stage>/*, text/<stage>/*     derived from the data (`camel.index`); may be missing
    again/<number>.json                 items of a retry (`camel.runs.again`)
    plan/<number>.*                     rows of a table, or a preview (`camel.runs.plan`)
    stages/<stage>.json                 settings of a stage that are not in the run's configuration
    batches/*.json                      submissions to a batch API (`camel.jobs.batched`)
    holders/<stage>.json                in an object store: which folder has the journals of a stage
    copies/<stage>/<shard>/*            in an object store: copies of journals, if nodes share no disk (`camel.runs.copies`)

The one decision to know: a marker is created, never replaced. A second process, such as a paused worker or another
machine, finds that it exists, and its own file is garbage.

A run lives in a folder, or in an object store (`open_folder("s3://bucket/prefix")`). Journals always need a disk: a run
in an object store also has a local folder, `root`, for its journals, lock and log, and for shards on their way to the
store. For a run on a disk, `root` is the run itself.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shlex
import shutil
import tempfile
from collections.abc import Collection, Generator, Iterable, Iterator
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec

from camel.core.checks import closest
from camel.core.errors import InputError
from camel.runs import again
from camel.runs.bits import BitSet
from camel.runs.journals import JOURNALS, USUAL_JOURNALS, RunJournals, settle
from camel.runs.listing import list_shards
from camel.runs.markers import Marker, marker_name
from camel.runs.settings import SCHEMA, Settings
from camel.storage import inside
from camel.storage.files import make_folder, sync
from camel.storage.inside import check_name
from camel.storage.store import AT_ONCE, BucketStore, DiskStore, Store, ahead, is_remote
from camel.storage.system import fcntl

_AT_HAND = 256
"""Maximum number of cached markers."""
_FETCHES = 4
"""Number of files that are downloaded ahead of the reader."""
DRIVER = ".driver"
"""A file in a run's folder while workers on other machines may be running for a driver, alive or just dead (`engine.fence`)."""
T = TypeVar("T")


class RunFolder(RunJournals):
    """A run: on a disk at `root`, or in `store` with its journals at `root`."""

    def __init__(self, root: Path, store: Store | None = None) -> None:
        super().__init__(root, store or DiskStore(root))
        self._known: dict[str, BitSet] = {}
        """Shards in an object store that are known to be committed, by stage."""
        self._recent: dict[tuple[str, int], Marker] = {}
        """Cached markers, by stage and shard."""
        self._newest: dict[str, dict[int, int]] = {}
        """The last retry that has rewritten each shard, by stage, as of the last listing."""

    def __reduce__(self) -> Any:
        return RunFolder, (self.root, self.store)  # without cached markers

    @property
    def address(self) -> str:
        """The run's path or address."""
        return self.store.address

    @property
    def exists(self) -> bool:
        """Whether the folder or address contains a run."""
        return self.store.exists("run.json")

    def create(self, settings: Settings) -> None:
        """Create a new run. Raise an `InputError` if there already is one."""
        data = msgspec.json.format(msgspec.json.encode(settings), indent=2)
        try:
            made = self.store.create("run.json", data)
            if isinstance(self.store, DiskStore):
                with contextlib.suppress(PermissionError):  # a folder that is writable but not listable
                    sync(self.root.parent)
        except OSError as error:
            raise InputError(f"cannot create a run in '{self.address}': {error.strerror}") from None
        if not made:
            raise InputError(f"'{self.address}' already contains a run: choose another folder")

    def reset_settings(self, settings: Settings) -> bool:
        """Replace the settings of a run, unless calls were already paid for. Return whether they were replaced."""
        with self.locked():
            if (
                self.stages()
                or any(self.held_elsewhere(name[:-5]) for name in self.store.names("holders"))
                or any(map(self._has_replies, self.open_stages()))
            ):
                return False
            was = self.settings()
            self.store.remove(["run.json", *(f"accepted/{name}" for name in self.store.names("accepted"))])
            self.create(msgspec.structs.replace(settings, forked_from=was.forked_from))
        return True

    def settings(self) -> Settings:
        """Read the settings that the run was created with."""
        self.check_links()
        try:
            settings = self.decoded("run.json", Settings)
        except FileNotFoundError:
            raise InputError(
                f"'{self.address}' is not a run: it has no run.json{self._meant()}. `camel run list FOLDER` lists the runs in a folder"
            ) from None
        if settings.schema > SCHEMA:
            raise InputError(
                f"{self.address}/run.json has schema {settings.schema}, and this version of camel reads up to {SCHEMA}: upgrade camel"
            )
        return settings

    def _meant(self) -> str:
        """Return a hint that names a run with a similar name in the same folder. Return an empty text if there is none."""
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
        """Return the changes of settings that a user has accepted after the run was created, with the newest value per name."""
        found: dict[str, Any] = {}
        for name in sorted(self.store.names("accepted")):
            found |= self.decoded(f"accepted/{name}", dict[str, Any])
        return found

    def accept(self, changes: dict[str, Any]) -> None:
        """Store changes of settings that a user has accepted. They apply to items that are not committed yet."""
        number = len(self.store.names("accepted"))
        while not self.store.create(f"accepted/{number:06d}.json", msgspec.json.encode(changes)):
            number += 1

    def begun(self, stage: str, settings: dict[str, Any]) -> dict[str, Any]:
        """Store `settings` as those of a stage, unless calls of it were already paid for. Return the stored settings. The
        caller must have locked the run.
        """
        name = f"stages/{stage}.json"
        done = self.committed(stage) or self._has_replies(stage)
        if not done and not self.held_elsewhere(stage):
            self.store.remove([name])
        self.store.create(name, msgspec.json.encode(settings))
        return self.decoded(name, dict[str, Any])

    def begun_with(self, stage: str) -> dict[str, Any]:
        """Return the settings that are stored for a stage. They are empty if it has none or has not started."""
        try:
            return self.decoded(f"stages/{stage}.json", dict[str, Any])
        except FileNotFoundError:
            return {}

    def _has_replies(self, stage: str) -> bool:
        """Return whether the journals of a stage contain paid replies."""
        return any(True for shard in self.open_shards(stage) for _ in self.replay(stage, shard))

    def has_own_settings(self, stage: str) -> bool:
        """Return whether settings are stored for a stage in addition to the run's configuration."""
        return self.store.exists(f"stages/{stage}.json")

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        """Prevent a second process from working on the same run and paying twice.

        Locks `root`, which for a run in an object store is the folder of its journals, because the store has no locks.
        `hold_journals` excludes a process that uses another folder.
        """
        if isinstance(self.store, BucketStore):
            self.claim_journals()
        self.check_links()
        with inside.open_file(self.root, ".lock", inside.APPEND) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"another process is working on '{self.address}': wait for it, or stop it with `camel run stop {shlex.quote(self.address)}`"
                ) from None
            yield

    def check_links(self) -> None:
        """Raise `LinkInside` if there is a symbolic link directly in the run's folder. A run writes many files there."""
        with contextlib.suppress(OSError):
            inside.names(self.root)

    def stages(self) -> list[str]:
        """Return the stages with committed shards. Retries are not listed separately."""
        return [name for name in self.store.folders("committed") if not again.named(name).retry]

    def committed(self, stage: str) -> BitSet:
        """Return the committed shards of a stage. Only the names of markers are read."""
        self._look_for_retries(stage)
        found = list_shards(self.store, f"committed/{stage}", self._known.get(stage, BitSet()))
        if not self.on_disk:
            self._known[stage] = found
        return BitSet(found)

    def is_committed(self, stage: str, shard: int) -> bool:
        """Return whether a shard is committed."""
        return self.store.exists(marker_name(stage, shard))

    def marker(self, stage: str, shard: int) -> Marker:
        """Read the marker of a shard. If a retry has rewritten the shard, this is the newest marker."""
        if recent := self._recent.get((stage, shard)):
            return recent
        return self.decoded(marker_name(stage, shard, self.rewritten(stage).get(shard, 0)), Marker)

    def versions(self, stage: str, shard: int) -> list[Marker]:
        """Return the markers of a shard whose files are kept, the newest first.

        The files of older markers are kept if the run has a plan: they may have the conversations of inactive items.
        """
        newest = self.rewritten(stage).get(shard, 0)
        older = range(newest - 1, -1, -1) if newest and self.store.names("plan") else ()
        names = (marker_name(stage, shard, number) for number in older)
        found = [self.decoded(name, Marker) for name in names if self.store.exists(name)]
        return [self.marker(stage, shard), *found]

    def rewritten(self, stage: str) -> dict[int, int]:
        """Return, for each rewritten shard, the last retry that rewrote it, as of the last listing of the stage."""
        if stage not in self._newest:
            self._look_for_retries(stage)
        return self._newest[stage]

    def _look_for_retries(self, stage: str) -> None:
        found = {} if again.named(stage).retry else again.newest(self.store, stage)
        if found != self._newest.get(stage, {}):
            self._recent = {}
        self._newest[stage] = found

    def cache_marker(self, marker: Marker) -> None:
        """Cache a marker that was just written, so that the event loop need not wait for the store to read it."""
        if len(self._recent) >= _AT_HAND:
            self._recent = {}
        self._recent[str(again.StageName(marker.stage, marker.retry)), marker.shard] = marker

    def markers(self, stage: str, shards: Iterable[int]) -> Iterator[Marker]:
        """Read many markers. From an object store, several are read at the same time."""
        one = partial(self.marker, stage)
        return map(one, shards) if self.on_disk else ahead(one, shards, AT_ONCE)

    def commit(self, marker: Marker) -> bool:
        """Commit a shard by creating its marker. Return False if another process has already committed it."""
        return self.store.create(
            marker_name(marker.stage, marker.shard, marker.retry), msgspec.json.encode(marker)
        )

    def remove_shards(self, stage: str, shards: Collection[int]) -> None:
        """Remove the markers and journals of shards, also those of retries, so that the shards are made again."""
        for name in (stage, *map(str, again.retries(self.store, stage))) if shards else ():
            self.store.remove([marker_name(name, shard) for shard in sorted(shards)])
            for shard in self.open_shards(name).intersection(shards):
                self.remove_journals(name, shard)
        self._known.pop(stage, None)
        self._recent = {}
        self._look_for_retries(stage)

    def data_path(self, stage: str, shard: int, attempt: str, suffix: str) -> Path:
        """Return the path to which an attempt at a shard writes its data file."""
        folder = self.path(f"data/{stage}")
        make_folder(folder)
        return folder / f"{shard:06d}-{attempt}{suffix}"

    def persist(self, path: Path) -> tuple[str, int]:
        """Make a finished file at a `data_path` durable, before its marker is created. Return its name and size for the marker."""
        file, size = path.relative_to(self.root).as_posix(), path.stat().st_size
        if isinstance(self.store, BucketStore):
            self.store.upload(path, file)
            path.unlink()
        return file, size

    def discard(self, path: Path) -> None:
        """Remove the data file of an attempt whose shard another process has committed."""
        path.unlink(missing_ok=True)
        if not self.on_disk:
            self.store.remove([path.relative_to(self.root).as_posix()])

    def read(self, file: str) -> bytes:
        """Return the content of a small file of the run."""
        check_name(file)
        return self.store.get(file)

    @contextlib.contextmanager
    def opened(self, files: Iterable[str]) -> Generator[Iterator[Path]]:
        """Yield local paths of the run's files, one after the other. From an object store, a few are downloaded ahead.

        Each is valid until the next one is requested.
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

    def local_paths(self, files: Iterable[str]) -> list[Path]:
        """Return local paths of files, valid until this process ends. Files in an object store are downloaded."""
        if self.on_disk:
            return [self.path(file) for file in files]
        scratch = tempfile.mkdtemp(prefix="camel-")
        atexit.register(shutil.rmtree, scratch, ignore_errors=True)
        with self.opened(files) as paths:
            return [Path(shutil.move(path, scratch)) for path in paths]

    def copy_to_store(self, name: str) -> None:
        """Copy a file next to the journals, such as the log, to the object store."""
        if isinstance(self.store, BucketStore) and inside.exists(self.root, name):
            self.store.put(name, inside.read(self.root, name))

    def open_local(self, name: str) -> IO[bytes]:
        """Open a file next to the journals, or its copy in the object store. It is empty if there is neither."""
        with contextlib.suppress(FileNotFoundError):
            return inside.open_file(self.root, name)
        with contextlib.suppress(FileNotFoundError):
            return BytesIO(b"" if self.on_disk else self.store.get(name))
        return BytesIO()

    def read_local(self, name: str) -> bytes:
        """Return the content of such a file."""
        with self.open_local(name) as file:
            return file.read()

    def journaled(self, stage: str) -> set[int]:
        """Return the shards in progress, now or when the run stopped: those with journals but without a marker."""
        shards = self.open_shards(stage)
        return shards - self.committed(stage) if shards else shards

    def sweep(self, stage: str) -> None:
        """Remove the files of committed shards that a crash has left: journals, and data files that no marker names.

        Does not remove objects without a marker, because finding them needs a full listing; `camel run gc` does.
        """
        if self.on_disk:
            # The process that created the last names here may have been killed before they were durable.
            settle(self.root)
        for part in ("journal", "data", "committed"):
            for made in (self.path(part), self.path(f"{part}/{stage}")):
                if made.exists():
                    settle(made)
        for shard in sorted(self.open_shards(stage)):
            if self.is_committed(stage, shard):
                self.remove_journals(stage, shard)
        if not self.on_disk:  # copies on their way to the store
            for shard, paths in self.by_shard("data", stage).items():
                if self.is_committed(stage, shard):
                    _remove(paths)
            return
        # Usually a shard has one file, so resuming a large run does not read every marker.
        if stage not in self.several:
            self.shards_with_data(stage)
        several = self.several.pop(stage)
        for shard, paths in self.by_shard("data", stage, several).items() if several else ():
            if self.is_committed(stage, shard):
                named = {self.root / one.file for one in self.versions(stage, shard)}
                _remove([path for path in paths if path not in named])


def open_folder(where: str | Path, journal: Path | None = None) -> RunFolder:
    """Return the run at a folder or at an address such as `s3://bucket/prefix`. The run need not exist yet.

    `journal` is the local folder for the journals of a run in an object store. To resume items in progress, use the same
    folder as before; committed items do not need it.
    """
    if not is_remote(where):
        return RunFolder(Path(where))
    store = BucketStore(str(where))
    return RunFolder(journal or journals() / store.address.replace("://", "/"), store)


def journals() -> Path:
    """Return the folder with the journals of runs in object stores, one subfolder per run."""
    return Path(os.environ.get(JOURNALS) or USUAL_JOURNALS)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
