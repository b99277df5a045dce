"""The facets of conversations: properties for filtering and counting."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from camel.core.message import Usage

FOLDER = "index"
VERSION = 3
"""Version of the index layout. Files of other versions are rebuilt."""
SEPARATOR = "\x1f"
"""Separator around each element of a set, such as the labels. There are few different sets, so the column stays small."""
TASK_CHARS = 160
MOST_VALUES = 5_000
"""Maximum number of values of a facet, and of sets of labels, for which a file contains counts."""
Cost = Callable[[str, Usage], float | None]
"""A function that returns the cost of a model's usage in US dollars, or None if the price is unknown."""


class Facet(NamedTuple):
    """A property for filtering and counting conversations."""

    column: str
    many: bool = False
    """Whether the column contains a set, so that a conversation may have several values or none."""
    edges: tuple[float, ...] = ()
    """Lower edges of the buckets of a number. The values of the facet are then the names of the buckets."""


FACETS: dict[str, Facet] = {
    "scenario": Facet("scenario"),
    "assistant": Facet("assistant"),
    "user": Facet("user"),
    "other": Facet("others", many=True),
    "stop": Facet("stop"),
    "finding": Facet("findings", many=True),
    "label": Facet("labels", many=True),
    "tool": Facet("tools", many=True),
    "model": Facet("model"),
    "length": Facet("messages", edges=(0, 2, 3, 11, 21, 31, 41)),
    "size": Facet("tokens", edges=(0, 1_000, 10_000, 100_000, 1_000_000)),
    "cost": Facet("cost", edges=(0, 0.001, 0.01, 0.1, 1)),
}
"""Facets by their names in queries."""
COUNTED = {**FACETS, "messages": Facet("messages")}
"""The columns that a file counts: the facets, and the exact number of messages, which range filters need."""
NUMBERS = ("messages", "tokens", "calls", "cost")
"""Numeric columns for sorting and filtering."""


@cache
def bucket_names(facet: Facet) -> tuple[str, ...]:
    """Return the names of a facet's buckets in order, with `unknown` first."""
    last = f"{facet.edges[-1]:g}+" if facet.edges[-1] < 1e6 else f"{facet.edges[-1]:.0f}+"
    return (*(_between(low, high) for low, high in pairwise(facet.edges)), last)


def _between(low: float, high: float) -> str:
    if isinstance(low, int) and isinstance(high, int):
        return f"{low}" if high == low + 1 else f"{low}-{high - 1}"
    return f"{low:g}-{high:g}"


UNKNOWN = "unknown"


def bucket(facet: Facet, value: float | None) -> str:
    """Return the name of the bucket of a number."""
    if value is None:
        return UNKNOWN
    return bucket_names(facet)[max(0, bisect_right(facet.edges, value) - 1)]


def joined(values: Iterable[str]) -> str:
    """Return a set as the text that a column stores. The empty set is an empty string."""
    clean = sorted({value.replace(SEPARATOR, " ") for value in values} - {""})
    return f"{SEPARATOR}{SEPARATOR.join(clean)}{SEPARATOR}" if clean else ""


def elements(text: str) -> list[str]:
    """Return the elements of a set that a column stores as text."""
    return text[1:-1].split(SEPARATOR) if text else []
