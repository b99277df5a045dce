"""A run's folder: the only truth about what has been done.

    run.json                            the configuration and its fingerprint
    journal/<stage>/<shard>-<attempt>   replies, durable before they are used; dropped once the shard is committed
    data/<stage>/<shard>-<attempt>.*    a finished shard; a file without a marker never happened
    committed/<stage>/<shard>.json      the marker, written last and only once

The one decision to know: a marker is created, never replaced. Whoever comes second, a paused worker or a second
machine, finds that it exists, and its own file is garbage.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec

from camel.core.errors import InputError
from camel.storage.journal import Journal, read, sync_folder

SCHEMA = 1


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
        self.root.mkdir(parents=True, exist_ok=True)
        data = msgspec.json.format(msgspec.json.encode(settings), indent=2)
        if not _create(self.root / "run.json", data):
            raise InputError(f"{self.root} holds a run already")

    def settings(self) -> Settings:
        """What the run was made with."""
        path = self.root / "run.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=Settings)
        except FileNotFoundError:
            raise InputError(f"{self.root} is not a run: it has no run.json") from None
        except msgspec.MsgspecError as error:
            raise InputError(f"{path} is damaged: {error}") from None

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
            names = [path.name for path in (self.root / "committed" / stage).iterdir()]
            return {int(name[:-5]) for name in names if name.endswith(".json")}
        return set()

    def marker(self, stage: str, shard: int) -> Marker:
        """Read a marker."""
        return msgspec.json.decode(self._marker_path(stage, shard).read_bytes(), type=Marker)

    def commit(self, marker: Marker) -> bool:
        """Declare a shard finished; False when somebody else has."""
        return _create(self._marker_path(marker.stage, marker.shard), msgspec.json.encode(marker))

    def data_path(self, stage: str, shard: int, attempt: str, suffix: str) -> Path:
        """Where an attempt at a shard writes its file."""
        folder = self.root / "data" / stage
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{shard:06d}-{attempt}{suffix}"

    def open_journal(self, stage: str, shard: int, attempt: str) -> Journal:
        """Start the journal of an attempt."""
        return Journal(self.root / "journal" / stage / f"{shard:06d}-{attempt}")

    def replay(self, stage: str, shard: int) -> Generator[bytes]:
        """Everything that earlier attempts at a shard have journaled."""
        for path in self._journals(stage, shard):
            yield from read(path)

    def drop_journals(self, stage: str, shard: int) -> None:
        """Remove the journals of a committed shard."""
        if not self._marker_path(stage, shard).exists():
            raise AssertionError(f"shard {shard} of {stage} is not committed: its journals are still needed")
        for path in self._journals(stage, shard):
            path.unlink(missing_ok=True)

    def _journals(self, stage: str, shard: int) -> list[Path]:
        return sorted((self.root / "journal" / stage).glob(f"{shard:06d}-*"))

    def _marker_path(self, stage: str, shard: int) -> Path:
        return self.root / "committed" / stage / f"{shard:06d}.json"


def new_attempt() -> str:
    """A name that no other attempt has."""
    return secrets.token_hex(6)


def _create(path: Path, data: bytes) -> bool:
    """Write a whole file that did not exist, durably; False when it exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{new_attempt()}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # A link, unlike a rename, fails when the name is taken.
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)
    return True
