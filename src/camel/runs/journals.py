"""Where the journals of a run are: in its folder, or in local folders with copies in its object store."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import msgspec

from camel.core.errors import Damaged, InputError
from camel.runs.again import named
from camel.runs.copies import FOLDER, Copier
from camel.runs.local_files import LocalFiles
from camel.runs.settings import Holder
from camel.storage import inside
from camel.storage.files import make_folder
from camel.storage.journal import Journal
from camel.storage.store import BucketStore, DiskStore, Store

JOURNALS, USUAL_JOURNALS = "CAMEL_JOURNALS", "runs/.journals"
"""Name of the environment variable, and the default folder, for the journals of runs in object stores."""
HOLDER = "holder.json"
"""The file in a journal folder that identifies the folder."""
T = TypeVar("T")


class RunJournals(LocalFiles):
    """The journals of a run: on a disk at `root`, and their copies in `store` if nodes share no disk."""

    def __init__(self, root: Path, store: Store) -> None:
        super().__init__(root)
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
                advice += f", or run `camel run verify {self.store.address}` for a list of all damage"
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
        journal = super().open_journal(stage, shard, attempt)
        if self.copier is not None:
            self.copier.follow(journal)
        return journal

    async def close_journal(self, journal: Journal, *, finish: bool = True) -> None:
        """Close a journal. If `finish` is true and journals are copied, copy the rest first."""
        await journal.close()
        if self.copier is not None:
            await self.copier.close(journal, finish=finish)

    def contents(self, stage: str, shard: int, *, waits: bool = False) -> Iterator[tuple[Path, bytes]]:
        """Yield path and content of each journal of a shard, from the disk and from the copies of other nodes."""
        if self.copier is None or not self.is_copied(stage):
            yield from super().contents(stage, shard, waits=waits)
            return
        copies = self.copier.contents(stage, shard, self.journals_of(stage, shard), waits=waits)
        # A copy is the beginning of its journal, so both together have all bytes, even if the file is damaged.
        for path, data in super().contents(stage, shard):
            copy = copies.pop(path.name.partition("-")[2], b"")
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
