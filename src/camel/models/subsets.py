"""Which replicas each worker of a cluster uses. Runs in the coordinator.

The one decision to know: with many replicas a worker uses only some of them, so that the cost of a worker does not grow
with the size of the cluster. Every replica has about the same number of workers, and each change of workers or replicas
moves as few pairs as this allows. Which ones follows from a hash of the pair (rendezvous hashing).
"""

from __future__ import annotations

import hashlib
import heapq
import zlib
from collections.abc import Collection, Mapping

import msgspec

FEW = 20
"""Maximum number of replicas that all workers use."""
SMALLEST = 16
"""Least number of replicas of a worker, so that it has others when some fail."""
OVERLAP = 2
"""Least number of workers of a replica, so that one can die."""


class ReplicaList(msgspec.Struct, frozen=True):
    """The replicas that a worker knows, if they are more than `FEW`."""

    digest: str
    """A hash of the list."""
    packed: bytes = b""
    """The compressed list. Sent only on request."""

    def unpack(self) -> tuple[str, ...]:
        """Return the addresses, in the order that positions refer to."""
        return tuple(zlib.decompress(self.packed).decode().split("\n"))


class Subset(msgspec.Struct, frozen=True):
    """The replicas of one worker."""

    digest: str
    """The list that the positions refer to."""
    positions: tuple[int, ...]
    workers: tuple[int, ...]
    """The number of workers of each of these replicas."""

    def weights(self, urls: Collection[str]) -> dict[str, float]:
        """Return its replicas in a list, with the part of their load that this worker should cause. Empty if the subset is of
        another list."""
        if digest_of(urls) != self.digest:
            return {}
        order = sorted(urls)
        return {
            order[place]: 1 / max(1, count) for place, count in zip(self.positions, self.workers, strict=True)
        }


def digest_of(urls: Collection[str]) -> str:
    """Return a hash of a list of addresses in any order."""
    return hashlib.blake2b("\n".join(sorted(urls)).encode(), digest_size=8).hexdigest()


def pack(urls: Collection[str]) -> bytes:
    """Compress a list of addresses."""
    return zlib.compress("\n".join(sorted(urls)).encode())


def subset_size(workers: int, replicas: int) -> int:
    """Return how many replicas each worker uses."""
    return min(replicas, max(SMALLEST, -(-OVERLAP * replicas // workers)))


def assign_subsets(
    workers: Collection[str], replicas: Collection[str], size: int, before: Mapping[str, Collection[str]]
) -> dict[str, set[str]]:
    """Return `size` replicas for each worker, as many as possible of those it had `before`."""
    on: dict[str, set[str]] = {replica: set() for replica in replicas}
    kept = {worker: {one for one in before.get(worker, ()) if one in on} for worker in workers}
    for worker, its in kept.items():
        for replica in its:
            on[replica].add(worker)
    for worker, its in kept.items():
        if len(its) > size:
            for replica in sorted(its, key=lambda one: (-len(on[one]), _score(worker, one)))[
                : len(its) - size
            ]:
                its.discard(replica)
                on[replica].discard(worker)
    part, more = divmod(len(workers) * size, len(on))
    for replica in sorted(on, key=lambda one: -len(on[one])):
        present, most = on[replica], part
        if len(present) > part and more:
            most, more = part + 1, more - 1
        order = sorted(present, key=lambda one: (-len(kept[one]), _score(one, replica)))
        for worker in order[: len(present) - most] if len(present) > most else ():
            kept[worker].discard(replica)
            present.discard(worker)
    heap = [(len(present), _score("", replica), replica) for replica, present in on.items()]
    heapq.heapify(heap)
    for worker, its in kept.items():
        passed: list[tuple[int, int, str]] = []
        while len(its) < size:
            entry = heapq.heappop(heap)
            replica = entry[2]
            if replica in its:
                passed.append(entry)
                continue
            its.add(replica)
            on[replica].add(worker)
            passed.append((entry[0] + 1, _score(worker, replica), replica))
        for entry in passed:
            heapq.heappush(heap, entry)
    return kept


def _score(worker: str, replica: str) -> int:
    return zlib.crc32(f"{worker} {replica}".encode("utf-8", "replace"))
