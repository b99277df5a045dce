"""Access paths: the interfaces of the algorithms that find and count rows.

A list path finds the rows of a page in the order of a query; a count path counts the rows of some index files.

    list    Found         results of a text search                         (`scope.py`)
            RunOrder      in the order of the runs: by position, or by     (`run_order.py`)
                          reading until there are enough rows
            SortedCopies  sorted by a number, from sorted copies           (`sorted_copies.py`)
            NumberScan    sorted by a number, from the query's columns     (`sorted_copies.py`)
    count   Footers       from the footers of index files                  (`counting.py`)
            Cube          from precomputed combinations of facets          (`counting.py`)
            Scan          any rows, from the query's columns               (`counting.py`)

The one decision to know: the cheapest path that can answer a query is used. `catalogue.choose_list` chooses a list path. The method
`of` of a count path decides which files it can count, and `counting.COUNT_PATHS` has the cheapest first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

from camel.query.database import IndexSegment, Key
from camel.query.parts import IndexPart
from camel.query.where import Place, Query

if TYPE_CHECKING:
    from camel.query.scope import Scope


class ListPath(ABC):
    """An algorithm that finds the rows of a query, in the order of the query."""

    @abstractmethod
    def nth(self, n: int, limit: int) -> list[Key]:
        """Return up to `limit` rows, beginning with index `n`."""

    @abstractmethod
    def beside(self, place: Place, limit: int, *, back: bool) -> list[Key]:
        """Return the rows after a place or, if `back` is true, before it. Both are in the order of the list."""

    def at(self, wanted: Sequence[int]) -> list[Key]:
        """Return the rows at these positions, which must be ascending."""
        return [key for position in wanted for key in self.nth(position, 1)]


class CountPath(ABC):
    """An algorithm that counts the rows of a query in some index files of a run."""

    parts: Collection[IndexPart]
    """The index files that this path counts. The next path counts the others."""
    key: Hashable
    """Paths with equal keys can count several facets in one reading."""

    @classmethod
    @abstractmethod
    def of(cls, scope: Scope, files: IndexSegment, query: Query, facet: str) -> CountPath | None:
        """Return a path that counts some of the files, by a facet if `facet` is not empty. Return None if it can count none."""

    @abstractmethod
    def count(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def facets(self, names: Sequence[str]) -> Iterable[tuple[str, Counter[str]]]:
        """Return for each facet its values with their numbers of rows."""
