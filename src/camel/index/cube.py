# ruff: noqa: S608 - SQL is built from names in this package; values are parameters, or quoted
"""Cubes: the number of conversations for each combination of facet values, counted once for a whole run.

    index/<stage>/cube-<digest>.parquet     the digest is of the index files that were counted

A file holds several cubes, each over some facets: all facets with few values; those and a role; each role with one other
facet; both roles. A query uses the smallest cube that has all its facets. A cube with too many cells is not stored; its
queries are counted from the index.

The one decision to know: every cube includes the set of labels, because it decides which rows a reader may see.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from camel.index.facets import FACETS, VERSION, Facet
from camel.index.files import read_described, rows_sql
from camel.record.parquet import arrow
from camel.runs.reader import need_module

MOST_CELLS = 2_000_000
_ROLES = ("assistant", "user")
_KEY = "camel.cube"


class Cube(msgspec.Struct, frozen=True):
    """The facets and the number of cells of one cube in a file."""

    facets: tuple[str, ...]
    cells: int


class Cubes(msgspec.Struct, frozen=True):
    """The metadata of a file of cubes."""

    cubes: list[Cube]
    digest: str
    version: int = VERSION

    def best(self, facets: set[str]) -> int | None:
        """Return the index of the smallest cube that has all of these facets. Return None if there is none."""
        fit = [(one.cells, n) for n, one in enumerate(self.cubes) if facets <= {*one.facets, "label"}]
        return min(fit)[1] if fit else None


def digest_of(names: Sequence[str]) -> str:
    """Return a digest of the names of the index files that a cube counts."""
    return hashlib.blake2b("\n".join(sorted(names)).encode(), digest_size=8).hexdigest()


def facet_sql(facet: Facet) -> str:
    """Return the SQL expression to group a facet by: its column, or the index of its bucket with -1 for unknown."""
    if not facet.edges:
        return f'"{facet.column}"'  # `user` is also a word of SQL
    cases = " ".join(f"when {facet.column} < {edge} then {n}" for n, edge in enumerate(facet.edges[1:]))
    return f"(case when {facet.column} is null then -1 {cases} else {len(facet.edges) - 1} end)::int"


def read_cubes(path: Path) -> Cubes:
    """Read the metadata of a file of cubes."""
    return read_described(
        path, _KEY.encode(), Cubes, "a cube", lambda found: sum(one.cells for one in found.cubes)
    )[0]


def write_cubes(
    path: Path,
    files: Sequence[Path],
    digest: str,
    *,
    most: int = MOST_CELLS,
    note: Callable[[int, int], None] = lambda done, of: None,
) -> Cubes:
    """Write a file of cubes with the counts of index files. `note` is called with the numbers of finished and of all cubes."""
    few = tuple(name for name in FACETS if name not in _ROLES)
    # Larger cubes first: smaller ones can be summed from them without reading the files again.
    wanted = [(*few, *_ROLES), (*few, "assistant"), (*few, "user"), few, _ROLES]
    wanted += [(role, name) for role in _ROLES for name in few if name != "label"]
    with tempfile.TemporaryDirectory(prefix="camel-cube-") as scratch:
        settings = {"memory_limit": "2GB", "temp_directory": scratch, "preserve_insertion_order": False}
        with open_database("Counting an index", "data", settings) as database:
            counting = _Counting(database, files, most)
            for number, facets in enumerate(wanted):
                counting.add(facets)
                note(number + 1, len(wanted))
            return counting.write(path, digest)


def open_database(use: str, extra: str, settings: dict[str, Any]) -> Any:
    """Open a database in memory. Raise `MissingExtra` if DuckDB is not installed."""
    database = need_module("duckdb", extra, use).connect(config=settings)
    database.execute("set enable_progress_bar = false")
    return database


class _Counting:
    """Counts cubes in tables of a temporary database, which can spill to disk."""

    def __init__(self, database: Any, files: Sequence[Path], most: int) -> None:
        self._do, self._files, self._most = database.execute, files, most
        self.cubes: list[Cube] = []

    def add(self, facets: tuple[str, ...]) -> None:
        """Count the cube of these facets. Skip it if it has too many cells."""
        names = facets if "label" in facets else (*facets, "label")
        columns, table = ", ".join(f'"{name}"' for name in names), f"cube{len(self.cubes)}"
        larger = next((n for n, one in enumerate(self.cubes) if {*names} <= {*one.facets}), None)
        if larger is not None:
            self._sum(table, columns, f"cube{larger}")
        else:
            grouped = ", ".join(f'{facet_sql(FACETS[name])} as "{name}"' for name in names)
            for number, file in enumerate(self._files):
                rows = rows_sql("tools" in arrow("pyarrow.parquet").read_schema(file).names)
                counted = f"select {grouped}, count(*) as n from {rows} group by all"
                begin = f"insert into {table}" if number else f"create or replace table {table} as"
                self._do(f"{begin} {counted}", [str(file)])
                if self._cells(table) > self._most:
                    self._sum(table, columns, table)
                    if self._cells(table) > self._most:
                        self._do(f"drop table {table}")
                        return
            self._sum(table, columns, table)
        self.cubes.append(Cube(names, self._cells(table)))

    def write(self, path: Path, digest: str) -> Cubes:
        """Write all cubes to one file, each in its own rows, so that a reader of one cube can skip the others."""
        made = Cubes(self.cubes, digest)
        selects = [
            f"select {number} as cube, {', '.join(self._column(name, one) for name in FACETS)}, n from cube{number}"
            for number, one in enumerate(self.cubes)
        ]
        said = _quoted(msgspec.json.encode(made).decode())
        self._do(
            f'copy (select * from ({" union all ".join(selects)}) order by cube, assistant, "user", stop) to {_quoted(path)} '
            f"(format parquet, compression zstd, row_group_size 65536, kv_metadata {{'{_KEY}': {said}}})"
        )
        return made

    def _column(self, name: str, cube: Cube) -> str:
        if name in cube.facets:
            return f'"{name}"'
        return f'null::{"int" if FACETS[name].edges else "varchar"} as "{name}"'

    def _sum(self, table: str, columns: str, of: str) -> None:
        """Make a table with the sums of the cells in `of` that are equal in `columns`."""
        made = f"select {columns}, sum(n)::bigint as n from {of} group by all"
        self._do(f"create or replace table {table} as {made}")

    def _cells(self, table: str) -> int:
        return self._do(f"select count(*) from {table}").fetchone()[0]


def _quoted(value: object) -> str:
    """Return a value as an SQL string literal."""
    return "'" + str(value).replace("'", "''") + "'"
