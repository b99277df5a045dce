"""A table that is sent to a receiver as changes only, so that a lost message loses no change.

The one decision to know: a changed row is part of every message until a message that contains it is acknowledged. So the
receiver needs no history, and neither side needs to know whether a message or its acknowledgement was lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Outbox(Generic[K, V]):
    """The rows of a table, and which of them the receiver may not have."""

    def __init__(self) -> None:
        self._rows: dict[K, V | None] = {}
        self._unsure: dict[K, int] = {}
        """Rows that are not acknowledged, with the number of the first message that has their present value."""
        self.number = 0
        """The number of the last message."""

    def put(self, key: K, value: V | None) -> None:
        """Set a row. `None` removes it."""
        if self._rows.get(key) != value:
            self._rows[key] = value
            self._unsure[key] = self.number + 1

    def replace(self, rows: Mapping[K, V]) -> None:
        """Set all rows, and remove the others."""
        for key in [*rows, *(self._rows.keys() - rows.keys())]:
            self.put(key, rows.get(key))

    def message(self) -> tuple[int, dict[K, V | None]]:
        """Return the number of the next message and the rows that it must contain."""
        self.number += 1
        return self.number, {key: self._rows[key] for key in self._unsure}

    def acknowledge(self, number: int) -> None:
        """Note that the receiver has the message with this number."""
        for key in [key for key, first in self._unsure.items() if first <= number]:
            del self._unsure[key]
            if self._rows[key] is None:
                del self._rows[key]
