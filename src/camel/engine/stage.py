"""A workload: a count, a function from an item's index to its record, and how a shard of records is written.

A job's stage becomes a workload (`camel.jobs`). A shard is a range of indices, so items are never listed, and 300 million
of them take no more memory than ten.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import msgspec

from camel.record.parquet import Written
from camel.runs.bits import BitSet
from camel.runs.layout import Layout, Segment
from camel.runs.run import RunFolder
from camel.storage.files import sync, sync_folder

current_step: ContextVar[tuple[str, int, int] | None] = ContextVar("current_step", default=None)
"""The stage, the item and the number of the step that is being executed."""


Effect = Callable[[bool], Awaitable[bytes]]


class Steps(Protocol):
    """Makes the paid steps of an item durable; passed to the item's function."""

    async def once(self, check: bytes, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """Return the result of the item's next step: from the journal if it is there, otherwise from `make`, journaled.

        `check` identifies the request. If the journal has another check for this step, the function is not deterministic,
        and the run stops rather than pay again or use the answer to another request.
        """
        ...

    async def act(self, check: bytes, make: Effect, *, repeatable: bool = False, begin: Any = int) -> bytes:
        """Do the same for a step with an effect. The journal has an entry before `make` is called, unless it is `repeatable`.

        The argument of `make` is whether an earlier process called it, too, and died before the result was journaled.
        `begin` is called before that entry if the step is new, and may raise `Halted`.
        """
        ...


class JournaledStep(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The format of a step in the journal."""

    item: int
    step: int
    check: bytes
    result: bytes
    repaid: bool = False
    """Whether an earlier result was missing, so that later steps in other journals may not follow from this one."""
    begun: bool = False
    """Whether this is the entry before an effect. Another one with the result follows."""


NOTHING = msgspec.msgpack.encode((b"",))
"""The result in an entry before an effect, in the format of a step that is not a model call."""
read_step = msgspec.msgpack.Decoder(JournaledStep).decode
write_step = msgspec.msgpack.Encoder().encode


def write_whole(path: Path, data: bytes, rows: int) -> Written:
    """Write a shard from bytes, durably."""
    path.write_bytes(data)
    sync(path)
    sync_folder(path.parent)
    return Written(rows, hashlib.sha256(data).hexdigest())


def write_lines(path: Path, records: Sequence[Any]) -> Written:
    """Write a shard of structs as JSON lines, durably."""
    return write_whole(path, b"".join(msgspec.json.encode(one) + b"\n" for one in records), len(records))


@dataclass(frozen=True, slots=True, kw_only=True)
class StageItems:
    """The items of a stage, numbered from 0, in shards."""

    name: str
    """The name of the stage."""
    count: int
    fingerprint: str = ""
    """Hash of what determines the records, stored with each shard. Default: a hash of the stage's identity."""
    suffix: str = ".parquet"
    shard_size: int = 1024
    segments: tuple[Segment, ...] = ()
    """The segments of items; empty: all items are one segment with shards of `shard_size`."""
    inactive: BitSet | None = None
    """Items that are not worked on, because their rows were deleted or changed."""
    items: Mapping[int, Sequence[int]] | None = None
    """The items to work on, by shard; None: all."""
    layout: Layout = field(init=False, compare=False)
    """Which items are in which shard."""

    def __post_init__(self) -> None:
        segments = self.segments or (Segment(self.count, self.shard_size),)
        object.__setattr__(self, "layout", Layout(segments, self.inactive))

    @property
    def numbers(self) -> Sequence[int]:
        """The indexes of the shards to commit, in order."""
        return range(self.layout.shards) if self.items is None else sorted(self.items)

    @property
    def planned(self) -> int:
        """Number of items to work on."""
        return self.layout.active if self.items is None else sum(map(len, self.items.values()))

    def indices(self, shard: int) -> Sequence[int]:
        """Return the indexes of the items in a shard to work on."""
        return self.layout.items(shard) if self.items is None else self.items[shard]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload(StageItems):
    """The items of a stage, and what the engine does with them."""

    work: Callable[[int, Steps], Awaitable[Any]]
    """Returns the record of an item. The failure of a single item is also a record; an exception stops the run."""
    write: Callable[[Path, Sequence[Any]], Written]
    """Writes the records of a shard durably, ordered by index. Called on a thread."""


class ShardTable:
    """Numbers the shards of several workloads consecutively, so that they can be leased together."""

    def __init__(self, workloads: Sequence[Workload]) -> None:
        self.workloads = list(workloads)
        self._numbers = [one.numbers for one in workloads]
        self._starts = [0, *accumulate(map(len, self._numbers))]
        self._places = {one.name: place for place, one in enumerate(self.workloads)}

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, number: int) -> tuple[Workload, int]:
        """Return the workload of a shard, and the shard's index in it."""
        place = bisect_right(self._starts, number) - 1
        return self.workloads[place], self._numbers[place][number - self._starts[place]]

    def number(self, name: str, shard: int) -> int:
        """Return the number of a shard in this table."""
        place = self._places[name]
        return self._starts[place] + bisect_left(self._numbers[place], shard)

    def done(self, folder: RunFolder) -> BitSet:
        """Return the numbers of committed shards."""
        found = BitSet()
        for start, one, numbers in zip(self._starts, self.workloads, self._numbers, strict=False):
            there = folder.committed(one.name)
            if isinstance(numbers, range):
                there &= BitSet.of_range(0, len(numbers))
            else:
                there = BitSet(place for place, shard in enumerate(numbers) if shard in there)
            found |= there.shifted(start)
        return found
