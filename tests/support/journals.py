"""The formats of a journal, written down a second time."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

TAG = b"\x07the-tag"
FIRST_MAGIC = b"camel journal 1\n"
HEAD_SIZE = 33


def header(tag: bytes = TAG) -> bytes:
    """What a file begins with."""
    start = b"camel-journal:2\n" + tag
    return start + struct.pack("<I", zlib.crc32(start))


def frame(
    payload: bytes,
    number: int = 0,
    first: int | None = None,
    previous: int = 0,
    *,
    tag: bytes = TAG,
    kind: int = 1,
    length: int | None = None,
    checksum: int | None = None,
) -> bytes:
    """One record; `length` and `checksum` may be wrong."""
    length = len(payload) if length is None else length
    checksum = zlib.crc32(payload) if checksum is None else checksum
    group = number if first is None else first
    head = tag + struct.pack("<IIIBII", number, group, previous, kind, length, checksum)
    return head + struct.pack("<I", zlib.crc32(head)) + payload


def frames(records: Sequence[bytes], groups: Sequence[int] = (), tag: bytes = TAG) -> list[bytes]:
    """The frames of a journal; `groups` are the sizes of what was written together, each record alone if it is empty."""
    made: list[bytes] = []
    previous = number = 0
    for size in groups or [1] * len(records):
        first = number
        for payload in records[first : first + size]:
            made.append(frame(payload, number, first, previous, tag=tag))
            previous = int.from_bytes(made[-1][HEAD_SIZE - 4 : HEAD_SIZE], "little")
            number += 1
    return made


def framed(records: Sequence[bytes], groups: Sequence[int] = (), tag: bytes = TAG) -> bytes:
    """A whole journal."""
    return header(tag) + b"".join(frames(records, groups, tag))


def first_format(records: Sequence[bytes]) -> bytes:
    """A whole journal of the first format."""
    return FIRST_MAGIC + b"".join(struct.pack("<II", len(one), zlib.crc32(one)) + one for one in records)


class Written(NamedTuple):
    """A record as a journal holds it."""

    start: int
    end: int
    number: int
    first: int
    """The number of the first record of its group."""
    payload: bytes


def written(data: bytes) -> list[Written]:
    """The records of an undamaged journal."""
    at, found = len(header()), list[Written]()
    while at < len(data):
        number, first, _, _, length, _ = struct.unpack_from("<IIIBII", data, at + len(TAG))
        end = at + HEAD_SIZE + length
        found.append(Written(at, end, number, first, data[end - length : end]))
        at = end
    return found
