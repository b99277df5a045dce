"""What crosses the pipe: any plain value, exactly; nothing else, whatever bytes are sent."""

from __future__ import annotations

import collections
import enum
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camel.sandbox.values import MOST_DEPTH, BadBytes, NotPlain, decode, encode

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
)
KEYS = st.recursive(
    SCALARS, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=4
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(KEYS, inner)
        | st.sets(KEYS, max_size=4)
    ),
    max_leaves=30,
)


def types(value: object) -> object:
    """The types in a value, which `==` does not compare."""
    if isinstance(value, dict):
        return (dict, [(types(k), types(v)) for k, v in value.items()])
    if isinstance(value, list | tuple):
        return (type(value), [types(one) for one in value])
    return type(value)


@settings(deadline=None)
@given(VALUES)
def test_a_plain_value_comes_back_as_it_was(value: object):
    again = decode(encode(value))
    assert again == value
    assert types(again) == types(value)
    assert encode(again) == encode(value)


@settings(deadline=None)
@given(st.binary())
def test_bytes_are_a_value_or_damaged(data: bytes):
    try:
        value = decode(data)
    except BadBytes:
        return
    assert type(value).__module__ == "builtins"


@settings(deadline=None)
@given(VALUES, st.data())
def test_a_changed_byte_is_another_value_or_damaged(value: object, data: st.DataObject):
    whole = bytearray(encode(value))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(BadBytes):
        decode(bytes(whole[:at]))
    try:
        other = decode(bytes(whole))
    except BadBytes:
        return
    assert encode(other) != encode(value)


def test_a_count_that_cannot_be_is_not_believed():
    for tag in b"ilstdSZba":
        with pytest.raises(BadBytes):
            decode(bytes([tag]) + b"\xff\xff\xff\xff")


def test_nan_and_the_zeros_cross():
    assert math.isnan(decode(encode(math.nan)))
    assert math.copysign(1, decode(encode(-0.0))) == -1


class Liar(int):
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __add__(self, other: int) -> int:
        return 0


class Color(enum.IntEnum):
    RED = 4


@pytest.mark.parametrize(
    ("given_value", "plain"),
    [
        (Liar(7), 7),
        (Color.RED, 4),
        (collections.Counter("aab"), {"a": 2, "b": 1}),
        (collections.defaultdict(list, {1: [2]}), {1: [2]}),
        (collections.namedtuple("P", "x y")(1, 2), (1, 2)),
    ],
)
def test_of_a_subclass_only_the_value_crosses(given_value: object, plain: object):
    assert decode(encode(given_value)) == plain
    assert type(decode(encode(given_value))) is type(plain)


@pytest.mark.parametrize(
    "value", [object(), range(3), (x for x in ()), int, lambda: 1, collections.deque([1])]
)
def test_anything_else_does_not(value: object):
    with pytest.raises(NotPlain):
        encode(value)
    with pytest.raises(NotPlain):
        encode([[value]])


def test_depth_ends():
    value: object = 1
    for _ in range(MOST_DEPTH):
        value = [value]
    assert decode(encode(value)) == value
    with pytest.raises(NotPlain):
        encode([value])
    with pytest.raises(BadBytes):
        decode(b"l\x00\x00\x00\x01" * (MOST_DEPTH + 1) + b"N")
