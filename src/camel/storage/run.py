"""A run's folder: the only truth about what has been done.

    run.json                            the configuration and its fingerprint
    journal/<stage>/<shard>-<attempt>   replies, durable before they are used; dropped once the shard is committed
    data/<stage>/<shard>-<attempt>.*    a finished shard; a file without a marker never happened
    committed/<stage>/<shard>.json      the marker, written last and only once
    stages/<stage>.json                 what a stage was begun with that is not of the run's configuration

The one decision to know: a marker is created, never replaced. Whoever comes second, a paused worker or a second
machine, finds that it exists, and its own file is garbage.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from camel.core.errors import InputError
from camel.storage.journal import Journal, JournalBroken, make_folder, read, sync

SCHEMA = 1
T = TypeVar("T")


class Marker(msgspec.Struct, frozen=True):
    """Says that a shard is finished, and which file holds it."""

    stage: str
    shard: int
    file: str
    """Relative to the run's folder."""
    rows: int
    sha256: str
    fingerprint: str
    totals: dict[str, float] = {}
    """Sums over its records: conversations, calls, tokens, money."""


class Settings(msgspec.Struct, frozen=True):
    """What `run.json` holds."""

    fingerprint: str
    config: dict[str, Any]
    version: str
    """Of the package that made the run."""
    forked_from: str = ""
    schema: int = SCHEMA


class RunFolder:
    """A run on a local disk."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def exists(self) -> bool:
        """Whether a run has been made here."""
        return (self.root / "run.json").exists()

    def create(self, settings: Settings) -> None:
        """Make a new run; an existing one is never overwritten."""
        data = msgspec.json.format(msgspec.json.encode(settings), indent=2)
        try:
            made = _create(self.root / "run.json", data)
            with contextlib.suppress(PermissionError):  # a folder in which one may write and not list
                sync(self.root.parent)
        except OSError as error:
            raise InputError(f"cannot make a run in {self.root}: {error.strerror}") from None
        if not made:
            raise InputError(f"{self.root} holds a run already")

    def settings(self) -> Settings:
        """What the run was made with."""
        path = self.root / "run.json"
        try:
            settings = _decoded(path, Settings)
        except FileNotFoundError:
            raise InputError(f"{self.root} is not a run: it has no run.json") from None
        if settings.schema > SCHEMA:
            raise InputError(
                f"{path} has schema {settings.schema}, and this version of camel reads up to {SCHEMA}: upgrade it"
            )
        return settings

    def begun(self, stage: str, settings: dict[str, Any]) -> dict[str, Any]:
        """What a stage that is not of the run's configuration was begun with: `settings`, if nothing was done yet."""
        path = self.root / "stages" / f"{stage}.json"
        journals = self._by_shard("journal", stage)
        if not self.committed(stage) and not any(
            True for shard in journals for _ in self.replay(stage, shard)
        ):
            path.unlink(missing_ok=True)
        _create(path, msgspec.json.encode(settings))
        return _decoded(path, dict[str, Any])

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        """Keep a second process on this machine from working on the same run, and paying for it twice."""
        with (self.root / ".lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"another process is working on {self.root}: wait for it or stop it"
                ) from None
            yield

    def committed(self, stage: str) -> set[int]:
        """The shards of a stage that are finished, by the names of their markers alone."""
        with contextlib.suppress(FileNotFoundError):
            names = os.listdir(self.root / "committed" / stage)  # noqa: PTH208 - tens of thousands of names
            return {int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdecimal()}
        return set()

    def marker(self, stage: str, shard: int) -> Marker:
        """Read a marker."""
        return _decoded(self._marker_path(stage, shard), Marker)

    def commit(self, marker: Marker) -> bool:
        """Declare a shard finished; False when somebody else has."""
        return _create(self._marker_path(marker.stage, marker.shard), msgspec.json.encode(marker))

    def data_path(self, stage: str, shard: int, attempt: str, suffix: str) -> Path:
        """Where an attempt at a shard writes its file."""
        folder = self.root / "data" / stage
        make_folder(folder)
        return folder / f"{shard:06d}-{attempt}{suffix}"

    def open_journal(self, stage: str, shard: int, attempt: str) -> Journal:
        """Start the journal of an attempt."""
        return Journal(self.root / "journal" / stage / f"{shard:06d}-{attempt}")

    def replay(self, stage: str, shard: int) -> Generator[bytes]:
        """Everything that earlier attempts at a shard have journaled.

        Made durable first: what a killed process wrote and did not sync can be read, and would be gone after a power
        cut, when the steps that followed from it are not.
        """
        for path in self._journals(stage, shard):
            _settle(path)
            yield from read(path)

    def drop_journals(self, stage: str, shard: int) -> None:
        """Remove the journals of a committed shard."""
        if not self._marker_path(stage, shard).exists():
            raise AssertionError(f"shard {shard} of {stage} is not committed: its journals are still needed")
        _remove(self._journals(stage, shard))

    def sweep(self, stage: str) -> None:
        """Remove what a crash left behind of committed shards: their journals, and files that no marker names."""
        # Whoever made the last names here may have been killed before they were durable.
        _settle(self.root)
        for part in (self.root / name for name in ("journal", "data", "committed")):
            for made in (part, part / stage):
                if made.exists():
                    _settle(made)
        for shard, paths in self._by_shard("journal", stage).items():
            if self._marker_path(stage, shard).exists():
                _remove(paths)
        for shard, paths in self._by_shard("data", stage).items():
            # The rule is one file for each shard: whoever resumes a large run does not read every marker.
            if len(paths) > 1 and self._marker_path(stage, shard).exists():
                named = self.root / self.marker(stage, shard).file
                _remove([path for path in paths if path != named])

    def _by_shard(self, part: str, stage: str) -> dict[int, list[Path]]:
        """The files of a stage in one part of the folder, by the shard in their names."""
        found: dict[int, list[Path]] = {}
        for path in (self.root / part / stage).glob("*-*"):
            if (number := path.name.partition("-")[0]).isdecimal():
                found.setdefault(int(number), []).append(path)
        return found

    def _journals(self, stage: str, shard: int) -> list[Path]:
        return sorted((self.root / "journal" / stage).glob(f"{shard:06d}-*"))

    def _marker_path(self, stage: str, shard: int) -> Path:
        return self.root / "committed" / stage / f"{shard:06d}.json"


def new_attempt() -> str:
    """A name that no other attempt has."""
    return secrets.token_hex(6)


def _settle(path: Path) -> None:
    try:
        sync(path)
    except OSError as error:
        raise JournalBroken(f"{path}: {error.strerror}") from None


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _decoded(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InputError(f"{path} is damaged: {error}") from None


def _create(path: Path, data: bytes) -> bool:
    """Write a whole file that did not exist, durably; False when it exists."""
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{new_attempt()}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # A link, unlike a rename, fails when the name is taken.
        os.link(temporary, path)
        made = True
    except FileExistsError:
        made = False
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)  # also when it is somebody else's: ours is given up because of it
    return made
