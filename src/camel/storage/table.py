"""Transcripts as Arrow tables and Parquet files, and back, without loss.

A column has the name of the field of `Transcript` that it holds; after them stand totals for queries
(`num_messages`, tokens, `calls`), which reading ignores. What critics weighed is one column of JSON, because it is a tree
that few rows have; it is null in the others. The one decision to know: this runs for every message ever
generated, so each field is gathered into one column at a time, nested ones included, and no value becomes a `dict`
on its way.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import msgspec

from camel.core.errors import Damaged, InputError, MissingExtra
from camel.core.message import Deliberation, Message, Sampling, Usage, well_formed
from camel.core.stopping import Stop
from camel.core.task import Task
from camel.core.transcript import SCHEMA, Speaker, Transcript
from camel.storage.journal import sync_folder

Table = Any
"""A `pyarrow.Table`; pyarrow publishes no types."""

ROW_GROUP = 2_000
"""Rows of a row group: what a reader must load at least, about 50 MB of text at the paper's lengths."""
_MOST_CHARS = 2**27
"""Characters of a row group; a column of Arrow strings holds at most 2 GiB of UTF-8."""
_READ_ROWS = 256
"""Rows turned into transcripts at a time, so that whoever reads one after the other holds few."""
_ZSTD_LEVEL = 3
"""Measured on text like the paper's: level 1 costs the same time for a quarter more bytes, level 6 twice the time for a seventh less."""
_PAGE = 4 * 2**20
"""Bytes of a data page, the unit of compression: near-equal prompts cost next to nothing after the first of a page."""

DELIBERATIONS = "deliberations"
_USAGE = ("prompt", "completion", "cached", "calls", "unknown")
# Columns with few different values. The rest is not even tried: a dictionary of prose is built only to be given up.
_FEW_VALUES = [
    "scenario",
    "labels.list.element",
    "fingerprint",
    "schema",
    "task.model",
    "task.finish",
    "task.guided",
    "speakers.list.element.name",
    "speakers.list.element.role",
    "speakers.list.element.sampling",
    *(
        f"messages.list.element.{name}"
        for name in ("speaker", "role", "model", "finish", "guided", "attempts")
    ),
    "messages.list.element.usage.calls",
    "messages.list.element.usage.unknown",
    "stop.reason",
    "stop.speaker",
    "facts.key_value.key",
    "facts.key_value.value",
]

T = TypeVar("T")


class Shard(NamedTuple):
    """A file that was written."""

    rows: int
    sha256: str


def arrow(module: str = "pyarrow") -> Any:
    """The module `pyarrow`, or one below it; imported only where it is used."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise MissingExtra("reading and writing Parquet", "data") from None


@cache
def schema() -> Any:
    """The Arrow schema of a transcript."""
    pa = arrow()
    text, whole = pa.string(), pa.int64()
    usage = pa.struct([(name, whole) for name in _USAGE])
    task = pa.struct(
        [
            ("original", text),
            ("specified", text),
            ("model", text),
            ("usage", usage),
            ("finish", text),
            ("guided", text),
        ]
    )
    speaker = pa.struct([(name, text) for name in ("name", "role", "system", "opening", "sampling")])
    message = pa.struct(
        [
            ("index", pa.int32()),
            ("speaker", text),
            ("role", text),
            ("content", text),
            ("model", text),
            ("finish", text),
            ("usage", usage),
            ("latency", pa.float64()),
            ("attempts", pa.int32()),
            ("guided", text),
        ]
    )
    return pa.schema(
        [
            ("id", text),
            ("scenario", text),
            ("task", task),
            ("speakers", pa.list_(speaker)),
            ("messages", pa.list_(message)),
            ("stop", pa.struct([("reason", text), ("detail", text), ("speaker", text)])),
            ("facts", pa.map_(text, text)),
            ("labels", pa.list_(text)),
            ("fingerprint", text),
            ("schema", pa.int32()),
            ("num_messages", pa.int32()),
            ("prompt_tokens", whole),
            ("completion_tokens", whole),
            ("cached_tokens", whole),
            ("calls", whole),
            (DELIBERATIONS, text),
        ]
    )


def upgraded(table: Table) -> Table:
    """A table with the column that transcripts of earlier versions lack; any other stays as it is."""
    if DELIBERATIONS in table.schema.names or not is_transcripts(table.schema):
        return table
    pa = arrow()
    return table.append_column(schema().field(DELIBERATIONS), pa.nulls(table.num_rows, pa.string()))


def is_transcripts(layout: Any) -> bool:
    """Whether a schema is a transcript's, of this version or of an earlier one."""
    own = schema()
    return layout.equals(own) or layout.equals(own.remove(own.get_field_index(DELIBERATIONS)))


def to_table(transcripts: Iterable[Transcript]) -> Table:
    """All of `transcripts` in one table."""
    return arrow().Table.from_batches(list(batches(transcripts)), schema=schema())


def batches(transcripts: Iterable[Transcript]) -> Iterator[Any]:
    """`transcripts` as record batches, each of the size of a row group. Holds one at a time."""
    held: list[Transcript] = []
    chars = 0
    for transcript in transcripts:
        held.append(transcript)
        chars += sum([len(message.content) for message in transcript.messages])
        if len(held) == ROW_GROUP or chars > _MOST_CHARS:
            yield _batch(held)
            held, chars = [], 0
    if held:
        yield _batch(held)


def rows(table: Table) -> Iterator[Transcript]:
    """The transcripts of a table: the exact inverse of `to_table`."""
    wanted = schema().names[:10]
    if missing := [name for name in wanted if name not in table.schema.names]:
        raise InputError(f"not a table of transcripts: it has no column {', '.join(missing)}")
    for batch in upgraded(table).select([*wanted, DELIBERATIONS]).to_batches(max_chunksize=_READ_ROWS):
        yield from _transcripts(batch)


def write_shard(path: Path, transcripts: Iterable[Transcript]) -> Shard:
    """Write one Parquet file, durably. On failure nothing is left at `path`."""
    return write_batches(path, batches(transcripts), schema())


def write_batches(path: Path, groups: Iterable[Any], layout: Any) -> Shard:
    """Write record batches of the schema `layout` as the row groups of one Parquet file, durably."""
    pa, pq = arrow(), arrow("pyarrow.parquet")
    count = 0
    try:
        with path.open("wb") as file:
            hashed = _Hashed(file)
            with pq.ParquetWriter(
                pa.PythonFile(hashed, mode="w"),
                layout,
                compression="zstd",
                compression_level=_ZSTD_LEVEL,
                use_dictionary=_FEW_VALUES,
                data_page_size=_PAGE,
            ) as writer:
                for batch in groups:
                    writer.write_batch(batch)
                    count += batch.num_rows
            file.flush()
            os.fsync(file.fileno())
        sync_folder(path.parent)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return Shard(count, hashed.digest.hexdigest())


def read_shard(path: Path, columns: Sequence[str] | None = None) -> Table:
    """The table in a Parquet file, or some of its columns; `messages.list.element.content` names a nested one."""
    with _opened(path) as file:
        found = _readable(path, lambda: file.read(columns=None if columns is None else list(columns)))
    return upgraded(found) if columns is None else found


def stream_shard(path: Path, start: int = 0, stop: int | None = None) -> Iterator[Transcript]:
    """The transcripts of a Parquet file, or those from `start` to `stop`, one row group in memory at a time."""
    for group in stream_groups(path, start, stop):
        yield from rows(group)


def stream_groups(path: Path, start: int = 0, stop: int | None = None) -> Iterator[Table]:
    """The row groups of a Parquet file as tables, cut to the rows from `start` to `stop`."""
    with _opened(path) as file:
        before = 0
        for group in range(file.metadata.num_row_groups):
            count: int = file.metadata.row_group(group).num_rows
            first, last = max(0, start - before), min(count, count if stop is None else stop - before)
            before += count
            if first < last:
                table = upgraded(_readable(path, lambda group=group: file.read_row_group(group)))
                yield table if last - first == count else table.slice(first, last - first)


def shape_of(path: Path) -> tuple[int, Any]:
    """The number of rows of a Parquet file, and its schema, from its footer alone."""
    with _opened(path) as file:
        return file.metadata.num_rows, file.schema_arrow


def _opened(path: Path) -> Any:
    return _readable(path, lambda: arrow("pyarrow.parquet").ParquetFile(path))


def _readable(path: Path, read: Callable[[], T]) -> T:
    """What `read` returns; damage becomes an error that names the file."""
    try:
        return read()
    except (OSError, arrow().ArrowException) as error:
        said = " ".join(str(error).split()).rstrip(".")
        raise Damaged(f"cannot read {path}: {said}; camel verify finds what is damaged in a run") from None


class _Hashed:
    """A file that is hashed while it is written, so that it need not be read again."""

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        """Left to whoever opened the file: it has still to be synced."""


def _batch(transcripts: list[Transcript]) -> Any:
    """One record batch, built column by column."""
    pa = arrow()
    layout = schema()
    tasks = [transcript.task for transcript in transcripts]
    speakers = list(chain.from_iterable([transcript.speakers for transcript in transcripts]))
    messages = list(chain.from_iterable([transcript.messages for transcript in transcripts]))
    usages = [message.usage for message in messages]
    ends = _offsets([transcript.messages for transcript in transcripts])
    facts = [transcript.facts for transcript in transcripts]
    labels = [transcript.labels for transcript in transcripts]

    speaker_columns = [
        _texts([speaker.name for speaker in speakers]),
        _texts([speaker.role for speaker in speakers]),
        _texts([speaker.system for speaker in speakers]),
        _texts([speaker.opening for speaker in speakers]),
        _texts(_as_json([speaker.sampling for speaker in speakers])),
    ]
    message_columns = [
        pa.array([message.index for message in messages], pa.int32()),
        _texts([message.speaker for message in messages]),
        _texts([message.role for message in messages]),
        _texts([message.content for message in messages]),
        _texts([message.model for message in messages]),
        _texts([message.finish for message in messages]),
        _usages(usages, layout.field("task").type.field("usage").type),
        pa.array([message.latency for message in messages], pa.float64()),
        pa.array([message.attempts for message in messages], pa.int32()),
        _texts([message.guided for message in messages]),
    ]
    columns = [
        _texts([transcript.id for transcript in transcripts]),
        _texts([transcript.scenario for transcript in transcripts]),
        _struct(
            layout.field("task").type,
            [
                _texts([task.original for task in tasks]),
                _texts([task.specified for task in tasks]),
                _texts([task.model for task in tasks]),
                _usages([task.usage for task in tasks], layout.field("task").type.field("usage").type),
                _texts([task.finish for task in tasks]),
                _texts([task.guided for task in tasks]),
            ],
        ),
        _list(layout.field("speakers").type, [t.speakers for t in transcripts], speaker_columns),
        _list(layout.field("messages").type, [t.messages for t in transcripts], message_columns),
        _stops(layout.field("stop").type, [transcript.stop for transcript in transcripts]),
        pa.MapArray.from_arrays(
            pa.array(_offsets(facts), pa.int32()),
            _texts(list(chain.from_iterable(facts))),
            _texts(list(chain.from_iterable([fact.values() for fact in facts]))),
        ),
        pa.ListArray.from_arrays(
            pa.array(_offsets(labels), pa.int32()), _texts(list(chain.from_iterable(labels)))
        ),
        _texts([transcript.fingerprint for transcript in transcripts]),
        pa.array([transcript.schema for transcript in transcripts], pa.int32()),
        pa.array([len(transcript.messages) for transcript in transcripts], pa.int32()),
        _totals([u.prompt for u in usages], ends, [task.usage.prompt for task in tasks]),
        _totals([u.completion for u in usages], ends, [task.usage.completion for task in tasks]),
        _totals([u.cached for u in usages], ends, [task.usage.cached for task in tasks]),
        _totals([u.calls for u in usages], ends, [task.usage.calls for task in tasks]),
        pa.array([_deliberations(transcript.messages) for transcript in transcripts], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=layout)


def _texts(values: list[str]) -> Any:
    pa = arrow()
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        # Half of a surrogate pair; the loop lets none in, but a record may come from elsewhere.
        return pa.array([well_formed(value) for value in values], pa.string())


def _offsets(lists: Iterable[Sequence[Any] | dict[Any, Any]]) -> list[int]:
    return list(accumulate(map(len, lists), initial=0))


def _struct(layout: Any, columns: list[Any], mask: Any = None) -> Any:
    return arrow().StructArray.from_arrays(columns, fields=list(layout), mask=mask)


def _list(layout: Any, lists: Iterable[Sequence[Any]], columns: list[Any]) -> Any:
    pa = arrow()
    elements = _struct(layout.value_type, columns)
    return pa.ListArray.from_arrays(pa.array(_offsets(lists), pa.int32()), elements)


def _usages(usages: list[Usage], layout: Any) -> Any:
    pa = arrow()
    columns = [
        [usage.prompt for usage in usages],
        [usage.completion for usage in usages],
        [usage.cached for usage in usages],
        [usage.calls for usage in usages],
        [usage.unknown for usage in usages],
    ]
    return _struct(layout, [pa.array(column, pa.int64()) for column in columns])


def _stops(layout: Any, stops: list[Stop | None]) -> Any:
    pa = arrow()
    said = [stop or _NO_STOP for stop in stops]
    columns = [
        _texts([stop.reason for stop in said]),
        _texts([stop.detail for stop in said]),
        _texts([stop.speaker for stop in said]),
    ]
    return _struct(layout, columns, pa.array([stop is None for stop in stops], pa.bool_()))


_NO_STOP = Stop("stopped", "")


def _totals(values: list[int], ends: list[int], extra: list[int]) -> Any:
    """The sum of each row's part of `values`, and what its task cost besides."""
    sums = list(accumulate(values, initial=0))
    pa = arrow()
    return pa.array(
        [sums[end] - sums[start] + more for (start, end), more in zip(pairwise(ends), extra, strict=True)],
        pa.int64(),
    )


def _as_json(samplings: list[Sampling]) -> list[str]:
    """Settings as JSON, because `extra` may hold anything. Nearly all rows share one object."""
    known: dict[int, str] = {}
    for sampling in samplings:
        if id(sampling) not in known:
            known[id(sampling)] = msgspec.json.encode(sampling).decode()
    return [known[id(sampling)] for sampling in samplings]


class _Weighed(msgspec.Struct):
    """What a critic weighed for a message, as a row has it."""

    message: int
    deliberation: Deliberation


_weighed = msgspec.json.Decoder(list[_Weighed]).decode


def _deliberations(messages: list[Message]) -> str | None:
    found = [
        _Weighed(place, message.deliberation)
        for place, message in enumerate(messages)
        if message.deliberation is not None
    ]
    return msgspec.json.encode(found).decode() if found else None


def _with_deliberations(transcript: Transcript, weighed: str | None) -> Transcript:
    for one in _weighed(weighed) if weighed else ():
        message = transcript.messages[one.message]
        transcript.messages[one.message] = msgspec.structs.replace(message, deliberation=one.deliberation)
    return transcript


def _transcripts(batch: Any) -> Iterator[Transcript]:
    columns = {name: batch.column(name) for name in batch.schema.names}
    versions: list[int] = columns["schema"].to_pylist()
    if versions and max(versions) > SCHEMA:
        raise InputError(
            f"these transcripts have schema {max(versions)}, and this version of camel reads up to {SCHEMA}: upgrade it"
        )
    task = columns["task"]
    tasks = map(
        Task,
        task.field("original").to_pylist(),
        task.field("specified").to_pylist(),
        _shared(task.field("model")),
        _read_usages(task.field("usage")),
        _shared(task.field("finish")),
        _shared(task.field("guided")),
    )
    transcripts = map(
        Transcript,
        columns["id"].to_pylist(),
        tasks,
        _parts(columns["speakers"], _read_speakers),
        _parts(columns["messages"], _read_messages),
        _read_stops(columns["stop"]),
        _shared(columns["scenario"]),
        map(dict, _parts(columns["facts"], _read_facts)),
        _parts(columns["labels"], _shared),
        _shared(columns["fingerprint"]),
        versions,
    )
    return map(_with_deliberations, transcripts, columns[DELIBERATIONS].to_pylist())


def _shared(texts: Any) -> list[str]:
    """A column of few different values, each made once: faster, and a fraction of the memory."""
    encoded = texts.dictionary_encode()
    values = encoded.dictionary.to_pylist()
    return [values[index] for index in encoded.indices.to_pylist()]


def _parts(lists: Any, read: Callable[[Any], list[T]]) -> Iterator[list[T]]:
    """The lists of a column, whose elements are read all at once."""
    ends: list[int] = lists.offsets.to_pylist()
    first = ends[0]
    elements = read(lists.values.slice(first, ends[-1] - first))
    return (elements[start - first : end - first] for start, end in pairwise(ends))


def _read_usages(usages: Any) -> list[Usage]:
    return list(map(Usage, *(usages.field(name).to_pylist() for name in _USAGE)))


def _read_messages(messages: Any) -> list[Message]:
    return list(
        map(
            Message,
            messages.field("index").to_pylist(),
            _shared(messages.field("speaker")),
            _shared(messages.field("role")),
            messages.field("content").to_pylist(),
            _shared(messages.field("model")),
            _shared(messages.field("finish")),
            _read_usages(messages.field("usage")),
            messages.field("latency").to_pylist(),
            messages.field("attempts").to_pylist(),
            _shared(messages.field("guided")),
        )
    )


def _read_speakers(speakers: Any) -> list[Speaker]:
    encoded = speakers.field("sampling").dictionary_encode()
    different: list[str] = encoded.dictionary.to_pylist()
    settings = [msgspec.json.decode(text, type=Sampling) for text in different]
    indices: list[int] = encoded.indices.to_pylist()
    return list(
        map(
            Speaker,
            _shared(speakers.field("name")),
            _shared(speakers.field("role")),
            _shared(speakers.field("system")),
            _shared(speakers.field("opening")),
            [settings[index] for index in indices],
        )
    )


def _read_stops(stops: Any) -> list[Stop | None]:
    columns = (stops.field("reason"), stops.field("detail"), stops.field("speaker"))
    return [
        Stop(reason, detail, speaker) if given else None
        for given, reason, detail, speaker in zip(
            stops.is_valid().to_pylist(), *(column.to_pylist() for column in columns), strict=True
        )
    ]


def _read_facts(pairs: Any) -> list[tuple[str, str]]:
    """Also from the list of pairs as which a dataset holds them: `datasets` knows no maps."""
    return list(zip(_shared(pairs.field(0)), _shared(pairs.field(1)), strict=True))
