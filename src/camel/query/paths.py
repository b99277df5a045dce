"""Access paths: the ways in which questions about rows are answered, behind two small interfaces.

A list path finds the rows of a page in the order of a query; a count path counts the rows of some index files.

    list    Found         the conversations in which a text is said        (`scope.py`)
            RunOrder      in the order of the runs: by position, or by     (`run_order.py`)
                          reading until there is enough
            SortedCopies  by a number, from copies in that order           (`sorted_copies.py`)
            NumberScan    by a number, from the columns that are named     (`number_scan.py`)
    count   Footers       what index files say about themselves            (`counting.py`)
            Cube          combinations of facets, counted beforehand       (`counting.py`)
            Scan          any rows, from the columns that are named        (`counting.py`)

The one decision to know: each path says itself whether it can answer (`of`), and the chooser takes the first that can.
They are listed by what they cost, the cheapest first (`view.LIST_PATHS`, `counting.COUNT_PATHS`), so that there is
nothing else to decide: a new path is a class and its place in a list.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

from camel.query.database import Key, Segment
from camel.query.parts import IndexPart
from camel.query.where import Place, Query

if TYPE_CHECKING:
    from camel.query.scope import Scope


class ListPath(ABC):
    """A way to the rows of a query, in its order."""

    @classmethod
    @abstractmethod
    def of(cls, scope: Scope, query: Query) -> ListPath | None:
        """The path for a query; None where it cannot answer it."""

    @abstractmethod
    def nth(self, n: int, limit: int) -> list[Key]:
        """The rows from `n` on."""

    @abstractmethod
    def beside(self, place: Place, limit: int, *, back: bool) -> list[Key]:
        """The rows after a place, or those before it, in the order of the list."""

    def at(self, wanted: Sequence[int]) -> list[Key]:
        """The rows at these positions, ascending."""
        return [key for position in wanted for key in self.nth(position, 1)]


class CountPath(ABC):
    """A way to count the rows that index files of a run have of a query."""

    parts: Collection[IndexPart]
    """The files that it counts; the chooser gives what remains to the next path."""
    key: Hashable
    """Equal for paths that can count several facets in one go."""

    @classmethod
    @abstractmethod
    def of(cls, scope: Scope, files: Segment, query: Query, facet: str) -> CountPath | None:
        """The path that counts some of these files, by a facet or in all where that is empty; None where it cannot."""

    @abstractmethod
    def count(self) -> int:
        """All rows."""

    @abstractmethod
    def facets(self, names: Sequence[str]) -> Iterable[tuple[str, Counter[str]]]:
        """By facet, its values and how many rows have each."""
