"""Names of markers, and the listing of a stage's markers.

The one decision to know: names sort by the number of their shard, so an object store can list ranges of shards in parallel,
and a later listing skips the ranges that are known completely. Names have six digits. From a million on, each further digit
is preceded by a `z`, which sorts after all digits.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from camel.runs.bits import BitSet
from camel.storage.store import PAGE, BucketStore, DiskStore, Store, ahead

DIGITS, MORE = 6, "z"
MOST_DIGITS = 8
"""Longest number of a shard. Names with a longer one are ignored, because a set of such numbers would fill the memory."""
_LISTS = 16
"""Number of ranges that are listed at the same time."""
_LONGEST = 16 * PAGE
"""Largest number of shards in a range."""


def shard_file(shard: int) -> str:
    """Return the name of a shard's marker in its folder."""
    digits = f"{shard:0{DIGITS}d}"
    return f"{MORE * (len(digits) - DIGITS)}{digits}.json"


def shard_in(digits: str) -> int | None:
    """Return the shard with this number, or None if it is no number of a shard."""
    return int(digits) if len(digits) <= MOST_DIGITS and digits.isdecimal() else None


def shards_in(names: Iterable[str]) -> BitSet:
    """Return the shards whose markers have these names. Other names are ignored."""
    found = BitSet()
    for name in names:
        if name.endswith(".json") and (number := shard_in(name[:-5].lstrip(MORE))) is not None:
            found.add(number)
    return found


def list_shards(store: Store, folder: str, known: BitSet) -> BitSet:
    """Return the shards with a marker in a folder. `known` has those of an earlier listing: markers are never removed."""
    if isinstance(store, DiskStore):
        return shards_in(store.each_name(folder))
    if not store.lists_ranges:
        return known | shards_in(store.names(folder))
    *gaps, (tail, _) = known.gaps(PAGE)
    pieces = [
        (start, min(end, start + _LONGEST)) for first, end in gaps for start in range(first, end, _LONGEST)
    ]
    one = partial(_list_range, store, folder)
    for found, _ in ahead(one, pieces, _LISTS):
        known |= found
    # The end is unknown, so it is searched in wider and wider ranges.
    width, ranges = PAGE, 1
    while tail >= 0:
        pieces = [(tail + width * place, tail + width * (place + 1)) for place in range(ranges)]
        for found, after in ahead(one, pieces, _LISTS):
            known, tail = known | found, after if tail >= 0 else tail
        width, ranges = min(_LONGEST, width * (4 if ranges > 1 else 1)), _LISTS
    return known


def _list_range(store: BucketStore, folder: str, shards: tuple[int, int]) -> tuple[BitSet, int]:
    """Return the shards of a range, and the number from which to continue, or -1 if there are no later ones."""
    first, end = shards
    names, more = store.names_between(folder, shard_file(first - 1) if first else "", shard_file(end - 1))
    found = shards_in(names)
    if not more:
        return found, -1
    last = max(shards_in(names[-1:]), default=0)
    return found, last + 1 if last >= end and shard_file(last) == names[-1] else end
