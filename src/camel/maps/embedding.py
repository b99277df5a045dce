"""The embedding stage: one vector per text of a run (the task of each conversation, or every instruction), stored with it.

An item of the stage is a shard of the run, and its steps are journaled batches of texts, so after a kill at most one batch
is computed again. The one decision to know: the index columns of the conversation, labels included, are stored with the
vectors. So a map needs nothing else, and the same access rules apply.

The user chooses the embedding model: a folder, an installed package that contains one, or a name on the hub. Code that comes
with a model is never run, and the first two need no network. Without a model, words are compared.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, get_args

import msgspec

from camel.core.checks import shown
from camel.core.errors import CamelError, InputError
from camel.core.role_playing import USER
from camel.core.transcript import Transcript
from camel.engine.stage import Written
from camel.index.build import table_of
from camel.index.files import schema as index_schema
from camel.jobs.item import Item
from camel.jobs.job import Stage
from camel.models.prices import cost
from camel.record.arrow import read_shard, to_table
from camel.record.parquet import arrow, write_batches
from camel.runs.derived import schema_with_source, source_of, valid_shards
from camel.runs.reader import RunReader, need_module
from camel.runs.run import RunFolder

Of = Literal["tasks", "instructions"]
KINDS: tuple[str, ...] = get_args(Of)
MOST_CHARS = 2_000
"""Maximum number of characters of a text, more than small embedding models read."""
_SMALL = 2**20
"""Size in bytes up to which a model's file is identified by its content. A larger file is identified by its size."""


class MapText(NamedTuple):
    """One text, and the message or task that it comes from."""

    row: int
    """Index of the text's conversation in the input."""
    message: int
    """Index of the text's message, from 0. -1 for the task."""
    text: str


def checked(of: Any) -> Of:
    """Return `of` if it is a valid kind of texts. Otherwise raise an `InputError`."""
    if of not in KINDS:
        raise InputError(f"a map must be of {' or '.join(KINDS)}, not {shown(of)}")
    return of


def texts_of(transcripts: Sequence[Transcript], of: Of) -> Iterator[MapText]:
    """Yield the texts of all conversations, in order. Empty texts are skipped."""
    for row, transcript in enumerate(transcripts):
        if of == "tasks":
            found = [(-1, transcript.task.text)]
        else:
            found = [(n, _instruction(one)) for n, one in enumerate(transcript.messages)]
        for message, text in found:
            if clean := text.strip()[:MOST_CHARS]:
                yield MapText(row, message, clean)


def _instruction(message: Any) -> str:
    """Return a message's instruction with its input, because the same instruction with other input is a different text."""
    move = message.move
    if message.speaker != USER or not move.instruction:
        return ""
    return f"{move.instruction}\n{move.input}" if move.input else move.instruction


STAGE = "vectors-"
"""Prefix of a stage's name. A hash of the model and the kind of texts follows."""
LAYOUT = 1
"""Version of the file format, increased when the contents of the files change."""
SAMPLE = 100_000
"""Default maximum number of conversations in a map, because near-duplicates are found by comparing all pairs."""
BATCH = 256
"""Number of texts per step. At most this many are computed again after a kill."""
KEPT = (
    *("id", "scenario", "assistant", "user", "others", "stop", "model", "labels", "findings"),
    *("messages", "tokens", "completion", "calls", "cost", "shard", "row"),
)
"""Index columns that are stored with each vector."""


@cache
def schema() -> Any:
    """Return the Arrow schema of the files with vectors."""
    pa = arrow()
    own = [("message", pa.int32()), ("text", pa.string()), ("vector", pa.list_(pa.float32()))]
    index = index_schema()
    return pa.schema([*(index.field(name) for name in KEPT), *own])


def home(folder: RunFolder, of: str, part: str) -> Path:
    """Return the path of a file or folder of a run's map. For a run in an object store, it is next to the local journals."""
    return folder.path(f"map/{of}/{part}")


class Embedding:
    """Computes and stores the vectors of a run's texts."""

    def __init__(self, run: RunReader, embedder: Embedder, *, of: Of = "tasks", sample: int = SAMPLE) -> None:
        self.run, self.embedder = run, embedder
        self.every = 1 << max(0, (-(-len(run) // sample) - 1).bit_length())
        """One of so many conversations is embedded: a power of two, so that a growing run keeps its vectors for long."""
        self.of: Of = checked(of)
        self.folder = RunFolder(home(run.folder, of, "vectors"))
        wanted = [
            LAYOUT,
            of,
            embedder.name,
            run.settings.fingerprint,
            *([self.every] if self.every > 1 else []),
        ]
        self.name = STAGE + hashlib.sha256(msgspec.json.encode(wanted)).hexdigest()[:12]
        self._markers = {marker.shard: marker for marker in run.markers}
        self._places = {marker.shard: place for place, marker in enumerate(run.markers)}

    def stages(self) -> Iterator[Stage]:
        """Yield the stage that computes the missing vectors."""
        valid_shards(self.folder, self.name, self.run)
        # One thread computes, because a model uses all cores; another reads the next shard.
        with ThreadPoolExecutor(1, "camel-embed") as pool:
            yield self._stage(pool)

    def tables(self) -> Iterator[Any]:
        """Yield the stored texts with their vectors, one shard at a time."""
        for shard, marker in sorted(self._markers.items()):
            table = read_shard(self.folder.path(self.folder.marker(self.name, shard).file))
            if source_of(table) != marker.sha256:
                raise InputError(f"'{self.folder.root}' has vectors of another run: remove that folder")
            yield table

    def _stage(self, pool: ThreadPoolExecutor) -> Stage:
        async def work(item: Item) -> Any:
            loop, shard = asyncio.get_running_loop(), item.index
            rows, texts = await asyncio.to_thread(self._read, shard)
            vectors: list[Any] = []
            for start in range(0, len(texts), BATCH):
                some = texts[start : start + BATCH]

                async def make(some: list[str] = some) -> bytes:
                    return await loop.run_in_executor(pool, self._vectors, some)

                check = hashlib.blake2b(msgspec.json.encode(some), digest_size=16).digest()
                vectors.append((len(some), await item.once(check, make)))
            return self._markers[shard].sha256, rows, vectors

        return Stage(
            name=self.name,
            count=max(self._markers, default=-1) + 1,
            work=work,
            write=_write,
            identity={"model": self.embedder.name, "of": self.of},
            fingerprint=self.run.settings.fingerprint,
            shard_size=1,
            items={shard: [shard] for shard in self._markers},
            concurrency=2,
        )

    def _read(self, shard: int) -> tuple[Any, list[str]]:
        """Return a table of a shard's texts with all stored columns except the vectors, and the list of texts."""
        pa = arrow()
        transcripts = self.run.shard(self._places[shard])
        chosen = [_hash(one.id) % self.every == 0 for one in transcripts]
        found = [one for one in texts_of(transcripts, self.of) if chosen[one.row]]
        index = table_of(to_table(transcripts), shard, cost).select(list(KEPT))
        rows = index.take(pa.array([one.row for one in found], pa.int64()))
        texts = [one.text.encode("utf-8", "replace").decode() for one in found]
        rows = rows.append_column("message", pa.array([one.message for one in found], pa.int32()))
        return rows.append_column("text", pa.array(texts, pa.string())), texts

    def _vectors(self, texts: list[str]) -> bytes:
        import numpy as np

        made = np.asarray(self.embedder.embed(texts), "<f4")
        if made.ndim != 2 or made.shape[0] != len(texts) or not made.shape[1] or not np.isfinite(made).all():
            raise CamelError(
                f"'{self.embedder.name}' did not return one vector per text: choose another model"
            )
        return made.tobytes()


def _write(path: Path, records: Sequence[Any]) -> Written:
    pa = arrow()
    ((source, rows, made),) = records
    values = b"".join(data for _, data in made)
    count = sum(number for number, _ in made)
    width = len(values) // 4 // count if count else 0
    offsets = pa.array(range(0, count * width + 1, width) if count else [0], pa.int32())
    flat = pa.Array.from_buffers(pa.float32(), count * width, [None, pa.py_buffer(values)])
    table = rows.append_column("vector", pa.ListArray.from_arrays(offsets, flat))
    layout = schema_with_source(schema(), source)
    batches = table.cast(schema()).replace_schema_metadata(layout.metadata).to_batches()
    written = write_batches(path, batches, layout)
    return Written(written.rows, written.sha256, {})


# --- embedders: objects with a name and `embed`, usually models of sentence-transformers ---------------------------


class Embedder(Protocol):
    """Turns texts into vectors."""

    name: str
    """Name of the model, which identifies its vectors."""

    def embed(self, texts: Sequence[str]) -> Any:
        """Return an array with one vector per text. It is called in a thread, one call at a time."""
        ...


class SharedWords:
    """An embedder without a model: texts that share words and parts of words are near each other."""

    name = "words-1"
    """Changes with any change of the vectors."""
    size = 512

    def embed(self, texts: Sequence[str]) -> Any:
        """Return an array with one unit vector per text."""
        numpy = import_module("numpy")
        vectors = numpy.zeros((len(texts), self.size), "float32")
        for vector, text in zip(vectors, texts, strict=True):
            for word, count in Counter(re.findall(r"\w+", text.lower())).items():
                for place, weight in _features(word):
                    vector[place] += weight * math.sqrt(count)
        lengths = numpy.linalg.norm(vectors, axis=1, keepdims=True)
        vectors[:, :1] += lengths == 0  # a text without words
        return vectors / numpy.linalg.norm(vectors, axis=1, keepdims=True)


@lru_cache(maxsize=100_000)
def _features(word: str) -> list[tuple[int, float]]:
    """Return the places of a word and of its trigrams in a vector, each with its weight. Common words count little."""
    usual = 0.1 if word in common_words() else 1.0
    trigrams = [f" {word} "[at : at + 3] for at in range(len(word))]
    found: list[tuple[int, float]] = []
    for text, weight in (
        (f"word {word}", 1.0),
        *((part, 1.5 / math.sqrt(len(trigrams))) for part in trigrams),
    ):
        number = _hash(text)
        found.append((number // 2 % SharedWords.size, usual * weight * (1 if number % 2 else -1)))
    return found


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


@cache
def common_words() -> frozenset[str]:
    """Return the words that say little about a text."""
    return frozenset((Path(__file__).parent / "common_words.txt").read_text("utf-8").split())


def find_embedder(model: str) -> Embedder:
    """Return the embedder of a model, or `SharedWords` if no model is named."""
    return SentenceModel(model) if model.strip() else SharedWords()


class SentenceModel:
    """A model of sentence-transformers. It is loaded at first use, because its name is enough to find the remaining work."""

    def __init__(self, model: str) -> None:
        folder = Path(model).expanduser()
        if not folder.is_dir() and (model.startswith((".", "/", "~")) or folder.exists()):
            raise InputError(f"there is no folder '{model}': pass that of a sentence-transformers model")
        found = folder if folder.is_dir() else _packaged(model)
        self._where = model if found is None else str(found)
        own = model if found is None or found != folder else folder.resolve().name
        self.name = own if found is None else f"{own}@{_digest(found)}"
        self._model: Any = None

    def embed(self, texts: Sequence[str]) -> Any:
        """Return an array with one unit vector per text."""
        if self._model is None:
            self._model = self._load()
        return self._model.encode(
            list(texts), batch_size=32, normalize_embeddings=True, show_progress_bar=False
        )

    def _load(self) -> Any:
        # Only one thread pool, and no output of the libraries.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        library = need_module("sentence_transformers", "map", "Embedding texts")
        logging = import_module("transformers.utils.logging")
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            return library.SentenceTransformer(self._where, trust_remote_code=False)
        except Exception as error:  # the library raises many kinds of errors
            said = " ".join(str(error).split())[:200]
            raise InputError(
                f"cannot load the embedding model '{self._where}' ({said}): pass the folder of a model"
            ) from None


def _packaged(name: str) -> Path | None:
    """Return the folder of a model in an installed package of this name. The code of the package is not run."""
    module = name.replace("-", "_")
    spec = find_spec(module) if module.isidentifier() else None
    for where in (spec and spec.submodule_search_locations) or ():
        for folder in (Path(where), Path(where) / "model"):
            if (folder / "modules.json").is_file():
                return folder
    return None


def _digest(folder: Path) -> str:
    """Return a hash that identifies a model, independent of the folder that it is in."""
    known = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name, size = path.relative_to(folder).as_posix(), path.stat().st_size
        if not name.startswith(".") and path.suffix in (".json", ".txt", ".safetensors", ".bin", ".onnx"):
            known.update(f"{name}\0{size}\0".encode())
            known.update(path.read_bytes() if size <= _SMALL else b"")
    return known.hexdigest()[:12]
