"""Files of a run on this machine's disk: data files, and journals in its folder, or in local folders with copies in its object
store."""

from __future__ import annotations

import contextlib
import platform
import shlex
from collections.abc import Callable, Container, Generator, Iterator
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import msgspec

from camel.core.errors import Damaged, InputError, advice_for
from camel.runs.again import named
from camel.runs.bits import BitSet
from camel.runs.copies import FOLDER, Copier
from camel.runs.listing import shard_in
from camel.runs.markers import new_attempt
from camel.runs.settings import Holder
from camel.storage import inside
from camel.storage.files import make_folder, sync
from camel.storage.journal import Damage, Journal, JournalBroken, read, scan
from camel.storage.store import BucketStore, DiskStore, Store

JOURNALS, USUAL_JOURNALS = "CAMEL_JOURNALS", "runs/.journals"
"""Name of the environment variable, and the default folder, for the journals of runs in object stores."""
HOLDER = "holder.json"
"""The file in a journal folder that identifies the folder."""
_ROOM = 256 << 10
"""Number of free bytes that journals need at least: room for the replies of all concurrent calls."""
T = TypeVar("T")


class RunJournals:
    """The files of a run on this machine's disk at `root`, and copies of the journals in `store` if nodes share no disk."""

    def __init__(self, root: Path, store: Store) -> None:
        self.root = root
        self.several: dict[str, BitSet] = {}
        """The shards of each stage with several data files, as of a listing, until they are swept."""
        self.store: Store = store
        self._copied: dict[str, bool] = {}
        """Whether the journals of a stage are copied, as of the last look."""

    @cached_property
    def copier(self) -> Copier | None:
        """Copies journals to the object store, once it is activated. None for a run on a disk."""
        return Copier(self.store, self.root) if isinstance(self.store, BucketStore) else None

    @property
    def on_disk(self) -> bool:
        """Whether the run's files are on a local disk."""
        return isinstance(self.store, DiskStore)

    def path(self, name: str) -> Path:
        """Return the path of a file or folder below `root`. Raise `LinkInside` if it leads through a symbolic link."""
        return inside.path(self.root, name)

    def check_room(self) -> None:
        """Raise an `InputError` if journals cannot be written. Check this before any call is paid for."""
        probe = self.root / f".room-{new_attempt()}"
        try:
            make_folder(self.root)
            probe.write_bytes(bytes(_ROOM))
        except OSError as error:
            raise InputError(
                f"cannot write journals in '{self.root}' ({error.strerror}): {advice_for(error) or 'fix this and run the same command again'}"
            ) from None
        finally:
            with contextlib.suppress(OSError):
                probe.unlink(missing_ok=True)

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

    def decoded(self, name: str, kind: type[T]) -> T:
        """Return what a JSON file of the run contains. Raise `Damaged` if it is unreadable."""
        where = f"{self.store.address}/{name}"
        try:
            return msgspec.json.decode(self.store.get(name), type=kind)
        except FileNotFoundError:
            raise
        except NotADirectoryError:
            raise InputError(f"'{self.store.address}' is a file, not the folder of a run") from None
        except OSError as error:
            raise InputError(f"cannot read '{where}': {error.strerror}") from None
        except (msgspec.MsgspecError, RecursionError) as error:
            advice = "restore it from a copy"
            if name.startswith(("committed/", "compacted/")):
                advice += (
                    f", or run `camel run verify {shlex.quote(self.store.address)}` for a list of all damage"
                )
            raise Damaged(f"{where} is damaged: {error}; {advice}") from None

    def claim_journals(self) -> None:
        """Raise an `InputError` if the local journals belong to another run that was at the same address before."""
        data = self.store.get("run.json") if self.store.exists("run.json") else b""
        beside = DiskStore(self.root)
        if data and not beside.create("claim.json", data) and beside.get("claim.json") != data:
            raise InputError(
                f"'{self.root}' has the journals of another run that was at '{self.store.address}' before: remove {self.root}"
            )
        make_folder(self.root)

    def own_holder(self) -> Holder:
        """Return the description of this folder, which is created if it is missing."""
        beside = DiskStore(self.root)
        with contextlib.suppress(FileNotFoundError):
            return msgspec.json.decode(beside.get(HOLDER), type=Holder)
        beside.create(HOLDER, msgspec.json.encode(Holder(platform.node(), str(self.root.absolute()))))
        return msgspec.json.decode(beside.get(HOLDER), type=Holder)

    def hold_journals(self, stage: str, *, copied: bool = False) -> None:
        """Record in the object store that this folder has the journals of a stage. Does nothing for a run on a disk.

        A process with another folder would pay again for replies in these journals. The folder owns them, not the
        process: a later process with this folder resumes, also after the folder was moved. If `copied` is true, or was
        before, the journals are copied to the store, and a process with any folder can resume.
        """
        if (copier := self.copier) is None:
            return
        name = f"holders/{stage}.json"
        mine = self.own_holder()  # the folder first: a kill in between is harmless
        while (there := self.holder(stage)) is None:
            self.store.create(name, msgspec.json.encode(mine))
        if there.token != mine.token and not there.copied:
            raise InputError(
                f"the journals of '{self.store.address}' are in {there}, and not in '{self.root}': run the command there, or set "
                f"{JOURNALS} to that folder's parent. If the journals are lost, remove "
                f"{self.store.address}/{name}; calls that are not committed are then paid for again"
            )
        if copied or there.copied:
            # Copied before any other folder may have a shard of this stage.
            copier.copy_left(self.is_committed)
            self.store.put(name, msgspec.json.encode(msgspec.structs.replace(mine, copied=True)))
            self._copied[stage] = True
            copier.activate()

    def holder(self, stage: str) -> Holder | None:
        """Return the folder that has the journals of a stage. Return None if no folder has any."""
        with contextlib.suppress(FileNotFoundError):
            return None if self.on_disk else self.decoded(f"holders/{stage}.json", Holder)
        return None

    def held_elsewhere(self, stage: str) -> Holder | None:
        """Return the other folder that has the journals of a stage. Return None if there is none."""
        if (holder := self.holder(stage)) is None:
            return None
        with contextlib.suppress(FileNotFoundError):
            if msgspec.json.decode(inside.read(self.root, HOLDER), type=Holder).token == holder.token:
                return None
        return holder

    def copies_journals(self) -> bool:
        """Return whether the journals of any stage are copied to the store."""
        return not self.on_disk and any(self.is_copied(name[:-5]) for name in self.store.names("holders"))

    def is_copied(self, stage: str) -> bool:
        """Return whether the journals of a stage are copied to the store."""
        if self.copier is None or self.copier.active:
            return self.copier is not None
        stage = named(stage).stage
        if stage not in self._copied:
            self._copied[stage] = bool((holder := self.holder(stage)) and holder.copied)
        return self._copied[stage]

    def is_committed(self, stage: str, shard: int) -> bool:
        """Return whether a shard is committed."""
        raise NotImplementedError

    def open_journal(self, stage: str, shard: int, attempt: str) -> Journal:
        """Open the journal of a new attempt. Close it with `close_journal`."""
        journal = Journal(self.path(f"journal/{stage}/{shard:06d}-{attempt}"))
        if self.copier is not None:
            self.copier.follow(journal)
        return journal

    async def close_journal(self, journal: Journal, *, finish: bool = True) -> None:
        """Close a journal. If `finish` is true and journals are copied, copy the rest first."""
        await journal.close()
        if self.copier is not None:
            await self.copier.close(journal, finish=finish)

    def contents(self, stage: str, shard: int, *, waits: bool = False) -> Iterator[tuple[Path, bytes]]:
        """Yield path and content of each journal of a shard, from the disk and from the copies of other nodes. If `waits` is
        true, wait for copies that are on their way.

        Syncs the files first: records that a killed process wrote but did not sync are readable now, but a power failure
        could remove them after later steps were based on them.
        """
        copies: dict[str, bytes] = {}
        if self.copier is not None and self.is_copied(stage):
            copies = self.copier.contents(stage, shard, self.journals_of(stage, shard), waits=waits)
        # A copy is the beginning of its journal, so both together have all bytes, even if the file is damaged.
        for path in self.journals_of(stage, shard):
            settle(path)
            data, copy = path.read_bytes(), copies.pop(path.name.partition("-")[2], b"")
            yield path, copy + data[len(copy) :]
        for attempt, data in copies.items():
            yield self.root / "journal" / stage / f"{shard:06d}-{attempt}", data

    def open_shards(self, stage: str) -> set[int]:
        """Return the shards with journals, committed or not."""
        shards = set(self.by_shard("journal", stage))
        if self.copier is not None and self.is_copied(stage):
            shards |= self.copier.shards(stage).keys()
        return shards

    def open_stages(self) -> list[str]:
        """Return the stages that have journals, here or in the store."""
        return sorted({*self.journal_stages(), *self.store.folders(FOLDER)})

    def drop_journals(self, stage: str, shard: int) -> None:
        """Remove the journals of a committed shard."""
        if not self.is_committed(stage, shard):
            raise AssertionError(f"shard {shard} of {stage} is not committed: its journals are needed")
        self.remove_journals(stage, shard)

    def remove_journals(self, stage: str, shard: int) -> None:
        """Remove the journals of a shard and their copies."""
        for path in self.journals_of(stage, shard):
            path.unlink(missing_ok=True)
        if self.copier is not None and self.is_copied(stage):
            self.copier.remove(stage, shard)


def settle(path: Path) -> None:
    """Sync a file or folder, because a killed process may have left its data only in the page cache."""
    try:
        sync(path)
    except OSError as error:
        raise JournalBroken(f"{path}: {error.strerror}") from None
