"""Several input tables as one: rows of the first are joined or crossed with rows of the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from camel.core.checks import shown, similar
from camel.core.errors import InputError
from camel.inputs.reading import BATCH, InputTable, TableBatch, TableProblems, open_table
from camel.inputs.settings import Inputs, column_key
from camel.record.parquet import arrow

_MOST_ROWS = 1_000_000
"""Maximum number of rows of every table but the first, which are kept in memory."""


def open_inputs(inputs: Inputs) -> InputTable:
    """Open the table, or the tables as one."""
    problems, sources = TableProblems(), [one.source for one in inputs.tables] or [inputs.source]
    first, *others = [open_table(source, inputs.encoding, problems) for source in sources]
    for settings, table in zip(inputs.tables[1:], others, strict=True):
        on = (settings.on,) if isinstance(settings.on, str) else settings.on
        first = _combine(first, table, on)
    return first


def find_column(table: InputTable, name: str) -> str:
    """Return the column that a placeholder or a setting names. Ignores case, and the difference of `-`, spaces and `_`."""
    found = [column for column in table.columns if column_key(column) == column_key(name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(
            f"{table.name} has {len(found)} columns for {shown(name)}: {', '.join(found)}. Rename all but one"
        )
    hint = similar(column_key(name), map(column_key, table.columns))
    if len(table.columns) == 1 and ";" in table.columns[0]:
        hint = ". The file is separated by semicolons: save it with commas"
    listed = ", ".join(islice(table.columns, 60)) + (" …" if len(table.columns) > 60 else "")
    raise InputError(f"{table.name} has no column {shown(name)}{hint}. Columns: {listed}")


def _combine(left: InputTable, right: InputTable, on: Sequence[str]) -> InputTable:
    pa = arrow()
    keys = [find_column(left, name) for name in on]
    other_keys = [find_column(right, name) for name in on]
    name = f"{left.name} and {right.name}"

    def load(wanted: Sequence[str]) -> list[Any]:
        parts: list[Sequence[Any]] = [[pa.array([], pa.string())] * len(wanted)]
        count = 0
        for batch in right.read(wanted):
            count += len(batch.lines)
            if count > _MOST_ROWS:
                raise InputError(
                    f"{right.name} has more than {_MOST_ROWS:,} rows: put the largest table first"
                )
            parts.append(batch.columns)
        return [pa.concat_arrays(chunks) for chunks in zip(*parts, strict=True)]

    def read(wanted: Sequence[str]) -> Iterator[TableBatch]:
        ours = [column for column in wanted if column in left.columns]
        theirs = [column for column in wanted if column not in left.columns]
        # Without a column, a table would have no rows.
        loaded = load([*other_keys, *theirs] or right.columns[:1])
        rows: dict[tuple[Any, ...], list[int]] = {} if on else {(): list(range(len(loaded[0])))}
        for number, key in enumerate(_values(loaded[: len(on)])):
            rows.setdefault(key, []).append(number)
        values = dict(zip(theirs, loaded[len(on) :], strict=False))
        for batch in left.read([*keys, *ours] or left.columns[:1]):
            values |= zip(ours, batch.columns[len(on) :], strict=False)
            pairs = match(batch, _values(batch.columns[: len(on)]) if on else [()] * len(batch.lines), rows)
            while some := list(islice(pairs, BATCH)):
                at = {
                    True: pa.array([place for place, _ in some]),
                    False: pa.array([other for _, other in some]),
                }
                columns = [values[column].take(at[column in left.columns]) for column in wanted]
                yield TableBatch([batch.lines[place] for place, _ in some], columns)

    def match(
        batch: TableBatch, found: Any, rows: dict[tuple[Any, ...], list[int]]
    ) -> Iterator[tuple[int, int]]:
        for place, key in enumerate(found):
            if key not in rows:
                values = ", ".join(map(shown, key))
                left.report(
                    batch.lines[place], ", ".join(keys), f"is not in {right.name}: add a row for {values}"
                )
            yield from ((place, number) for number in rows.get(key, ()))

    columns = [*left.columns, *(column for column in right.columns if column not in other_keys)]
    return InputTable(name, columns, read, left.problems, left.unit)


def _values(columns: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in columns), strict=True)
