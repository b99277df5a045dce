"""Files of a run on this machine's disk: journals, and data files, also those on their way to an object store."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Generator, Iterator
from pathlib import Path

from camel.core.errors import InputError, advice_for
from camel.runs.bits import BitSet
from camel.runs.listing import shard_in
from camel.runs.markers import new_attempt
from camel.storage import inside
from camel.storage.files import sync
from camel.storage.journal import Damage, Journal, JournalBroken, read, scan
from camel.storage.store import DiskStore

_ROOM = 256 << 10
"""Number of free bytes that journals need at least: room for the replies of all concurrent calls."""


class LocalFiles:
    """The files of a run in the local folder `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.several: dict[str, BitSet] = {}
        """The shards of each stage with several data files, as of a listing, until they are swept."""

    def path(self, name: str) -> Path:
        """Return the path of a file or folder below `root`. Raise `LinkInside` if it leads through a symbolic link."""
        return inside.path(self.root, name)

    def check_room(self) -> None:
        """Raise an `InputError` if journals cannot be written. Check this before any call is paid for."""
        probe = self.root / f".room-{new_attempt()}"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            probe.write_bytes(bytes(_ROOM))
        except OSError as error:
            raise InputError(
                f"cannot write journals in '{self.root}' ({error.strerror}): {advice_for(error) or 'fix this and run the same command again'}"
            ) from None
        finally:
            with contextlib.suppress(OSError):
                probe.unlink(missing_ok=True)

    def open_journal(self, stage: str, shard: int, attempt: str) -> Journal:
        """Open the journal of a new attempt."""
        return Journal(self.path(f"journal/{stage}/{shard:06d}-{attempt}"))

    def replay(
        self, stage: str, shard: int, damaged: Callable[[Damage], None] = lambda damage: None
    ) -> Generator[bytes]:
        """Yield all records that earlier attempts at a shard have journaled. `damaged` is called for each unreadable part."""
        for path, data in self.contents(stage, shard):
            for one in scan(path, data):
                if isinstance(one, Damage):
                    damaged(one)
                else:
                    yield one

    def attempts(self, stage: str, shard: int) -> Iterator[Iterator[bytes]]:
        """Yield, for each earlier attempt at a shard, an iterator over the journaled records."""
        return (read(path, data) for path, data in self.contents(stage, shard, waits=True))

    def contents(self, stage: str, shard: int, *, waits: bool = False) -> Iterator[tuple[Path, bytes]]:
        """Yield path and content of each journal of a shard. If `waits` is true, wait for copies that are on their way.

        Syncs the files first: records that a killed process wrote but did not sync are readable now, but a power failure
        could remove them after later steps were based on them.
        """
        for path in self.journals_of(stage, shard):
            settle(path)
            yield path, path.read_bytes()

    def journal_stages(self) -> list[str]:
        """Return the stages that have journals."""
        return DiskStore(self.root).folders("journal")

    def by_shard(self, part: str, stage: str, only: Container[int] | None = None) -> dict[int, list[Path]]:
        """Return the files of a stage in the subfolder `part` (`journal` or `data`), by the shard in their names. If `only` is
        given, return those of some shards."""
        found: dict[int, list[Path]] = {}
        for name in self._files(part, stage):
            shard = shard_in(name.partition("-")[0])
            if shard is not None and (only is None or shard in only):
                found.setdefault(shard, []).append(self.root / part / stage / name)
        return found

    def shards_with_data(self, stage: str) -> BitSet:
        """Return the shards with data files here, and note in `several` which have more than one."""
        found, several = BitSet(), BitSet()
        for name in self._files("data", stage):
            if (shard := shard_in(name.partition("-")[0])) is not None:
                (several if shard in found else found).add(shard)
        self.several[stage] = several
        return found

    def files(self, part: str, stage: str) -> list[Path]:
        """Return the files that attempts at a stage have written to the subfolder `part` (`journal` or `data`), unordered."""
        return [self.root / part / stage / name for name in self._files(part, stage)]

    def _files(self, part: str, stage: str) -> Iterator[str]:
        with contextlib.suppress(FileNotFoundError):
            names = inside.each_name(self.root, f"{part}/{stage}")
            yield from (name for name in names if "-" in name and name[0] != ".")

    def journals_of(self, stage: str, shard: int) -> list[Path]:
        """Return the journals of all attempts at a shard."""
        return sorted(path for path in self.files("journal", stage) if path.name.startswith(f"{shard:06d}-"))


def settle(path: Path) -> None:
    """Sync a file or folder, because a killed process may have left its data only in the page cache."""
    try:
        sync(path)
    except OSError as error:
        raise JournalBroken(f"{path}: {error.strerror}") from None
