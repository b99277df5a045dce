"""The results of queries to a catalogue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from camel.core.errors import InputError


class NeedsConsent(InputError):
    """A conversation has restricted labels, and the reader has not consented to all of them; `labels` lists those."""

    def __init__(self, labels: Iterable[str]) -> None:
        self.labels = tuple(sorted(labels))
        super().__init__(f"this conversation is labeled {', '.join(self.labels)}: it is shown after consent")


class NotThere(InputError):
    """The run does not exist, or does not contain the conversation."""


def first_few(run: str, notes: Sequence[str], most: int = 3) -> list[str]:
    """Return the first notes about damaged files of a run, and the number of further files."""
    more = [f"{run}: {len(notes) - most:,} more files"] if len(notes) > most else []
    return [*notes[:most], *more]


class ShownHit(msgspec.Struct, frozen=True):
    """A search hit in a conversation."""

    message: int
    """Number of the message, from 0; -1 if the hit is in the task."""
    pieces: tuple[tuple[str, bool], ...]
    """The text around the hit in pieces, each with True if it is a search word. Not escaped for HTML."""
    score: float


class Row(msgspec.Struct, frozen=True):
    """A conversation as shown in a list."""

    run: str
    id: str
    scenario: str
    assistant: str
    user: str
    others: tuple[str, ...]
    """Roles of other seats."""
    task: str
    """The beginning of the task."""
    stop: str
    model: str
    labels: tuple[str, ...]
    findings: tuple[str, ...]
    messages: int
    tokens: int
    completion: int
    calls: int
    cost: float | None
    """In US dollars; None if the price is unknown."""
    shard: int
    row: int
    """Position in its shard."""
    hit: ShownHit | None = None
    """The search hit, if the query has a text."""
    star: bool = False
    tags: tuple[str, ...] = ()
    note: str = ""
    """With `star` and `tags`: the reader's annotations (`camel.runs.annotations`)."""


class Page(msgspec.Struct, frozen=True):
    """A page of a list."""

    rows: list[Row]
    next: str | None
    """Cursor of the next page; None on the last page."""
    previous: str | None
    """Cursor of the previous page, for the parameter `before`; None on the first page."""
    total: int
    """Number of rows of the query."""
    at: int
    """Number of rows before this page."""
    notes: tuple[str, ...] = ()
    """Notes for the reader, for example that only a part was searched or that an index is missing."""


class Neighbors(NamedTuple):
    """The previous and the next conversation in the order of a query."""

    previous: Row | None
    next: Row | None


class Summary(NamedTuple):
    """Mean and quantiles of a number."""

    mean: float
    low: float
    """5% quantile."""
    median: float
    high: float
    """95% quantile."""


class Histogram(msgspec.Struct, frozen=True):
    """The distribution of a number."""

    number: str
    edges: list[float]
    """Start of each bar, and end of the last one."""
    series: dict[str, list[int]]
    """Conversations in each bar, by value of the facet; without a facet, under ""."""
    unknown: int
    """Conversations without the number."""
    summary: Summary | None = None


class Behaviors(msgspec.Struct, frozen=True):
    """Findings of the detectors in the conversations of a query."""

    conversations: int
    """Number of conversations that the detectors scanned."""
    lengths: dict[int, int]
    """Conversations by number of messages."""
    by_turn: dict[str, dict[str, dict[int, int]]]
    """Conversations by detector, seat and number of the message (from 0)."""
    roles: dict[str, int]
    """Conversations by role, if requested."""
    by_role: dict[str, dict[str, int]]
    """Conversations by detector and role, if requested."""

    def reached(self, turn: int) -> int:
        """Return the number of conversations with a message of this number, from 0; -1 means the whole conversation."""
        return sum(count for length, count in self.lengths.items() if length > turn)
