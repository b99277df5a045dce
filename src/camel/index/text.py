"""The full-text index of a run, made by `camel run index RUN --text`; optional.

    text/<stage>/<first>-<last>-<attempt>/     of a range of shards: tantivy's files, and metadata in camel.json

It is next to the run's data or, for a run in an object store, in the local folder that also has its journals.

The one decision to know: a document is a conversation, and the index stores its text. Otherwise a page of
results would have to read one row group of the data for each hit, to show the words around it.

Scripts without spaces (Chinese, Japanese, Thai and others) have no words that the engine could split. There each character
is indexed together with the next one, so that a phrase of such pairs finds a word anywhere in a sentence.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import msgspec

from camel.core.errors import CamelError, InputError
from camel.core.transcript import Transcript
from camel.index.build import FacetValues, facet_values
from camel.index.files import Indexed, are_newest, rewritten_files
from camel.record.arrow import stream_shard
from camel.runs.compact import open_parts, parts_of, ranges
from camel.runs.markers import Marker, new_attempt
from camel.runs.reader import need_module
from camel.runs.run import RunFolder
from camel.storage import inside
from camel.storage.files import make_folder, sync_folder
from camel.storage.processes import workers
from camel.storage.store import DiskStore, ahead

FOLDER = "text"
VERSION = 2
"""Version of the layout. An index of another version is ignored, and `make_text_index` replaces it."""
ROWS = 262_144
"""Maximum number of conversations per index."""
BETWEEN = "\x1e"
"""Separator between the task and the messages in the stored text of a conversation."""
KEPT = ("scenario", *FacetValues._fields)
"""Facets by which a search can be filtered before its best hits are chosen."""
UNSPACED = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u0edc-\u0edf\u1000-\u109f\u1780-\u17d3"  # Thai, Lao, Burmese, Khmer
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\uff66-\uff9f"  # Japanese
    "\u1100-\u11ff\u3131-\u318e\uac00-\ud7a3"  # Korean, whose particles follow a word without a space
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese characters
)
"""Characters of scripts that do not separate words by spaces, as ranges of a regular expression."""
_RUN = re.compile(f"[{UNSPACED}]+")
_LAST_RUN = re.compile(rf"[{UNSPACED}]+(?=[\W_]*\Z)")
BEGINNING = ".*"
"""A suffix of a searched word that matches any word with this beginning."""
_HEAP = 256 * 2**20
_ABANDONED = 86_400.0
"""Seconds after which an unfinished index counts as abandoned."""


class TextHeader(msgspec.Struct, frozen=True):
    """The metadata of a text index."""

    stage: str
    fingerprint: str
    shards: list[Indexed]
    version: int = VERSION


class TextMade(NamedTuple):
    """The result of making a text index."""

    made: int
    """Number of indexes written."""
    indexes: int
    rows: int


def tantivy() -> Any:
    """Import the search engine. Raise `MissingExtra` if it is not installed."""
    return need_module("tantivy", "explore", "Full-text search")


def texts_of(transcript: Transcript) -> list[str]:
    """Return the searchable texts of a conversation: its task, then its messages."""
    task = transcript.task
    return [f"{task.original}\n{task.specified}", *(message.content for message in transcript.messages)]


def text_indexes(folder: RunFolder, stage: str, fingerprint: str) -> list[tuple[Path, TextHeader]]:
    """Return the text indexes of a stage that are complete, of this run, and not within the range of another."""
    found: list[tuple[int, int, str]] = []
    for name in DiskStore(folder.root).folders(f"{FOLDER}/{stage}"):
        first, last, *_ = *name.split("-"), "", ""
        if first.isdecimal() and last.isdecimal():
            found.append((int(first), -int(last), name))
    chosen: list[tuple[Path, TextHeader]] = []
    reached, anew = -1, rewritten_files(folder, stage)
    for first, last, name in sorted(found):
        if first <= reached:
            continue
        where = f"{FOLDER}/{stage}/{name}"
        list(inside.entries(folder.root, where))  # raises for a link, which the engine would follow
        with contextlib.suppress(OSError, ValueError):
            header = msgspec.json.decode(inside.read(folder.root, f"{where}/camel.json"), type=TextHeader)
            shards = [one.shard for one in header.shards]
            if (header.stage, header.fingerprint, header.version) == (stage, fingerprint, VERSION) and (
                shards == list(range(first, -last + 1)) and are_newest(header.shards, anew)
            ):
                chosen.append((folder.path(where), header))
                reached = -last
    return chosen


def make_text_index(
    folder: RunFolder,
    stage: str,
    *,
    target: int = ROWS,
    processes: int = 1,
    note: Callable[[str, int, int], None] = lambda what, done, of: None,
) -> TextMade:
    """Index the text of all committed conversations. Another call resumes after an interruption, or adds new conversations.

    Each process writes whole indexes, so several help from `target` conversations on.
    """
    tantivy()
    fingerprint = folder.settings().fingerprint
    markers = {one.shard: one for one in folder.markers(stage, sorted(folder.committed(stage)))}
    existing = text_indexes(folder, stage, fingerprint)
    have = [(header.shards[0].shard, header.shards[-1].shard) for _, header in existing]
    sizes = {shard: marker.rows for shard, marker in markers.items()}
    wanted = list(ranges(sizes, target, have))
    covered = {n for first, last in [*wanted, *have] for n in range(first, last + 1)}
    wanted += [(n, n) for n in sizes if n not in covered]
    rows = sum(sizes[n] for first, last in wanted for n in range(first, last + 1))
    given = [[markers[n] for n in range(first, last + 1)] for first, last in sorted(wanted)]
    make, some, done = partial(_make, folder, stage, fingerprint), min(processes, len(given)), 0
    with workers(some) as executor:
        steps = chain.from_iterable(map(make, given))
        for indexed in steps if some < 2 else ahead(partial(_made, make), given, some, executor):
            done += indexed
            note("conversations indexed", done, rows)
    kept = text_indexes(folder, stage, fingerprint)
    _remove_replaced(folder, stage, {path.name for path, _ in kept})
    return TextMade(len(wanted), len(kept), sum(one.rows for _, header in kept for one in header.shards))


def _remove_replaced(folder: RunFolder, stage: str, kept: set[str]) -> None:
    """Remove indexes that larger ones replace, and abandoned unfinished ones."""
    where = folder.path(f"{FOLDER}/{stage}")
    for path in where.iterdir() if where.is_dir() else ():
        # Another process may still be writing an unfinished one.
        young = path.name.startswith(".") and time.time() - path.stat().st_mtime < _ABANDONED
        if path.name not in kept and not young:
            shutil.rmtree(path, ignore_errors=True)


def _made(make: Callable[[list[Marker]], Iterator[int]], markers: list[Marker]) -> int:
    """Write one text index and return the number of its conversations."""
    return sum(make(markers))


def _make(folder: RunFolder, stage: str, fingerprint: str, markers: Sequence[Marker]) -> Iterator[int]:
    """Write one text index atomically. Yield the number of conversations after each shard."""
    engine = tantivy()
    name = f"{markers[0].shard:06d}-{markers[-1].shard:06d}-{new_attempt()}"
    path = folder.path(f"{FOLDER}/{stage}/{name}")
    writing = path.with_name(f".{name}")
    make_folder(path.parent)
    writing.mkdir()
    try:
        writer = engine.Index(_schema(), path=str(writing)).writer(_HEAP)
        parts = parts_of(folder, stage, markers)
        with open_parts(folder, parts) as files:
            for part, file in zip(parts, files, strict=True):
                for marker in (one for one in markers if part.first <= one.shard <= part.last):
                    start = sum(part.rows[: marker.shard - part.first])
                    for row, transcript in enumerate(stream_shard(file, start, start + marker.rows)):
                        writer.add_document(_document(engine, marker.shard, row, transcript))
                    yield marker.rows
        writer.commit()
        writer.wait_merging_threads()
        shards = [Indexed(one.shard, PurePosixPath(one.file).stem, one.rows) for one in markers]
        header = TextHeader(stage, fingerprint, shards)
        (writing / "camel.json").write_bytes(msgspec.json.encode(header))
        sync_folder(writing)
        writing.rename(path)
        sync_folder(path.parent)
    finally:
        shutil.rmtree(writing, ignore_errors=True)


def _schema() -> Any:
    builder = tantivy().SchemaBuilder()
    builder.add_bytes_field("body", stored=True)
    builder.add_text_field("words", tokenizer_name="default", index_option="position")
    for name in (*KEPT, "label"):
        builder.add_text_field(name, tokenizer_name="raw", index_option="basic")
    builder.add_unsigned_field("place", fast=True)
    return builder.build()


def _document(engine: Any, shard: int, row: int, transcript: Transcript) -> Any:
    document = engine.Document()
    text = BETWEEN.join(text.replace(BETWEEN, " ") for text in texts_of(transcript))
    document.add_bytes("body", text.encode("utf-8", "replace"))
    document.add_text("words", _spaced(text))
    for label in transcript.labels:
        document.add_text("label", label)
    told = facet_values(
        [speaker.name for speaker in transcript.speakers],
        [speaker.role for speaker in transcript.speakers],
        [message.model for message in transcript.messages],
        transcript.stop and transcript.stop.reason,
    )
    for name, value in zip(KEPT, (transcript.scenario, *told), strict=True):
        document.add_text(name, value)
    document.add_unsigned("place", shard << 32 | row)
    return document


class TextIndex:
    """A text index that is open for searching."""

    def __init__(self, path: Path, header: TextHeader) -> None:
        try:
            self._index = tantivy().Index.open(str(path))
            self._searcher = self._index.searcher()
        except (ValueError, OSError) as error:
            raise InputError(f"{path} is damaged: remove it and run `camel run index RUN --text`") from error
        self.header = header

    def search(
        self,
        phrases: Sequence[Sequence[str]],
        facets: dict[str, tuple[str, ...]],
        hidden: frozenset[str],
        most: int,
    ) -> tuple[list[tuple[float, Any]], int]:
        """Return scores and addresses of the best conversations that contain all phrases, and the number of all such
        conversations.
        """
        engine = tantivy()
        schema, query = self._index.schema, engine.Query
        must, never = engine.Occur.Must, engine.Occur.MustNot
        terms = [(must, self._phrase(list(words))) for words in phrases]
        sets = (query.term_set_query(schema, name, list(values)) for name, values in facets.items())
        terms += [(must, query.const_score_query(one, 0.0)) for one in sets]
        terms += [(never, query.term_query(schema, "label", label)) for label in sorted(hidden)]
        found = self._searcher.search(query.boolean_query(terms), limit=most, count=True)
        return found.hits, found.count

    def _phrase(self, words: list[str]) -> Any:
        """Return the search engine's query for adjacent words."""
        query, where = tantivy().Query, (self._index.schema, "words")
        one, several = query.term_query, query.phrase_query
        if words[-1].endswith(BEGINNING):
            one, several = query.regex_query, query.regex_phrase_query
        return one(*where, words[0]) if len(words) == 1 else several(*where, words)

    def places(self, addresses: Sequence[Any]) -> list[int]:
        """Return the position of each found conversation: shard and row in one integer."""
        return self._searcher.fast_field_values("place", list(addresses)) if addresses else []

    def texts(self, address: Any) -> list[str]:
        """Return the task and the messages of a found conversation."""
        return bytes(self._searcher.doc(address).get_first("body")).decode().split(BETWEEN)


def _spaced(text: str) -> str:
    """Return the text with each run of characters of scripts without spaces split into overlapping pairs."""
    return _RUN.sub(lambda run: f" {' '.join(_pairs(run[0]))} ", text)


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run))]


def words_of(text: str) -> list[str]:
    """Return the words of a text as the index stores them. The last one may be a prefix, marked by `BEGINNING`."""
    engine = tantivy()
    analyzer = engine.TextAnalyzerBuilder(engine.Tokenizer.simple()).filter(engine.Filter.lowercase()).build()
    run = _LAST_RUN.search(text)
    if run is None:
        return list(analyzer.analyze(_spaced(text)))
    # In a conversation the last character may be followed by any other: it is found as part of the pair before it.
    pairs = _pairs(run[0])[:-1] or [run[0]]
    words = list(analyzer.analyze(f"{_spaced(text[: run.start()])} {' '.join(pairs)}"))
    if words and words[-1] == run[0]:
        words[-1] += BEGINNING
    return words


def opened(folder: RunFolder, stage: str) -> list[TextIndex]:
    """Open the valid text indexes of a stage. Return none if the search engine is not installed."""
    found: list[TextIndex] = []
    for path, header in text_indexes(folder, stage, folder.settings().fingerprint):
        with contextlib.suppress(CamelError):
            found.append(TextIndex(path, header))
    return found
