"""Reads a table once, checks every row, and writes the rows that are used to one Parquet file.

The one decision to know: a row is identified by its id and a hash of the columns that are used, never by its position. A
row keeps its identity when others are added, removed or moved.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from camel.core.checks import shown, similar
from camel.core.errors import InputError
from camel.core.toml import read_table
from camel.inputs.reading import (
    BATCH,
    LONGEST_CELL,
    InputTable,
    TableBatch,
    TableProblems,
    open_table,
    parquet_file,
)
from camel.inputs.settings import Inputs, column_key
from camel.models.hub import HUB
from camel.record.parquet import arrow, open_parquet, write_batches
from camel.runs.plan import VALUE
from camel.runs.reader import need_module
from camel.storage.files import sync_folder

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


_LONGEST_ID = 1000
_MEMORY = ("64MB", "256MB", "2GB")
"""Memory of DuckDB. The first is enough unless millions of rows are equal."""
_MOST_SEEN = 1_000_000
"""With a limit up to this one, reading stops as soon as there are enough different rows."""

_SQL: dict[str, str] = read_table(Path(__file__).with_name("scan.toml"))


class TableScan(NamedTuple):
    """The result of a scan."""

    rows: int
    """Number of rows that are used."""
    read: int
    """Number of rows that were read. Smaller than the table if a limit was reached."""
    duplicates: int
    """Number of rows that are equal to an earlier one. They are skipped or kept, as configured."""
    excluded: int
    """Number of rows for which `where` is not true."""
    columns: tuple[str, ...]
    """Names of the stored columns with values, as in placeholders: `First Name` is `first_name`."""
    source: str
    """The table's name for messages."""
    fingerprint: str
    """See `fingerprint_of`."""


def scan(inputs: Inputs | Iterable[Mapping[str, Any]] | Any, used: Collection[str], out: Path) -> TableScan:
    """Read the table and write the rows that are used to `out`, in the order of the table.

    The file has the columns `id`, `hash`, `line` and one column `value.NAME` for each column that is used or kept, in row
    groups of 4,096 rows. A missing value of a kept column is null. Problems raise one `InputError` with the first five.
    """
    settings = inputs if isinstance(inputs, Inputs) else Inputs(source=cast("Any", inputs))
    fingerprint, table = fingerprint_of(settings), open_inputs(settings)
    if not table.columns:
        raise InputError(f"{table.name} has no rows: pass at least one")
    stager = _Stager(settings, used, table)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".scan-") as scratch:
        staged = Path(scratch, "staged.parquet")
        rows = write_batches(staged, _regroup(stager.batches()), stager.schema).rows
        table.problems.check()
        if not rows:
            why = "the sample is empty" if stager.read > stager.excluded else "the table has no rows"
            why = "where excludes all rows" if 0 < stager.read == stager.excluded else why
            raise InputError(f"{table.name}: {why}. Change [inputs]")
        selection, duplicates = _select(staged, settings, table)
        if selection:
            changed = Path(scratch, "changed.parquet")
            names = [field for field in stager.schema if field.name != "draw"]
            kept = _regroup(_take(staged, selection, [field.name for field in names], settings.limit))
            rows = write_batches(changed, kept, arrow().schema(names)).rows
            staged = changed
        if settings.repeat > 1:
            rows, changed = rows * settings.repeat, Path(scratch, "repeated.parquet")
            with open_parquet(staged) as file:
                write_batches(changed, _regroup(_repeat(file, settings.repeat)), file.schema_arrow)
            staged = changed
        staged.replace(out)
    sync_folder(out.parent)
    columns = tuple(field.name.removeprefix(VALUE) for field in stager.schema if field.name.startswith(VALUE))
    return TableScan(rows, stager.read, duplicates, stager.excluded, columns, table.name, fingerprint)


def _repeat(file: Any, times: int) -> Iterator[Any]:
    """Yield each row several times. The copies get `~2`, `~3` … at the end of their ids."""
    pa = arrow()
    for batch in file.iter_batches(BATCH):
        copies = batch.take(pa.array([row for row in range(batch.num_rows) for _ in range(times)]))
        ids = copies.column("id").to_pylist()
        named = [f"{id}~{number % times + 1}" if number % times else id for number, id in enumerate(ids)]
        yield copies.set_column(0, "id", pa.array(named, pa.string()))


def fingerprint_of(inputs: Any) -> str:
    """Return a hash of the settings and of the files' paths, sizes and times. Empty for the Hub and objects in memory."""
    sources: list[Any] = [None]
    if isinstance(inputs, Inputs):
        sources = [one.source for one in inputs.tables] or [inputs.source]
    if any(not isinstance(source, str) or source.startswith(HUB) for source in sources):
        return ""
    digest = blake2b(msgspec.json.encode(inputs), digest_size=16)
    for source in sources:
        path = Path(source).expanduser().absolute()
        walked = ((place, sorted(names)) for place, _, names in sorted(os.walk(path)))
        files = [Path(place, name) for place, names in walked for name in names] if path.is_dir() else [path]
        for file in files:
            with contextlib.suppress(OSError):
                found = file.lstat() if file is not path else file.stat()
                digest.update(
                    f"{file}\0{found.st_size}\0{found.st_mtime_ns}\0".encode(errors="surrogateescape")
                )
    return digest.hexdigest()


class _Stager:
    """Checks rows and adds their ids and hashes."""

    def __init__(self, settings: Inputs, used: Collection[str], table: InputTable) -> None:
        pa = arrow()
        self._settings, self._table = settings, table
        self.read = self.excluded = 0
        names = sorted({column_key(name) for name in (*used, *settings.limits)})
        kept = sorted({column_key(name) for name in settings.keep} - {*names})
        id = settings.id or ("id" if "id" in table.columns else "")
        if not names and not id:
            raise InputError(
                f"no placeholder names a column of {table.name}: use one in a prompt, as in <name>"
            )
        self._used = [find_column(table, name) for name in names]
        self._stored = [*self._used, *(find_column(table, name) for name in kept)]
        self._id = find_column(table, id) if id else ""
        self._may_lack_id = not settings.id
        self._limits = {find_column(table, name) for name in settings.limits}
        self._where: Any = None
        self._mentioned: dict[str, str] = {}
        if settings.where:
            self._parse_where(settings.where)
        self._checked = list(dict.fromkeys([*self._stored, *filter(None, [self._id])]))
        self._wanted = list(dict.fromkeys([*self._checked, *self._mentioned.values()]))
        self._prefix = json.dumps(names).encode() + b"\0"
        self._draw = settings.sample is not None and settings.sample >= 1
        text = [("id", pa.string()), ("hash", pa.string())]
        values = [(f"{VALUE}{name}", pa.string()) for name in (*names, *kept)]
        self.schema = pa.schema(
            [*text, ("line", pa.int64()), *values, *([("draw", pa.uint64())] if self._draw else [])]
        )

    def _parse_where(self, text: str) -> None:
        from camel.core.expressions import parse_expression

        self._where, columns = parse_expression(text), list(self._table.columns)
        known = {column_key(column) for column in columns}
        for name in self._where.columns:
            if column_key(name) in known:
                self._mentioned[name] = name if columns.count(name) == 1 else find_column(self._table, name)
        self._where.check(dict.fromkeys([*columns, *self._mentioned], "any"))

    def batches(self) -> Iterator[Any]:
        """Yield batches with the schema. Stops early if there are enough rows for the limit."""
        limit, seen, rows = self._settings.limit, set[str](), 0
        stops_early = limit is not None and limit <= _MOST_SEEN and not self._draw
        for batch in self._table.read(self._wanted):
            made = self._make(batch)
            rows += made.num_rows
            yield made
            if limit is not None and stops_early:
                if self._settings.duplicates == "skip":
                    seen.update(made.column("id").to_pylist())
                    rows = len(seen)
                if rows >= limit:
                    return

    def _make(self, batch: TableBatch) -> Any:
        pa = arrow()
        arrays = dict(zip(self._wanted, batch.columns, strict=True))
        lines = pa.array(batch.lines, pa.int64())
        self.read += len(lines)
        if self._where:
            rows = zip(*(_texts(arrays[column]) for column in self._mentioned.values()), strict=True)
            true = [self._where.matches(dict(zip(self._mentioned, row, strict=True))) for row in rows]
            self.excluded += true.count(False)
            mask = pa.array(true, pa.bool_())
            arrays, lines = {name: one.filter(mask) for name, one in arrays.items()}, lines.filter(mask)
        for column in self._checked:
            self._check(column, arrays[column], lines)
        # Texts have no NUL, so it separates them.
        joined = map("\0".join, zip(*(_texts(arrays[column], "") for column in self._used), strict=True))
        keys = joined if self._used else [""] * len(lines)
        hashes = [blake2b(self._prefix + key.encode(), digest_size=8).hexdigest() for key in keys]
        given = _texts(arrays[self._id], "") if self._id else hashes
        ids = [id or hash for id, hash in zip(given, hashes, strict=True)] if self._may_lack_id else given
        columns: list[Any] = [pa.array(ids, pa.string()), pa.array(hashes, pa.string()), lines]
        columns += [arrays[column] for column in self._stored]
        sample, seed = self._settings.sample, f"{self._settings.seed}\0"
        if sample is None:
            return pa.RecordBatch.from_arrays(columns, schema=self.schema)
        draws = [int.from_bytes(blake2b(f"{seed}{id}".encode(), digest_size=8).digest()) for id in ids]
        if self._draw:
            return pa.RecordBatch.from_arrays([*columns, pa.array(draws, pa.uint64())], schema=self.schema)
        made = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return made.filter(pa.array([draw < sample * 2**64 for draw in draws], pa.bool_()))

    def _check(self, column: str, array: Any, lines: Any) -> None:
        """Add a problem for each cell that cannot be used."""
        pc = arrow("pyarrow.compute")

        def add(wrong: Any, what: str) -> None:
            for line in lines.filter(wrong).to_pylist():
                self._table.report(line, column, what)

        is_id = column == self._id and not self._may_lack_id
        if array.null_count and (column in self._used or is_id):
            add(pc.is_null(array), "has no value: add one, or exclude the row with where")
        longest = _LONGEST_ID if column == self._id else LONGEST_CELL
        if (pc.max(pc.binary_length(array)).as_py() or 0) > longest:
            add(
                pc.greater(pc.utf8_length(array), longest),
                f"has more than {longest:,} characters: shorten it",
            )
        if pc.any(nul := pc.match_substring(array, "\0")).as_py():
            add(nul, "contains a NUL character: remove it")
        if is_id and pc.any(blank := pc.equal(pc.utf8_trim_whitespace(array), "")).as_py():
            add(blank, "is blank: each row needs an id")
        if column in self._limits:
            valid = pc.fill_null(pc.match_substring_regex(array, "^([1-9][0-9]{0,8})?$"), True)
            add(pc.invert(valid), "must be a whole number above zero, or empty")


def _texts(array: Any, missing: str | None = None) -> list[Any]:
    """Return an Arrow array as a list. Much faster than `to_pylist`."""
    values = (array.fill_null(missing) if missing is not None else array).to_numpy(zero_copy_only=False)
    return cast("list[Any]", values.tolist())


def _regroup(batches: Iterable[Any]) -> Iterator[Any]:
    """Make batches of 4,096 rows of batches of any size."""
    pa = arrow()
    waiting: list[Any] = []
    for batch in batches:
        waiting.append(batch)
        if sum(one.num_rows for one in waiting) >= BATCH:
            whole = pa.concat_batches(waiting) if len(waiting) > 1 else batch
            full = whole.num_rows - whole.num_rows % BATCH
            yield from (whole.slice(start, BATCH) for start in range(0, full, BATCH))
            waiting = [whole.slice(full)] if full < whole.num_rows else []
    if waiting and (rest := pa.concat_batches(waiting)).num_rows:
        yield rest


def _select(staged: Path, settings: Inputs, table: InputTable) -> tuple[Path | None, int]:
    """Find equal ids as `_select_within` does, with more memory if very many rows are equal."""
    for memory in _MEMORY[:-1]:
        with contextlib.suppress(need_module("duckdb").OutOfMemoryException):
            return _select_within(memory, staged, settings, table)
    return _select_within(_MEMORY[-1], staged, settings, table)


def _select_within(memory: str, staged: Path, settings: Inputs, table: InputTable) -> tuple[Path | None, int]:
    """Find equal ids. Return two values: a file with the positions of the rows to use (None if all are used), and the number
    of duplicates.

    DuckDB compares the ids and spills to disk, so memory stays flat.
    """
    sample = settings.sample if settings.sample is not None and settings.sample >= 1 else None
    selection, spill = staged.with_name("selection.parquet"), staged.with_name("spill")
    config = {"memory_limit": memory, "threads": 2, "temp_directory": str(spill)}
    with contextlib.closing(need_module("duckdb").connect(config=config)) as database:
        database.execute("set enable_progress_bar = false")
        columns = "*" if sample else "*, 0 as draw"
        database.read_parquet(str(staged), file_row_number=True).project(columns).create_view("staged")
        database.execute(_SQL["equal"])
        for id, earlier, line in database.execute(_SQL["conflicts"]).fetchall():
            table.problems.add(
                f"{table.name}, {table.unit}s {earlier} and {line} have the id {shown(id)} but different values: "
                "give each row its own id, or remove id from [inputs]"
            )
        table.problems.check()
        ((rows, duplicates),) = database.execute(_SQL["counts"]).fetchall()
        kept = settings.duplicates == "keep"
        if not sample and not duplicates and (settings.limit or rows) >= rows:
            return None, 0
        for (id,) in database.execute(_SQL["taken"]).fetchall() if kept else ():
            raise InputError(
                f"{table.name} has a row with the id {shown(id)}, which a duplicate gets: rename it"
            )
        given = {"kept": kept, "sample": sample or rows}
        database.sql(_SQL["chosen"], params=given).write_parquet(str(selection))
    return selection, duplicates


def _take(staged: Path, selection: Path, columns: list[str], limit: int | None) -> Iterator[Any]:
    """Yield the selected rows up to the limit. Appends the ordinal of a duplicate to its id."""
    pa = arrow()
    with parquet_file(staged) as rows, parquet_file(selection) as chosen:
        source, start = chosen.iter_batches(), 0
        remaining = limit if limit is not None else rows.metadata.num_rows
        waiting = chosen.schema_arrow.empty_table()
        for batch in rows.iter_batches(BATCH, columns=columns):
            stop = start + batch.num_rows
            while not waiting.num_rows or waiting["position"][-1].as_py() < stop:
                if (more := next(source, None)) is None:
                    break
                waiting = pa.concat_tables([waiting, pa.Table.from_batches([more])])
            positions = waiting["position"].to_numpy()
            count = min(int(positions.searchsorted(stop)), remaining)
            taken = batch.take(pa.array(positions[:count] - start))
            pairs = zip(taken.column(0).to_pylist(), waiting["ordinal"][:count].to_pylist(), strict=True)
            ids = [id if ordinal == 1 else f"{id}#{ordinal}" for id, ordinal in pairs]
            yield taken.set_column(0, "id", pa.array(ids, pa.string()))
            waiting, start, remaining = waiting.slice(count), stop, remaining - count
            if not remaining:
                return
