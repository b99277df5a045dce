"""The results of queries to a catalogue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from camel.core.errors import InputError


class NeedsConsent(InputError):
    """Raised if a reader has not consented to restricted labels of a conversation. `labels` lists those labels."""

    def __init__(self, labels: Iterable[str]) -> None:
        self.labels = tuple(sorted(labels))
        super().__init__(f"this conversation is labeled {', '.join(self.labels)}: it is shown after consent")


class NotThere(InputError):
    """Raised if a run does not exist, or does not contain the conversation."""


def first_few(run: str, notes: Sequence[str]) -> list[str]:
    """Return the first three notes about damaged files of a run, and a note with the number of the others."""
    return [*notes[:3], *([f"{run}: {len(notes) - 3:,} more files"] if len(notes) > 3 else [])]


class ShownHit(msgspec.Struct, frozen=True):
    """A hit of a text search in a conversation."""

    message: int
    """Index of the message, from 0. It is -1 if the hit is in the task."""
    pieces: tuple[tuple[str, bool], ...]
    """The text around the hit, in pieces. The flag of a piece is True if it is a search word. Not escaped for HTML."""
    score: float


class Row(msgspec.Struct, frozen=True):
    """A conversation as shown in a list."""

    run: str
    id: str
    scenario: str
    assistant: str
    user: str
    others: tuple[str, ...]
    """Roles in seats other than user and assistant."""
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
    """Cost in US dollars. None if the price is unknown."""
    shard: int
    row: int
    """Index of the conversation in its shard."""
    hit: ShownHit | None = None
    """The search hit, if the query has a text."""
    star: bool = False
    tags: tuple[str, ...] = ()
    note: str = ""
    """The reader's annotations are `star`, `tags` and `note` (`camel.runs.annotations`)."""


class Page(msgspec.Struct, frozen=True):
    """A page of a list."""

    rows: list[Row]
    next: str | None
    """Cursor of the next page; None on the last page."""
    previous: str | None
    """Cursor of the previous page, for the parameter `before`; None on the first page."""
    total: int
    """Number of all rows of the query, on all pages."""
    at: int
    """Number of rows before this page."""
    notes: tuple[str, ...] = ()
    """Notes for the reader, for example that only a part was searched or that an index is missing."""


class Neighbors(NamedTuple):
    """The previous and the next conversation in the order of a query."""

    previous: Row | None
    next: Row | None


class Summary(NamedTuple):
    """Mean and quantiles of a numeric column."""

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
    """Left edge of each bar, and the right edge of the last one."""
    series: dict[str, list[int]]
    """Number of conversations in each bar, by value of the facet. Without a facet, the only key is ""."""
    unknown: int
    """Number of conversations for which the number is unknown."""
    summary: Summary | None = None


class Behaviors(msgspec.Struct, frozen=True):
    """Findings of the detectors in the conversations of a query."""

    conversations: int
    """Number of conversations that the detectors scanned."""
    lengths: dict[int, int]
    """Number of conversations by their number of messages."""
    by_turn: dict[str, dict[str, dict[int, int]]]
    """Number of conversations with a finding, by detector, seat and index of the message (from 0)."""
    roles: dict[str, int]
    """Number of scanned conversations by role. Empty unless a role was requested."""
    by_role: dict[str, dict[str, int]]
    """Number of conversations with a finding, by detector and role. Empty unless a role was requested."""

    def reached(self, turn: int) -> int:
        """Return the number of conversations that have a message with index `turn`, from 0. For -1, count all of them."""
        return sum(count for length, count in self.lengths.items() if length > turn)
