"""Makes training rows from runs, in two stages.

    rows      one shard per file of the runs: filtered conversations as rows, with hashes of each row
    mixed     one shard per shard of `rows`: without duplicates, each row repeated according to its source's weight

After a kill, the same call resumes without repeating committed shards. Only a few row groups are in memory at a time. The
markers store how much each filter removed.

The one decision to know: of equal rows, the first one in the order of the recipe is kept. Duplicates are therefore found after
all rows were made, from eight bytes per row.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from camel._version import __version__
from camel.core.errors import InputError
from camel.core.expressions import Expression, parse_expression
from camel.core.stops import EXCLUDED
from camel.engine.stage import Written
from camel.evaluation.exam_questions import digest_of, read_questions
from camel.evaluation.overlap import (
    BANDS,
    BINS,
    ExamQuestions,
    bands,
    digests,
    equal_rows,
    signatures,
    similarity,
)
from camel.jobs.item import Item
from camel.jobs.job import Job, Stage, Step
from camel.query.columns import known_columns, select_rows
from camel.record.arrow import read_shard, stream_groups
from camel.record.parquet import Table, arrow, write_batches
from camel.record.release import RESTRICTED
from camel.runs.compact import Part
from camel.runs.reader import RunReader
from camel.runs.run import RunFolder, open_folder
from camel.runs.scores import SCORE_STAGE
from camel.runs.settings import Settings
from camel.runs.verify import missing_files
from camel.storage.store import DiskStore
from camel.training.recipe import Recipe
from camel.training.shaping import layout, shape
from camel.training.stored_rows import MIXED, SHAPED, reporting_damage, rows_card

np, pa, pc = arrow("numpy"), arrow(), arrow("pyarrow.compute")

CARD = "README.md"
_AT_ONCE = 20_000_000
"""Number of hashes to compare at a time, which limits memory."""
_SLOTS = threading.Semaphore(os.cpu_count() or 1)
"""Limits how many shards are written at the same time."""


class RowsReport(msgspec.Struct, frozen=True):
    """Numbers of conversations and rows before and after each filter."""

    conversations: int
    removed: dict[str, int]
    """Number of removed conversations, by filter."""
    rows: int
    """Number of rows made from the remaining conversations."""
    removed_rows: dict[str, int]
    kept: int
    repeated: int
    """Number of rows in the result, including repetitions due to weights."""
    tokens: int
    """Estimated number of tokens in the result."""
    questions: dict[str, int] = {}
    """Number of removed rows, by the test question that they contained."""
    looked_for: int = 0
    """Number of test questions that were searched for."""


class _RowSource(NamedTuple):
    """A range of shards of a run that were in one file when the first rows were made."""

    source: int
    first: int
    last: int


class RowsJob(Job):
    """A job that makes the rows of a recipe in its folder."""

    name = "rows"

    def __init__(self, recipe: Recipe, *, replace: bool = False) -> None:
        """With `replace`, rows of another recipe in the output folder are removed first."""
        self.recipe, self.replace, self.place, self.models = recipe, replace, recipe.out, {}
        self._near = recipe.filters.near > 0

    @cached_property
    def runs(self) -> list[RunReader]:
        """The runs that the rows are made from."""
        return [RunReader(source.run) for source in self.recipe.sources]

    @cached_property
    def pieces(self) -> list[_RowSource]:
        """The items of both stages."""
        return [
            _RowSource(number, part.first, part.last)
            for number, run in enumerate(self.runs)
            for part in run.parts
        ]

    @cached_property
    def _where(self) -> list[Expression]:
        where = self.recipe.filters.where
        return [parse_expression(where, known_columns(run)) for run in self.runs if where.strip()]

    def open(self, accept: Collection[str] = ()) -> RunFolder:
        """Return the output folder."""
        return self.folder

    @cached_property
    def folder(self) -> RunFolder:
        """The output folder. The first use creates it."""
        if not self.pieces:
            raise InputError("the runs have no finished conversations yet. See `camel run status RUN`")
        decides: dict[str, Any] = {
            "recipe": msgspec.to_builtins(msgspec.structs.replace(self.recipe, out="")),
            "of": [[marker.sha256 for marker in run.markers] for run in self.runs],
            "questions": [digest_of(path) for path in self.recipe.filters.questions],
        }
        if self._where:
            decides["scores"] = [_hash_scores(run) for run in self.runs]
        self.fingerprint = hashlib.sha256(msgspec.json.encode(decides, order="sorted")).hexdigest()[:16]
        folder = open_folder(self.recipe.out)
        if folder.exists and (self.replace or folder.settings().fingerprint != self.fingerprint):
            if "rows" not in folder.settings().config:
                raise InputError(f"'{folder.address}' is a run, not rows. Choose another folder with --out")
            if not self.replace:
                raise InputError(
                    f"'{folder.address}' was made with another recipe, with other questions, or before its runs had all of their "
                    "conversations. Choose another folder with --out, or replace this one with --force"
                )
            _remove(folder)
        if not folder.exists:
            folder.create(Settings(self.fingerprint, {"rows": decides["recipe"]}, __version__))
        return folder

    @cached_property
    def _questions(self) -> ExamQuestions:
        return ExamQuestions(
            question for path in self.recipe.filters.questions for question in read_questions(path)
        )

    def stages(self, run: RunFolder) -> Iterator[Step]:
        """Yield the two stages: make rows from conversations, then remove duplicates and apply weights."""
        with reporting_damage(self.folder):
            missing = [*missing_files(self.folder, SHAPED), *missing_files(self.folder, MIXED)]
            if self.folder.committed(SHAPED) and not self.folder.has_own_settings(SHAPED):
                missing.append(f"stages/{SHAPED}.json")
            if missing:
                raise FileNotFoundError(f"{missing[0]} is missing")
        begun = self.folder.begun(SHAPED, {"pieces": self.pieces})
        self.pieces = [_RowSource(*one) for one in begun["pieces"]]
        yield self._stage(SHAPED, self._shape)
        if len(self.folder.committed(MIXED)) < len(self.pieces):
            self._dropped  # noqa: B018 - before the threads of the stage use it
        yield self._stage(MIXED, self._mix)

    def _stage(self, name: str, write: Callable[[Path, Sequence[Any]], Written]) -> Stage:
        return Stage(
            name=name,
            count=len(self.pieces),
            work=_index,
            write=write,
            fingerprint=self.fingerprint,
            shard_size=1,
            concurrency=os.cpu_count() or 1,
        )

    def _rows_of(self, piece: _RowSource) -> tuple[Part, int, int]:
        """Return the file that now contains the shards, the number of their rows, and the number of rows before them in the
        file."""
        parts = self.runs[piece.source].parts
        part = parts[max(0, bisect_right(parts, piece.first, key=lambda one: one.first) - 1)]
        if not part.first <= piece.first <= piece.last <= part.last:
            raise InputError(
                f"'{self.folder.address}' was begun with other files of its runs. Make its rows again with --force"
            )
        before, end = piece.first - part.first, piece.last - part.first + 1
        return part, sum(part.rows[before:end]), sum(part.rows[:before])

    def result(self, run: RunFolder) -> RowsReport:
        """Write the dataset card, and return the report."""
        made = self.report()
        if not self.folder.store.exists(CARD):
            self._write_card(made)
        return made

    @property
    def title(self) -> str:
        """The name of the job in progress displays."""
        return f"rows of {', '.join(source.run for source in self.recipe.sources)}"

    def _write_card(self, made: RowsReport) -> None:
        counts = {
            "conversations": made.conversations,
            **{f"excluded conversations: {name}": count for name, count in made.removed.items()},
            "rows": made.rows,
            **{
                f"excluded rows: {name}": count
                for name, count in made.removed_rows.items()
                if name != "too long"
            },
            "rows in the result": made.repeated,
            "estimated tokens": made.tokens,
        }
        if made.looked_for:
            counts["test questions searched for"] = made.looked_for
        size = sum(marker.size for marker in self.folder.markers(MIXED, range(len(self.pieces))))
        card = rows_card(self.recipe, self.runs, counts, made.repeated, size)
        self.folder.store.create(CARD, card.encode())

    # ------------------------------------------------------------ stage "rows"

    def _shape(self, path: Path, records: Sequence[Any]) -> Written:
        piece = self.pieces[int(records[0])]
        part, count, before = self._rows_of(piece)
        counts: Counter[str] = Counter()
        with _SLOTS, self.runs[piece.source].opened([part]) as files:
            groups = stream_groups(next(files), before, before + count)
            groups = self._chosen(groups, piece.source, part, before, counts)
            shard = write_batches(path, self._shaped(groups, piece.source, counts), self._shaped_layout)
        return Written(shard.rows, shard.sha256, dict(counts))

    def _chosen(
        self, groups: Iterator[Table], source: int, part: Part, before: int, counts: Counter[str]
    ) -> Iterator[Table]:
        """Yield the rows that the recipe's filter expression selects. `before` is the number of the first row in the file."""
        chosen = set(select_rows(self.runs[source], part, self._where[source])) if self._where else None
        for group in groups:
            counts["conversations"] += group.num_rows
            if chosen is not None:
                end = before + group.num_rows
                mask = pa.array([row in chosen for row in range(before, end)], pa.bool_())
                before, group = end, group.filter(mask)
                counts["removed.where"] += len(mask) - group.num_rows
            yield group

    def _shaped(self, groups: Iterator[Table], source: int, counts: Counter[str]) -> Iterator[Any]:
        for group in groups:
            found = shape(self._filtered(group, counts), self.recipe.shape)
            counts["removed.no turns"] += found.no_turns
            counts["rows"] += found.rows.num_rows
            counts["removed_rows.too long"] += found.too_long
            rows = self._without_questions(found.rows, counts)
            if rows.num_rows:
                yield from self._hashed(rows, source).to_batches()

    def _filtered(self, table: Table, counts: Counter[str]) -> Table:
        filters = self.recipe.filters

        def keep(what: str, mask: Any) -> None:
            nonlocal table
            before = table.num_rows
            table = table.filter(mask)
            counts[f"removed.{what}"] += before - table.num_rows

        restricted = RESTRICTED - set(self.recipe.acknowledge)
        keep("label", _has_none(table.column("labels"), restricted))
        keep("speakers", pc.less_equal(pc.list_value_length(table.column("speakers")), 2))
        keep("messages", pc.greater_equal(table.column("num_messages"), filters.least_messages))
        reasons = pc.struct_field(table.column("stop"), "reason")
        keep(
            "failed or rejected", pc.fill_null(pc.invert(pc.is_in(reasons, pa.array(sorted(EXCLUDED)))), True)
        )
        return table

    def _without_questions(self, rows: Table, counts: Counter[str]) -> Table:
        if not self.recipe.filters.questions or not rows.num_rows:
            return rows
        found = self._questions.found_in(rows)
        counts["removed_rows.question"] += len(found)
        for question in found.values():
            counts[f"question.{self._questions.names[question]}"] += 1
        keep = np.ones(rows.num_rows, bool)
        keep[list(found)] = False
        return rows.filter(pa.array(keep)) if found else rows

    def _hashed(self, rows: Table, source: int) -> Table:
        rows = rows.append_column("source", pa.array([source] * rows.num_rows, pa.int32()))
        rows = rows.append_column("digest", digests(rows))
        if self._near:
            signed = signatures(rows)
            keys = pa.array(bands(signed).reshape(-1))
            rows = rows.append_column("bands", pa.FixedSizeListArray.from_arrays(keys, BANDS))
            held = pa.Array.from_buffers(
                pa.binary(2 * BINS), rows.num_rows, [None, pa.py_buffer(signed.tobytes())]
            )
            rows = rows.append_column("signature", held)
        return rows.cast(self._shaped_layout)

    @cached_property
    def _shaped_layout(self) -> Any:
        fields = layout().append(pa.field("source", pa.int32())).append(pa.field("digest", pa.int64()))
        if self._near:
            fields = fields.append(pa.field("bands", pa.list_(pa.uint64(), BANDS)))
            fields = fields.append(pa.field("signature", pa.binary(2 * BINS)))
        return fields

    # ------------------------------------------------------------ duplicates

    @cached_property
    def _starts(self) -> list[int]:
        """The index, among all rows, of the first row of each file."""
        starts = [0]
        for marker in self.folder.markers(SHAPED, range(len(self.pieces))):
            starts.append(starts[-1] + marker.rows)
        return starts

    def _read(self, column: str) -> Iterator[tuple[int, Any]]:
        """Yield a column of the rows, file by file, each with the index of its first row."""
        markers = list(self.folder.markers(SHAPED, range(len(self.pieces))))
        with self.folder.opened(marker.file for marker in markers) as files:
            for start, file in zip(self._starts, files, strict=False):
                with reporting_damage(self.folder):
                    found = read_shard(file, [column]).column(column).combine_chunks()
                yield start, found

    @cached_property
    def _dropped(self) -> Any:
        """An array with 1 for each exact duplicate of an earlier row, 2 for each near duplicate, and 0 for other
        rows."""
        count = self._starts[-1]
        dropped = np.zeros(count, np.uint8)
        rounds = max(1, -(-count // _AT_ONCE))
        if self.recipe.filters.exact:
            for number in range(rounds):
                keys, places = self._keys("digest", number, rounds)
                _, others = equal_rows(keys, places)
                dropped[others] = 1
        if self._near:
            with self._scratch() as scratch:
                signed = self._signatures(scratch / "signatures", count)
                for band in range(BANDS):
                    for number in range(rounds):
                        keys, places = self._keys("bands", number, rounds, band)
                        alive = dropped[places] == 0
                        firsts, others = equal_rows(keys[alive], places[alive])
                        same = similarity(signed, firsts, others) >= self.recipe.filters.near
                        dropped[others[same]] = 2
        return dropped

    @contextmanager
    def _scratch(self) -> Generator[Path]:
        """Create a temporary folder and remove it at the end. Its name is fixed, so that a new process can
        remove the folder of a killed one."""
        scratch = self.folder.root / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _keys(self, column: str, number: int, rounds: int, band: int = 0) -> tuple[Any, Any]:
        """Return the hashes of one round, and the indices of their rows. The hash values are divided among `rounds` rounds."""
        keys: list[Any] = []
        places: list[Any] = []
        for start, found in self._read(column):
            values = found.flatten().to_numpy()[band::BANDS] if column == "bands" else found.to_numpy()
            mine = np.arange(len(values))
            if rounds > 1:
                mine = np.flatnonzero(values.view(np.uint64) % np.uint64(rounds) == number)
            keys.append(values[mine])
            places.append(mine + start)
        return np.concatenate(keys), np.concatenate(places)

    def _signatures(self, path: Path, count: int) -> Any:
        signed = np.memmap(path, np.uint16, "w+", shape=(max(count, 1), BINS))
        for start, found in self._read("signature"):
            values = np.frombuffer(found.buffers()[1], np.uint16, len(found) * BINS, found.offset * 2 * BINS)
            signed[start : start + len(found)] = values.reshape(len(found), BINS)
        return signed

    # ------------------------------------------------------------ stage "mixed"

    def _mix(self, path: Path, records: Sequence[Any]) -> Written:
        number = int(records[0])
        counts: Counter[str] = Counter()
        marker = self.folder.marker(SHAPED, number)
        weight = self.recipe.sources[self.pieces[number].source].weight
        with _SLOTS, reporting_damage(self.folder), self.folder.opened([marker.file]) as files:
            groups = self._mixed(next(files), self._starts[number], weight, counts)
            shard = write_batches(path, groups, layout().append(pa.field("canary", pa.string())))
        return Written(shard.rows, shard.sha256, dict(counts))

    def _mixed(self, file: Path, start: int, weight: float, counts: Counter[str]) -> Iterator[Any]:
        for group in stream_groups(file):
            dropped = self._dropped[start : start + group.num_rows]
            start += group.num_rows
            counts["removed_rows.exact duplicate"] += int((dropped == 1).sum())
            counts["removed_rows.near duplicate"] += int((dropped == 2).sum())
            kept = group.filter(pa.array(dropped == 0))
            counts["kept"] += kept.num_rows
            # The hash of a row decides whether a fractional weight uses it, so that the result is reproducible.
            chance = (kept.column("digest").to_numpy().view(np.uint64) >> np.uint64(11)).astype(float) / 2**53
            times = (
                np.floor(weight + chance).astype(np.int64)
                if weight % 1
                else np.full(len(chance), int(weight))
            )
            used = kept.take(pa.array(np.repeat(np.arange(len(times)), times))).select(layout().names)
            counts["tokens"] += int(pc.sum(used.column("tokens")).as_py() or 0)
            marked = pc.if_else(_has_none(used.column("labels"), RESTRICTED), "", self.recipe.canary)
            if used.num_rows:
                yield from used.append_column("canary", marked.cast(pa.string())).to_batches()

    # ------------------------------------------------------------ the result

    def report(self) -> RowsReport:
        """Compute the report from the totals in the shards' markers."""
        sums: Counter[str] = Counter()
        repeated = 0
        for stage in (SHAPED, MIXED):
            for marker in self.folder.markers(stage, sorted(self.folder.committed(stage))):
                for name, value in marker.totals.items():
                    sums[name] += int(value)
                repeated += marker.rows if stage == MIXED else 0

        def below(prefix: str) -> dict[str, int]:
            return {name.removeprefix(prefix): n for name, n in sums.items() if name.startswith(prefix) and n}

        return RowsReport(
            sums["conversations"],
            below("removed."),
            sums["rows"],
            below("removed_rows."),
            sums["kept"],
            repeated,
            sums["tokens"],
            below("question."),
            sum(1 for name in self.recipe.filters.questions for _ in read_questions(name)),
        )


def _remove(folder: RunFolder) -> None:
    """Remove all rows of a folder. Markers go first and `run.json` last, so that the folder stays recognizable after a kill."""
    with folder.locked():
        for store in (folder.store, DiskStore(folder.root)):
            for part in ("committed", "journal", "data", "stages"):
                store.remove([one.name for one in store.entries(part)])
            store.remove([CARD, "run.json", "claim.json"])


async def _index(item: Item) -> int:
    """Return the item's index and do nothing else. Rows are made when a shard is written, one row group at a time."""
    return item.index


def _hash_scores(run: RunReader) -> dict[str, list[str]]:
    """Return the hashes of a run's scores, on which a filter expression may depend."""
    stages = [stage for stage in run.folder.stages() if stage.startswith(SCORE_STAGE)]
    committed = {stage: sorted(run.folder.committed(stage)) for stage in stages}
    return {
        stage: [one.sha256 for one in run.folder.markers(stage, shards)]
        for stage, shards in committed.items()
    }


def _has_none(labels: Any, unwanted: frozenset[str] | set[str]) -> Any:
    """Return a mask that is true for each list without an unwanted label."""
    column = labels.combine_chunks() if hasattr(labels, "combine_chunks") else labels
    clean = np.ones(len(column), bool)
    if len(column) and unwanted:
        ends = column.offsets.to_numpy()
        given = column.values.slice(int(ends[0]), int(ends[-1] - ends[0]))
        bad = np.flatnonzero(pc.is_in(given, pa.array(sorted(unwanted))).to_numpy(zero_copy_only=False))
        clean[np.searchsorted(ends - ends[0], bad, side="right") - 1] = False
    return pa.array(clean)
