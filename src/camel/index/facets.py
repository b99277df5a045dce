"""The facets of conversations: what they are told apart and counted by."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from camel.core.message import Usage

FOLDER = "index"
VERSION = 2
"""Of the layout; a file of another version is made anew."""
SEPARATOR = "\x1f"
"""Around each element of a set, such as the labels: few different sets, so that a column of them is small and quick."""
TASK_CHARS = 160
MOST_VALUES = 5_000
"""Values of a facet, and sets of labels, up to which a file counts its rows by them."""
Cost = Callable[[str, Usage], float | None]
"""Dollars of a model's usage, where its price is known."""


class Facet(NamedTuple):
    """A way to tell conversations apart."""

    column: str
    many: bool = False
    """Whether the column holds a set: a conversation may have several values, or none."""
    edges: tuple[float, ...] = ()
    """Of a number: where each bucket begins; the values are the buckets' names."""


FACETS: dict[str, Facet] = {
    "scenario": Facet("scenario"),
    "assistant": Facet("assistant"),
    "user": Facet("user"),
    "other": Facet("others", many=True),
    "stop": Facet("stop"),
    "finding": Facet("findings", many=True),
    "label": Facet("labels", many=True),
    "model": Facet("model"),
    "length": Facet("messages", edges=(0, 2, 3, 11, 21, 31, 41)),
    "size": Facet("tokens", edges=(0, 1_000, 10_000, 100_000, 1_000_000)),
    "cost": Facet("cost", edges=(0, 0.001, 0.01, 0.1, 1)),
}
"""By the names that queries use."""
COUNTED = {**FACETS, "messages": Facet("messages")}
"""What a file counts its rows by: the facets, and the number of messages as it is, for ranges of it."""
NUMBERS = ("messages", "tokens", "calls", "cost")
"""Columns by whose value can be sorted and filtered."""


@cache
def bucket_names(facet: Facet) -> tuple[str, ...]:
    """The names of a number's buckets, in order; `unknown` is before the first."""
    last = f"{facet.edges[-1]:g}+" if facet.edges[-1] < 1e6 else f"{facet.edges[-1]:.0f}+"
    return (*(_between(low, high) for low, high in pairwise(facet.edges)), last)


def _between(low: float, high: float) -> str:
    if isinstance(low, int) and isinstance(high, int):
        return f"{low}" if high == low + 1 else f"{low}-{high - 1}"
    return f"{low:g}-{high:g}"


UNKNOWN = "unknown"


def bucket(facet: Facet, value: float | None) -> str:
    """The bucket that a number falls into."""
    if value is None:
        return UNKNOWN
    return bucket_names(facet)[max(0, bisect_right(facet.edges, value) - 1)]


def joined(values: Iterable[str]) -> str:
    """A set as a column holds it; the empty set is empty."""
    clean = sorted({value.replace(SEPARATOR, " ") for value in values} - {""})
    return f"{SEPARATOR}{SEPARATOR.join(clean)}{SEPARATOR}" if clean else ""


def elements(text: str) -> list[str]:
    """The elements of such a set."""
    return text[1:-1].split(SEPARATOR) if text else []
