"""What the catalogue answers with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from camel.core.errors import InputError


class NeedsConsent(InputError):
    """A conversation has a restricted label; `labels` says for which consent must be given first."""

    def __init__(self, labels: Iterable[str]) -> None:
        self.labels = tuple(sorted(labels))
        super().__init__(f"this conversation is labelled {', '.join(self.labels)}: it is shown after consent")


class NotThere(InputError):
    """There is no such run, or no such conversation in it."""


def first_few(run: str, notes: Sequence[str], most: int = 3) -> list[str]:
    """The first of what is said about damaged files of a run, and how many more there are."""
    more = [f"{run}: and {len(notes) - most:,} files more"] if len(notes) > most else []
    return [*notes[:most], *more]


class ShownHit(msgspec.Struct, frozen=True):
    """Where in a conversation words were found."""

    message: int
    """The message's place in the conversation, from 0; -1 where they are in its task."""
    pieces: tuple[tuple[str, bool], ...]
    """Its text around the words, in pieces; True where a piece is one of the words. Not escaped."""
    score: float


class Row(msgspec.Struct, frozen=True):
    """A conversation as a list shows it."""

    run: str
    id: str
    scenario: str
    assistant: str
    user: str
    others: tuple[str, ...]
    """Roles of other seats."""
    task: str
    """Its beginning."""
    stop: str
    model: str
    labels: tuple[str, ...]
    findings: tuple[str, ...]
    messages: int
    tokens: int
    completion: int
    calls: int
    cost: float | None
    """Dollars, where the price is known."""
    shard: int
    row: int
    """Where it stands: the row in its shard."""
    hit: ShownHit | None = None
    """What was found in it, where text was searched for."""
    star: bool = False
    tags: tuple[str, ...] = ()
    note: str = ""
    """What readers have said about it (`camel.runs.annotations`)."""


class Page(msgspec.Struct, frozen=True):
    """A part of a list."""

    rows: list[Row]
    next: str | None
    """The cursor of the page after it; None on the last."""
    previous: str | None
    """The cursor of the page before it, to be given as `before`."""
    total: int
    """All rows of the query."""
    at: int
    """How many rows are before the first of these."""
    notes: tuple[str, ...] = ()
    """What whoever reads it should know: that only a part was searched, or that an index is missing."""


class Neighbours(NamedTuple):
    """The conversations before and after one in the order of a query."""

    previous: Row | None
    next: Row | None


class Summary(NamedTuple):
    """A number in a few others."""

    mean: float
    low: float
    """A twentieth is below."""
    median: float
    high: float
    """A twentieth is above."""


class Histogram(msgspec.Struct, frozen=True):
    """How often a number has which value."""

    number: str
    edges: list[float]
    """Where the bars begin, and where the last one ends."""
    series: dict[str, list[int]]
    """By value of the facet, or under "" for all: how many conversations each bar has."""
    unknown: int
    """Conversations without the number."""
    summary: Summary | None = None


class Behaviours(msgspec.Struct, frozen=True):
    """What was found in the conversations of a query that were looked through."""

    conversations: int
    """That were."""
    lengths: dict[int, int]
    """By number of messages."""
    by_turn: dict[str, dict[str, dict[int, int]]]
    """By detector, seat and message from 0: in how many conversations."""
    roles: dict[str, int]
    """Conversations by role, where that was asked for."""
    by_role: dict[str, dict[str, int]]
    """Conversations by detector and role."""

    def reached(self, turn: int) -> int:
        """Conversations that have a message of this number, from 0; all of them for what concerns the whole."""
        return sum(count for length, count in self.lengths.items() if length > turn)
