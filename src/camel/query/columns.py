"""The columns of conversations that filter expressions use, and the rows that an expression selects.

Only the columns that an expression mentions are read. The detectors run only for `finding`.
"""

from __future__ import annotations

import copy
import shlex
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from camel.core.errors import InputError
from camel.core.expressions import ColumnKind, Expression, parse_expression
from camel.core.message import Usage
from camel.core.transcript import Score, Transcript
from camel.detectors.languages import beginning_of, language_of
from camel.detectors.marks import marks_of
from camel.index.build import CALLED, INDEX_COLUMNS, called_tools, table_of
from camel.index.facets import elements
from camel.models.prices import cost
from camel.record.arrow import read_shard, rows, to_table, upgraded
from camel.record.parquet import Table, open_parquet, readable
from camel.runs.annotations import Annotation, Annotations, files_for
from camel.runs.compact import Part
from camel.runs.reader import RunReader
from camel.runs.scores import read_scores, score_names, scores_of_part

_TEXTS = ("id", "scenario", "task", "stop", "model", "assistant", "user", "language")
_NUMBERS = ("messages", "tokens", "calls", "cost", "chars", "actions", "starred")
_SCORED = {"duplicate": "--duplicates", "near_duplicate": "--duplicates", "overlap": "--questions FILE"}
"""Columns that are scores, and the option of `camel score` that makes them."""
COLUMNS: dict[str, ColumnKind] = {
    **dict.fromkeys(_TEXTS, "text"),
    **dict.fromkeys(("label", "finding", "tool", "tag"), "set"),
    **dict.fromkeys((*_NUMBERS, *_SCORED), "number"),
}
"""The columns of every run. Further columns are `input.NAME`, `score.NAME` and `result.NAME`."""
_SPLIT = (
    "CASE WHEN {0} = '' THEN []::VARCHAR[] ELSE string_split(substr({0}, 2, length({0}) - 2), chr(31)) END"
)
INDEXED = {
    **{name: name for name in COLUMNS if name in ("id", "scenario", "stop", "model", "assistant", "user")},
    **{name: name for name in ("messages", "tokens", "calls")},
    "label": _SPLIT.format("labels"),
    "finding": _SPLIT.format("findings"),
    "tool": _SPLIT.format("tools"),
}
"""The SQL of columns that the index stores. Its costs are from the time when it was made, so they are not used."""
_CONTENT = "messages.list.element.content"
_READ = {
    "task": ["task.original"],
    "chars": [_CONTENT],
    "actions": [_CONTENT, *CALLED],
    "language": [_CONTENT],
    "input": ["inputs", "facts"],
    "score": ["scores"],
    "result": ["result"],
}
_ERRORS = ["messages.list.element.model", *(name.replace(".tool", ".error") for name in CALLED)]
_PREFIXES = ("input", "score", "result")
_FIRST_ROWS = 256
T = TypeVar("T", bound=RunReader)


def known_columns(run: RunReader) -> dict[str, ColumnKind]:
    """Return the columns of a run with their kinds. Names of inputs and results are those of its first and last rows."""
    found = dict(COLUMNS)
    ends = dict.fromkeys(part.file for part in (*run.parts[:1], *run.parts[-1:]))
    with run.folder.opened(ends) as files:
        for group in (group for file in files for group in islice(_groups(file, _PREFIXES), 1)):
            for prefix in _PREFIXES:
                rows = _named(group.slice(0, _FIRST_ROWS), prefix)
                found |= {f"{prefix}.{name}": "any" for row in rows for name in row}
    for name in score_names(run.folder):
        shards = (read_scores(run, marker.shard, [name]) for marker in run.markers)
        scores = next((some[name] for some in shards if some), list[Score]())
        text = "text" if any(score.text for score in scores) else "any"
        found[f"score.{name}"] = "number" if any(score.value is not None for score in scores) else text
    return found


def narrow(run: T, text: str) -> T:
    """Return a view of a run with the conversations that a filter expression selects. An empty text selects all."""
    if not text.strip():
        return run
    expression = parse_expression(text, known_columns(run))
    view = copy.copy(run)
    view.chosen = {part.file: rows for part, rows in select(run, expression)}
    return view


def select(run: RunReader, expression: Expression) -> Iterator[tuple[Part, list[int]]]:
    """Yield each data file of a run with the numbers of the rows that an expression selects. A view stays a view."""
    for part in run.parts:
        found = select_rows(run, part, expression)
        if run.chosen is not None:
            within = set(run.chosen[part.file])
            found = [row for row in found if row in within]
        yield part, found


def select_rows(run: RunReader, part: Part, expression: Expression) -> list[int]:
    """Return the numbers of the rows of a data file that an expression selects."""
    names, found, before = sorted(expression.columns), list[int](), 0
    scores = _scores(run, part, names)
    files = files_for(run.folder.address, run.folder.root if run.folder.on_disk else None)
    noted = Annotations(files).read() if {"starred", "tag"} & expression.columns else {}
    with run.folder.opened([part.file]) as files:
        for table in _groups(next(files), names):
            made = _Values(table, scores[before : before + table.num_rows], noted)
            columns = [made.column(name) for name in names]
            for row, values in enumerate(zip(*columns, strict=True), before):
                if expression.matches(dict(zip(names, values, strict=True))):
                    found.append(row)
            before += table.num_rows
    return found


def select_by_shard(run: RunReader, expression: Expression) -> Iterator[tuple[int, list[int]]]:
    """Yield each shard of a run with the numbers of its rows that an expression selects."""
    for part, chosen in select(run, expression):
        for shard, (start, end) in enumerate(pairwise(accumulate(part.rows, initial=0)), part.first):
            low, high = bisect_left(chosen, start), bisect_left(chosen, end)
            yield shard, [row - start for row in chosen[low:high]]


def transcript_values(transcript: Transcript, names: Iterable[str]) -> dict[str, Any]:
    """Return the values of some columns of one conversation, without annotations."""
    made = _Values(to_table([transcript]), [transcript.scores], {})
    return {name: made.column(name)[0] for name in names}


def total(run: RunReader) -> tuple[dict[str, int], Usage, float | None]:
    """Return the endings, the usage and the cost of the conversations of a view. The cost is None if a price is unknown."""
    stops, usage, costs = Counter[str](), Usage(), list[float | None]()
    for table in _selected(run, INDEX_COLUMNS):
        made: dict[str, list[Any]] = table_of(table, 0, cost).to_pydict()
        stops.update(made["stop"])
        completion, calls = sum(made["completion"]), sum(made["calls"])
        usage += Usage(sum(made["tokens"]) - completion, completion, calls=calls)
        costs += [paid for paid, called in zip(made["cost"], made["calls"], strict=True) if called]
    return dict(stops.most_common()), usage, None if None in costs else sum(filter(None, costs))


def count_actions(run: RunReader) -> tuple[int, int]:
    """Return the number of tool calls in the conversations of a run or a view, and how many of them failed."""
    found = (called_tools(table, "error") for table in _selected(run, _ERRORS))
    errors = [error for rows in found for row in rows for error in row]
    return len(errors), sum(map(bool, errors))


def _selected(run: RunReader, columns: Sequence[str]) -> Iterator[Table]:
    """Yield some columns of the conversations of a run or a view, one table per data file."""
    for part in run.parts:
        if run.chosen is None or run.chosen[part.file]:
            with run.folder.opened([part.file]) as files:
                table = read_shard(next(files), columns)
            yield table if run.chosen is None else table.take(run.chosen[part.file])


class _Values:
    """The columns of the rows of one row group."""

    def __init__(
        self, table: Table, scores: Sequence[dict[str, Score]], noted: Mapping[str, Annotation]
    ) -> None:
        self._table, self._scores, self._noted = table, scores, noted
        self._index: Table = None

    def column(self, name: str) -> Sequence[Any]:
        """Return the values of a column."""
        prefix, _, field = name.partition(".")
        if field:
            given = [row.get(field) for row in _named(self._table, prefix)]
            return self._scored(field, given) if prefix == "score" else given
        if name in _SCORED:
            return self._scored(name, [None] * self._table.num_rows)
        match name:
            case "task":
                return [one["original"] for one in self._table.column("task").to_pylist()]
            case "finding":
                found = map(marks_of, rows(upgraded(self._table)))
                return [[mark.detector for mark in marks] for marks in found]
            case "language":
                return self._scored(name, [language_of(beginning_of(said)) for said in self._said()])
            case "chars":
                return [sum(map(len, said)) for said in self._said()]
            case "starred" | "tag":
                noted = [self._noted.get(id, Annotation(id)) for id in self._indexed("id")]
                return [one.star if name == "starred" else one.tags for one in noted]
            case "label" | "tool":
                return [elements(text) for text in self._indexed(f"{name}s")]
            case "actions":
                return list(map(len, called_tools(self._table)))
            case _:
                return self._indexed(name)

    def _indexed(self, name: str) -> Sequence[Any]:
        if self._index is None:
            self._index = table_of(self._table, 0, cost)
        return self._index.column(name).to_pylist()

    def _said(self) -> Iterator[list[str]]:
        lists = self._table.column("messages").combine_chunks()
        contents, ends = lists.values.field("content"), lists.offsets.to_pylist()
        return (contents.slice(start, end - start).to_pylist() for start, end in pairwise(ends))

    def _scored(self, name: str, others: Iterable[Any]) -> list[Any]:
        """Return the stored scores of a name, and the value of `others` for each row without one."""
        found = zip(self._scores, others, strict=True)
        return [_value(scores[name]) if name in scores else other for scores, other in found]


def _scores(run: RunReader, part: Part, names: Sequence[str]) -> Sequence[dict[str, Score]]:
    """Return the stored scores of each row of a part. Raise an error if one that an expression needs was never made."""
    there, address = score_names(run.folder), run.folder.address
    for name in _SCORED.keys() & {*names} - {*there}:
        command = f"camel score {shlex.quote(address)} {_SCORED[name]}"
        raise InputError(f"'{address}' has no scores '{name}': make them with `{command}`")
    wanted = [name for name in there if name in names or f"score.{name}" in names]
    return scores_of_part(run, part, wanted) if wanted else [dict[str, Score]()] * sum(part.rows)


def _value(score: Score) -> Any:
    return score.text or None if score.value is None else score.value


def _named(table: Table, prefix: str) -> list[dict[str, Any]]:
    """Return the inputs, scores or results of each row by name. They are empty if the file has no such column."""
    column = next((name for name in _READ[prefix] if name in table.schema.names), "")
    given = table.column(column).to_pylist() if column else [None] * table.num_rows
    if prefix == "result":
        found: list[Any] = [msgspec.json.decode(one) if one else None for one in given]
        return [one if isinstance(one, dict) else {} for one in found]
    if prefix == "score":
        return [{name: _value(msgspec.convert(one, Score)) for name, one in row or ()} for row in given]
    return [dict(row or ()) for row in given]


def _groups(path: Path, names: Sequence[str]) -> Iterator[Table]:
    """Yield the row groups of a data file, with only the data that these columns need."""
    needed = {one for name in names for one in _READ.get(name.partition(".")[0], INDEX_COLUMNS)}
    columns = None if "finding" in names else sorted(needed)
    with open_parquet(path) as file:
        for group in range(file.metadata.num_row_groups):
            yield readable(path, lambda group=group: file.read_row_group(group, columns=columns))
