"""The index of a run: what a list of its conversations shows, in files that are narrow and quick to read.

    index/<stage>/<shard>-<attempt>.parquet            of one shard, named after its data file
    index/<stage>/m<first>-<last>-<attempt>.parquet    of many shards, put together by `camel index`
    index/<stage>/cube-<digest>.parquet                counts over every combination of facets in those
    index/<stage>/o<first>-<last>-<attempt>-….parquet  large ones once more, in the order of a number

A row is a conversation: who, what, how it ended, how long it was, what it cost, its labels, what was found in it, and
where it stands (shard, and row in the shard, which stay when shards are compacted). Each file counts its own rows by
facet in its footer, and says there of which shards it knows what was found (`marks.py` puts that in).

The one decision to know: an index is derived and never needed. It is believed only for the data file that a marker names,
so that it needs no marker of its own; one that is missing, damaged or of another version is made anew from the data.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import msgspec

from camel.core.errors import CamelError, InputError
from camel.core.message import Usage
from camel.core.transcript import Transcript
from camel.storage.compact import parts_of, ranges
from camel.storage.files import taking_place
from camel.storage.journal import make_folder, sync
from camel.storage.run import Marker, RunFolder, new_attempt
from camel.storage.store import BucketStore
from camel.storage.table import Shard, arrow, batches, read_shard, write_batches
from camel.storage.table import schema as data_schema

FOLDER = "index"
VERSION = 2
"""Of the layout; a file of another version is made anew."""
SEPARATOR = "\x1f"
"""Around each element of a set, such as the labels: few different sets, so that a column of them is small and quick."""
TASK_CHARS = 160
_SMALL = 10_000
"""Rows up to which counting them here is quicker than having them grouped."""
MOST_VALUES = 5_000
"""Values of a facet, and sets of labels, up to which a file counts its rows by them."""

Cost = Callable[[str, Usage], float | None]
"""Dollars of a model's usage, where its price is known."""


class Facet(NamedTuple):
    """A way to tell conversations apart."""

    column: str
    many: bool = False
    """Whether the column holds a set: a conversation may have several values, or none."""
    edges: tuple[float, ...] = ()
    """Of a number: where each bucket begins; the values are the buckets' names."""


FACETS: dict[str, Facet] = {
    "scenario": Facet("scenario"),
    "assistant": Facet("assistant"),
    "user": Facet("user"),
    "other": Facet("others", many=True),
    "stop": Facet("stop"),
    "finding": Facet("findings", many=True),
    "label": Facet("labels", many=True),
    "model": Facet("model"),
    "length": Facet("messages", edges=(0, 2, 3, 11, 21, 31, 41)),
    "size": Facet("tokens", edges=(0, 1_000, 10_000, 100_000, 1_000_000)),
    "cost": Facet("cost", edges=(0, 0.001, 0.01, 0.1, 1)),
}
"""By the names that queries use."""
COUNTED = {**FACETS, "messages": Facet("messages")}
"""What a file counts its rows by: the facets, and the number of messages as it is, for ranges of it."""
NUMBERS = ("messages", "tokens", "calls", "cost")
"""Columns by whose value can be sorted and filtered."""


class Indexed(msgspec.Struct, frozen=True, omit_defaults=True):
    """A shard that an index file covers."""

    shard: int
    file: str
    """The name of its data file, without folder and ending."""
    rows: int
    looked: str = ""
    """By which detectors it was looked through; empty where it was not."""


class Header(msgspec.Struct, frozen=True):
    """What an index file says about itself, in its footer."""

    stage: str
    fingerprint: str
    """Of the run."""
    shards: list[Indexed]
    """In the order of their rows."""
    counts: dict[str, dict[str, dict[str, int]]] | None
    """Rows by set of labels, facet and value; by labels first, because who may see them depends on those."""
    version: int = VERSION

    @property
    def rows(self) -> int:
        """All of them."""
        return sum(shard.rows for shard in self.shards)


@cache
def schema() -> Any:
    """The Arrow schema of an index."""
    pa = arrow()
    texts = [(name, pa.string()) for name in ("id", "scenario", "assistant", "user", "others", "task")]
    return pa.schema(
        [
            *texts,
            ("stop", pa.string()),
            ("model", pa.string()),
            ("labels", pa.string()),
            ("findings", pa.string()),
            ("marks", pa.string()),
            ("messages", pa.int32()),
            ("tokens", pa.int64()),
            ("completion", pa.int64()),
            ("calls", pa.int32()),
            ("cost", pa.float64()),
            ("shard", pa.int32()),
            ("row", pa.int32()),
        ]
    )


def bucket_names(facet: Facet) -> list[str]:
    """The names of a number's buckets, in order; `unknown` is before the first."""
    last = f"{facet.edges[-1]:g}+" if facet.edges[-1] < 1e6 else f"{facet.edges[-1]:.0f}+"
    return [*(_between(low, high) for low, high in pairwise(facet.edges)), last]


def _between(low: float, high: float) -> str:
    if isinstance(low, int) and isinstance(high, int):
        return f"{low}" if high == low + 1 else f"{low}-{high - 1}"
    return f"{low:g}-{high:g}"


UNKNOWN = "unknown"


def bucket(facet: Facet, value: float | None) -> str:
    """The bucket that a number falls into."""
    if value is None:
        return UNKNOWN
    return bucket_names(facet)[max(0, bisect_right(facet.edges, value) - 1)]


def joined(values: Iterable[str]) -> str:
    """A set as a column holds it; the empty set is empty."""
    clean = sorted({value.replace(SEPARATOR, " ") for value in values} - {""})
    return f"{SEPARATOR}{SEPARATOR.join(clean)}{SEPARATOR}" if clean else ""


def elements(text: str) -> list[str]:
    """The elements of such a set."""
    return text[1:-1].split(SEPARATOR) if text else []


def name_of(marker: Marker) -> str:
    """Where the index of a marker's data file is, if it is there."""
    return f"{FOLDER}/{marker.stage}/{PurePosixPath(marker.file).stem}.parquet"


# ---------------------------------------------------------------- from a data file to its index

_COLUMNS = [
    "id",
    "scenario",
    "task.original",
    "speakers.list.element.name",
    "speakers.list.element.role",
    "messages.list.element.model",
    "stop.reason",
    "labels",
    "num_messages",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "calls",
]
_NEEDED = sorted({name.partition(".")[0] for name in _COLUMNS})


UNFINISHED = "unfinished"
"""How a conversation ended that has no end."""


class Told(NamedTuple):
    """What every index says of a conversation in the same words."""

    assistant: str
    user: str
    stop: str
    model: str


def told_of(
    names: Sequence[str], roles: Sequence[str], models: Iterable[str | None], reason: str | None
) -> Told:
    """The same from the speakers' names and roles, the messages' models, and why it stopped."""
    seats = dict(zip(reversed(names), reversed(roles), strict=True))  # of two with one name, the first
    return Told(
        seats.get("assistant", ""),
        seats.get("user", ""),
        reason or UNFINISHED,
        " + ".join(dict.fromkeys(filter(None, models))),
    )


def no_cost(model: str, usage: Usage) -> float | None:
    """Where nobody knows what a model costs."""
    return None


def table_of(data: Any, shard: int, cost: Cost = no_cost, start: int = 0) -> Any:
    """The index of a shard's rows from `start` on, from a table or a batch of them; only some columns are needed."""
    pa, pc = arrow(), arrow("pyarrow.compute")
    columns = {name: _whole(data, name) for name in _NEEDED}
    original = pc.utf8_slice_codeunits(pc.struct_field(columns["task"], "original"), 0, 4 * TASK_CHARS)
    task = pc.utf8_slice_codeunits(
        pc.utf8_trim_whitespace(pc.replace_substring_regex(original, r"\s+", " ")), 0, TASK_CHARS
    )
    seats = _parts(columns["speakers"], "name", "role")
    said = _parts(columns["messages"], "model")
    reasons = pc.struct_field(columns["stop"], "reason").to_pylist()
    told = [
        told_of(names, roles, models, reason)
        for (names, roles), (models,), reason in zip(seats, said, reasons, strict=True)
    ]
    prompt, completion, cached, calls = (
        columns[name].to_pylist() for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "calls")
    )
    costs = [
        cost(one.model, Usage(*counts)) if counts[0] or counts[1] else None
        for one, *counts in zip(told, prompt, completion, cached, calls, strict=True)
    ]
    made = {
        "id": columns["id"],
        "scenario": columns["scenario"],
        "assistant": _texts([one.assistant for one in told]),
        "user": _texts([one.user for one in told]),
        "others": _texts([_others(names, roles) for names, roles in seats]),
        "task": task,
        "stop": _texts([one.stop for one in told]),
        "model": _texts([one.model for one in told]),
        "labels": _texts([joined(labels) for labels in columns["labels"].to_pylist()]),
        "findings": _texts([""] * data.num_rows),
        "marks": _texts([""] * data.num_rows),
        "messages": columns["num_messages"],
        "tokens": pc.add(columns["prompt_tokens"], columns["completion_tokens"]),
        "completion": columns["completion_tokens"],
        "calls": columns["calls"],
        "cost": pa.array(costs, pa.float64()),
        "shard": pa.repeat(shard, data.num_rows),
        "row": pa.array(range(start, start + data.num_rows), pa.int32()),
    }
    layout = schema()
    arrays = [made[field.name].cast(field.type) for field in layout]
    return pa.Table.from_arrays(arrays, schema=layout)


def _whole(data: Any, name: str) -> Any:
    """A column as one array, whatever it comes in."""
    column = data.column(name)
    return column.combine_chunks() if hasattr(column, "combine_chunks") else column


def _texts(values: list[str]) -> Any:
    return arrow().array(values, arrow().string())


def _parts(lists: Any, *names: str) -> list[list[list[str]]]:
    """The fields of the structs in each list of a column."""
    ends: list[int] = lists.offsets.to_pylist()
    fields: list[list[str]] = [lists.values.field(name).to_pylist() for name in names]
    return [[field[start:end] for field in fields] for start, end in pairwise(ends)]


def _others(names: Sequence[str], roles: Sequence[str]) -> str:
    if len(names) <= 2 and {*names} <= {"assistant", "user"}:
        return ""
    return joined(role for name, role in zip(names, roles, strict=True) if name not in ("assistant", "user"))


def count(table: Any) -> dict[str, dict[str, dict[str, int]]] | None:
    """The rows of an index by labels, facet and value; None where they are too many different ones."""
    counted: dict[str, dict[str, dict[str, int]]] = {}
    for name, its in COUNTED.items():
        names = bucket_names(its) if its.edges else []
        for label, value, number in _pairs(table, its.column):
            if label not in counted and len(counted) > MOST_VALUES:
                return None
            by = counted.setdefault(label, {}).setdefault(name, {})
            for each in _values(its, value, names):
                by[each] = by.get(each, 0) + number
    return _bounded(counted)


def _pairs(table: Any, column: str) -> Iterable[tuple[str, Any, int]]:
    """How often each set of labels stands beside each value of a column."""
    labels, values = table.column("labels"), table.column(column)
    if table.num_rows < _SMALL:
        counted = Counter(zip(labels.to_pylist(), values.to_pylist(), strict=True))
        return ((label, value, number) for (label, value), number in counted.items())
    both = arrow().table([labels, values], ["label", "value"])
    found = both.group_by(["label", "value"]).aggregate([([], "count_all")])
    return zip(*(found.column(name).to_pylist() for name in ("label", "value", "count_all")), strict=True)


def _values(facet: Facet, value: Any, names: list[str]) -> list[str]:
    if facet.many:
        return elements(value)
    if facet.edges:
        return [UNKNOWN if value is None else names[max(0, bisect_right(facet.edges, value) - 1)]]
    return [str(value)]


def _bounded(counted: dict[str, dict[str, dict[str, int]]]) -> dict[str, dict[str, dict[str, int]]] | None:
    """Counts without the facets that have too many values."""
    if len(counted) > MOST_VALUES:
        return None
    large = {name for by in counted.values() for name, values in by.items() if len(values) > MOST_VALUES}
    return {
        label: {name: values for name, values in by.items() if name not in large}
        for label, by in counted.items()
    }


def merge_counts(headers: Iterable[Header]) -> dict[str, dict[str, dict[str, int]]] | None:
    """The counts of several files together."""
    total: dict[str, dict[str, dict[str, int]]] = {}
    known: set[str] = set(COUNTED)
    for header in headers:
        if header.counts is None:
            return None
        for label, by in header.counts.items():
            known &= by.keys()
            into = total.setdefault(label, {})
            for name, values in by.items():
                counts = into.setdefault(name, {})
                for value, number in values.items():
                    counts[value] = counts.get(value, 0) + number
    return _bounded({label: {n: v for n, v in by.items() if n in known} for label, by in total.items()})


# ---------------------------------------------------------------- files

_ROWS = 8_192
"""Of a row group: what a page of a list loads at least."""
_KEY = b"camel.index"
_BLOOM = {"ndv": 1_024, "fpp": 0.05}
_MANY_VALUES = ("id", "task", "tokens", "completion", "cost", "row")


def write(path: Path, table: Any, header: Header) -> None:
    """Write an index file whole or not at all."""
    writing = path.with_name(f".{path.name}.{new_attempt()}")
    if not path.parent.exists():
        make_folder(path.parent)
    try:
        with Writer(writing, header, small=True) as writer:
            writer.add(table)
        sync(writing)
        writing.replace(path)  # its name may be lost in a power cut, its content not: then it is made anew
    finally:
        writing.unlink(missing_ok=True)


class Writer:
    """An index file being written, one table after the other."""

    def __init__(self, path: Path, header: Header, *, small: bool = False) -> None:
        pq = arrow("pyarrow.parquet")
        # Of a small file, beginning to compress each column well would cost more than it saves.
        how: dict[str, Any] = (
            {"compression": "snappy"} if small else {"compression": "zstd", "compression_level": 3}
        )
        self.header = header
        """Written last, so that it may be of what was counted meanwhile."""
        self._writer = pq.ParquetWriter(
            path,
            schema(),
            **how,
            # Ids and tasks differ; a dictionary of them is built only to be given up.
            use_dictionary=[name for name in schema().names if name not in _MANY_VALUES],
            # A role stands in few row groups: the others need not be read.
            bloom_filter_options=None if small else dict.fromkeys(("assistant", "user"), _BLOOM),
        )

    def add(self, table: Any) -> None:
        """Write more rows."""
        self._writer.write_table(table.cast(schema()), row_group_size=_ROWS)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.add_key_value_metadata({_KEY: msgspec.json.encode(self.header)})
        self._writer.close()


def said_in(metadata: Any, key: bytes) -> bytes:
    """What stands under a key in the footer of a Parquet file."""
    pairs: dict[bytes, bytes] | None = metadata.metadata
    return (pairs or {}).get(key, b"")


def read_header(path: Path) -> Header:
    """What an index file says about itself; an `InputError` where it is damaged, or of another version."""
    return read_footer(path)[0]


def read_footer(path: Path) -> tuple[Header, Any]:
    """The same, and all of its footer besides."""
    try:
        metadata = arrow("pyarrow.parquet").read_metadata(path)
        header = msgspec.json.decode(said_in(metadata, _KEY), type=Header)
    except (OSError, ValueError, arrow().ArrowException) as error:
        raise InputError(f"{path} is not an index: {' '.join(str(error).split())}") from None
    if header.version != VERSION or metadata.num_rows != header.rows:
        raise InputError(f"{path} is an index of another version")
    return header, metadata


def build(
    path: Path,
    data: Path,
    marker_file: str,
    stage: str,
    shard: int,
    fingerprint: str,
    cost: Cost = no_cost,
    rows: tuple[int, int] | None = None,
) -> Header:
    """Write the index of one shard from its data file, or from `rows` of one that holds several."""
    read = read_shard(data, _COLUMNS)
    if rows is not None:
        read = read.slice(rows[0], rows[1] - rows[0])
    table = table_of(read, shard, cost)
    stem = PurePosixPath(marker_file).stem
    header = Header(stage, fingerprint, [Indexed(shard, stem, table.num_rows)], count(table))
    write(path, table, header)
    return header


def write_indexed(
    folder: RunFolder,
    stage: str,
    path: Path,
    transcripts: Iterable[Transcript],
    fingerprint: str,
    cost: Cost = no_cost,
) -> Shard:
    """Write the data file of a shard, and beside it its index. The index never fails: without it the data is read.

    It is there before the shard is committed. Whoever is stopped in between leaves an index that nobody believes.
    """
    shard = int(path.stem.partition("-")[0])
    tables: list[Any] = []

    def noted() -> Iterator[Any]:
        start = 0
        for batch in batches(transcripts):
            with contextlib.suppress(*_trouble()):
                tables.append(table_of(batch, shard, cost, start))
            start += batch.num_rows
            yield batch

    written = write_batches(path, noted(), data_schema())
    with contextlib.suppress(OSError, CamelError, *_trouble()):
        table = arrow().concat_tables(tables) if tables else schema().empty_table()
        if table.num_rows == written.rows:
            name = f"{FOLDER}/{stage}/{path.stem}.parquet"
            header = Header(stage, fingerprint, [Indexed(shard, path.stem, written.rows)], count(table))
            place = folder.path(name)
            write(place, table, header)
            if isinstance(folder.store, BucketStore):
                folder.store.upload(place, name)
                place.unlink()
    return written


def _trouble() -> tuple[type[Exception], ...]:
    return (ValueError, TypeError, arrow().ArrowException)


_MERGED = re.compile(r"m(\d{6,})-(\d{6,})-[0-9a-f]+\.parquet")
_ORDERED = re.compile(r"o\d{6,}-\d{6,}-[0-9a-f]+-[a-z]+\.parquet")
_SINGLE = re.compile(r"(\d{6,})-[0-9a-f]+\.parquet")


class Files(NamedTuple):
    """The index files of a stage, by their names alone."""

    single: dict[str, str]
    """By the name of the data file, without its ending."""
    merged: list[tuple[int, int, str]]
    """First shard, last shard and name, the larger before those within it."""
    cubes: list[str]
    ordered: list[str]
    """Copies in the order of a number."""


def files_of(folder: RunFolder, stage: str) -> Files:
    """List the index files of a stage."""
    found = Files({}, [], [], [])
    for name in folder.store.names(f"{FOLDER}/{stage}"):
        file = f"{FOLDER}/{stage}/{name}"
        if match := _MERGED.fullmatch(name):
            found.merged.append((int(match[1]), int(match[2]), file))
        elif _SINGLE.fullmatch(name):
            found.single[name.removesuffix(".parquet")] = file
        elif _ORDERED.fullmatch(name):
            found.ordered.append(file)
        elif name.startswith("cube-") and name.endswith(".parquet"):
            found.cubes.append(file)
    found.merged.sort(key=lambda one: (one[0], -one[1], one[2]))
    return found


# ---------------------------------------------------------------- one index for many shards


MERGED = 4_194_304
"""Rows of a file at most."""
_GATHERED = 8 * _ROWS


class Looking(NamedTuple):
    """What detectors found in a run, for its index. Which they are this part of the house does not know."""

    by: str
    """Tells these detectors and their versions from others."""
    found: Callable[[int], Sequence[Sequence[Mark]] | None]
    """By shard: what was found in each of its rows; None where it was not looked through."""


class Mark(NamedTuple):
    """Something that was found in a conversation."""

    detector: str
    message: int
    """From 0; -1 for the whole conversation."""
    seat: str
    """Who said it."""


class Merged(NamedTuple):
    """What putting indexes together came to."""

    built: int
    """Shards that had no index."""
    made: int
    """Files written now."""
    files: int
    """That a reader of the stage opens."""
    rows: int


def merge(
    folder: RunFolder,
    stage: str,
    *,
    cost: Cost = no_cost,
    target: int = MERGED,
    looking: Looking | None = None,
    note: Callable[[str, int, int], None] = lambda what, done, of: None,
) -> Merged:
    """Index the shards that are not indexed, put the indexes together into few files, and count those into cubes.

    Each file is whole or not there, so that whoever is stopped goes on where they were; several may do it at once. While
    a run goes on, too: what is committed later is taken in the next time. With `looking`, what was found is put in as
    well. `note` is told what is done, and of how many.
    """
    from camel.storage.cube import digest_of, write_cubes
    from camel.storage.marks import put_in
    from camel.storage.ordered import write_ordered

    fingerprint = folder.settings().fingerprint
    markers = {one.shard: one for one in folder.markers(stage, sorted(folder.committed(stage)))}
    with tempfile.TemporaryDirectory(prefix="camel-index-") as scratch:
        files = Readable(folder, Path(scratch))
        merged = believed(files, stage, fingerprint)
        covered = {one.shard for _, header in merged for one in header.shards}
        built = _build_missing(files, [one for n, one in markers.items() if n not in covered], cost, note)
        sizes = {shard: marker.rows for shard, marker in markers.items()}
        existing = [(header.shards[0].shard, header.shards[-1].shard) for _, header in merged]
        wanted = list(ranges(sizes, target, existing))
        for number, (first, last) in enumerate(wanted):
            sources = [name for name, header in merged if first <= header.shards[0].shard <= last]
            sources += [name_of(markers[n]) for n in range(first, last + 1) if n not in covered]
            _merge_range(files, stage, fingerprint, first, last, sources)
            note("files put together", number + 1, len(wanted))
        found = believed(files, stage, fingerprint)
        if looking is not None:
            held = {one.shard for _, header in found for one in header.shards}
            alone = [
                (name_of(one), files.header(name_of(one))) for n, one in markers.items() if n not in held
            ]
            if put_in(files, [*found, *alone], looking, note):
                found = believed(files, stage, fingerprint)
        write_ordered(files, found, note)
        names = [name for name, _ in found]
        if names:
            digest = digest_of(names)
            cube = f"{FOLDER}/{stage}/cube-{digest}.parquet"
            if not folder.store.exists(cube):
                path = folder.path(cube)
                make_folder(path.parent)
                write_cubes(
                    path,
                    [files.path(name) for name in names],
                    digest,
                    note=lambda done, of: note("cubes counted", done, of),
                )
                files.keep(cube)
        held = {n for name in names for n in (one.shard for one in files.header(name).shards)}
        return Merged(built, len(wanted), len(names) + len(markers.keys() - held), sum(sizes.values()))


class Readable:
    """Index files where they can be read; those of an object store are fetched."""

    def __init__(self, folder: RunFolder, scratch: Path) -> None:
        self.folder, self._scratch = folder, scratch

    def path(self, name: str) -> Path:
        """A file on this machine."""
        if not isinstance(self.folder.store, BucketStore):
            return self.folder.path(name)
        path = self._scratch / name
        if not path.exists():
            make_folder(path.parent)
            self.folder.store.fetch(name, path)
        return path

    def header(self, name: str) -> Header:
        """What a file says about itself."""
        return read_header(self.path(name))

    def keep(self, name: str) -> None:
        """Have a file that was written at its place in `root` last."""
        if isinstance(self.folder.store, BucketStore):
            path = self.folder.path(name)
            self.folder.store.upload(path, name)
            make_folder((self._scratch / name).parent)
            shutil.move(path, self._scratch / name)


def believed(files: Readable, stage: str, fingerprint: str) -> list[tuple[str, Header]]:
    """The merged files that are to be read: whole, of this run, none within another."""
    chosen: list[tuple[str, Header]] = []
    reached, anew = -1, files_anew(files.folder, stage)
    for first, last, name in files_of(files.folder, stage).merged:
        if first <= reached:
            continue
        with contextlib.suppress(CamelError, OSError):
            header = files.header(name)
            if is_of(header, stage, fingerprint, first, last, anew):
                chosen.append((name, header))
                reached = last
    return chosen


def files_anew(folder: RunFolder, stage: str) -> dict[int, str]:
    """By shard that a retry has written anew, the name of its file now, without its ending."""
    anew = folder.markers(stage, sorted(folder.written_anew(stage)))
    return {marker.shard: PurePosixPath(marker.file).stem for marker in anew}


def is_of(
    header: Header, stage: str, fingerprint: str, first: int, last: int, anew: Mapping[int, str]
) -> bool:
    """Whether a merged file is what its name says, of this run, and of its shards as they are now (`files_anew`)."""
    shards = [one.shard for one in header.shards]
    return (header.stage, header.fingerprint, shards) == (
        stage,
        fingerprint,
        list(range(first, last + 1)),
    ) and are_newest(header.shards, anew)


def are_newest(shards: Iterable[Indexed], anew: Mapping[int, str]) -> bool:
    """Whether what was indexed is what the shards are now (`files_anew`)."""
    return all(anew.get(one.shard, one.file) == one.file for one in shards)


def is_for(header: Header, marker: Marker) -> bool:
    """Whether an index is that of a marker's data file."""
    its = [(one.shard, one.file, one.rows) for one in header.shards]
    return header.stage == marker.stage and its == [
        (marker.shard, PurePosixPath(marker.file).stem, marker.rows)
    ]


def _build_missing(
    files: Readable, markers: Sequence[Marker], cost: Cost, note: Callable[[str, int, int], None]
) -> int:
    folder = files.folder
    if not markers:
        return 0
    stage = markers[0].stage
    listed = files_of(folder, stage).single
    missing: list[Marker] = []
    for marker in markers:
        try:
            if PurePosixPath(marker.file).stem in listed and is_for(files.header(name_of(marker)), marker):
                continue
        except (CamelError, OSError):
            pass
        missing.append(marker)
    where = {n: part for part in parts_of(folder, stage, missing) for n in range(part.first, part.last + 1)}
    with folder.opened(where[marker.shard].file for marker in missing) as opened:
        for number, (marker, data) in enumerate(zip(missing, opened, strict=True)):
            part, name = where[marker.shard], name_of(marker)
            start = sum(part.rows[: marker.shard - part.first])
            between = (start, start + marker.rows)
            build(
                folder.path(name), data, marker.file, stage, marker.shard, marker.fingerprint, cost, between
            )
            files.keep(name)
            note("shards indexed", number + 1, len(missing))
    return len(missing)


def _merge_range(
    files: Readable, stage: str, fingerprint: str, first: int, last: int, sources: Sequence[str]
) -> None:
    headers = sorted(((files.header(name), name) for name in sources), key=lambda one: one[0].shards[0].shard)
    shards = [shard for header, _ in headers for shard in header.shards]
    whole = Header(stage, fingerprint, shards, merge_counts(header for header, _ in headers))
    name = f"{FOLDER}/{stage}/m{first:06d}-{last:06d}-{new_attempt()}.parquet"
    path = files.folder.path(name)
    make_folder(path.parent)
    pa, pq = arrow(), arrow("pyarrow.parquet")
    with taking_place(path) as writing, Writer(writing, whole) as writer:
        held: list[Any] = []
        for _, source in headers:
            with pq.ParquetFile(files.path(source)) as file:
                for batch in file.iter_batches(_GATHERED):
                    held.append(pa.Table.from_batches([batch]).replace_schema_metadata(None))
                    if sum(table.num_rows for table in held) >= _GATHERED:
                        together = pa.concat_tables(held)
                        even = together.num_rows // _ROWS * _ROWS
                        writer.add(together.slice(0, even))
                        held = [together.slice(even)]
        if held:
            writer.add(pa.concat_tables(held))
    files.keep(name)
