"""Encodes plain values as bytes: the only data between a judge and a sandboxed program.

The one decision to know: decoding returns exact built-in types and nothing else. An object with its own methods cannot be
encoded, so no value from a sandbox can define its own equality. This module is also sent into the sandbox, so it imports
only what an interpreter has already loaded.
"""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import struct

# Not from `typing`: its import takes nearly as long as the start of an interpreter (8.6 and 10.7 ms of processor time).
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST_DEPTH = 100
"""Maximum nesting depth. A deeper value is not plain."""

MOST_CONTAINERS = 100_000
"""Maximum number of lists, sets and the like in a value: an empty set takes 5 bytes here, and 216 in memory."""
MOST_EQUAL = 64
"""Maximum number of members of a set with the same hash: each is compared with all the others."""
_DOUBLE = struct.Struct(">d")
_PAIR = struct.Struct(">dd")
_CONSTANTS: dict[int, Any] = {ord("N"): None, ord("T"): True, ord("F"): False, ord("E"): ...}


class NotPlain(Exception):
    """Raised for a value that cannot be encoded. The message is the name of its type."""


class BadBytes(Exception):
    """Raised for bytes that `encode` never writes."""


def encode(value: object) -> bytes:
    """Encode a plain value. Equal bytes mean equal values. Of a subclass, only the value of the built-in type is encoded."""
    parts: list[bytes] = []
    try:
        _encode(value, parts, 0)
    except RecursionError:
        raise NotPlain("a value nested too deeply") from None
    return b"".join(parts)


def _encode(value: Any, parts: list[bytes], depth: int) -> None:
    if depth > MOST_DEPTH:
        raise NotPlain("a value nested too deeply")
    # Use the methods of the built-in types, because a subclass may override them.
    if value is None:
        parts.append(b"N")
    elif value is True:
        parts.append(b"T")
    elif value is False:
        parts.append(b"F")
    elif isinstance(value, int):
        whole = int.__add__(value, 0)
        data = whole.to_bytes(whole.bit_length() // 8 + 1, "big", signed=True)
        parts.append(b"i" + len(data).to_bytes(4, "big") + data)
    elif isinstance(value, float):
        parts.append(b"f" + _DOUBLE.pack(float.__add__(value, -0.0)))
    elif isinstance(value, complex):
        exact = complex.__add__(value, complex(-0.0, -0.0))
        parts.append(b"c" + _PAIR.pack(exact.real, exact.imag))
    elif isinstance(value, str):
        data = str.encode(value, "utf-8", "surrogatepass")
        parts.append(b"s" + len(data).to_bytes(4, "big") + data)
    elif isinstance(value, bytes | bytearray):
        tag, data = (b"b" if isinstance(value, bytes) else b"a"), bytes(memoryview(value))
        parts.append(tag + len(data).to_bytes(4, "big") + data)
    elif isinstance(value, list):
        parts.append(b"l" + list.__len__(value).to_bytes(4, "big"))
        for item in list.__iter__(value):
            _encode(item, parts, depth + 1)
    elif isinstance(value, tuple):
        parts.append(b"t" + tuple.__len__(value).to_bytes(4, "big"))
        for item in tuple.__iter__(value):
            _encode(item, parts, depth + 1)
    elif isinstance(value, dict):
        parts.append(b"d" + dict.__len__(value).to_bytes(4, "big"))
        for key, item in dict.items(value):
            _encode(key, parts, depth + 1)
            _encode(item, parts, depth + 1)
    elif isinstance(value, set | frozenset):
        plain = isinstance(value, set)
        items = set.__iter__(value) if isinstance(value, set) else frozenset.__iter__(value)
        members = sorted(_alone(item, depth + 1) for item in items)
        parts.append((b"S" if plain else b"Z") + len(members).to_bytes(4, "big"))
        parts += members
    elif value is ...:
        parts.append(b"E")
    else:
        raise NotPlain(type(value).__name__)


def _alone(value: object, depth: int) -> bytes:
    parts: list[bytes] = []
    _encode(value, parts, depth)
    return b"".join(parts)


def decode(data: bytes) -> Any:
    """Decode a value. Raises `BadBytes` for anything that `encode` does not write."""
    try:
        value, end = _decode(data, 0, 0, [MOST_CONTAINERS])
    except (IndexError, struct.error, UnicodeDecodeError, TypeError, RecursionError) as error:
        raise BadBytes(type(error).__name__) from None
    if end != len(data):
        raise BadBytes("bytes after the value")
    return value


def _decode(data: bytes, at: int, depth: int, room: list[int]) -> tuple[Any, int]:
    if depth > MOST_DEPTH:
        raise BadBytes("nested too deeply")
    tag, at = data[at], at + 1
    if tag in _CONSTANTS:
        return _CONSTANTS[tag], at
    if tag == 102:  # f
        return _DOUBLE.unpack_from(data, at)[0], at + 8
    if tag == 99:  # c
        return complex(*_PAIR.unpack_from(data, at)), at + 16
    count = int.from_bytes(data[at : at + 4], "big")
    at += 4
    # Every item takes at least a byte, so reject a larger count before memory is allocated.
    if at + count > len(data):
        raise BadBytes("cut off")
    if tag == 105:  # i
        return int.from_bytes(data[at : at + count], "big", signed=True), at + count
    if tag == 115:  # s
        return data[at : at + count].decode("utf-8", "surrogatepass"), at + count
    if tag == 98:  # b
        return data[at : at + count], at + count
    if tag == 97:  # a
        return bytearray(data[at : at + count]), at + count
    room[0] -= 1
    if room[0] < 0:
        raise BadBytes("too many containers")
    items: list[Any] = []
    if tag == 100:  # d
        count *= 2
    elif tag not in (108, 116, 83, 90):
        raise BadBytes("no such tag")
    for _ in range(count):
        item, at = _decode(data, at, depth + 1, room)
        items.append(item)
    if tag == 108:  # l
        return items, at
    if tag == 116:  # t
        return tuple(items), at
    _check_hashes(items[::2] if tag == 100 else items)
    made = dict(zip(items[::2], items[1::2], strict=True)) if tag == 100 else set(items)
    if len(made) != (count // 2 if tag == 100 else count):
        # NaN is unequal to itself, so a set may contain several: only equal members are rejected.
        raise BadBytes("a member twice")
    return (frozenset(made) if tag == 90 else made), at


def _check_hashes(members: list[Any]) -> None:
    """Raise `BadBytes` if so many members have the same hash that a set of them would take minutes."""
    counts: dict[int, int] = {}
    for member in members if len(members) > MOST_EQUAL else ():
        value = hash(member)
        counts[value] = counts.get(value, 0) + 1
        if counts[value] > MOST_EQUAL:
            raise BadBytes("too many equal hashes")
